package arch_test

import (
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// TestTestsLeaveNothingAtHome: a package whose tests start a control plane, and so programs of
// Millrace that keep passwords for their user, runs them with a home directory of their own.
func TestTestsLeaveNothingAtHome(t *testing.T) {
	starts, runs := map[string]bool{}, map[string]bool{}
	err := filepath.WalkDir("..", func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || !strings.HasSuffix(path, "_test.go") {
			return err
		}
		text, err := os.ReadFile(path)
		dir := filepath.Dir(path)
		starts[dir] = starts[dir] || strings.Contains(string(text), `millrace/cmd/clustertest"`)
		runs[dir] = runs[dir] || strings.Contains(string(text), "clustertest.Run(m)") && strings.Contains(string(text), "func TestMain(")
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	found := 0
	for dir, does := range starts {
		if !does {
			continue
		}
		found++
		if !runs[dir] {
			t.Errorf("%s starts programs that keep passwords in the home directory: run its tests with clustertest.Run in TestMain", dir)
		}
	}
	if found < 5 || slices.Contains([]bool{starts["../rights"], starts["../system"]}, false) {
		t.Errorf("only %d packages are found that start a control plane", found)
	}
}
