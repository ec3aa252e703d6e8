package engine

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"testing"

	"k8s.io/apimachinery/pkg/types"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/pkg/events/subject"
	"github.com/millrace/millrace/services/reconcilers/cache"
)

// TestWhoWaitsIsLookedAtInTime: whatever is folded, an engine that checks only the keys that
// the deltas may concern finds every effect that has come back.
func TestWhoWaitsIsLookedAtInTime(t *testing.T) {
	kept := 0
	for seed := range uint64(200) {
		r := rand.New(rand.NewPCG(seed, 7))
		o, version, epoch := open(t, Settings{}), 0, uint64(1)
		for range 60 {
			switch version++; r.IntN(6) {
			case 0, 1:
				o.awaits(r, version, epoch)
			case 2:
				o.reached(r)
			default:
				var batch []events.Message
				for range 1 + r.IntN(3) {
					if r.IntN(40) == 0 {
						epoch++
					}
					o.sequence[kinds.Pods.Name]++
					batch = append(batch, anything(r, version, epoch, o.sequence[kinds.Pods.Name]))
					version++
				}
				o.memory.Fold(kinds.Pods.Name, batch)
				o.engine.Folded(kinds.Pods.Name)
				if slices.ContainsFunc(o.engine.awaiting[kinds.Pods.Name], func(e *entry) bool { return !e.awaits(kinds.Pods.Name) }) {
					t.Fatalf("seed %d: who waits for nothing is still listed", seed)
				}
			}
			before := o.engine.effects()
			for _, e := range o.engine.sorted() {
				o.engine.dropReturned(e)
			}
			after := o.engine.effects()
			if before != after {
				t.Fatalf("seed %d: %d effects were awaited, of which %d had come back", seed, before, before-after)
			}
			kept += after
		}
	}
	if kept < 2000 {
		t.Errorf("next to nothing was awaited: %d", kept)
	}
}

// effects is the number of awaited effects.
func (d *Engine) effects() (n int) {
	for _, e := range d.entries {
		n += len(e.write.effects) + len(e.status.effects)
	}
	return n
}

// awaits has one of a few keys await an effect on one of a few pods.
func (o *office) awaits(r *rand.Rand, version int, epoch uint64) {
	e := o.engine.entry(events.Key{Namespace: "default", Name: fmt.Sprint("web-", r.IntN(6))})
	pod := fmt.Sprint("pod-", r.IntN(5))
	result := events.Result{Status: events.Applied, Ref: podOf(pod), UID: types.UID("uid-" + pod)}
	switch r.IntN(3) {
	case 0:
		result.Removed = true
	default:
		result.Version = strconv.Itoa(version + r.IntN(12))
	}
	l := e.lane([]events.Lane{events.LaneWrite, events.LaneStatus}[r.IntN(2)])
	o.engine.applyOutcome(e, l, events.Outcome{Key: e.key, Turn: l.outcome + 1, Results: []events.Result{result}, Epochs: events.Epochs{kinds.Pods.Name: epoch}}, 1)
	if r.IntN(4) == 0 {
		kind, at := kinds.Pods.Name, o.engine.position(kinds.Pods.Name)
		o.engine.awaitPositions(e, l, &events.Turn{Seen: events.Position{kind: at + uint64(r.IntN(6))}})
	}
	o.engine.dropReturned(e)
}

// reached tells the engine, as if it had asked, that the log ends near its folded
// position.
func (o *office) reached(r *rand.Rand) {
	for _, e := range o.engine.entries {
		for _, l := range []*lane{&e.write, &e.status} {
			for i := range l.effects {
				l.effects[i].asked = true
			}
		}
	}
	o.engine.Reached(kinds.Pods.Name, o.engine.position(kinds.Pods.Name)+uint64(r.IntN(4)), nil)
}

