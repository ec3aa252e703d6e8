package oracle_test

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/millrace/millrace/test/oracle"
)

// TestExemptionsAreDocumented compares the exemptions with the page of differences: a row there names each
// exemption, or the exemption has a reason why no user sees it; and no row names another one.
func TestExemptionsAreDocumented(t *testing.T) {
	page, err := os.ReadFile("../../docs/differences.md")
	if err != nil {
		t.Fatal(err)
	}
	var rows []string
	for _, ids := range regexp.MustCompile(`(?m)^\|.*<!-- oracle: (.*?) --> \|$`).FindAllStringSubmatch(string(page), -1) {
		rows = append(rows, strings.Split(ids[1], ", ")...)
	}
	if named := strings.Count(string(page), "<!-- oracle:"); named == 0 || len(rows) < named {
		t.Errorf("%d of %d rows with exemptions can be read", len(rows), named)
	}
	for _, e := range oracle.Exemptions {
		in := slices.Contains(rows, e.ID)
		switch {
		case e.None == "" && !in:
			t.Errorf("%s (%s) says no reason why it is no difference, and no row of docs/differences.md names it", e.ID, e.Who)
		case e.None != "" && in:
			t.Errorf("%s (%s) says that it is no difference (%s), and a row of docs/differences.md names it", e.ID, e.Who, e.None)
		}
		if slices.ContainsFunc(oracle.Exemptions, func(o oracle.Exemption) bool { return o != e && o.ID == e.ID }) {
			t.Errorf("%s is there twice", e.ID)
		}
		rows = slices.DeleteFunc(rows, func(id string) bool { return id == e.ID })
	}
	if len(rows) > 0 {
		t.Errorf("docs/differences.md names exemptions that there are not: %q", rows)
	}
}

// TestExemptionsAreUsed: the code refers to each exemption.
func TestExemptionsAreUsed(t *testing.T) {
	files, err := filepath.Glob("*.go")
	if err != nil {
		t.Fatal(err)
	}
	var code strings.Builder
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if file != "exemption.go" {
			code.Write(text)
		}
	}
	for _, e := range oracle.Exemptions {
		if !strings.Contains(code.String(), fmt.Sprintf("(%q", e.ID)) {
			t.Errorf("nothing makes use of %s (%s)", e.ID, e.Who)
		}
	}
}

// unused reports the exemptions that a whole run did not use: they can be removed.
func unused() (report string) {
	for _, e := range oracle.Exemptions {
		if e.Used() == 0 {
			report += fmt.Sprintf("the exemption %s (%s) is of no use: nothing was left out by it\n", e.ID, e.Who)
		}
	}
	return report
}

// uses lists how often each exemption was used.
func uses() string {
	var parts []string
	for _, e := range oracle.Exemptions {
		parts = append(parts, fmt.Sprintf("%s %d", e.ID, e.Used()))
	}
	return "exemptions used: " + strings.Join(parts, ", ")
}
