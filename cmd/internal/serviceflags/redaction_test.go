package serviceflags

import (
	"strings"
	"testing"

	"github.com/millrace/millrace/services/reconcilers/controllers"
)

// TestRedactionIsHeldAgainstTheControllers: hiding a value that a controller reads is one clear error
// before anything is started.
func TestRedactionIsHeldAgainstTheControllers(t *testing.T) {
	chosen, err := controllers.Select([]string{"*"}, controllers.Config{})
	if err != nil {
		t.Fatal(err)
	}
	var o Watcher
	if err := o.redact.Set("deployments.apps:.spec.template.spec.containers[*].env"); err != nil {
		t.Fatal(err)
	}
	if err := o.Check(chosen); err == nil || !strings.Contains(err.Error(), "read --redact: ") || !strings.Contains(err.Error(), "deployment-controller") {
		t.Errorf("a template that is hidden: %v", err)
	}
	if err := o.redact.Set("pods:.spec.contaners"); err == nil {
		t.Error("a path that leads nowhere is taken")
	}
}

// TestConfigMapsAreWithheldUnlessSaidOtherwise: rules for other kinds do not change the default, and
// rules for ConfigMaps replace it.
func TestConfigMapsAreWithheldUnlessSaidOtherwise(t *testing.T) {
	for text, want := range map[string]string{
		"":                       ".data .binaryData",
		"pods:.spec.nodeName":    ".spec.nodeName .data .binaryData",
		"configmaps:":            "",
		"configmaps!mine:.data":  ".data",
		"configmaps:,pods:.spec": ".spec",
	} {
		var r redaction
		if err := r.Set(text); err != nil {
			t.Fatal(err)
		}
		var paths []string
		for _, rule := range r.policy().Rules {
			paths = append(paths, rule.Path.String())
		}
		if got := strings.Join(paths, " "); got != want || r.String() != text {
			t.Errorf("with --redact=%s, written as %s, hidden are %q, want %q", text, r.String(), got, want)
		}
	}
	for _, text := range []string{"configmaps:,configmaps:.data", ":", "configmaps!mine:"} {
		if err := new(redaction).Set(text); err == nil {
			t.Errorf("%s is taken", text)
		}
	}
}
