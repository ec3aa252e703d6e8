package reconciletest

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"

	"github.com/millrace/millrace/services/reconcilers/reconcile"
	"github.com/millrace/millrace/services/reconcilers/story"
)

var update = flag.Bool("update", false, "write what was decided into the stories in testdata")

// Stories runs every testdata/*.txtar of the calling package ([story.Story]) as a
// subtest. A field that the view does not have is an error. With the flag -update
// it writes the decision instead of comparing it.
func Stories[V any](t *testing.T, c reconcile.Controller[V]) {
	t.Helper()
	paths, err := filepath.Glob("testdata/*.txtar")
	if err != nil || len(paths) == 0 {
		t.Fatalf("%s has no stories in testdata (%v)", c.Name, err)
	}
	for _, path := range paths {
		t.Run(strings.TrimSuffix(filepath.Base(path), ".txtar"), func(t *testing.T) {
			text, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			told, diff, err := play(c, text)
			switch {
			case err != nil:
				t.Fatalf("%s: %v", path, err)
			case *update:
				if err := os.WriteFile(path, told, 0o644); err != nil {
					t.Fatal(err)
				}
			case diff != "":
				t.Errorf("%s: the decision is not the story's (-story +decided); -update accepts it:\n%s", path, diff)
			}
		})
	}
}

// play returns the story with the present decision, and its difference from the
// given text.
func play[V any](c reconcile.Controller[V], text []byte) (told []byte, diff string, err error) {
	s, err := story.Parse(text)
	if err != nil {
		return nil, "", err
	}
	var view V
	if err := yaml.UnmarshalStrict(s.View, &view); err != nil {
		return nil, "", fmt.Errorf("read view.yaml: %w", err)
	}
	want, err := canonical(s.Decision)
	if err != nil {
		return nil, "", fmt.Errorf("read decision.yaml: %w", err)
	}
	wanted := c.Decide(view, s.Now)
	if err := Promised(c.Describe(), reconcile.Body(view), wanted); err != nil {
		return nil, "", err
	}
	if s.Decision, err = story.Render(wanted); err != nil {
		return nil, "", err
	}
	return s.Format(), difference(want, string(s.Decision)), nil
}

// canonical gives texts with the same meaning the same form.
func canonical(text []byte) (string, error) {
	if len(text) == 0 {
		return "", nil
	}
	var value any
	if err := yaml.UnmarshalStrict(text, &value); err != nil {
		return "", err
	}
	again, err := yaml.Marshal(value)
	return string(again), err
}
