package beside

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/bus"
	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/pkg/events/report"
	"github.com/millrace/millrace/pkg/events/stream/memory"
	"github.com/millrace/millrace/pkg/events/subject"
	"github.com/millrace/millrace/services/reconcilers/reconcile"
	"github.com/millrace/millrace/services/reconcilers/shadow"
)

// ailing is a bus whose calls fail with the errors that a test sets.
type ailing struct {
	*memory.Bus
	kinds, read, last, put, ensure error
	puts                           int
}

func (a *ailing) Kinds(ctx context.Context) ([]kinds.Kind, error) {
	if a.kinds != nil {
		return nil, a.kinds
	}
	return a.Bus.Kinds(ctx)
}

func (a *ailing) Read(ctx context.Context, p bus.Passage, handle func([]events.Message) error) error {
	if a.read != nil {
		return a.read
	}
	return a.Bus.Read(ctx, p, handle)
}

func (a *ailing) Last(ctx context.Context, stream, subject string) (events.Message, bool, error) {
	if a.last != nil {
		return events.Message{}, false, a.last
	}
	return a.Bus.Last(ctx, stream, subject)
}

func (a *ailing) Put(ctx context.Context, m events.Message, id string) (uint64, error) {
	if a.puts++; a.put != nil {
		return 0, a.put
	}
	return a.Bus.Put(ctx, m, id)
}

func (a *ailing) EnsureShadow(ctx context.Context, controller string) error {
	if a.ensure != nil {
		return a.ensure
	}
	return a.Bus.EnsureShadow(ctx, controller)
}

var away = errors.New("away")

// onAiling returns a session that has not begun, on an ailing bus.
func onAiling(t *testing.T, controllers ...reconcile.Any) (*session, *ailing, *stage) {
	t.Helper()
	s := begin(t)
	a := &ailing{Bus: s.bus}
	must(t, s.bus.EnsureShadow(t.Context(), copies.Name))
	service, err := New(Config{Bus: a, Controllers: controllers})
	must(t, err)
	service.first = func(string) bool { return true }
	return newSession(service, service.config.Controllers), a, s
}

func TestAShadowWhoseStreamsCannotBeMadeIsAnError(t *testing.T) {
	x, a, _ := onAiling(t, copies)
	a.ensure = away
	if err := x.service.Run(t.Context()); !errors.Is(err, away) || !strings.Contains(err.Error(), "prepare the shadow") {
		t.Errorf("Run without streams ends with %v, want the error of the bus", err)
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if err := x.service.Run(ended); err != nil {
		t.Errorf("Run with an ended context ends with %v, want nil", err)
	}
}

// A kind that cannot be read ends the session with an error that names the failed step.
func TestAKindThatCannotBeReadEndsTheSession(t *testing.T) {
	for what, c := range map[string]struct {
		change func(*ailing)
		want   string
	}{
		"the kinds": {func(a *ailing) { a.kinds = away }, "look for kinds"}, "what there is": {func(a *ailing) { a.read = away }, "read what there is of configmaps"},
		"the mark": {func(a *ailing) { a.last = away }, "look since when everything is recorded of configmaps"},
	} {
		x, a, _ := onAiling(t, copies)
		c.change(a)
		if err := x.run(t.Context()); !errors.Is(err, away) || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", what, err, c.want)
		}
	}
}

// The session joins the named kinds that have streams, or every kind. Named kinds without streams are missing.
func TestWhichKindsAreJoined(t *testing.T) {
	for what, c := range map[string]struct {
		named   []kinds.Name
		every   bool
		joined  []kinds.Name
		missing []kinds.Name
	}{
		"one":             {[]kinds.Name{"configmaps"}, false, []kinds.Name{"configmaps"}, nil},
		"all":             {nil, true, []kinds.Name{"configmaps", "serviceaccounts"}, nil},
		"one that is not": {[]kinds.Name{"pods", "configmaps"}, false, []kinds.Name{"configmaps"}, []kinds.Name{"pods"}},
		"none":            {nil, false, nil, nil},
	} {
		x, _, _ := onAiling(t, copies)
		ctx, cancel := context.WithCancelCause(t.Context())
		var readers sync.WaitGroup
		missing, err := x.join(ctx, &readers, cancel, c.named, c.every)
		joined := slices.Sorted(func(yield func(kinds.Name) bool) {
			for k := range x.world.kinds {
				if !yield(k) {
					return
				}
			}
		})
		if err != nil || !slices.Equal(missing, c.missing) || !slices.Equal(joined, c.joined) {
			t.Errorf("%s: joined are %v, missing %v, %v", what, joined, missing, err)
		}
		if again, err := x.join(ctx, &readers, cancel, c.named, c.every); err != nil || !slices.Equal(again, c.missing) || len(x.world.kinds) != len(c.joined) {
			t.Errorf("%s: again joined are %v, missing %v", what, x.world.kinds, again)
		}
		cancel(nil)
		readers.Wait()
	}
}

