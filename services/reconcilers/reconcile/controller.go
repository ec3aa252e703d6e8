// Package reconcile defines controllers.
//
// A controller has two functions. Observe collects what one turn can see into a plain
// struct, the view. Decide judges a view at a moment and returns the commands, the reason
// and the next wake time. Neither has a client, a context, a clock, a logger or an error,
// so the same view always gives the same decision: live, in replay, in shadow mode and in a
// test.
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

// Controller is one controller: its name, its inputs, what it may write, and its judgement
// of views of type V.
type Controller[V any] struct {
	// Name is upstream's name, such as "replicaset-controller".
	Name string
	// Aliases are upstream's other names for --controllers, such as "replicaset".
	Aliases []string
	// Identity is the service account in kube-system with which the writer makes its
	// requests; empty means Name. Upstream: the client name of the controller.
	Identity string
	// Source is the component name on its Kubernetes Events; empty means Name.
	Source string
	// Queue is upstream's workqueue name, the "name" label of workqueue_*.
	Queue string
	// Owns is the kind of the objects of keys without a kind. It is nil when keys span
	// kinds or are not objects.
	Owns *kinds.Kind
	// Inputs are the kinds that it reads, and how a change maps to keys.
	Inputs []Input
	// Writes is the promise of the controller: every write that it may request.
	Writes Writes
	// EventPromises is the promise of the Events that it may record; nil: none.
	Events EventPromises
	// StatusBlind says that some of its decisions depend on nothing in the status of its
	// own object, and are marked so ([Decision].StatusBlind). The engine then asks it while
	// a report is in flight, too.
	StatusBlind bool
	// Silent says that it writes no status and records no Events except those attached to
	// commands that act. The engine then need not check whether a report is in flight.
	Silent bool
	// Remembers says that the controller needs the outcomes of its last turns even if they
	// succeeded. [Snapshot].Last then returns them, except for turns with many commands
	// that asked nothing.
	Remembers bool
	// Metrics are the controller's own metrics. Its decisions carry their [Figure]s.
	Metrics []Metric
	// Settings are its configuration as JSON, in fields of the catalogue's Config, which
	// can rebuild the controller from them. Each turn records them, because its decisions
	// depend on them. Nil for a controller without a configuration.
	Settings json.RawMessage
	// Observe collects the view of a key. ok is false when there is nothing to decide,
	// because the object is gone and the controller has nothing to do about that.
	Observe func(s Snapshot, k events.Key) (view V, ok bool)
	// Decide judges a view. It must be pure.
	Decide func(view V, now time.Time) Decision
	// AsGood reports whether Decide might as well have deleted other as chosen; nil: never.
	// Only comparisons with other implementations that had the same choice depend on it.
	AsGood func(view V, chosen, other types.UID, now time.Time) bool
}

// Input is a kind that a controller reads.
type Input struct {
	// Kind is the kind. Controllers that read the metadata of all kinds that can be deleted
	// set Every instead.
	Kind  kinds.Kind
	Every bool
	// Named limits the input to the objects with these names; empty: all.
	Named []string
	// Bare says that the controller reads only which objects exist and in which version,
	// not their content.
	Bare bool
	// Also are paths in the objects that this controller reads and no other controller does
	// ([Description.Reads]).
	Also []redact.Path
	// Keys maps a change to the keys that need a turn. was is nil for an object not seen
	// before, now is nil for a deleted one; both are set when the object changed. A nil
	// Keys means that the controller reads the kind, but its changes cause no turns.
	Keys func(s Snapshot, was, now Object) []events.Key
}

// Object is an object with its kind, for key mappings and graph walks.
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

// Own is the input of a controller's own kind: a change maps to the key of the changed
// object.
func Own(kind kinds.Kind) Input {
	return Input{Kind: kind, Keys: func(_ Snapshot, was, now Object) []events.Key {
		if now.None() {
			now = was
		}
		return []events.Key{{Namespace: now.GetNamespace(), Name: now.GetName()}}
	}}
}

// Any is a controller without its view type. The catalogue, the engine and the tests use it.
type Any interface {
	Describe() Description
	// Ask observes and decides; ok is false when there is nothing to decide.
	Ask(s Snapshot, k events.Key, now time.Time) (d Decision, ok bool)
	// Look observes. The caller may call decide once, at any time and in any goroutine.
	Look(s Snapshot, k events.Key) (decide func(now time.Time) Decision, ok bool)
	// View returns the view of a key as JSON, for stories and explanations.
	View(s Snapshot, k events.Key) (view json.RawMessage, ok bool, err error)
	// Judge decides on a view that is given as JSON.
	Judge(view json.RawMessage, now time.Time) (Decision, error)
}

// Description is everything about a controller except its judgement.
type Description struct {
	Name, Identity, Source, Queue string
	Aliases                       []string
	Owns                          *kinds.Kind
	Inputs                        []Input
	Writes                        Writes
	Events                        EventPromises
	StatusBlind, Remembers        bool
	Silent                        bool
	Metrics                       []Metric
	Settings                      json.RawMessage

	promises []promise // Writes, with parsed paths
}

// Describe returns the description, with defaults filled in.
func (c Controller[V]) Describe() Description {
	d := Description{
		Name: c.Name, Identity: c.Identity, Source: c.Source, Queue: c.Queue,
		Aliases: c.Aliases, Owns: c.Owns, Inputs: c.Inputs, Writes: c.Writes, Events: c.Events, promises: c.Writes.read(),
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

// View returns the view of a key as JSON.
func (c Controller[V]) View(s Snapshot, k events.Key) (json.RawMessage, bool, error) {
	view, ok := c.Observe(s, k)
	if !ok {
		return nil, false, nil
	}
	text, err := json.Marshal(view)
	return text, true, err
}

// Judge decides on a view that is given as JSON.
//
// Errors: the text is not a view of this controller.
func (c Controller[V]) Judge(view json.RawMessage, now time.Time) (Decision, error) {
	var v V
	if err := json.Unmarshal(view, &v); err != nil {
		return Decision{}, fmt.Errorf("read a view of %s: %w", c.Name, err)
	}
	return c.Decide(v, now).bounded(now), nil
}

// Chooser is a controller that tells which of its choices are arbitrary. Every
// [Controller] is a Chooser.
type Chooser interface {
	Any
	// Indifferent reports whether the controller might as well have deleted other as
	// chosen (both uids) in its decision about a key.
	Indifferent(s Snapshot, k events.Key, chosen, other types.UID, now time.Time) bool
}

// Indifferent calls the controller's AsGood.
func (c Controller[V]) Indifferent(s Snapshot, k events.Key, chosen, other types.UID, now time.Time) bool {
	if c.AsGood == nil {
		return false
	}
	view, ok := c.Observe(s, k)
	return ok && c.AsGood(view, chosen, other, now)
}
