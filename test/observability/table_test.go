package observability

import (
	"fmt"
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/millrace/millrace/services/reconcilers/kube/gate"
)

const (
	table = "../../docs/metrics.md"
	begin = "<!-- metrics: go test ./test/observability -update -->\n"
	end   = "<!-- end -->\n"
)

// row is a line of the table; rare metrics exist only after the counted event has happened.
type row struct {
	kind, labels, help string
	rare               bool
}

var rowForm = regexp.MustCompile("^\\| `([a-z_0-9]+)`( \\*)? \\| (\\w+) \\| ((?:`\\w+`(?: `\\w+`)*)?) \\| (.*) \\|$")

// rows are the rows of the table, by name.
func rows(t *testing.T) (found map[string]row, before, after string) {
	t.Helper()
	text := read(t, table)
	before, rest, ok := strings.Cut(text, begin)
	lines, after, closed := strings.Cut(rest, end)
	if !ok || !closed {
		t.Fatalf("%s has no table between %q and %q", table, begin, end)
	}
	found = map[string]row{}
	for line := range strings.Lines(lines) {
		if m := rowForm.FindStringSubmatch(strings.TrimSpace(line)); m != nil {
			found[m[1]] = row{rare: m[2] != "", kind: m[3], labels: m[4], help: m[5]}
		} else if strings.HasPrefix(line, "| `") { // a rare metric would be missed only in runs in which it occurs
			t.Errorf("%s has a line that -update would not write: %s", table, line)
		}
	}
	return found, before, after
}

func rowOf(f family) row {
	labels := make([]string, 0, len(f.labels))
	for _, l := range f.labels {
		labels = append(labels, "`"+l+"`")
	}
	return row{kind: f.kind, labels: strings.Join(labels, " "), help: strings.ReplaceAll(f.help, "|", "\\|")}
}

// documented reports whether the page must list a metric: those of the Go runtime and of the scrape itself
// are documented elsewhere.
func documented(name string) bool {
	return !strings.HasPrefix(name, "go_") && !strings.HasPrefix(name, "promhttp_")
}

// docs/metrics.md lists every metric of the services, and no other.
func TestEveryMetricIsDocumented(t *testing.T) {
	ours := maps.Clone(here(t).ours)
	chance := seldom(t)
	maps.Copy(ours, chance) // whether or not this run has seen them
	known, before, after := rows(t)
	if *update {
		write(t, ours, chance, known, before, after)
		return
	}
	for name, f := range ours {
		want, ok := known[name]
		if got := rowOf(f); documented(name) && (!ok || got.kind != want.kind || got.labels != want.labels || got.help != want.help) {
			t.Errorf("%s has\n %+v\nof %s, which is\n %+v\n(-update writes it)", table, want, name, got)
		}
	}
	for name, r := range known {
		_, rare := chance[name]
		if _, ok := ours[name]; !ok && !r.rare {
			t.Errorf("%s has %s, which no service has", table, name)
		}
		if rare && !r.rare {
			t.Errorf("%s does not say that %s is there only once it has happened (-update writes it)", table, name)
		}
	}
}

func write(t *testing.T, ours, chance map[string]family, known map[string]row, before, after string) {
	t.Helper()
	all := map[string]row{}
	for name, r := range known {
		if r.rare {
			all[name] = r
		}
	}
	for name, f := range ours {
		if documented(name) {
			r := rowOf(f)
			_, rare := chance[name]
			r.rare = rare || known[name].rare
			all[name] = r
		}
	}
	var b strings.Builder
	b.WriteString(before + begin + "| metric | type | labels | what it tells |\n|---|---|---|---|\n")
	for _, name := range slices.Sorted(maps.Keys(all)) {
		r, star := all[name], ""
		if r.rare {
			star = " *"
		}
		fmt.Fprintf(&b, "| `%s`%s | %s | %s | %s |\n", name, star, r.kind, r.labels, r.help)
	}
	b.WriteString(end + after)
	if err := os.WriteFile(table, []byte(b.String()), 0o600); err != nil {
		t.Fatal(err)
	}
}

// labels are all labels that a metric of ours may have. Each has as many values as there are kinds,
// controllers, or words in a list of the program.
var labels = []string{
	"code", "condition", "consumer", "controller", "stage", "kind", "lane", "op", "reason", "result", "status", "stream", "verb", "verdict",
	"version", "revision", "goversion", // of millrace_build_info, which is one
}

// mostOf is how many values the labels of a metric may have. The feature gates of Kubernetes are a list of
// its version, with AllAlpha and AllBeta.
func mostOf(name string) int {
	if name == "kubernetes_feature_enabled" {
		return len(gate.Known()) + 2
	}
	return 200
}

// The number of series does not depend on the number of objects: no label has the name or a value of an
// object.
func TestCardinalityIsBounded(t *testing.T) {
	for name, f := range here(t).ours {
		for label, values := range f.values {
			if strings.HasPrefix(name, "millrace_") && !slices.Contains(labels, label) {
				t.Errorf("%s has the label %q; add it to the list if there is a bound on its values", name, label)
			}
			for value := range values {
				if strings.Contains(value, namespace) || strings.Contains(value, deployment) {
					t.Errorf("%s{%s=%q} is of an object", name, label, value)
				}
			}
			if most := mostOf(name); len(values) > most {
				t.Errorf("%s has %d values of %s, and may have %d", name, len(values), label, most)
			}
		}
	}
}

// Every metric has the prefix of its owner: ours, or upstream's.
func TestOurMetricsBearOurName(t *testing.T) {
	upstream := read(t, golden)
	for name := range here(t).ours {
		theirs := strings.Contains("\n"+upstream, "\n"+name+" ") || !documented(name)
		if !theirs && !strings.HasPrefix(name, "millrace_") && !strings.HasPrefix(name, "rest_client_") && !strings.HasPrefix(name, "process_") {
			t.Errorf("%s is neither ours nor one of kube-controller-manager", name)
		}
	}
}