// A kind counts as not completely recorded until a mark follows.
func TestWhatHasNotBeenTold(t *testing.T) {
	x, _, s := onAiling(t, copies)
	from, err := x.begin(t.Context(), kinds.ConfigMaps.Kind)
	if err != nil || from != 1 || !x.untold["configmaps"] {
		t.Errorf("of an empty log the session begins at %d (%v), untold: %t; want 1, true", from, err, x.untold["configmaps"])
	}
	s.say(kinds.ConfigMaps.Kind, "web", "m", "kubectl", nil)
	x, _, _ = newAgain(t, s)
	if from, err = x.begin(t.Context(), kinds.ConfigMaps.Kind); err != nil || from != 2 || !x.untold["configmaps"] {
		t.Errorf("of a log with one object and no mark the session begins at %d (%v), untold: %t; want 2, true", from, err, x.untold["configmaps"])
	}
	s.append("configmaps", events.Delta{Op: events.Mark, Epoch: 7})
	x, _, _ = newAgain(t, s)
	if from, err = x.begin(t.Context(), kinds.ConfigMaps.Kind); err != nil || from != 3 || x.untold["configmaps"] || x.world.epochs["configmaps"] != 7 {
		t.Errorf("of a log with a mark the session begins at %d (%v), untold: %t, in epoch %d; want 3, false, 7", from, err, x.untold["configmaps"], x.world.epochs["configmaps"])
	}
}

// newAgain returns another session on the bus of a stage.
func newAgain(t *testing.T, s *stage) (*session, *ailing, *stage) {
	t.Helper()
	a := &ailing{Bus: s.bus}
	service, err := New(Config{Bus: a, Controllers: []reconcile.Any{copies}})
	must(t, err)
	service.first = func(string) bool { return true }
	return newSession(service, service.config.Controllers), a, s
}

// The comparison begins when every kind is completely recorded. A gap puts it in doubt, and a new storage
// epoch ends it.
func TestWhenTheComparisonBegins(t *testing.T) {
	x, _, _ := onAiling(t, copies)
	x.untold["configmaps"] = true
	must(t, x.open(t.Context()))
	if err := x.service.Checks()["shadows"](); x.begun || err == nil || !strings.Contains(err.Error(), "has not told everything of 1 kinds") {
		t.Errorf("the comparison has begun: %t, %v; want that a kind is not recorded yet", x.begun, err)
	}
	for _, kind := range []kinds.Kind{kinds.ConfigMaps.Kind, kinds.ServiceAccounts.Kind} {
		x.world.begin(kind, 0, nil)
	}
	mark := arrival{kind: kinds.ConfigMaps.Kind, message: events.Message{Sequence: 1}, delta: events.Delta{Kind: "configmaps", Op: events.Mark, At: time.Now()}}
	must(t, x.take(t.Context(), mark))
	must(t, x.open(t.Context()))
	if err := x.service.Checks()["shadows"](); !x.begun || err != nil {
		t.Errorf("the comparison has begun: %t, %v; want true", x.begun, err)
	}
	gap := mark
	gap.message.Sequence, gap.delta.Op = 2, events.Gap
	if must(t, x.take(t.Context(), gap)); !x.doubted.Equal(x.world.now.Add(30 * time.Second)) {
		t.Errorf("a gap is in doubt until %v", x.doubted)
	}
	later := mark
	later.delta.Epoch = 1
	if err := x.take(t.Context(), later); !errors.Is(err, errEpoch) {
		t.Errorf("a mark of a later epoch: %v, want errEpoch", err)
	}
}

