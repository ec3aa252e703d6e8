package observability

import (
	"regexp"
	"testing"

	"github.com/millrace/millrace/services/reconcilers/shell"
)

// Who asks for OpenMetrics finds a trace behind each hop.
func TestHopsHaveExemplars(t *testing.T) {
	for _, hop := range unled(here(t).decided) {
		t.Errorf("no example of the hop %q leads to a trace", hop)
	}
}

// unled are the hops of which a page has no example that leads to a trace.
func unled(page string) (hops []shell.Hop) {
	for _, hop := range shell.Hops {
		example := regexp.MustCompile(`millrace_reconcilers_hop_duration_seconds_bucket\{controller="\S+-controller",hop="` + string(hop) +
			`",le="\S+"\} \d+ # \{[^}]*trace_id="[0-9a-f]{32}"`)
		if !example.MatchString(page) {
			hops = append(hops, hop)
		}
	}
	return hops
}
