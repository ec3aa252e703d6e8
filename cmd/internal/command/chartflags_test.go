package command

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"

	"github.com/millrace/millrace/cmd/internal/controllerflags"
	"github.com/millrace/millrace/cmd/internal/settings"
	"github.com/millrace/millrace/services/reconcilers/controllers"
	"github.com/millrace/millrace/services/reconcilers/reconcile"
)

// TestTheChartHoldsFlags: the settings of the services in the chart's output, for each golden file
// of test/helm, are flags of Millrace with valid values.
func TestTheChartHoldsFlags(t *testing.T) {
	files, err := filepath.Glob(filepath.Join(checkout, "test", "helm", "testdata", "*.golden"))
	ok(t, err)
	told, started := 0, 0
	for _, file := range files {
		text, err := os.ReadFile(file)
		ok(t, err)
		for document := range strings.SplitSeq(string(text), "---\n") {
			var kind struct{ Kind string }
			ok(t, yaml.Unmarshal([]byte(document), &kind))
			switch kind.Kind {
			case "Deployment", "StatefulSet": // their pods are written alike
				var d appsv1.Deployment
				ok(t, yaml.Unmarshal([]byte(document), &d))
				args := d.Spec.Template.Spec.Containers[0].Args
				if err := subcommand(t, args[0]).ParseFlags(args[1:]); err != nil {
					t.Errorf("%s: %s: %v", file, d.Name, err)
				}
				started++
			case "ConfigMap":
				var m corev1.ConfigMap
				ok(t, yaml.Unmarshal([]byte(document), &m))
				if m.Name == "millrace" {
					told++
					filled(t, file, m)
					divided(t, file, m)
				}
			}
		}
	}
	if len(files) < 6 || told != len(files) || started < 4*len(files) {
		t.Errorf("%d files have %d settings and %d programs", len(files), told, started)
	}
}

// filled fills the flags of each service from its file of settings.
func filled(t *testing.T, from string, m corev1.ConfigMap) {
	t.Helper()
	for service, name := range map[string]string{"watcher": "services", "reconcilers": "services", "writer": "services", "provisioner": "provisioner"} {
		file := filepath.Join(t.TempDir(), name+".yaml")
		ok(t, os.WriteFile(file, []byte(m.Data[name+".yaml"]), 0o600))
		none := func(string) (string, bool) { return "", false }
		if err := settings.Fill(subcommand(t, service).Flags(), file, none); err != nil {
			t.Errorf("%s: %s: %v", from, service, err)
		}
	}
}

// divided compares the controllers that act by the settings with those that are active by the
// chart's values.
func divided(t *testing.T, golden string, m corev1.ConfigMap) {
	t.Helper()
	var told struct{ Flags map[string]any }
	ok(t, yaml.Unmarshal([]byte(m.Data["services.yaml"]), &told))
	text, err := os.ReadFile(strings.TrimSuffix(golden, ".golden") + ".yaml")
	ok(t, err)
	var values struct {
		Controllers struct {
			Default string
			Modes   map[string]string
		}
	}
	ok(t, yaml.Unmarshal(text, &values))
	if values.Controllers.Default == "" {
		values.Controllers.Default = "shadow" // the chart's own
	}
	list, _ := told.Flags["controllers"].(string)
	chosen, err := controllers.Select(strings.Split(list, ","), controllers.Whole())
	ok(t, err)
	var shadow []string
	if list, is := told.Flags["shadow"].(string); is {
		shadow = strings.Split(list, ",")
	}
	all, err := controllerflags.Divide(chosen, shadow, controllers.Whole())
	ok(t, err)
	includes := func(list []reconcile.Any, name string) bool {
		return slices.ContainsFunc(list, func(c reconcile.Any) bool { return c.Describe().Name == name })
	}
	for _, e := range controllers.Catalog() {
		if !e.Exists() {
			continue
		}
		mode := values.Controllers.Modes[e.Name]
		if mode == "" {
			mode = values.Controllers.Default
			if e.Off {
				mode = "off"
			}
		}
		if acts, looks := includes(all.Acting, e.Name), includes(all.Looking, e.Name); acts != (mode == "active") || looks != (mode == "shadow") {
			t.Errorf("%s: %s is %s; it acts: %t, it looks on: %t", golden, e.Name, mode, acts, looks)
		}
	}
}
