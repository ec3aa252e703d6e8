package rules

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/prometheus/model/rulefmt"
	upstream "github.com/prometheus/prometheus/promql"
)

// story is a list of series, in the language of Prometheus' own tests, and whether an alert fires on them.
type story struct {
	Alert string   `yaml:"alert"`
	Fires []string `yaml:"fires"`
	Quiet []string `yaml:"quiet"`
}

const (
	every = 15 * time.Second // a sample
	told  = 90 * time.Minute // duration of the stories
)

// Every alert fires in each of its stories in which it should, after its waiting time, and in none that
// describes a healthy system.
func TestAlerts(t *testing.T) {
	var stories []story
	unmarshal(t, "testdata/alerts.yaml", &stories)
	byName := map[string][]story{}
	for _, s := range stories {
		byName[s.Alert] = append(byName[s.Alert], s)
	}
	for _, r := range rules(t) {
		if r.Alert == "" {
			continue
		}
		all := byName[r.Alert]
		delete(byName, r.Alert)
		if len(all) == 0 {
			t.Errorf("testdata/alerts.yaml does not tell when %s fires, and when not", r.Alert)
		}
		for _, s := range all {
			if len(s.Fires) == 0 || len(s.Quiet) == 0 && !strings.HasPrefix(r.Expr, "absent(") {
				t.Errorf("testdata/alerts.yaml does not tell when %s fires, and when not", r.Alert)
				continue
			}
			t.Run(r.Alert, func(t *testing.T) {
				t.Parallel()
				if !fires(t, r, s.Fires) {
					t.Error("it does not fire")
				}
				if fires(t, r, s.Quiet) {
					t.Error("it fires although all is well")
				}
			})
		}
	}
	for name := range byName {
		t.Errorf("testdata/alerts.yaml has a story of %s, which is no alert", name)
	}
}

// fires reports whether an expression holds at the end of a story, and has held for as long as the alert
// waits.
func fires(t *testing.T, r rulefmt.Rule, series []string) bool {
	t.Helper()
	engine := upstream.NewEngine(upstream.EngineOpts{MaxSamples: 1_000_000, Timeout: time.Minute, Parser: promql})
	defer func() { _ = engine.Close() }()
	end := time.Unix(0, 0).Add(told)
	query, err := engine.NewRangeQuery(context.Background(), tell(t, series), nil, r.Expr, end.Add(-time.Duration(r.For)), end, every)
	if err != nil {
		t.Fatal(err)
	}
	defer query.Close()
	result := query.Exec(context.Background())
	if result.Err != nil {
		t.Fatal(result.Err)
	}
	steps := int(time.Duration(r.For)/every) + 1
	matrix, err := result.Matrix()
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range matrix {
		if len(s.Floats) == steps {
			return true
		}
	}
	return false
}
