// Package podlog has a bus in memory with deltas of pods on record, for the tests of the writer's packages.
package podlog

import (
	"errors"
	"testing"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/pkg/events/stream/memory"
	"github.com/millrace/millrace/pkg/events/subject"
)

// Recorded returns a bus in memory with the streams of a controller "rs" and of pods, and some deltas of
// pods in their log.
func Recorded(t *testing.T, deltas ...events.Delta) *memory.Bus {
	t.Helper()
	b := memory.New(memory.Options{})
	if err := errors.Join(b.EnsureController(t.Context(), "rs"), b.EnsureKind(t.Context(), kinds.Pods.Kind)); err != nil {
		t.Fatal(err)
	}
	log, err := b.Append(t.Context(), kinds.Pods.Name)
	if err != nil {
		t.Fatal(err)
	}
	for _, d := range deltas {
		d.Kind = kinds.Pods.Name
		if err := errors.Join(log.Append(t.Context(), events.Seal(subject.Message(d))), log.Flush(t.Context())); err != nil {
			t.Fatal(err)
		}
	}
	return b
}

// PodRef returns the reference of a pod in the namespace "ns".
func PodRef(name string) events.Ref { return events.Ref{Kind: "pods", Namespace: "ns", Name: name} }

// PodIs returns the delta of a pod with uid "u".
func PodIs(name, version string) events.Delta {
	return events.Delta{Op: events.Is, Ref: PodRef(name), UID: "u", ResourceVersion: version}
}

// MarkOf returns a mark. before is the sequence of the last gap before it.
func MarkOf(version string, before uint64) events.Delta {
	return events.Delta{Op: events.Mark, ResourceVersion: version, Before: events.Place{Known: true, Sequence: before}}
}
