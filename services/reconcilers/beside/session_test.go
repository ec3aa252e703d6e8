package beside

import (
	"encoding/json"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/bus"
	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/pkg/events/subject"
	"github.com/millrace/millrace/services/reconcilers/reconcile"
	"github.com/millrace/millrace/services/reconcilers/shadow"
)

// labelled is copies, with the labels of the ConfigMap.
func labelled() reconcile.Controller[string] {
	c := copies
	c.Observe = func(s reconcile.Snapshot, k events.Key) (string, bool) {
		_, there := s.Get(kinds.ServiceAccounts.Name, k.Name, "copy")
		for _, m := range s.List(kinds.ConfigMaps.Name, k.Name) {
			if body, err := json.Marshal(metav1.ObjectMeta{Labels: m.GetLabels()}); err == nil && !there {
				return k.Name + " " + string(body), true
			}
		}
		return "", true
	}
	c.Decide = func(lacking string, _ time.Time) reconcile.Decision {
		var where, meta string
		if n, _ := fmt.Sscan(lacking, &where, &meta); n < 2 {
			return reconcile.Nothing("nothing is missing")
		}
		return reconcile.Do("a copy is missing", reconcile.Create(kinds.ServiceAccounts.Kind, where, "copy", fmt.Appendf(nil, `{"metadata":%s}`, meta)))
	}
	return c
}

var (
	one = map[string]string{"a": "b"}
	two = map[string]string{"a": "c"}
)

// replica is a session whose rounds, readers and rank are the test's.
type replica struct {
	*session
	stage *stage
	read  map[kinds.Name]uint64
	first bool
}

// replica begins with an empty world, of which everything has been told.
func (s *stage) replica() *replica {
	s.t.Helper()
	r := &replica{stage: s, read: map[kinds.Name]uint64{}, first: true}
	service, err := New(Config{
		Bus: muzzled{s.bus, s.t}, Controllers: []reconcile.Any{labelled()}, Delay: time.Second,
		Settings: shadow.Settings{Patience: 10 * time.Second},
	})
	must(s.t, err)
	must(s.t, s.bus.EnsureShadow(s.t.Context(), copies.Name))
	service.first = func(string) bool { return r.first }
	r.session = newSession(service)
	for _, kind := range []kinds.Kind{kinds.ConfigMaps.Kind, kinds.ServiceAccounts.Kind} {
		r.world.begin(kind, 0, nil)
	}
	return r
}

// reads has what there is by now of some kinds arrive.
func (r *replica) reads(some ...kinds.Kind) {
	t := r.stage.t
	t.Helper()
	for _, kind := range some {
		must(t, r.stage.bus.Read(t.Context(), bus.Passage{Stream: subject.LogStream(kind.Name)}, func(batch []events.Message) error {
			for _, m := range batch {
				ref, err := subject.ParseDelta(m.Subject)
				must(t, err)
				d, err := events.DecodeDelta(ref, m)
				must(t, err)
				if m.Sequence > r.read[kind.Name] {
					r.read[kind.Name] = m.Sequence
					r.inbox <- arrival{kind: kind, message: m, delta: d, came: time.Now()}
				}
			}
			return nil
		}))
	}
}

func (r *replica) round() {
	r.stage.t.Helper()
	must(r.stage.t, r.advance(r.stage.t.Context(), time.Now()))
}

// run has replicas go on for so long, each with rounds at other times.
func run(long time.Duration, all ...*replica) {
	for range long / tick {
		for _, r := range all {
			time.Sleep(tick / time.Duration(len(all)))
			r.round()
		}
	}
}

func (s *stage) expect(what string, want ...events.Agreement) {
	s.t.Helper()
	var found []events.Agreement
	must(s.t, s.bus.Read(s.t.Context(), bus.Passage{Stream: subject.ShadowStream(copies.Name)}, func(batch []events.Message) error {
		for _, m := range batch {
			var f events.Finding
			if events.DecodeJSON(m, &f) == nil && f.Agreement != "" {
				found = append(found, f.Agreement)
			}
		}
		return nil
	}))
	if !slices.Equal(found, want) {
		s.t.Errorf("%s: found %v, want %v", what, found, want)
	}
}

