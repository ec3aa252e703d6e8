package beside

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/bus"
	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/pkg/events/report"
	"github.com/millrace/millrace/pkg/events/subject"
	"github.com/millrace/millrace/services/reconcilers/reconcile"
	"github.com/millrace/millrace/services/reconcilers/shadow"
)

// labelled is copies, but a copy gets the labels of the ConfigMap.
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

// replica is a session whose rounds, readers and rank the test controls.
type replica struct {
	*session
	stage *stage
	read  map[kinds.Name]uint64
	first bool
}

// replica returns a session with an empty world that counts as completely recorded.
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
	r.session = newSession(service, service.config.Controllers)
	for _, kind := range []kinds.Kind{kinds.ConfigMaps.Kind, kinds.ServiceAccounts.Kind} {
		r.world.begin(kind, 0, nil)
	}
	return r
}

// reads delivers the messages of some kinds that the replica has not read yet.
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

// run lets replicas take rounds for some time, each at other moments.
func run(long time.Duration, all ...*replica) {
	for range long / tick {
		for _, r := range all {
			time.Sleep(tick / time.Duration(len(all)))
			r.round()
		}
	}
}

func (s *stage) expect(what string, want ...report.Agreement) {
	s.t.Helper()
	var found []report.Agreement
	must(s.t, s.bus.Read(s.t.Context(), bus.Passage{Stream: subject.ShadowStream(copies.Name)}, func(batch []events.Message) error {
		for _, m := range batch {
			var f report.Finding
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

// A process that stands still reads nothing: changes from before and during the stall arrive
// after it, and get their places in the order all the same.
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
		s.expect("a create whose cause was read after a stall", report.Coalesced, report.Agreed)
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
		s.expect("a create in a stall", report.Agreed)
	})
}

// A loop with slow rounds lags, but goes on.
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
		s.expect("what KCM does not do", report.WeOnly)
	})
}

// A message in the inbox gets its place before the session looks at the order.
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
		s.expect("a create whose cause was read", report.Coalesced, report.Agreed)
	})
}

// Two replicas may both believe to be first for a moment: a finding is stored once. The
// watcher's clock may differ from theirs.
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
			s.say(kinds.ConfigMaps.Kind, "unowned", "m", "kubectl", one)
			read()
			s.ends(kinds.ConfigMaps.Kind, "unowned", "m")
			read()
			s.expect("what is not wanted any more", report.Vanished)
			run(12*time.Second, a, b)
			s.expect("what KCM does not do", report.Vanished, report.WeOnly)
		})
	}
}

// The replica that becomes first stores the findings of the time without a first replica, unless
// they are old.
func TestNoReplicaIsFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := begin(t)
		a, b := s.replica(), s.replica()
		b.first = false
		create := func(name string) {
			s.say(kinds.ConfigMaps.Kind, name, "m", "kubectl", one)
			s.say(kinds.ServiceAccounts.Kind, name, "copy", events.FieldManager, one)
			a.reads(kinds.ConfigMaps.Kind, kinds.ServiceAccounts.Kind)
			b.reads(kinds.ConfigMaps.Kind, kinds.ServiceAccounts.Kind)
			run(2*time.Second, a, b)
		}
		create("before")
		s.expect("one tells", report.Agreed)
		a.first = false
		create("between")
		s.expect("no replica tells", report.Agreed)
		b.first = true
		run(tick, a, b)
		s.expect("another one tells", report.Agreed, report.Agreed)
		b.first = false
		create("lost")
		run(2*handover, a, b)
		b.first = true
		run(tick, a, b)
		s.expect("what was long ago", report.Agreed, report.Agreed)
	})
}

// counting is a bus that records when Kinds was called.
type counting struct {
	*ailing
	began time.Time
	at    []time.Duration
}

func (c *counting) Kinds(ctx context.Context) ([]kinds.Kind, error) {
	if ctx.Err() == nil {
		c.at = append(c.at, time.Since(c.began))
	}
	return c.ailing.Kinds(ctx)
}

// The session looks for missing kinds twice a second. If a controller reads every kind, it looks for new kinds
// every five seconds.
func TestHowOftenKindsAreLookedFor(t *testing.T) {
	every, lacking := copies, copies
	every.Inputs = []reconcile.Input{{Every: true, Keys: namespace}}
	lacking.Inputs = append(slices.Clone(copies.Inputs), reconcile.Input{Kind: kinds.Pods.Kind})
	for what, c := range map[string]struct {
		controller reconcile.Any
		times      int
		second     time.Duration
	}{"all are there": {copies, 1, 0}, "one is missing": {lacking, 61, 500 * time.Millisecond}, "all that there are": {every, 6, 5050 * time.Millisecond}} {
		synctest.Test(t, func(t *testing.T) {
			x, a, s := onAiling(t, c.controller)
			b := &counting{ailing: a, began: time.Now()}
			x.service.config.Bus = b
			s.told()
			ctx, cancel := context.WithTimeout(t.Context(), 30200*time.Millisecond)
			defer cancel()
			err := x.run(ctx)
			if len(b.at) != c.times || c.times > 1 && b.at[1] != c.second {
				t.Errorf("where %s they are looked for %d times, first at %v: %v", what, len(b.at), b.at[:min(2, len(b.at))], err)
			}
			if said := x.service.Checks()["shadows"](); (said != nil) != (what == "one is missing") || said != nil && !strings.Contains(said.Error(), "no streams yet of [pods]") {
				t.Errorf("where %s it says %v", what, said)
			}
		})
	}
}

