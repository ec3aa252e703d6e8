package helm

import (
	"flag"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"
)

var update = flag.Bool("update", false, "write what the chart makes of the values in testdata anew")

// TestGolden: the objects that the chart renders for many kinds of values change only in a commit that shows
// the change. The roles have other tests, and files that are copied into the chart are left out, so that a
// new controller changes none of the golden files.
func TestGolden(t *testing.T) {
	files, err := filepath.Glob("testdata/*.yaml")
	ok(t, err)
	if len(files) < 6 {
		t.Errorf("there are %d files of values", len(files))
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		ok(t, err)
		all, _ := rendered(t, system, string(text))
		have := golden(t, all)
		at := strings.TrimSuffix(file, ".yaml") + ".golden"
		if *update {
			ok(t, os.WriteFile(at, []byte(have), 0o644))
			continue
		}
		want, err := os.ReadFile(at)
		ok(t, err)
		if have != string(want) {
			t.Errorf("%s is not what the chart makes of %s: go test . -update, and read the difference", at, file)
		}
	}
}

// golden formats objects as text, sorted.
func golden(t *testing.T, all []object) string {
	t.Helper()
	var out strings.Builder
	byName := map[string]object{}
	for _, o := range all {
		byName[o.key()] = o
	}
	for _, key := range slices.Sorted(maps.Keys(byName)) {
		o := byName[key]
		if o.text("kind") == "ClusterRole" {
			delete(o, "rules")
		}
		if data, is := o.at("data").(map[string]any); is && !strings.HasSuffix(key, "/millrace") {
			for file := range data {
				data[file] = "..."
			}
		}
		if o.text("kind") == "PrometheusRule" {
			delete(o, "spec")
		}
		if notes, is := o.at("spec", "template", "metadata", "annotations").(map[string]any); is {
			maps.DeleteFunc(notes, func(key string, _ any) bool { return strings.HasPrefix(key, "checksum/") })
		}
		text, err := yaml.Marshal(o)
		ok(t, err)
		out.WriteString("---\n" + string(text))
	}
	return out.String()
}
