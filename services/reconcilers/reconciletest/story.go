package reconciletest

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/tools/txtar"
	"sigs.k8s.io/yaml"

	"github.com/millrace/millrace/services/reconcilers/reconcile"
)

var update = flag.Bool("update", false, "write what was decided into the stories in testdata")

// Stories plays every testdata/*.txtar of the calling package as a subtest. A
// story is a comment that tells it, and three files:
//
//	-- now --
//	2030-01-01T12:00:00Z
//	-- view.yaml --
//	what the controller sees; a field that the view does not have is an error
//	-- decision.yaml --
//	what it wants
//
// With the flag -update the last one is written instead of compared.
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

// play gives the story as it should be told, and how it differs from how it is.
func play[V any](c reconcile.Controller[V], text []byte) (told []byte, diff string, err error) {
	story := txtar.Parse(text)
	if len(story.Comment) == 0 {
		return nil, "", fmt.Errorf("the story has no words before its first file")
	}
	moment, ok := part(story, "now")
	if !ok {
		return nil, "", fmt.Errorf("the story does not say when: no file now")
	}
	now, err := time.Parse(time.RFC3339, strings.TrimSpace(string(moment)))
	if err != nil {
		return nil, "", fmt.Errorf("read now: %w", err)
	}
	source, ok := part(story, "view.yaml")
	if !ok {
		return nil, "", fmt.Errorf("the story does not say what is seen: no file view.yaml")
	}
	var view V
	if err := yaml.UnmarshalStrict(source, &view); err != nil {
		return nil, "", fmt.Errorf("read view.yaml: %w", err)
	}
	for _, f := range story.Files {
		if f.Name != "now" && f.Name != "view.yaml" && f.Name != "decision.yaml" {
			return nil, "", fmt.Errorf("a story has no file %s", f.Name)
		}
	}
	got, err := Render(c.Decide(view, now))
	if err != nil {
		return nil, "", err
	}
	had, _ := part(story, "decision.yaml")
	want, err := canonical(had)
	if err != nil {
		return nil, "", fmt.Errorf("read decision.yaml: %w", err)
	}
	return txtar.Format(with(story, "decision.yaml", got)), difference(want, string(got)), nil
}

func part(a *txtar.Archive, name string) ([]byte, bool) {
	for _, f := range a.Files {
		if f.Name == name {
			return f.Data, true
		}
	}
	return nil, false
}

func with(a *txtar.Archive, name string, data []byte) *txtar.Archive {
	for i := range a.Files {
		if a.Files[i].Name == name {
			a.Files[i].Data = data
			return a
		}
	}
	a.Files = append(a.Files, txtar.File{Name: name, Data: data})
	return a
}

// canonical makes texts that mean the same the same.
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