// The session retries a message that cannot be stored once a second, twenty times, and leaves out one that is
// too large.
func TestHowOftenAWordIsSaid(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		x, a, _ := onAiling(t, copies)
		said := func(err error) (uint64, error, int, time.Duration) {
			a.put, a.puts = err, 0
			began := time.Now()
			sequence, err := x.put(t.Context(), events.Message{Subject: subject.Finding(copies.Name, events.Key{Name: "web"})}, fmt.Sprint(began.UnixNano()))
			return sequence, err, a.puts, time.Since(began)
		}
		if sequence, err, puts, _ := said(nil); err != nil || sequence != 1 || puts != 1 {
			t.Errorf("the finding is stored at %d, %v, after %d tries; want 1 after 1", sequence, err, puts)
		}
		if _, err, puts, took := said(away); !errors.Is(err, away) || puts != 20 || took != 20*time.Second {
			t.Errorf("on a bus that is away: %v, after %d tries in %v; want 20 in 20 s", err, puts, took)
		}
		if sequence, err, puts, _ := said(fmt.Errorf("put: %w", bus.ErrTooLarge)); err != nil || sequence != 0 || puts != 1 {
			t.Errorf("a finding that is too large is stored at %d, %v, after %d tries; want dropped after 1", sequence, err, puts)
		}
		ended, cancel := context.WithCancel(t.Context())
		cancel()
		a.puts = 0
		a.put = away
		if _, err := x.put(ended, events.Message{}, ""); !errors.Is(err, away) || a.puts != 1 {
			t.Errorf("with an ended context: %v, after %d tries; want the error after 1", err, a.puts)
		}
		found := []shadow.Found{{Finding: report.Finding{Controller: copies.Name, Agreement: report.Agreed}}}
		if err := x.tell(t.Context(), x.engines[0], found); !errors.Is(err, away) || len(x.engines[0].kept) != 1 {
			t.Errorf("a finding that cannot be stored: %v, %d are kept", err, len(x.engines[0].kept))
		}
	})
}

// While the record is in doubt, an unexplained finding counts as unseen.
func TestWhatIsInDoubtIsUnseen(t *testing.T) {
	x, _, _ := onAiling(t, copies)
	x.service.first = func(string) bool { return false }
	x.world.now = time.Now()
	tell := func(is report.Agreement) report.Finding {
		t.Helper()
		d := x.engines[0]
		d.kept = nil
		must(t, x.tell(t.Context(), d, []shadow.Found{{Finding: report.Finding{Agreement: is, Note: "n"}}}))
		return d.kept[0].Finding
	}
	if f := tell(report.Differs); f.Agreement != report.Differs || f.Note != "n" {
		t.Errorf("without doubt the finding is %+v, want as it was", f)
	}
	x.doubt()
	if f := tell(report.Differs); f.Agreement != report.Unseen || !strings.HasSuffix(f.Note, ": n") {
		t.Errorf("in doubt the finding is %+v, want Unseen", f)
	}
	if f := tell(report.Agreed); f.Agreement != report.Agreed {
		t.Errorf("an explained finding is %+v in doubt, want Agreed", f)
	}
	x.world.now = x.doubted
	if f := tell(report.Differs); f.Agreement != report.Differs {
		t.Errorf("after the doubt the finding is %+v, want as it was", f)
	}
}

// The oldest message is the one that came first. Messages at one place are sorted by kind, and then by log.
func TestOneOrderOfEverything(t *testing.T) {
	now := time.Now()
	o := newOrder()
	if _, ok := o.oldest(); ok {
		t.Error("oldest has a message in a new order")
	}
	o.push(message(kinds.ServiceAccounts.Kind, 1, 5, now.Add(time.Second)))
	o.push(message(kinds.ConfigMaps.Kind, 1, 5, now))
	o.push(message(kinds.ConfigMaps.Kind, 2, "", now.Add(2*time.Second)))
	if came, ok := o.oldest(); !ok || !came.Equal(now) {
		t.Errorf("the oldest came %v, %t", came.Sub(now), ok)
	}
	ripe, late := o.take(now.Add(time.Hour))
	var got []string
	for _, a := range ripe {
		got = append(got, fmt.Sprint(a.kind.Name, a.message.Sequence))
	}
	if want := []string{"configmaps1", "configmaps2", "serviceaccounts1"}; !slices.Equal(got, want) || late != 0 {
		t.Errorf("in order are %v, %d of them late, want %v", got, late, want)
	}
	o.push(message(kinds.Pods.Kind, 1, 5, now))
	if _, late := o.take(now.Add(1)); late != 0 {
		t.Error("a message with the place of the last one is late")
	}
}