// anything is a delta of one of a few pods: a version, a deletion, one that cannot be decoded,
// or a mark.
func anything(r *rand.Rand, version int, epoch, sequence uint64) events.Message {
	if r.IntN(12) == 0 {
		m := subject.Message(events.Delta{Kind: kinds.Pods.Name, Op: events.Mark, ResourceVersion: strconv.Itoa(version), Epoch: epoch})
		m.Sequence = sequence
		return m
	}
	pod := aPod(fmt.Sprint("pod-", r.IntN(5)), "", version)
	body, err := kinds.Encode(kinds.Pods.Kind, pod)
	if err != nil {
		panic(err)
	}
	d := events.Delta{
		Kind: kinds.Pods.Name, Ref: podOf(pod.Name), Op: events.Is, UID: pod.UID, ResourceVersion: pod.ResourceVersion, Epoch: epoch,
		ContentType: kinds.Protobuf, Form: kinds.Full, Body: body,
	}
	switch r.IntN(5) {
	case 0:
		d.Op = events.Gone
	case 1:
		d.Body = []byte("nonsense")
	}
	m := subject.Message(d)
	m.Sequence = sequence
	return m
}

// A fold of a kind may end the waits for an effect on one of the folded objects, and for a
// position of the kind. A key that no longer waits for the kind is checked, too.
func TestWhoseWaitsMayEnd(t *testing.T) {
	folded := map[types.NamespacedName]bool{{Namespace: "default", Name: "p"}: true}
	at := func(u effect, seen, goal uint64) effect { u.Seen, u.Goal = seen, goal; return u }
	p, q, other := of("pods", "p", "u", "5", false), of("pods", "q", "u", "5", false), of("nodes", "p", "u", "5", false)
	for what, c := range map[string]struct {
		write, status []effect
		may           bool
	}{
		"one that was folded":           {[]effect{p}, nil, true},
		"a report's that was folded":    {nil, []effect{p}, true},
		"the second of two":             {[]effect{q, p}, nil, true},
		"another one":                   {[]effect{q}, nil, false},
		"a report's":                    {nil, []effect{q}, false},
		"one of another kind's":         {[]effect{other, q}, nil, false},
		"one of another kind's alone":   {[]effect{other}, nil, true},
		"nothing":                       {nil, nil, true},
		"a position":                    {[]effect{at(q, 1, 0)}, nil, true},
		"the end of a stream":           {[]effect{at(q, 0, 1)}, nil, true},
		"a position of another kind":    {[]effect{at(other, 1, 0), q}, nil, false},
		"the end of another's, and one": {[]effect{at(other, 0, 1), p}, nil, true},
	} {
		e := &entry{write: lane{effects: c.write}, status: lane{effects: c.status}}
		if e.mayHaveReturned("pods", folded) != c.may {
			t.Errorf("%s: an effect may have returned: %t, want %t", what, !c.may, c.may)
		}
	}
}

// A kind that is not followed yet has reported nothing: the engine notices its first message.
// It checks no delta twice.
func TestTheFirstMessageOfAKindIsNoticed(t *testing.T) {
	m := cache.New()
	m.Register(toy().Describe())
	m.Follow(kinds.ReplicaSets.Kind)
	o := &office{t: t, memory: m, now: epoch, sequence: map[kinds.Name]uint64{}}
	o.engine = New(toy(), m, o, Settings{}, o.now)
	o.change(kinds.ReplicaSets.Kind, events.Is, aSet("web", 1, 1, 0, ""))
	o.recalled(Past{}, Past{})
	o.take(events.LaneWrite)
	o.answer(events.LaneWrite, 10, nil)
	o.outcome(events.LaneWrite, 10, created("p", "5"))
	o.engine.Folded(kinds.Pods.Name)
	if names, some, now := m.MovedSince(kinds.Pods.Name, 0); names != nil || some || now != 0 {
		t.Errorf("of a kind that is not followed %v moved (%t), %d in all; want none", names, some, now)
	}
	m.Follow(kinds.Pods.Kind)
	o.fold(kinds.Pods.Kind, events.Is, aPod("p", "", 5)) // which asks for no turn of the key
	if o.engine.effects() != 0 {
		t.Error("an effect that has come is awaited")
	}
	e := o.engine.entry(web)
	e.write.effects = []effect{of("pods", "q", "u", "9", false)}
	o.engine.awaitEffects(e, &e.write)
	o.fold(kinds.Pods.Kind, events.Is, aPod("r", "", 6))
	if o.engine.rechecked[kinds.Pods.Name] != 2 {
		t.Errorf("after the second message the engine has looked at %d, want 2", o.engine.rechecked[kinds.Pods.Name])
	}
}
