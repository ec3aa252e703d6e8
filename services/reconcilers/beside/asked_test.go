package beside

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/pkg/events/report"
	"github.com/millrace/millrace/pkg/events/subject"
	"github.com/millrace/millrace/services/reconcilers/reconcile"
	"github.com/millrace/millrace/services/reconcilers/shadow"
)

// changed returns an arrival of a ConfigMap, or of a ServiceAccount if ref is of another kind.
func changed(t *testing.T, sequence uint64, ref events.Ref, at time.Time, by string) arrival {
	t.Helper()
	kind := kinds.ConfigMaps.Kind
	if ref.Kind != kind.Name {
		kind = kinds.ServiceAccounts.Kind
	}
	d := events.Delta{Kind: ref.Kind, Op: events.Is, Ref: ref, UID: "u", ResourceVersion: fmt.Sprint(sequence), At: at, By: events.Manager{Name: by}, ContentType: kinds.Protobuf, Form: kinds.Full}
	var err error
	if kind.Name == kinds.ConfigMaps.Name {
		d.Body, err = kinds.Encode(kind, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: ref.Namespace, Name: ref.Name}})
	} else {
		d.Body, err = kinds.Encode(kind, &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: ref.Namespace, Name: ref.Name}})
	}
	must(t, err)
	m := subject.Message(d)
	m.Sequence = sequence
	return arrival{kind: kind, message: m, delta: d, came: at}
}

