// Package reconcile is the grammar of controllers.
//
// A controller is a sentence: given what I see and what time it is, this is
// what I want, and this is when to wake me. See is Observe, which collects what
// one turn can see into a plain struct; want is Decide, which judges it. Neither
// has a client, a context, a clock, a logger or an error, so the same view
// always gives the same decision: live, in replay, in shadow and in a test.
package reconcile

import (
	"encoding/json"
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/pkg/events/redact"
)

// Controller is one controller: its name, whose turn it is when something
// changes, what it may write, and its judgement over views of type V.
type Controller[V any] struct {
	// Name is upstream's name, such as "replicaset-controller".
	Name string
	// Aliases are upstream's other names for --controllers, such as "replicaset".
	Aliases []string
	// Identity is the service account in kube-system that its writes are made
	// as; empty means Name. Upstream: the client name of the controller.
	Identity string
	// Source is the component name on its Kubernetes Events; empty means Name.
	Source string
	// Queue is upstream's workqueue name, the "name" label of workqueue_*.
	Queue string
	// Owns is the kind that keys are objects of that name no kind; nil when keys
	// span kinds or are no objects.
	Owns *kinds.Kind
	// Inputs say which kinds it reads and whose turn a change makes it.
	Inputs []Input
	// Writes is the promise: everything it may do.
	Writes Writes
	// Tells is the promise of what it says in Events; nil: it makes none.
	Tells Tells
	// StatusBlind says that it has decisions that rest on nothing in its own object's
	// status and say so ([Decision].StatusBlind), so that it is asked while a report is
	// under way, too.
	StatusBlind bool
	// Silent says that it reports nothing: neither a status, nor Events but those that go
	// with what it does. So the engine need not look whether a report is under way.
	Silent bool
	// Remembers says that what its last turns did matters to it when they succeeded,
	// too: [Snapshot].Last gives their outcomes, unless they are a crowd's in which
	// nothing was asked.
	Remembers bool
	// Metrics are its own, of which its decisions give [Figure]s.
	Metrics []Metric
	// Settings are what it was configured with, as JSON: fields of the catalogue's
	// Config, which can build it anew from them. Each turn records them, since its
	// decisions rest on them. Nil for a controller without a configuration.
	Settings json.RawMessage
	// Observe collects the view of a key. ok is false when there is nothing to
	// decide: the object is gone and the controller asks for no turn about that.
	Observe func(s Snapshot, k events.Key) (view V, ok bool)
	// Decide judges a view. It must be pure.
	Decide func(view V, now time.Time) Decision
	// AsGood tells whether it is chance that Decide has one object of a view deleted
	// rather than another; nil: it never is. Nothing rests on it but comparisons with
	// others who had the same choice.
	AsGood func(view V, chosen, other types.UID, now time.Time) bool
}

// Input is a kind that a controller reads.
type Input struct {
	// Kind is what it reads. Every is used instead by controllers that read the
	// metadata of all kinds that can be deleted.
	Kind  kinds.Kind
	Every bool
	// Named are the names of the objects that it reads of the kind, where it reads no
	// others.
	Named []string
	// Bare says that it reads which objects there are, and in which version, and nothing of
	// what is in them.
	Bare bool
	// Also are paths that it reads in the objects although no other controller does
	// ([Description.Reads]).
	Also []redact.Path
	// Keys maps a change to the keys whose turn it is. was is nil for an object
	// not seen before, now is nil for one that is gone; both are given when it
	// changed. nil means that changes of this kind are read but make no
	// key's turn.
	Keys func(s Snapshot, was, now Object) []events.Key
}

// Object is an object with its kind, as key mappings and graph walks see it.
type Object struct {
	Kind kinds.Kind
	metav1.Object
}

// None is true for the absent object.
func (o Object) None() bool { return o.Object == nil }

// Ref names the object.
func (o Object) Ref() events.Ref {
	return events.Ref{Kind: o.Kind.Name, Namespace: o.GetNamespace(), Name: o.GetName()}
}

// Own is the input of a controller's own kind: a change is the turn of the
// object that changed.
func Own(kind kinds.Kind) Input {
	return Input{Kind: kind, Keys: func(_ Snapshot, was, now Object) []events.Key {
		if now.None() {
			now = was
		}
		return []events.Key{{Namespace: now.GetNamespace(), Name: now.GetName()}}
	}}
}

// Any is a controller whose view type is forgotten, as the catalogue, the shell
// and the tests hold it.
type Any interface {
	Describe() Description
	// Ask observes and decides; ok is false when there is nothing to decide.
	Ask(s Snapshot, k events.Key, now time.Time) (d Decision, ok bool)
	// Look observes; what it gives decides, once, whenever and wherever it is called.
	Look(s Snapshot, k events.Key) (decide func(now time.Time) Decision, ok bool)
	// View is the view of a key as JSON, for stories and explanations.
	View(s Snapshot, k events.Key) (view json.RawMessage, ok bool, err error)
	// Judge decides on a view given as JSON.
	Judge(view json.RawMessage, now time.Time) (Decision, error)
}

// Description is everything of a controller but its judgement.
type Description struct {
	Name, Identity, Source, Queue string
	Aliases                       []string
	Owns                          *kinds.Kind
	Inputs                        []Input
	Writes                        Writes
	Tells                         Tells
	StatusBlind, Remembers        bool
	Silent                        bool
	Metrics                       []Metric
	Settings                      json.RawMessage

	promises []promise // Writes, with their paths read
}

// Describe gives the description, defaults filled in.
func (c Controller[V]) Describe() Description {
	d := Description{
		Name: c.Name, Identity: c.Identity, Source: c.Source, Queue: c.Queue,
		Aliases: c.Aliases, Owns: c.Owns, Inputs: c.Inputs, Writes: c.Writes, Tells: c.Tells, promises: c.Writes.read(),
		StatusBlind: c.StatusBlind, Remembers: c.Remembers, Silent: c.Silent, Metrics: c.Metrics, Settings: c.Settings,
	}
	if d.Identity == "" {
		d.Identity = c.Name
	}
	if d.Source == "" {
		d.Source = c.Name
	}
	if d.Queue == "" {
		d.Queue = c.Name
	}
	return d
}

// Ask observes and decides.
func (c Controller[V]) Ask(s Snapshot, k events.Key, now time.Time) (Decision, bool) {
	decide, ok := c.Look(s, k)
	if !ok {
		return Decision{}, false
	}
	return decide(now), true
}

// Look observes.
func (c Controller[V]) Look(s Snapshot, k events.Key) (func(time.Time) Decision, bool) {
	view, ok := c.Observe(s, k)
	if !ok {
		return nil, false
	}
	return func(now time.Time) Decision { return c.Decide(view, now).bounded(now) }, true
}

// View is the view of a key as JSON.
func (c Controller[V]) View(s Snapshot, k events.Key) (json.RawMessage, bool, error) {
	view, ok := c.Observe(s, k)
	if !ok {
		return nil, false, nil
	}
	text, err := json.Marshal(view)
	return text, true, err
}

// Judge decides on a view given as JSON.
//
// Errors: the text is not a view of this controller.
func (c Controller[V]) Judge(view json.RawMessage, now time.Time) (Decision, error) {
	var v V
	if err := json.Unmarshal(view, &v); err != nil {
		return Decision{}, fmt.Errorf("read a view of %s: %w", c.Name, err)
	}
	return c.Decide(v, now).bounded(now), nil
}
