package history

import (
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/bus"
	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/pkg/events/subject"
	"github.com/millrace/millrace/services/reconcilers/cache"
	"github.com/millrace/millrace/services/reconcilers/engine"
	"github.com/millrace/millrace/services/reconcilers/reconcile"
	"github.com/millrace/millrace/services/watcher/translate"
	"github.com/millrace/millrace/services/writer/plan"
)

// record is the content of the streams of a controller's turns and outcomes. It outlives the players that
// read it.
type record struct {
	sequence uint64
	turns    map[string]events.Turn // the last of each subject
	at       map[string]uint64
	outcomes map[string]events.Outcome
	deltas   map[events.Ref]events.Delta
}

func newRecord() *record {
	return &record{
		turns: map[string]events.Turn{}, at: map[string]uint64{}, outcomes: map[string]events.Outcome{}, deltas: map[events.Ref]events.Delta{},
	}
}

// ours is a player that works as Millrace does: memory, engine and fence, and a writer.
type ours struct {
	*stage
	name   string
	memory *cache.Cache
	engine *engine.Engine
	asked  []func() // requests to the door, without an answer yet
}

func (s *stage) ours(controller reconcile.Any) *ours {
	p := &ours{stage: s, name: controller.Describe().Name, memory: cache.New()}
	for _, kind := range s.served {
		p.memory.Follow(kind)
	}
	p.memory.Register(controller.Describe())
	p.engine = engine.New(controller, p.memory, p, engine.Settings{Pace: -1}, s.now)
	return p
}

func (p *ours) hear(changes ...change) {
	p.Helper()
	for _, c := range changes {
		d := p.deltaOf(c)
		m := subject.Message(d)
		m.Sequence = c.at
		p.record.deltas[d.Ref] = d
		p.memory.Fold(c.kind.Name, []events.Message{m})
		p.engine.Folded(c.kind.Name)
	}
}

func (p *ours) work() {
	p.engine.Advance(p.now)
	for range 100_000 {
		switch {
		case len(p.asked) > 0:
			next := p.asked[0]
			p.asked = p.asked[1:]
			next()
		case !p.engine.Step():
			return
		}
	}
	p.Fatal("the engine does not come to rest")
}

// Store implements [engine.IO]: it stores the turn, carries it out, and reports its outcome.
func (p *ours) Store(t events.Turn, expect uint64) {
	p.asked = append(p.asked, func() {
		at := subject.Turn(p.name, t.Lane, t.Key)
		if p.record.at[at] != expect {
			p.engine.Stored(t.Key, t.Lane, 0, bus.ErrOvertaken)
			return
		}
		p.record.sequence++
		sequence := p.record.sequence
		p.record.turns[at], p.record.at[at] = t, sequence
		p.engine.Stored(t.Key, t.Lane, sequence, nil)
		p.asked = append(p.asked, func() { p.outcome(t, sequence) })
	})
}

func (p *ours) outcome(t events.Turn, sequence uint64) {
	live, known := p.record.deltas[events.Ref{Kind: t.Kind, Namespace: t.Key.Namespace, Name: t.Key.Name}]
	var results []events.Result
	if stale := plan.Stale(t, live, known); stale != (plan.Refusal{}) {
		results = stale.Refuse(t)
	} else {
		results = p.carry(t)
	}
	o := events.Outcome{Controller: p.name, Key: t.Key, Lane: t.Lane, Turn: sequence, UID: t.UID, ResourceVersion: t.ResourceVersion, Results: results, At: p.now}
	p.record.outcomes[subject.Turn(p.name, t.Lane, t.Key)] = o
	p.engine.Outcome(sequence, o)
}

// Recall implements [engine.IO].
func (p *ours) Recall(key events.Key, lane events.Lane) {
	p.asked = append(p.asked, func() {
		at := subject.Turn(p.name, lane, key)
		past := engine.Past{Sequence: p.record.at[at]}
		if t, ok := p.record.turns[at]; ok {
			past.Turn = &t
		}
		if o, ok := p.record.outcomes[at]; ok {
			past.Outcome = &o
		}
		p.engine.Recalled(key, lane, past, nil)
	})
}

// Schedule implements [engine.IO]; here only the engine's own timer counts.
func (p *ours) Schedule(w events.Wake) {
	p.asked = append(p.asked, func() { p.engine.Scheduled(w.Key, w.At, nil) })
}

// Reach implements [engine.IO].
func (p *ours) Reach(kind kinds.Name) {
	p.asked = append(p.asked, func() { p.engine.Reached(kind, p.counts[kind], nil) })
}

// deltaOf is the delta that the watcher makes of a change.
func (s *stage) deltaOf(c change) events.Delta {
	s.Helper()
	d, err := translate.Object(c.kind, c.op, c.obj.(runtime.Object).DeepCopyObject(), translate.Stamp{At: s.now})
	if err != nil {
		s.Fatal(err)
	}
	return d
}

// pass advances the time in steps and lets the player work after each.
func (s *stage) pass(p player, whole, step time.Duration) {
	for end := s.now.Add(whole); s.now.Before(end); {
		s.now = s.now.Add(step)
		p.work()
	}
}

// newest are the last changes of each object, as a state stream holds them.
func newest(changes []change) []change {
	var out []change
	for i, c := range changes {
		later := slices.ContainsFunc(changes[i+1:], func(o change) bool {
			return o.kind.Name == c.kind.Name && sameName(o.obj, c.obj)
		})
		if !later {
			out = append(out, c)
		}
	}
	return out
}

func sameName(a, b metav1.Object) bool {
	return a.GetNamespace() == b.GetNamespace() && a.GetName() == b.GetName()
}
