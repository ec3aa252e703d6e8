package rules

import (
	"encoding/json"
	"log/slog"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/rulefmt"
	"github.com/prometheus/prometheus/promql/parser"
	"go.yaml.in/yaml/v3"
)

const (
	deployments = "../../../deployments/observability/"
	docs        = "../../../docs/"
)

var promql = parser.NewParser(parser.Options{})

func read(t *testing.T, file string) string {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// rules are all alerting and recording rules.
func rules(t *testing.T) (all []rulefmt.Rule) {
	t.Helper()
	groups, errs := rulefmt.ParseFile(deployments+"prometheus/rules.yaml", false, model.UTF8Validation, promql, slog.New(slog.DiscardHandler))
	for _, err := range errs {
		t.Error(err)
	}
	if t.Failed() {
		t.FailNow()
	}
	for _, g := range groups.Groups {
		all = append(all, g.Rules...)
	}
	return all
}

// expression is an expression, and the place that uses it.
type expression struct{ where, text string }

// variables replaces Grafana's variables in an expression by examples.
var variables = strings.NewReplacer("$__rate_interval", "1m", "$__all", ".*", "$controller", "x", "$queue", "x")

// panels are the expressions of all dashboards.
func panels(t *testing.T) (all []expression) {
	t.Helper()
	files, err := filepath.Glob(deployments + "grafana/*.json")
	if err != nil || len(files) == 0 {
		t.Fatalf("there are no dashboards: %v", err)
	}
	for _, file := range files {
		var board struct {
			UID, Title string
			Panels     []struct {
				ID                       int
				Type, Title, Description string
				Targets                  []struct{ Expr string }
			}
			Templating struct {
				List []struct {
					Name, Type string
					Query      any
				}
			}
		}
		if err := json.Unmarshal([]byte(read(t, file)), &board); err != nil {
			t.Fatalf("%s: %v", file, err)
		}
		ids := map[int]bool{}
		for _, p := range board.Panels {
			if ids[p.ID] || p.Type != "row" && (p.Title == "" || p.Description == "" || len(p.Targets) == 0) {
				t.Errorf("%s: panel %d %q: its number is taken, or it has no title, description or query", file, p.ID, p.Title)
			}
			ids[p.ID] = true
			for _, target := range p.Targets {
				all = append(all, expression{filepath.Base(file) + ": " + p.Title, variables.Replace(target.Expr)})
			}
		}
		for _, v := range board.Templating.List {
			if query, ok := v.Query.(map[string]any); ok {
				m := regexp.MustCompile(`^label_values\((\w+), (\w+)\)$`).FindStringSubmatch(query["query"].(string))
				if m == nil {
					t.Errorf("%s: variable %s: %v", file, v.Name, v.Query)
					continue
				}
				all = append(all, expression{filepath.Base(file) + ": $" + v.Name, "sum by (" + m[2] + ") (" + m[1] + ")"})
			}
		}
	}
	return all
}

// metrics are the labels of every metric that docs/metrics.md lists, and of every recording rule.
func metrics(t *testing.T) map[string][]string {
	t.Helper()
	row := regexp.MustCompile("(?m)^\\| `([a-z_0-9]+)`(?: \\*)? \\| (\\w+) \\| ([^|]*) \\|")
	found := map[string][]string{"up": nil}
	for _, m := range row.FindAllStringSubmatch(read(t, docs+"metrics.md"), -1) {
		labels := strings.Fields(strings.ReplaceAll(m[3], "`", " "))
		found[m[1]] = labels
		if m[2] == "histogram" {
			found[m[1]+"_bucket"], found[m[1]+"_count"], found[m[1]+"_sum"] = append(labels, "le"), labels, labels
		}
	}
	if len(found) < 50 {
		t.Fatalf("docs/metrics.md lists only %d metrics", len(found))
	}
	for _, r := range rules(t) {
		if r.Record != "" {
			by, _, _ := strings.Cut(r.Record, ":")
			found[r.Record] = strings.Split(by, "_")
		}
	}
	return found
}

// unmarshal reads a YAML file; an unknown field is an error.
func unmarshal(t *testing.T, file string, into any) {
	t.Helper()
	decoder := yaml.NewDecoder(strings.NewReader(read(t, file)))
	decoder.KnownFields(true)
	if err := decoder.Decode(into); err != nil {
		t.Fatalf("%s: %v", file, err)
	}
}
