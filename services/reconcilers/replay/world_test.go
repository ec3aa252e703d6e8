package replay_test

import (
	"context"
	"encoding/json"
	"fmt"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/bus"
	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/pkg/events/stream/memory"
	"github.com/millrace/millrace/pkg/events/subject"
	"github.com/millrace/millrace/services/reconcilers/cache"
	"github.com/millrace/millrace/services/reconcilers/reconcile"
	"github.com/millrace/millrace/services/reconcilers/replay"
)

const counter = "counter"

var (
	key  = events.Key{Name: "ns"}
	read = []kinds.Kind{kinds.ConfigMaps.Kind, kinds.ServiceAccounts.Kind}
)

type view struct {
	Maps     []string `json:"maps"`
	Accounts int      `json:"accounts"`
	Failure  string   `json:"failure,omitempty"`
	Attempt  uint64   `json:"attempt,omitempty"`
	Prefix   string   `json:"prefix"`
}

// counts writes into its commands everything that it sees: the names and versions
// of ConfigMaps, how many accounts there are, what failed, and its settings.
func counts(prefix string) reconcile.Controller[view] {
	return reconcile.Controller[view]{
		Name: counter, Settings: reconcile.Body(map[string]string{"prefix": prefix}),
		Inputs: []reconcile.Input{{Kind: kinds.ConfigMaps.Kind}, {Kind: kinds.ServiceAccounts.Kind}},
		Writes: reconcile.Writes{{Verb: events.VerbCreate, Kind: kinds.ServiceAccounts.Name}},
		Observe: func(s reconcile.Snapshot, k events.Key) (view, bool) {
			v := view{Prefix: prefix, Accounts: len(s.List(kinds.ServiceAccounts.Name, k.Name))}
			for _, m := range s.List(kinds.ConfigMaps.Name, k.Name) {
				v.Maps = append(v.Maps, m.GetName()+"@"+m.GetResourceVersion())
			}
			if o, ok := s.Last(k, events.LaneWrite); ok {
				f, _ := o.Failure()
				v.Failure, v.Attempt = f.Reason, o.Turn
			}
			return v, true
		},
		Decide: func(v view, now time.Time) reconcile.Decision {
			d := reconcile.Do(fmt.Sprintf("%s%v", v.Prefix, v), reconcile.Create(kinds.ServiceAccounts.Kind, key.Name, "copy", reconcile.Body(v)))
			d.WakeAt = now.Add(time.Minute)
			return d
		},
	}
}

// world is a bus on which a test records what happened, in virtual time.
type world struct {
	*testing.T
	bus      *memory.Bus
	tallies  map[kinds.Name]*events.Tally
	version  int
	outcome  map[events.Lane]events.Outcome
	seen     *cache.History // the objects, as replicas fold them
	position events.Position
}

// tell runs a test in its own world.
func tell(t *testing.T, story func(w *world)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		w := &world{
			T: t, bus: memory.New(memory.Options{}), tallies: map[kinds.Name]*events.Tally{}, outcome: map[events.Lane]events.Outcome{},
			seen: cache.NewHistory(0), position: events.Position{},
		}
		for _, k := range read {
			w.must(w.bus.EnsureKind(t.Context(), k))
			w.tallies[k.Name], w.position[k.Name] = &events.Tally{}, 0
			w.seen.Begin(k, 0, nil, true)
		}
		w.must(w.bus.EnsureController(t.Context(), counter))
		story(w)
		w.must(w.bus.Close())
	})
}

func (w *world) must(err error) {
	w.Helper()
	if err != nil {
		w.Fatal(err)
	}
}

// wait lets time pass.
func (w *world) wait(d time.Duration) { time.Sleep(d) }

// is records a new version of a ConfigMap, gone its deletion.
func (w *world) is(name string)   { w.Helper(); w.change(events.Is, name) }
func (w *world) gone(name string) { w.Helper(); w.change(events.Gone, name) }

func (w *world) change(op events.Op, name string) {
	w.Helper()
	w.version++
	kind := kinds.ConfigMaps.Kind
	object := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{
		Namespace: key.Name, Name: name, UID: types.UID("uid-" + name), ResourceVersion: strconv.Itoa(w.version),
	}}
	body, err := kinds.Encode(kind, object)
	w.must(err)
	ref := events.Ref{Kind: kind.Name, Namespace: key.Name, Name: name}
	w.append(events.Delta{
		Kind: kind.Name, Ref: ref, Op: op, UID: object.UID, ResourceVersion: object.ResourceVersion, At: time.Now(),
		Form: kinds.Full, ContentType: kinds.Protobuf, Body: body,
	})
}