// A key is asked at its wake time, before the session takes in a change that came later. A turn that cannot
// be stored ends the session.
func TestKeysAreAskedAtTheirMoment(t *testing.T) {
	var asked []time.Time
	c := copies
	c.Decide = func(lacking string, now time.Time) reconcile.Decision {
		asked = append(asked, now)
		return copies.Decide(lacking, now)
	}
	began := func() (*session, *ailing) {
		x, a, _ := onAiling(t, c)
		for _, kind := range []kinds.Kind{kinds.ConfigMaps.Kind, kinds.ServiceAccounts.Kind} {
			x.world.begin(kind, 0, nil)
		}
		x.world.now, x.begun, asked = time.Unix(1000, 0), true, nil
		return x, a
	}
	x, a := began()
	d := x.engines[0]
	d.wakes[events.Key{Name: "b"}], d.wakes[events.Key{Name: "a"}], d.wakes[events.Key{Name: "c"}] = time.Unix(1002, 0), time.Unix(1001, 0), time.Unix(1004, 0)
	ref := events.Ref{Kind: "configmaps", Namespace: "web", Name: "m"}
	must(t, x.take(t.Context(), changed(t, 1, ref, time.Unix(1003, 0), "kubectl")))
	want := []time.Time{time.Unix(1001, 0), time.Unix(1002, 0), time.Unix(1003, 0)}
	if !slices.EqualFunc(asked, want, time.Time.Equal) || len(d.wakes) != 1 {
		t.Errorf("the keys are asked at %v, want %v; %d are asked later", asked, want, len(d.wakes))
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	a.put = away
	d.matcher = shadow.New(d.described, shadow.Settings{}) // a new one: every answer is news
	d.wakes = map[events.Key]time.Time{{Name: "web"}: time.Unix(1003, 0)}
	if err := x.wake(ended, time.Unix(1003, 0)); !errors.Is(err, away) {
		t.Errorf("a finding of a key that wakes cannot be stored: %v, want the error of the bus", err)
	}
	x.rounds = rounds{keep: time.Hour}
	for i := range 100 {
		x.rounds.begin(time.Unix(2000, 0).Add(time.Duration(i) * tick))
	}
	d.matcher = shadow.New(d.described, shadow.Settings{})
	d.wakes = map[events.Key]time.Time{{Name: "web"}: time.Unix(1003, 0)}
	if err := x.advance(ended, time.Unix(2000, 0).Add(101*tick)); !errors.Is(err, away) {
		t.Errorf("a finding of a round cannot be stored: %v, want the error of the bus", err)
	}
}

// Before the comparison has begun, nothing is compared, asked or recorded.
func TestNothingIsComparedBeforeAllIsTold(t *testing.T) {
	x, a, _ := onAiling(t, copies)
	for _, kind := range []kinds.Kind{kinds.ConfigMaps.Kind, kinds.ServiceAccounts.Kind} {
		x.world.begin(kind, 0, nil)
	}
	at := time.Unix(1000, 0)
	for i, ref := range []events.Ref{{Kind: "configmaps", Namespace: "web", Name: "m"}, {Kind: "serviceaccounts", Namespace: "db", Name: "copy"}} {
		must(t, x.take(t.Context(), changed(t, 1, ref, at.Add(time.Duration(i)), events.FieldManager)))
	}
	if d := x.engines[0]; a.puts != 0 || len(d.kept) != 0 || d.matcher.Standing() != 0 {
		t.Errorf("%d messages are said, %d findings kept, and %d writes wanted", a.puts, len(d.kept), d.matcher.Standing())
	}
}

// A message that arrives after its place in the order has passed is counted, and puts the order in doubt.
func TestWhatComesTooLate(t *testing.T) {
	x, _, _ := onAiling(t, copies)
	for _, kind := range []kinds.Kind{kinds.ConfigMaps.Kind, kinds.ServiceAccounts.Kind} {
		x.world.begin(kind, 0, nil)
	}
	x.order.passed = 10
	at := time.Unix(1000, 0)
	x.order.push(changed(t, 1, events.Ref{Kind: "configmaps", Namespace: "web", Name: "m"}, at, "kubectl"))
	for i := range 60 {
		must(t, x.advance(t.Context(), at.Add(time.Duration(i+1)*tick)))
	}
	if late := testutil.ToFloat64(x.service.metrics.late); late != 1 || x.doubted.IsZero() {
		t.Errorf("%v messages are late, and the order is in doubt until %v", late, x.doubted)
	}
}

// A turn that another replica records, or that wants nothing, is not stored. A turn that cannot be encoded is
// an error.
func TestTurnsThatAreNotRecorded(t *testing.T) {
	x := seen(t, copies, "web")
	key, d := events.Key{Name: "web"}, x.engines[0]
	a, ok := d.ask(x.world.at, key, time.Now(), d.matcher.Last)
	if !ok {
		t.Fatal("there is no answer")
	}
	if n, err := x.record(t.Context(), d, a, key, events.LaneStatus, events.Trigger{}); n != 0 || err != nil {
		t.Errorf("a turn that wants nothing is recorded as %d, %v", n, err)
	}
	x.service.first = func(string) bool { return false }
	if n, err := x.record(t.Context(), d, a, key, events.LaneWrite, events.Trigger{}); n != 0 || err != nil {
		t.Errorf("a turn of another replica is recorded as %d, %v", n, err)
	}
	x.service.first = func(string) bool { return true }
	if n, err := x.record(t.Context(), d, a, key, events.LaneWrite, events.Trigger{}); n != 1 || err != nil {
		t.Errorf("a turn is recorded as %d, %v", n, err)
	}
	a.decision.Commands[0].Body = []byte("{")
	if _, err := x.record(t.Context(), d, a, key, events.LaneWrite, events.Trigger{}); err == nil || !strings.Contains(err.Error(), "record a turn of the shadow of copies") {
		t.Errorf("a turn that cannot be written: %v", err)
	}
}

// The check fails after a comparison has ended, even without an error.
func TestAComparisonThatHasEnded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := begin(t)
		s.told()
		service, err := New(Config{Bus: s.bus, Controllers: []reconcile.Any{copies}})
		must(t, err)
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- service.Run(ctx) }()
		time.Sleep(10 * time.Second) // virtual
		check := service.Checks()["shadows"]
		must(t, check())
		cancel()
		if err := <-done; err != nil || check() == nil || !strings.Contains(check().Error(), "ended") {
			t.Errorf("the service ends with %v, and its check says %v; want nil, and \"ended\"", err, check())
		}
	})
}

