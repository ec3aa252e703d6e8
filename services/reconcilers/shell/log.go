package shell

import (
	"k8s.io/klog/v2"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/subject"
	"github.com/millrace/millrace/pkg/events/trace"
)

// everyTurn is the verbosity at which each turn is logged.
const everyTurn = 3

// logTurn logs that a turn was stored: a parked key always, any other turn at the verbosity
// everyTurn. Each line has the turn's stream, sequence and trace id.
func logTurn(t events.Turn, sequence uint64) {
	log, what := klog.Background().V(everyTurn), "Decided"
	if t.Lane == events.LanePark {
		log, what = klog.Background(), "Set aside what breaks again and again"
	}
	if !log.Enabled() {
		return
	}
	log.WithName("reconcilers").Info(what, "controller", t.Controller, "key", t.Key.String(), "lane", t.Lane.String(),
		"stream", subject.TurnStream(t.Controller), "sequence", sequence, "traceID", trace.Context(t.Trace).TraceID().String(),
		"because", t.Because, "commands", len(t.Commands), "attempt", t.Attempt)
}
