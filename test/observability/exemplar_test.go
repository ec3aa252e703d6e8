package observability

import (
	"regexp"
	"testing"

	"github.com/millrace/millrace/services/reconcilers/engine"
)

// In OpenMetrics, each stage has an exemplar with a trace.
func TestHopsHaveExemplars(t *testing.T) {
	for _, stage := range unled(here(t).decided) {
		t.Errorf("no example of the stage %q leads to a trace", stage)
	}
}

// unled are the stages for which a page has no exemplar with a trace.
func unled(page string) (stages []engine.Stage) {
	for _, stage := range engine.Stages {
		example := regexp.MustCompile(`millrace_reconcilers_stage_duration_seconds_bucket\{controller="\S+-controller",stage="` + string(stage) +
			`",le="\S+"\} \d+ # \{[^}]*trace_id="[0-9a-f]{32}"`)
		if !example.MatchString(page) {
			stages = append(stages, stage)
		}
	}
	return stages
}