func (w *world) append(d events.Delta) {
	w.Helper()
	w.wait(time.Millisecond)
	tally := w.tallies[d.Kind]
	tally.Fold(d)
	d.Census = tally.Census()
	m := subject.Message(d)
	log, err := w.bus.Append(w.Context(), d.Kind)
	w.must(err)
	defer log.Close()
	m = events.Seal(m)
	w.must(log.Append(w.Context(), m))
	w.must(log.Flush(w.Context()))
	m.Sequence = log.Last()
	w.position[d.Kind] = m.Sequence
	w.seen.Fold(d.Kind, []cache.Fact{cache.Read(kinds.ConfigMaps.Kind, m)})
}

// decide returns the turn of a replica that decides on the state at a message of the
// ConfigMaps' log, as a shell would record it.
func (w *world) decide(at uint64, prefix string) events.Turn {
	w.Helper()
	w.wait(time.Millisecond)
	c := counts(prefix)
	t := events.Turn{
		Controller: counter, Key: key, Lane: events.LaneWrite, Now: time.Now(), Code: "v1", Settings: c.Settings,
		Seen: events.Position{kinds.ConfigMaps.Name: at, kinds.ServiceAccounts.Name: 0}, Heard: map[events.Lane]events.Heard{},
	}
	for of, o := range w.outcome {
		t.Heard[of] = events.Heard{Turn: o.Turn, At: o.At}
	}
	sight, err := w.seen.ViewAt(t.Seen, func(_ events.Key, of events.Lane) (events.Outcome, bool) {
		o, ok := w.outcome[of]
		return o, ok
	})
	w.must(err)
	t.Digest = sight.Digest
	d, _ := c.Ask(sight.Snapshot, key, t.Now)
	t.Because, t.Commands, t.WakeAt = d.Because, d.Commands, &d.WakeAt
	t.Pack()
	return t
}

// decided stores a turn of decide and returns its sequence.
func (w *world) decided(at uint64) uint64 { w.Helper(); return w.store(w.decide(at, "")) }

func (w *world) store(t events.Turn) uint64 {
	w.Helper()
	return w.put(t, subject.Turn(counter, t.Lane, t.Key))
}

func (w *world) put(value any, at string) uint64 {
	w.Helper()
	m, err := events.EncodeJSON(value, events.Trace{})
	w.must(err)
	return w.write(m, at)
}

func (w *world) write(m events.Message, at string) uint64 {
	w.Helper()
	m.Subject = at
	w.wait(time.Millisecond)
	sequence, err := w.bus.Put(w.Context(), events.Seal(m), strconv.Itoa(int(time.Now().UnixNano())))
	w.must(err)
	return sequence
}

// failed records that a turn has failed for a reason; later turns know the outcome.
func (w *world) failed(turn uint64, reason string) events.Outcome {
	w.Helper()
	w.wait(time.Millisecond)
	o := events.Outcome{Controller: counter, Key: key, Lane: events.LaneWrite, Turn: turn, At: time.Now(), Results: []events.Result{{Status: events.Refused, Reason: reason}}}
	w.put(o, subject.Outcome(counter, o.Lane, o.Key))
	w.outcome[o.Lane] = o
	return o
}

// again returns the counter with the settings of a turn.
func again(controller string, settings json.RawMessage) (reconcile.Any, error) {
	if controller != counter {
		return nil, fmt.Errorf("no %s here", controller)
	}
	var s struct{ Prefix string }
	err := json.Unmarshal(settings, &s)
	return counts(s.Prefix), err
}

// replay returns the summary and all cases.
func (w *world) replay(o replay.Options) (replay.Summary, []replay.Case) {
	w.Helper()
	return w.replayOf(w.bus, o)
}

func (w *world) replayOf(archive bus.Archive, o replay.Options) (replay.Summary, []replay.Case) {
	w.Helper()
	if o.Make == nil {
		o.Make = again
	}
	var all []replay.Case
	s, err := replay.Run(context.WithoutCancel(w.Context()), archive, o, func(c replay.Case) error {
		all = append(all, c)
		return nil
	})
	w.must(err)
	return s, all
}

// unjudged checks that one turn cannot be judged for a reason, and that all others are the same.
func (w *world) unjudged(o replay.Options, why replay.Why) {
	w.Helper()
	s, cases := w.replay(o)
	if s.Unjudged[why] != 1 || s.Same != s.Turns-1 || s.Turns < 2 {
		w.Errorf("want one turn of which %s, and the others the same: %+v\n%+v", why, s, cases)
	}
}