// A kind counts as completely recorded while its log has a mark, and a mark expires: a kind without any is
// not told, however old its last change is.
func TestAMarkThatHasExpired(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, _, s := onAiling(t, copies)
		s.say(kinds.ConfigMaps.Kind, "web", "m", "kubectl", nil)
		s.told()
		for _, step := range []struct {
			after  time.Duration
			untold bool
		}{{0, false}, {2 * time.Hour, true}} {
			time.Sleep(step.after) // virtual
			x, _, _ := newAgain(t, s)
			if _, err := x.begin(t.Context(), kinds.ConfigMaps.Kind); err != nil || x.untold["configmaps"] != step.untold {
				t.Errorf("%v later it is not told: %t, %v", step.after, x.untold["configmaps"], err)
			}
		}
	})
}

// A session begins with the last state of each object that is recorded since the message that the newest
// mark names, and continues behind the end of the log.
func TestWhatASessionBeginsWith(t *testing.T) {
	_, _, s := onAiling(t, copies)
	say := func(names ...string) {
		for _, name := range names {
			s.say(kinds.ConfigMaps.Kind, name, "m", "kubectl", map[string]string{"n": fmt.Sprint(s.version)})
		}
	}
	say("gone", "old", "web", "web", "passing") // messages 1 to 5
	s.ends(kinds.ConfigMaps.Kind, "gone", "m")
	s.append("configmaps", events.Delta{Op: events.Mark, Since: 3})
	s.ends(kinds.ConfigMaps.Kind, "passing", "m")
	say("late")
	x, _, _ := newAgain(t, s)
	from, err := x.begin(t.Context(), kinds.ConfigMaps.Kind)
	if err != nil || from != 10 || x.untold["configmaps"] {
		t.Errorf("the session begins at %d (%v), untold: %t; want 10, false", from, err, x.untold["configmaps"])
	}
	there := map[string]string{}
	for _, name := range []string{"gone", "old", "web", "passing", "late"} {
		if o := x.world.object(x.world.at, kinds.ConfigMaps.Kind, events.Ref{Kind: "configmaps", Namespace: name, Name: "m"}); !o.None() {
			there[name] = o.GetLabels()["n"]
		}
	}
	if want := map[string]string{"web": "3", "late": "8"}; !maps.Equal(there, want) {
		t.Errorf("the session begins with %v, want %v", there, want)
	}
}

// feeding is a bus whose Follow delivers one batch and ends.
type feeding struct {
	*ailing
	batch []events.Message
}

func (f feeding) Follow(_ context.Context, _ string, _ uint64, handle func([]events.Message) error) error {
	if err := handle(f.batch); err != nil {
		return err
	}
	return bus.ErrNoStream
}

// The reader takes in a log in order. An unreadable message becomes a gap at its place, a message on another
// subject is left out, and a damaged message ends the reader.
func TestWhatIsReadOfALog(t *testing.T) {
	x, a, _ := onAiling(t, copies)
	ref := events.Ref{Kind: "configmaps", Namespace: "web", Name: "m"}
	good := subject.Message(events.Delta{Kind: "configmaps", Op: events.Is, Ref: ref, UID: "u", ResourceVersion: "5", At: time.Now()})
	good.Sequence = 7
	good = events.Seal(good)
	foreign, unread, damaged := good, events.Seal(events.Message{Subject: subject.Delta(ref), Header: map[string][]string{"A": {"b"}}}), good
	foreign.Subject = "ev.configmaps"
	unread.Sequence = 8
	damaged.Data = []byte("[]")
	x.service.config.Bus = feeding{a, []events.Message{foreign, good, unread}}
	if err := x.read(t.Context(), kinds.ConfigMaps.Kind, 1); !errors.Is(err, bus.ErrNoStream) || !strings.Contains(err.Error(), "follow configmaps") {
		t.Errorf("the reader ends with %v, want ErrNoStream", err)
	}
	if len(x.inbox) != 2 {
		t.Fatalf("%d messages are taken in", len(x.inbox))
	}
	if first := <-x.inbox; first.message.Sequence != 7 || first.delta.Ref != ref || first.delta.Op != events.Is || time.Since(first.came) > time.Minute {
		t.Errorf("the first arrival is %+v, want message 7", first)
	}
	if second := <-x.inbox; second.message.Sequence != 8 || second.delta.Op != events.Gap || second.delta.Kind != "configmaps" {
		t.Errorf("a message that cannot be read arrives as %+v, want a gap at 8", second)
	}
	x.service.config.Bus = feeding{a, []events.Message{damaged, good}}
	if err := x.read(t.Context(), kinds.ConfigMaps.Kind, 1); !errors.Is(err, events.ErrDamaged) || len(x.inbox) != 0 {
		t.Errorf("where it is damaged it ends with %v, and %d are taken in", err, len(x.inbox))
	}
}