// While the process stood still, nobody read: what happened before and meanwhile comes
// after it.
func TestStandsStill(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := begin(t)
		r := s.replica()
		run(3*time.Second, r)
		s.say(kinds.ConfigMaps.Kind, "web", "m", "kubectl", one)
		r.reads(kinds.ConfigMaps.Kind)
		run(3*time.Second, r)
		s.say(kinds.ConfigMaps.Kind, "web", "m", "kubectl", two)
		s.say(kinds.ServiceAccounts.Kind, "web", "copy", events.FieldManager, two)
		r.reads(kinds.ServiceAccounts.Kind)
		time.Sleep(5 * time.Second)
		run(2*tick, r)
		r.reads(kinds.ConfigMaps.Kind)
		run(5*time.Second, r)
		s.expect("a birth whose cause was read after a stall", events.Coalesced, events.Agreed)
	})
}

func TestStandsStillForLong(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := begin(t)
		r := s.replica()
		s.say(kinds.ConfigMaps.Kind, "web", "m", "kubectl", one)
		r.reads(kinds.ConfigMaps.Kind)
		run(3*time.Second, r)
		s.say(kinds.ServiceAccounts.Kind, "web", "copy", events.FieldManager, one)
		time.Sleep(time.Minute)
		run(2*tick, r)
		r.reads(kinds.ServiceAccounts.Kind)
		run(5*time.Second, r)
		s.expect("a birth in a stall", events.Agreed)
	})
}

// A loop that is slow is behind, but goes on.
func TestSlowRounds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := begin(t)
		r := s.replica()
		s.say(kinds.ConfigMaps.Kind, "web", "m", "kubectl", one)
		r.reads(kinds.ConfigMaps.Kind)
		for range 20 {
			time.Sleep(2 * time.Second)
			r.round()
		}
		s.expect("what nobody does", events.WeOnly)
	})
}

// What has been read has its place before the order is looked at.
func TestReadAndNotTakenIn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := begin(t)
		r := s.replica()
		s.say(kinds.ConfigMaps.Kind, "web", "m", "kubectl", one)
		r.reads(kinds.ConfigMaps.Kind)
		run(3*time.Second, r)
		s.say(kinds.ConfigMaps.Kind, "web", "m", "kubectl", two)
		s.say(kinds.ServiceAccounts.Kind, "web", "copy", events.FieldManager, two)
		r.reads(kinds.ServiceAccounts.Kind)
		r.order.push(<-r.inbox)
		r.reads(kinds.ConfigMaps.Kind)
		run(3*time.Second, r)
		s.expect("a birth whose cause was read", events.Coalesced, events.Agreed)
	})
}

// Two replicas may both believe to be first for a moment; and the clock of what they
// read is not theirs.
func TestBothTell(t *testing.T) {
	for _, slow := range []time.Duration{0, time.Hour} {
		synctest.Test(t, func(t *testing.T) {
			s := begin(t)
			s.slow = slow
			a, b := s.replica(), s.replica()
			read := func() {
				a.reads(kinds.ConfigMaps.Kind)
				b.reads(kinds.ConfigMaps.Kind)
				run(3*time.Second, a, b)
			}
			run(3*time.Second, a, b)
			s.say(kinds.ConfigMaps.Kind, "lost", "m", "kubectl", one)
			s.say(kinds.ConfigMaps.Kind, "vain", "m", "kubectl", one)
			read()
			s.ends(kinds.ConfigMaps.Kind, "vain", "m")
			read()
			s.expect("what is not wanted any more", events.Vanished)
			run(12*time.Second, a, b)
			s.expect("what nobody does", events.Vanished, events.WeOnly)
		})
	}
}

// What is found while nobody is first is told by whoever becomes it.
func TestNobodyIsFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := begin(t)
		a, b := s.replica(), s.replica()
		b.first = false
		birth := func(name string) {
			s.say(kinds.ConfigMaps.Kind, name, "m", "kubectl", one)
			s.say(kinds.ServiceAccounts.Kind, name, "copy", events.FieldManager, one)
			a.reads(kinds.ConfigMaps.Kind, kinds.ServiceAccounts.Kind)
			b.reads(kinds.ConfigMaps.Kind, kinds.ServiceAccounts.Kind)
			run(2*time.Second, a, b)
		}
		birth("before")
		s.expect("one tells", events.Agreed)
		a.first = false
		birth("between")
		s.expect("nobody tells", events.Agreed)
		b.first = true
		run(tick, a, b)
		s.expect("another one tells", events.Agreed, events.Agreed)
		b.first = false
		birth("lost")
		run(2*handover, a, b)
		b.first = true
		run(tick, a, b)
		s.expect("what was long ago", events.Agreed, events.Agreed)
	})
}
