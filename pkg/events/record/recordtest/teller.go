// Package recordtest writes a record to a bus, as watchers, reconcilers and writers would, so
// that tests of readers of the record have something to read. It works on any bus, with that
// bus's clock.
package recordtest

import (
	"context"
	"encoding/json"
	"fmt"
	"strconv"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/bus"
	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/pkg/events/subject"
)

// Teller writes a record. It is for one goroutine.
type Teller struct {
	bus       bus.Bus
	version   int
	kinds     []kinds.Kind
	appenders map[kinds.Name]bus.Appender
	tallies   map[kinds.Name]*events.Tally
	places    map[events.Ref]uint64
	gaps      map[kinds.Name]uint64
}

// Object is an object of a delta.
type Object interface {
	metav1.Object
	runtime.Object
}

// New creates the streams of kinds and controllers on an empty bus.
func New(ctx context.Context, b bus.Bus, of []kinds.Kind, controllers []string) (*Teller, error) {
	t := &Teller{
		bus: b, version: 100, kinds: of, appenders: map[kinds.Name]bus.Appender{}, tallies: map[kinds.Name]*events.Tally{},
		places: map[events.Ref]uint64{}, gaps: map[kinds.Name]uint64{},
	}
	for _, kind := range of {
		if err := b.EnsureKind(ctx, kind); err != nil {
			return nil, err
		}
		a, err := b.Append(ctx, kind.Name)
		if err != nil {
			return nil, err
		}
		t.appenders[kind.Name], t.tallies[kind.Name] = a, &events.Tally{}
	}
	for _, c := range controllers {
		if err := b.EnsureController(ctx, c); err != nil {
			return nil, err
		}
	}
	return t, nil
}

// Close closes the appenders; the record stays.
func (t *Teller) Close() error {
	for _, a := range t.appenders {
		if err := a.Close(); err != nil {
			return err
		}
	}
	return nil
}

// Write is the delta of an object after a client has written it: with the next version, and with
// a uid if it had none. Write does not publish it.
func (t *Teller) Write(kind kinds.Kind, object Object, by string) (events.Delta, error) {
	t.version++
	if object.GetUID() == "" {
		object.SetUID(types.UID(fmt.Sprintf("uid-%d", t.version)))
		object.SetCreationTimestamp(metav1.Now())
	}
	object.SetResourceVersion(strconv.Itoa(t.version))
	body, err := kinds.Encode(kind, object.DeepCopyObject())
	if err != nil {
		return events.Delta{}, err
	}
	form := kind.Form
	if form == "" {
		form = kinds.Full
	}
	return events.Delta{
		Kind: kind.Name, Ref: events.Ref{Kind: kind.Name, Namespace: object.GetNamespace(), Name: object.GetName()}, Op: events.Is,
		UID: object.GetUID(), ResourceVersion: object.GetResourceVersion(), Generation: object.GetGeneration(),
		Deleting: object.GetDeletionTimestamp() != nil, Form: form, ContentType: kinds.Protobuf, Body: body,
		By: events.Manager{Name: by, Operation: "Update", Time: time.Now()}, Proven: true,
	}, nil
}

// Append publishes a delta and gives its sequence; Flush waits until it is stored.
func (t *Teller) Append(ctx context.Context, d events.Delta) (uint64, error) {
	d.At = time.Now()
	t.tallies[d.Kind].Fold(d)
	d.Census = t.tallies[d.Kind].Census()
	d.Before = events.Place{Known: true, Sequence: t.places[d.Ref]}
	if d.Ref.Name == "" {
		d.Before.Sequence = t.gaps[d.Kind]
	}
	a := t.appenders[d.Kind]
	if err := a.Append(ctx, subject.Message(d)); err != nil {
		return 0, err
	}
	at := a.Last()
	switch d.Op {
	case events.Is:
		t.places[d.Ref] = at
	case events.Gone:
		delete(t.places, d.Ref)
	case events.Gap:
		t.gaps[d.Kind] = at
	case events.Mark:
	}
	return at, nil
}

// Flush waits until the deltas of a kind are stored.
func (t *Teller) Flush(ctx context.Context, kind kinds.Name) error {
	return t.appenders[kind].Flush(ctx)
}

// Say appends a delta and flushes.
func (t *Teller) Say(ctx context.Context, d events.Delta) (uint64, error) {
	at, err := t.Append(ctx, d)
	if err != nil {
		return 0, err
	}
	return at, t.Flush(ctx, d.Kind)
}

// Gap records that changes of a kind may be missing since a moment.
func (t *Teller) Gap(ctx context.Context, kind kinds.Name, reason string, since time.Time) error {
	body, err := json.Marshal(events.Hole{Reason: reason, Since: since})
	if err != nil {
		return fmt.Errorf("write a gap: %w", err)
	}
	_, err = t.Say(ctx, events.Delta{Kind: kind, Op: events.Gap, ContentType: kinds.JSON, Body: body})
	return err
}

// Decide stores a turn about an object, as in its delta, triggered by messages of the state, and
// gives its sequence.
func (t *Teller) Decide(ctx context.Context, controller string, lane events.Lane, own events.Delta, because string, commands []events.Command, asked ...events.Trigger) (uint64, error) {
	turn := events.Turn{
		Controller: controller, Key: keyOf(own), Lane: lane, Now: time.Now(), Because: because, Commands: commands, Triggers: asked, Seen: events.Position{},
		Kind: own.Kind, UID: own.UID, ResourceVersion: own.ResourceVersion, Generation: own.Generation, Code: "test",
	}
	for _, kind := range t.kinds {
		state, err := t.bus.StreamState(ctx, subject.LogStream(kind.Name))
		if err != nil {
			return 0, err
		}
		turn.Seen[kind.Name] = state.Last
	}
	return t.put(ctx, turn, subject.Turn(controller, lane, turn.Key))
}

// Done stores the outcome of a turn: each of its commands made one version.
func (t *Teller) Done(ctx context.Context, controller string, lane events.Lane, own events.Delta, turn uint64, made ...events.Delta) error {
	results := make([]events.Result, len(made))
	for i, d := range made {
		results[i] = events.Result{Command: i, Status: events.Applied, Ref: d.Ref, UID: d.UID, Version: d.ResourceVersion, Removed: d.Op == events.Gone}
	}
	return t.Outcome(ctx, controller, lane, own, turn, results...)
}

// Outcome stores an outcome of a turn.
func (t *Teller) Outcome(ctx context.Context, controller string, lane events.Lane, own events.Delta, turn uint64, results ...events.Result) error {
	o := events.Outcome{Controller: controller, Key: keyOf(own), Lane: lane, Turn: turn, At: time.Now(), Results: results}
	_, err := t.put(ctx, o, subject.Outcome(controller, lane, o.Key))
	return err
}

func (t *Teller) put(ctx context.Context, value any, at string) (uint64, error) {
	m, err := events.EncodeJSON(value, events.Trace{})
	if err != nil {
		return 0, err
	}
	m.Subject = at
	t.version++
	return t.bus.Put(ctx, m, fmt.Sprint(at, t.version))
}

func keyOf(own events.Delta) events.Key {
	return events.Key{Namespace: own.Ref.Namespace, Name: own.Ref.Name}
}

// Trigger is the delta at a sequence as the trigger of a turn.
func Trigger(d events.Delta, sequence uint64) events.Trigger {
	return events.Trigger{Stream: subject.LogStream(d.Kind), Sequence: sequence, Ref: d.Ref}
}
