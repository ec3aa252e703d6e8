package exemption_test

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/millrace/millrace/test/oracle/exemption"
)

// TestExemptionsAreDocumented compares the exemptions with the page of differences: a row there names each
// exemption, or the exemption has a reason why no user sees it; and no row names another one.
func TestExemptionsAreDocumented(t *testing.T) {
	page, err := os.ReadFile("../../../docs/differences.md")
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
	for _, e := range exemption.Exemptions {
		in := slices.Contains(rows, e.ID)
		switch {
		case e.None == "" && !in:
			t.Errorf("%s (%s) says no reason why it is no difference, and no row of docs/differences.md names it", e.ID, e.Who)
		case e.None != "" && in:
			t.Errorf("%s (%s) says that it is no difference (%s), and a row of docs/differences.md names it", e.ID, e.Who, e.None)
		}
		if slices.ContainsFunc(exemption.Exemptions, func(o exemption.Exemption) bool { return o != e && o.ID == e.ID }) {
			t.Errorf("%s is there twice", e.ID)
		}
		rows = slices.DeleteFunc(rows, func(id string) bool { return id == e.ID })
	}
	if len(rows) > 0 {
		t.Errorf("docs/differences.md names exemptions that there are not: %q", rows)
	}
}

// TestExemptionsAreUsed: the code of the module refers to each exemption.
func TestExemptionsAreUsed(t *testing.T) {
	folders, err := filepath.Glob("../*")
	if err != nil {
		t.Fatal(err)
	}
	used, err := exemption.ReferredTo(folders...)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range exemption.Exemptions {
		if !slices.Contains(used, e) {
			t.Errorf("nothing makes use of %s (%s)", e.ID, e.Who)
		}
	}
}
