package arch_test

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

var (
	aTest    = regexp.MustCompile(`(?m)^func ((?:Test|Fuzz)\w+)\(\w+ \*testing\.[TF]\)`)
	aMention = regexp.MustCompile("`((?:Test|Fuzz)\\w+)`")
)

// TestThreatModelNamesItsTests: each row about an actor's attempts names a test that shows the
// result, and that test exists.
func TestThreatModelNamesItsTests(t *testing.T) {
	there := map[string]bool{}
	err := filepath.WalkDir("../..", func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || !strings.HasSuffix(path, "_test.go") {
			return err
		}
		text, err := os.ReadFile(path)
		for _, found := range aTest.FindAllSubmatch(text, -1) {
			there[string(found[1])] = true
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile("../../docs/threat-model.md")
	if err != nil {
		t.Fatal(err)
	}
	const head = "| tries | what happens | residual risk | test |"
	section, rows, in := "", 0, false
	for line := range strings.Lines(string(text)) {
		line = strings.TrimSpace(line)
		if title, ok := strings.CutPrefix(line, "## "); ok {
			section = title
		}
		if in = line == head || in && strings.HasPrefix(line, "|"); !in || line == head || strings.HasPrefix(line, "|-") {
			continue
		}
		rows++
		cells := strings.Split(strings.Trim(line, "|"), "|")
		if len(cells) != 4 || strings.TrimSpace(cells[0]) == "" || strings.TrimSpace(cells[1]) == "" {
			t.Errorf("%s: the row %q has not four cells, or says too little", section, line)
			continue
		}
		named := aMention.FindAllStringSubmatch(cells[3], -1)
		if len(named) == 0 {
			t.Errorf("%s: the row %q names no test", section, line)
		}
		for _, name := range named {
			if !there[name[1]] {
				t.Errorf("%s: there is no test %s", section, name[1])
			}
		}
	}
	if rows < 20 {
		t.Errorf("it has %d rows that could be read", rows)
	}
}
