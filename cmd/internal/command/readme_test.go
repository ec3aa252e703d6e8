package command

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/pflag"

	"github.com/millrace/millrace/cmd/internal/controllerflags"
	"github.com/millrace/millrace/services/reconcilers/controllers"
)

// listing is a row of the README's table: a controller, its state and its other names.
type listing struct {
	state   string
	aliases []string
}

var (
	listingForm = regexp.MustCompile(`^\| ([a-z-]+)(?: \((.+)\))? \| ?(.*?) ?\|$`)
	gateInState = regexp.MustCompile("`--feature-gates=([A-Za-z]+=true)`")
)

// listings are the rows of the README's table, by name.
func listings(t *testing.T) map[string]listing {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(checkout, "README.md"))
	ok(t, err)
	_, table, found := strings.Cut(string(text), "\n| controller | as `--controllers` knows it |\n|---|---|\n")
	table, _, ends := strings.Cut(table, "\n\n")
	if !found || !ends {
		t.Fatal("README.md has no table of controllers")
	}
	rows := map[string]listing{}
	for line := range strings.SplitSeq(table, "\n") {
		m := listingForm.FindStringSubmatch(line)
		if m == nil {
			t.Errorf("a row of the README's table is %q", line)
			continue
		}
		if _, twice := rows[m[1]]; twice {
			t.Errorf("the README lists %s twice", m[1])
		}
		row := listing{state: m[2]}
		for _, alias := range inline.FindAllStringSubmatch(m[3], -1) {
			row.aliases = append(row.aliases, alias[1])
		}
		rows[m[1]] = row
	}
	return rows
}

// TestTheReadmeListsEveryController compares the README's table with the catalogue, which has every
// name that kube-controller-manager knows.
func TestTheReadmeListsEveryController(t *testing.T) {
	rows := listings(t)
	for _, e := range controllers.Catalog() {
		row, listed := rows[e.Name]
		switch {
		case !listed:
			t.Errorf("the README does not list %s", e.Name)
		case !slices.Equal(row.aliases, e.Aliases):
			t.Errorf("the README says that %s is called %q, and it is %q", e.Name, row.aliases, e.Aliases)
		}
		if why := wrongState(t, e, row.state); listed && why != "" {
			t.Errorf("the README says of %s %q, and %s", e.Name, row.state, why)
		}
		delete(rows, e.Name)
	}
	for name := range rows {
		t.Errorf("the README lists %s, which kube-controller-manager does not know", name)
	}
}

// wrongState is the mistake in a controller's state in the table; empty: none.
func wrongState(t *testing.T, e controllers.Entry, state string) string {
	t.Helper()
	lacking := len(controllers.Lacking([]string{e.Name}, controllers.Config{})) > 0
	says := func(words string) bool { return strings.HasPrefix(state, words) }
	switch {
	case says("elsewhere") != e.Elsewhere:
		return "whether it is elsewhere is otherwise"
	case says("not here yet") != (!e.Exists() && !e.Elsewhere):
		return "whether it is here is otherwise"
	case says("off unless it is named") != (e.Off && e.Exists()):
		return "whether * includes it is otherwise"
	case says("with ") != lacking:
		return "whether it runs without further flags is otherwise"
	case lacking && e.Needs != "feature-gates" && !strings.Contains(state, "`--"+e.Needs+"`"):
		return "it needs --" + e.Needs
	case lacking && e.Needs == "feature-gates" && !runsWith(t, e, state):
		return "it does not run with such gates"
	default:
		return ""
	}
}

// runsWith is whether a controller runs with the feature gates of its state.
func runsWith(t *testing.T, e controllers.Entry, state string) bool {
	t.Helper()
	gate := gateInState.FindStringSubmatch(state)
	if gate == nil {
		return false
	}
	o, f := controllerflags.New(), pflag.NewFlagSet("", pflag.ContinueOnError)
	o.Add(f)
	ok(t, f.Parse([]string{"--feature-gates=" + gate[1]}))
	config, err := o.Config()
	ok(t, err)
	config.RootCA = []byte("a certificate") // one of them needs it, too
	return len(controllers.Lacking([]string{e.Name}, config)) == 0
}
