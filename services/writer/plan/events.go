package plan

import (
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/millrace/millrace/pkg/events"
)

// Event is a Kubernetes Event to be written because of a command.
type Event struct {
	Command int
	events.Notice
}

// Events returns the Kubernetes Events for the results of a turn: the notice of each command
// that was applied or that the API server rejected. An effect that existed before has had its
// Event.
func Events(t events.Turn, results []events.Result) []Event {
	var all []Event
	for _, r := range results {
		if r.Command < 0 || r.Command >= len(t.Commands) {
			continue
		}
		c, at := t.Commands[r.Command], 0
		switch {
		case r.Status == events.Applied:
			at = c.Applied
		case r.Cause == string(corev1.NamespaceTerminatingCause):
			// Upstream: no Event about creates into a namespace that is going.
		case r.Status == events.Failed, !r.OK() && r.Code != 0:
			at = c.Failed
		}
		if n := t.NoticeAt(at); n != nil {
			told := *n
			told.Message = strings.NewReplacer("{name}", c.Name, "{error}", r.Message).Replace(told.Message)
			all = append(all, Event{Command: r.Command, Notice: told})
		}
	}
	return all
}