// A key is asked again at the decision's WakeAt, or a second later if the decision asks for a retry.
func TestWhenAKeyIsAskedAgain(t *testing.T) {
	for what, c := range map[string]struct {
		decide func(now time.Time) reconcile.Decision
		want   time.Duration // 0: it is not
	}{
		"at a moment":        {func(now time.Time) reconcile.Decision { return reconcile.Wake(now.Add(time.Hour), "later") }, time.Hour},
		"as soon as may be":  {func(time.Time) reconcile.Decision { return reconcile.Decision{Because: "again", Retry: true} }, time.Second},
		"at a moment before": {func(now time.Time) reconcile.Decision { return reconcile.Wake(now, "now") }, 0},
		"never":              {func(time.Time) reconcile.Decision { return reconcile.Nothing("it is well") }, 0},
	} {
		c2 := copies
		c2.Decide = func(_ string, now time.Time) reconcile.Decision { return c.decide(now) }
		x := seen(t, c2, "web")
		key, d := events.Key{Name: "web"}, x.engines[0]
		d.wakes[key] = time.Unix(1, 0) // of before
		must(t, x.ask(t.Context(), d, key, events.Trigger{}))
		at, again := d.wakes[key]
		if again != (c.want > 0) || again && at.Sub(x.world.now) != c.want {
			t.Errorf("%s: the key is asked again in %v (%t)", what, at.Sub(x.world.now), again)
		}
	}
}

// A replica that is not first keeps its findings for five seconds, in case the first replica is gone.
func TestForHowLongFindingsAreKept(t *testing.T) {
	x, _, _ := onAiling(t, copies)
	x.service.first = func(string) bool { return false }
	now := time.Now()
	x.rounds.begin(now)
	d := x.engines[0]
	for _, ago := range []time.Duration{time.Minute, 5*time.Second + 1, 5 * time.Second, time.Second} {
		d.kept = append(d.kept, kept{since: now.Add(-ago)})
	}
	must(t, x.tell(t.Context(), d, []shadow.Found{{}}))
	if len(d.kept) != 3 || !d.kept[0].since.Equal(now.Add(-5*time.Second)) || !d.kept[2].since.Equal(now) {
		t.Errorf("kept are %+v", d.kept)
	}
}

// The world remembers as many changes as a comparison goes back, and not many more.
func TestHowMuchOfThePastIsRemembered(t *testing.T) {
	ref := events.Ref{Kind: "configmaps", Namespace: "web", Name: "m"}
	d := events.Delta{Kind: "configmaps", Op: events.Is, Ref: ref, UID: "u", ResourceVersion: "9", At: time.Now()}
	m := subject.Message(d)
	m.Sequence = 1
	for had, want := range map[int]int{3071: 3072, 3072: 2048, 9: 10} {
		w := newWorld()
		w.begin(kinds.ConfigMaps.Kind, 0, nil)
		w.trail["configmaps"] = make([]mark, had)
		w.fold(arrival{kind: kinds.ConfigMaps.Kind, message: m, delta: d})
		trail := w.trail["configmaps"]
		if newest := trail[len(trail)-1]; len(trail) != want || newest.sequence != 1 || newest.namespace != "web" {
			t.Errorf("behind %d changes %d are remembered, the newest %+v", had, len(trail), newest)
		}
	}
}

// Replicas that compare the same controllers share the work.
func TestWhoSharesTheWork(t *testing.T) {
	of := func(names ...string) string {
		known := map[string]bool{}
		for _, name := range names {
			known[name] = true
		}
		return company(known)
	}
	if of("a", "b") != of("b", "a") {
		t.Error("the order of controllers counts")
	}
	seen := map[string]bool{}
	for _, names := range [][]string{{}, {"a"}, {"b"}, {"a", "b"}, {"ab"}, {"a", "b", "c"}, {"a", "bc"}} {
		if word := of(names...); seen[word] || !strings.HasPrefix(word, "shadows.") {
			t.Errorf("%v are of the company %s, as others are", names, word)
		} else {
			seen[word] = true
		}
	}
}

// panicking is a bus whose Kinds panics.
type panicking struct{ *ailing }

func (panicking) Kinds(context.Context) ([]kinds.Kind, error) { panic("it breaks") }

// A panic ends the comparison with an error, and not the process.
func TestAComparisonThatBreaks(t *testing.T) {
	x, a, _ := onAiling(t, copies)
	x.service.config.Bus = panicking{a}
	if err := x.service.session(t.Context()); err == nil || !strings.Contains(err.Error(), "compare: panic: it breaks") {
		t.Errorf("the session ends with %v, want the panic", err)
	}
	for given, want := range map[time.Duration]time.Duration{0: time.Second, time.Minute: time.Minute} {
		s, err := New(Config{Bus: a, Delay: given})
		if must(t, err); s.config.Delay != want {
			t.Errorf("a comparison that is to be %v behind is %v", given, s.config.Delay)
		}
	}
}