// Rounds are the clock: a round counts for at most 250 ms, however long it was.
func TestRoundsAreTheClock(t *testing.T) {
	now := time.Now()
	r := rounds{keep: 10 * counted}
	if !r.ago(0).IsZero() {
		t.Error("there was a round before the first")
	}
	r.begin(now)
	r.begin(now.Add(counted))
	r.begin(now.Add(time.Hour))
	if got := r.ago(counted); !got.Equal(now.Add(counted)) {
		t.Errorf("a moment ago it was %v", got.Sub(now))
	}
	if got := r.ago(2 * counted); !got.Equal(now) {
		t.Errorf("two intervals ago the time was %v, want now", got.Sub(now))
	}
	if got := r.ago(2*counted + 1); !got.IsZero() {
		t.Errorf("before the first interval the time was %v, want none", got.Sub(now))
	}
	if got := r.ago(0); !got.Equal(now.Add(time.Hour)) {
		t.Errorf("now it is %v", got.Sub(now))
	}
	r = rounds{keep: time.Hour}
	r.begin(now)
	r.begin(now.Add(time.Hour))
	if r.ago(250*time.Millisecond).IsZero() || !r.ago(250*time.Millisecond+1).IsZero() {
		t.Error("a process that stood still for an hour has read for more or less than a quarter of a second")
	}
}

// Only rounds that ago may return are remembered.
func TestRoundsAreForgotten(t *testing.T) {
	now := time.Now()
	r := rounds{keep: 10 * counted}
	r.begin(now)
	for i := range 30 {
		r.begin(now.Add(time.Hour + time.Duration(i+1)*counted))
		if i >= 9 && (len(r.last) != 11 || r.ago(10*counted).IsZero()) {
			t.Errorf("behind round %d there are %d remembered", i, len(r.last))
		}
	}
}

// back returns the position of a log before so many changes, unless they are too long ago. Changes in other
// namespaces do not count.
func TestHowFarALogGoesBack(t *testing.T) {
	w := newWorld()
	w.now = time.Now()
	ago := func(d time.Duration) time.Time { return w.now.Add(-d) }
	w.trail["pods"] = []mark{
		{2, "a", ago(behind + 1)}, {4, "a", ago(behind)}, {6, "b", ago(time.Second)}, {8, "", ago(time.Second)}, {10, "a", ago(0)}, {12, "a", ago(0)},
	}
	for what, c := range map[string]struct {
		at        uint64
		changes   int
		namespace string
		want      uint64
		ok        bool
	}{
		"one":                {12, 1, "a", 11, true},
		"two":                {12, 2, "a", 9, true},
		"from before":        {11, 1, "a", 9, true},
		"of no namespace":    {12, 3, "a", 7, true},
		"of another":         {12, 2, "b", 5, true},
		"of all":             {12, 4, "", 5, true},
		"as long ago as may": {12, 4, "a", 3, true},
		"too long ago":       {12, 5, "a", 0, false},
		"none":               {12, 0, "a", 0, false},
	} {
		if got, ok := w.back(events.Position{"pods": c.at}, "pods", c.changes, c.namespace); got != c.want || ok != c.ok {
			t.Errorf("%s: %d, %t, want %d", what, got, ok, c.want)
		}
	}
	w.trail["secrets"] = []mark{{4, "a", ago(15*time.Second + 1)}, {6, "a", ago(15 * time.Second)}}
	for changes, want := range map[int]bool{1: true, 2: false} {
		if _, ok := w.back(events.Position{"secrets": 9}, "secrets", changes, "a"); ok != want {
			t.Errorf("%d changes of a quarter of a minute ago are gone back: %t", changes, ok)
		}
	}
	if _, ok := w.back(events.Position{}, "nodes", 1, ""); ok {
		t.Error("a kind without changes goes back")
	}
	if w.pass(ago(time.Hour)); !w.now.Equal(ago(0)) {
		t.Error("time goes back")
	}
}
