package observability

import (
	"regexp"
	"testing"

	"github.com/millrace/millrace/services/reconcilers/shell"
)

// Who asks for OpenMetrics finds a trace behind each hop.
func TestHopsHaveExemplars(t *testing.T) {
	page := here(t).decided
	for _, hop := range shell.Hops {
		example := regexp.MustCompile(`millrace_reconcilers_hop_duration_seconds_bucket\{controller="\S+-controller",hop="` + string(hop) +
			`",le="\S+"\} \d+ # \{[^}]*trace_id="[0-9a-f]{32}"`)
		if !example.MatchString(page) {
			t.Errorf("no example of the hop %q leads to a trace", hop)
		}
	}
}
