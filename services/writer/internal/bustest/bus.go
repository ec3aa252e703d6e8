// Package bustest has buses in memory for the tests of the writer's packages: with deltas of pods on
// record ([Recorded]), and with single answers that fail ([Faulty]).
package bustest

import (
	"context"
	"errors"
	"sync"
	"testing"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/bus"
	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/pkg/events/stream/memory"
	"github.com/millrace/millrace/pkg/events/subject"
)

// Faulty is a bus of which single answers fail.
type Faulty struct {
	bus.Bus
	// The errors of the bus's methods; nil: Bus answers.
	StateErr, KindsErr, PutErr, LastOfErr error
	LastErr, AtErr                        map[string]error // by stream
	// Puts are the messages that were to be stored, and IDs their ids.
	Puts []events.Message
	IDs  []string

	mu sync.Mutex // guards Puts, IDs and PutErr in Put and Takes
}

// StreamState returns StateErr or the state of a stream.
func (f *Faulty) StreamState(ctx context.Context, stream string) (bus.State, error) {
	if f.StateErr != nil {
		return bus.State{}, f.StateErr
	}
	return f.Bus.StreamState(ctx, stream)
}

// Kinds returns KindsErr or the kinds.
func (f *Faulty) Kinds(ctx context.Context) ([]kinds.Kind, error) {
	if f.KindsErr != nil {
		return nil, f.KindsErr
	}
	return f.Bus.Kinds(ctx)
}

// Last returns the error of LastErr for the stream, or the last message of a subject.
func (f *Faulty) Last(ctx context.Context, stream, subject string) (events.Message, bool, error) {
	if err := f.LastErr[stream]; err != nil {
		return events.Message{}, false, err
	}
	return f.Bus.Last(ctx, stream, subject)
}

// At returns the error of AtErr for the stream, or the message at a sequence.
func (f *Faulty) At(ctx context.Context, stream string, sequence uint64) (events.Message, bool, error) {
	if err := f.AtErr[stream]; err != nil {
		return events.Message{}, false, err
	}
	return f.Bus.At(ctx, stream, sequence)
}

// LastOf returns LastOfErr or the last messages of the subjects.
func (f *Faulty) LastOf(ctx context.Context, stream string, subjects []string) (map[string]events.Message, error) {
	if f.LastOfErr != nil {
		return nil, f.LastOfErr
	}
	return f.Bus.LastOf(ctx, stream, subjects)
}

// Put notes a message and its id, and returns PutErr or stores it.
func (f *Faulty) Put(ctx context.Context, m events.Message, id string) (uint64, error) {
	f.mu.Lock()
	f.Puts, f.IDs = append(f.Puts, m), append(f.IDs, id)
	err := f.PutErr
	f.mu.Unlock()
	if err != nil {
		return 0, err
	}
	return f.Bus.Put(ctx, m, id)
}

// Takes allows messages to be stored from now on, and returns how many were tried before.
func (f *Faulty) Takes() (tried int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.PutErr = nil
	return len(f.Puts)
}

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
