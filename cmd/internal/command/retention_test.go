package command

import (
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/millrace/millrace/cmd/internal/settings"
	"github.com/millrace/millrace/pkg/events/bus"
	"github.com/millrace/millrace/services/reconcilers/controllers"
)

// TestRetentionFlag: the flag is parsed from the command line and from the file, in one or several
// occurrences, and every mistake is one error that says what to write.
func TestRetentionFlag(t *testing.T) {
	var r retention
	for _, text := range []string{"pods=72h/2Gi, leases.coordination.k8s.io=1h", "replicaset-controller=/500Mi"} {
		if err := r.Set(text); err != nil {
			t.Fatal(err)
		}
	}
	want := retention{
		"pods": {Age: 72 * time.Hour, Bytes: 2 << 30}, "leases.coordination.k8s.io": {Age: time.Hour}, "replicaset-controller": {Bytes: 500 << 20},
	}
	if !maps.Equal(r, want) {
		t.Errorf("it is %v", r)
	}
	again := retention{}
	if err := again.Set(r.String()); err != nil || !maps.Equal(again, want) {
		t.Errorf("written as %q it is %v (%v)", r.String(), again, err)
	}
	for text, want := range map[string]string{
		"pods":                       "NAME=AGE/SIZE",
		"pods=":                      "neither an age nor a size",
		"pods=7d":                    "is no age",
		"pods=1m":                    "less than 10m0s",
		"pods=72h/lots":              "is no size",
		"pods=/1Mi":                  "less than 16Mi",
		"pod=72h":                    "neither a kind nor a controller",
		"deployments=72h":            "with the group",
		"replicasets-controller=72h": "no controller that Millrace has",
		"pods=72h,pods=1h":           "twice",
	} {
		r := retention{}
		if err := r.Set(text); err == nil || !strings.Contains(err.Error(), want) || len(r) != 0 {
			t.Errorf("%s is %v: %v; want an error that says %q, and nothing taken", text, r, err, want)
		}
	}
}

// TestRetentionAndRedactionInTheFile: both are lists in the configuration file.
func TestRetentionAndRedactionInTheFile(t *testing.T) {
	file := filepath.Join(t.TempDir(), "services.yaml")
	text := `apiVersion: millrace.io/v1alpha1
kind: MillraceConfiguration
flags:
  retention: [pods=72h/2Gi, replicaset-controller=168h]
  redact:
    - configmaps!kube-root-ca.crt:.data
    - "pods:.metadata.annotations['example.com/token']"
`
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	flags := subcommand(t, "watcher").Flags()
	if err := settings.Fill(flags, file, func(string) (string, bool) { return "", false }); err != nil {
		t.Fatal(err)
	}
	kept := *flags.Lookup("retention").Value.(*retention)
	if !maps.Equal(kept, retention{"pods": bus.Retention{Age: 72 * time.Hour, Bytes: 2 << 30}, "replicaset-controller": {Age: 168 * time.Hour}}) {
		t.Errorf("kept are %v", kept)
	}
	if got := flags.Lookup("redact").Value.String(); got != "configmaps!kube-root-ca.crt:.data,pods:.metadata.annotations['example.com/token']" {
		t.Errorf("hidden is %s", got)
	}
}

// TestRedactionIsHeldAgainstTheControllers: hiding a value that a controller reads is one clear error
// before anything is started.
func TestRedactionIsHeldAgainstTheControllers(t *testing.T) {
	chosen, err := controllers.Select([]string{"*"}, controllers.Config{})
	if err != nil {
		t.Fatal(err)
	}
	var o watcherOptions
	if err := o.redact.Set("deployments.apps:.spec.template.spec.containers[*].env"); err != nil {
		t.Fatal(err)
	}
	if err := o.check(chosen); err == nil || !strings.Contains(err.Error(), "read --redact: ") || !strings.Contains(err.Error(), "deployment-controller") {
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
