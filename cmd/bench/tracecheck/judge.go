// Package tracecheck compares the traces in Jaeger with the record, which names the cause of each
// change independently.
package tracecheck

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/millrace/millrace/cmd/internal/jaeger"
	"github.com/millrace/millrace/cmd/internal/localcluster/arena"
	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/bus"
	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/pkg/events/subject"
	"github.com/millrace/millrace/pkg/events/trace"
)

// arrival is how long spans may take to arrive in Jaeger.
const arrival = time.Minute

// Judge has the changes of a record, and looks for each in its trace.
type Judge struct {
	jaeger *jaeger.Client
	deltas []events.Delta
	ours   map[version]string // audit ids of our writes, by the version that they made
	known  map[string]*jaeger.Trace
}

// version is a version of an object.
type version struct {
	uid types.UID
	rv  string
}

// Verdict is the result of the comparison.
type Verdict struct {
	Traces, Faulty int // traces that have changes, and those of them with a missing or wrong parent
	Ours, Missed   int // changes that our writes made, and those of them in another trace
	Untraced       int // changes that are in no trace

	example string
}

// New reads the parts of the record that judged selects by namespace and time, and what these
// controllers have written. The address is that of Jaeger.
//
// Errors: it is no address; the record cannot be read.
func New(ctx context.Context, record bus.Archive, address string, controllers []string, judged func(namespace string, at time.Time) bool) (*Judge, error) {
	client, err := jaeger.New(address)
	if err != nil {
		return nil, err
	}
	j := &Judge{jaeger: client, ours: map[version]string{}, known: map[string]*jaeger.Trace{}}
	for _, kind := range []kinds.Name{"deployments.apps", "replicasets.apps", "pods"} {
		err := record.Read(ctx, bus.Passage{Stream: subject.LogStream(kind), HeadersOnly: true}, func(batch []events.Message) error {
			for _, m := range batch {
				ref, err := subject.ParseDelta(m.Subject)
				if err != nil || !judged(ref.Namespace, m.Time) {
					continue // a mark, or not selected
				}
				d, err := events.DecodeDelta(ref, m)
				if err != nil {
					return err
				}
				if !d.Sync {
					j.deltas = append(j.deltas, d)
				}
			}
			return nil
		})
		if err != nil {
			return nil, fmt.Errorf("read the record: %w", err)
		}
	}
	for _, controller := range controllers {
		err := record.Read(ctx, bus.Passage{Stream: subject.OutcomeStream(controller)}, j.note)
		if err != nil {
			return nil, fmt.Errorf("read the record: %w", err)
		}
	}
	return j, nil
}

// note remembers which versions our writes made.
func (j *Judge) note(batch []events.Message) error {
	for _, m := range batch {
		var o events.Outcome
		if err := events.DecodeJSON(m, &o); err != nil {
			return err
		}
		for _, r := range o.Results {
			if r.Status == events.Applied && r.Version != "" {
				j.ours[version{r.UID, r.Version}] = r.AuditID
			}
		}
	}
	return nil
}

// Verdict checks the place of every change in its trace. It waits for spans that may still arrive.
func (j *Judge) Verdict(ctx context.Context) (Verdict, error) {
	deadline := time.Now().Add(arrival)
	for {
		v, err := j.look(ctx)
		if err != nil || v.Faulty == 0 || time.Now().After(deadline) {
			if v.example != "" {
				fmt.Fprintf(os.Stderr, "    not every trace is whole: %s\n", v.example)
			}
			return v, err
		}
		if err := arena.Rest(ctx, time.Second); err != nil {
			return v, err
		}
	}
}

func (j *Judge) look(ctx context.Context) (Verdict, error) {
	var v Verdict
	faults := map[string]string{}
	seen := map[string]bool{}
	for _, d := range j.deltas {
		audit, ours := j.ours[version{d.UID, d.ResourceVersion}]
		if ours {
			v.Ours++
		}
		if !trace.Sampled(d.Trace) { // every change is sampled, except those without a known cause
			v.Untraced++
			if v.example == "" {
				v.example = fmt.Sprintf("%v at version %s is in no trace", d.Ref, d.ResourceVersion)
			}
			continue
		}
		id := trace.Context(d.Trace).TraceID().String()
		seen[id] = true
		t, err := j.fetch(ctx, id)
		if err != nil {
			return v, err
		}
		missed, fault := place(t, d, audit)
		if ours && missed {
			v.Missed++
		}
		if fault != "" {
			faults[id] = fault
			delete(j.known, id) // the rest of the trace may still arrive
		}
	}
	v.Traces, v.Faulty = len(seen), len(faults)
	for id, fault := range faults {
		v.example = "trace " + id + ": " + fault
	}
	return v, nil
}

// fetch reads a trace through a cache; nil if there is none.
func (j *Judge) fetch(ctx context.Context, id string) (*jaeger.Trace, error) {
	if t, ok := j.known[id]; ok {
		return t, nil
	}
	t, err := j.jaeger.Trace(ctx, id)
	if err != nil && !errors.Is(err, jaeger.ErrNoTrace) {
		return nil, err
	}
	j.known[id] = t
	return t, nil
}

// place checks where a change is in its trace. It belongs below the request that made it, whose audit id the
// record has, too; elsewhere it has missed its cause. An incomplete trace, or one with a change in the wrong
// place, has a fault.
func place(t *jaeger.Trace, d events.Delta, audit string) (missed bool, fault string) {
	about := fmt.Sprintf("%v at version %s", d.Ref, d.ResourceVersion)
	if t == nil {
		return false, "no span of it arrived, although " + about + " is in it"
	}
	if lost := t.Orphans(); len(lost) > 0 || len(t.Roots) != 1 {
		return false, fmt.Sprintf("it has %d roots, %d of them without their parent", len(t.Roots), len(lost))
	}
	id := trace.Context(d.Trace).SpanID().String()
	span, parent := t.Roots[0].Place(id)
	switch {
	case span == nil:
		return false, "the span of " + about + " is not in it"
	case audit == "" || parent != nil && parent.Attributes[string(trace.AuditID)] == audit:
		return false, ""
	case parent == nil:
		return true, ""
	default:
		return false, fmt.Sprintf("%s was made by request %s, and is below %q", about, audit, parent.Name)
	}
}