// A message that cannot be stored ends the session: a turn of a key that is due before the change, a finding
// about the change, and a turn of a key to which the change maps.
func TestWhatCannotBeSaidOfAChange(t *testing.T) {
	at := time.Unix(1000, 0)
	ref := events.Ref{Kind: "configmaps", Namespace: "web", Name: "m"}
	for what, c := range map[string]struct {
		before func(x *session)
		change arrival
	}{
		"a key whose moment comes": {func(x *session) { x.engines[0].wakes[events.Key{Name: "web"}] = at }, changed(t, 2, events.Ref{Kind: "configmaps", Namespace: "other", Name: "m"}, at.Add(time.Second), "kubectl")},
		"what was done": {func(x *session) {
			x.engines[0].kept = []kept{{Found: shadow.Found{Finding: report.Finding{Controller: copies.Name}}}}
		}, changed(t, 1, events.Ref{Kind: "serviceaccounts", Namespace: "db", Name: "copy"}, at, events.FieldManager)},
		"the keys that it concerns": {func(*session) {}, changed(t, 2, events.Ref{Kind: "configmaps", Namespace: "new", Name: "m"}, at, "kubectl")},
	} {
		x, a, _ := onAiling(t, copies)
		for _, kind := range []kinds.Kind{kinds.ConfigMaps.Kind, kinds.ServiceAccounts.Kind} {
			x.world.begin(kind, 0, nil)
		}
		must(t, x.take(t.Context(), changed(t, 1, ref, at.Add(-time.Second), "kubectl")))
		x.begun, a.put = true, away
		c.before(x)
		ended, cancel := context.WithCancel(t.Context())
		cancel()
		if err := x.take(ended, c.change); !errors.Is(err, away) || a.puts != 1 {
			t.Errorf("%s: %v, after %d tries", what, err, a.puts)
		}
	}
}

// fading is a bus whose Kinds succeeds once.
type fading struct {
	*ailing
	told *bool
}

func (f fading) Kinds(ctx context.Context) ([]kinds.Kind, error) {
	if *f.told {
		return nil, away
	}
	*f.told = true
	return f.ailing.Kinds(ctx)
}

// If the session can no longer look for new kinds, it ends with that error.
func TestNewKindsThatCannotBeLookedFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		every := copies
		every.Inputs = []reconcile.Input{{Every: true, Keys: namespace}}
		x, a, s := onAiling(t, every)
		s.told()
		x.service.config.Bus = fading{a, new(bool)}
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		if err := x.run(ctx); !errors.Is(err, away) {
			t.Errorf("the session ends with %v, want the error of the bus", err)
		}
	})
}

// A turn that panics is no answer: the earlier wants stand, and the key keeps its wake.
func TestATurnThatBreaksIsNoAnswer(t *testing.T) {
	breaks, c := false, copies
	c.Observe = func(s reconcile.Snapshot, k events.Key) (string, bool) {
		if breaks {
			panic("it breaks")
		}
		return copies.Observe(s, k)
	}
	x := seen(t, c, "web")
	key, d := events.Key{Name: "web"}, x.engines[0]
	must(t, x.ask(t.Context(), d, key, events.Trigger{}))
	d.wakes[key], breaks = time.Unix(1, 0), true
	must(t, x.ask(t.Context(), d, key, events.Trigger{}))
	if broken := testutil.ToFloat64(x.service.metrics.broken.WithLabelValues(copies.Name)); broken != 1 || d.matcher.Standing() != 1 || len(d.wakes) != 1 {
		t.Errorf("%v turns have broken, %d writes are wanted, and %d keys are asked later", broken, d.matcher.Standing(), len(d.wakes))
	}
}
