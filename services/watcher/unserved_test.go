package watcher

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/bus"
	"github.com/millrace/millrace/pkg/events/bus/bustest"
	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/pkg/events/stream/memory"
	"github.com/millrace/millrace/pkg/events/subject"
	"github.com/millrace/millrace/services/watcher/kindlog"
	"github.com/millrace/millrace/services/watcher/source"
	"github.com/millrace/millrace/services/watcher/watchertest"
)

var widget = kinds.Kind{Name: widgets, Version: "v1", Kind: "Widget", Namespaced: true, Form: kinds.Metadata}

// widgetsOn stores n widgets.
func widgetsOn(t *testing.T, b bus.Bus, n int) {
	t.Helper()
	if err := b.EnsureKind(t.Context(), widget); err != nil {
		t.Fatal(err)
	}
	log, err := b.Append(t.Context(), widgets)
	if err != nil {
		t.Fatal(err)
	}
	for i := range n {
		d := events.Delta{
			Kind: widgets, Op: events.Is, UID: types.UID(fmt.Sprint("u", i)), ResourceVersion: "1", At: time.Now(), Form: kinds.Metadata,
			Ref: events.Ref{Kind: widgets, Namespace: "default", Name: fmt.Sprint("w", i)},
		}
		if err := log.Append(t.Context(), events.Seal(subject.Message(d))); err != nil {
			t.Fatal(err)
		}
	}
}

// The watcher retries to retire a kind, and logs the reason once. It marks a retired kind again in
// each epoch, and after twenty minutes.
func TestWhatCannotBeRetiredIsTriedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := bustest.Wrap(memory.New(memory.Options{}))
		service, s := idle(t, a)
		widgetsOn(t, a, 2)
		ctx, log := watchertest.Logged(t)
		sweep := func() { service.endUnserved(ctx, nil, source.Catalog{}) }
		said := func(what, want string) {
			t.Helper()
			if got := strings.Join(watchertest.Ops(watchertest.LogOfKind(t, a.Bus, widgets)), " "); got != want {
				t.Errorf("%s: the log tells %q, want %q", what, got, want)
			}
		}
		a.Fail(bustest.Kinds, away)
		sweep()
		if a.Fail(bustest.Kinds, nil); !service.waiting || len(service.missing) != 0 || !strings.Contains(log(), "Cannot find kinds") {
			t.Errorf("a bus that is away: waiting %t, missing %v", service.waiting, service.missing)
		}
		if sweep(); !service.waiting || len(service.missing) != 1 || !service.reminder.IsZero() {
			t.Errorf("at first: waiting %t, missing %v, reminded at %v", service.waiting, service.missing, service.reminder)
		}
		time.Sleep(goneAfter - 1) // virtual, as all of them here
		if sweep(); !service.waiting || len(service.retired) != 0 {
			t.Errorf("too soon: waiting %t, retired %v", service.waiting, service.retired)
		}
		time.Sleep(1)
		a.Fail(bustest.StreamState, away, subject.LogStream(widgets))
		sweep()
		if sweep(); !service.waiting || service.retired[widgets].err == nil || strings.Count(log(), "Cannot retire") != 1 {
			t.Errorf("a log that is away: waiting %t, %+v, and it tells\n%s", service.waiting, service.retired, log())
		}
		a.Fail(bustest.StreamState, nil, subject.LogStream(widgets))
		a.Fail(bustest.Last, away, subject.LogStream(widgets))
		if sweep(); strings.Count(log(), "Cannot retire") != 2 {
			t.Errorf("a mark that is away is told as\n%s", log())
		}
		a.Fail(bustest.Last, nil, subject.LogStream(widgets))
		s.Refuse("namespaces", 403)
		if sweep(); strings.Count(log(), "Cannot retire") != 3 {
			t.Errorf("a position that is not told is told as\n%s", log())
		}
		s.Break(nil)
		a.Fail(bustest.At, away, subject.LogStream(widgets))
		if sweep(); strings.Count(log(), "Cannot retire") != 4 {
			t.Errorf("a message that is away is told as\n%s", log())
		}
		a.Fail(bustest.At, nil, subject.LogStream(widgets))
		said("before it is retired", "is w0 is w1")
		const gone = "is w0 is w1 gone w0 gone w1 mark"
		at := time.Now()
		if sweep(); service.waiting || service.retired[widgets].err != nil || !service.retired[widgets].at.Equal(at) || !service.reminder.Equal(at.Add(retiredMarkEvery)) {
			t.Errorf("retired: waiting %t, %+v, reminded at %v", service.waiting, service.retired, service.reminder)
		}
		said("when it is retired", gone)
		mark := watchertest.LastOf(t, a.Bus, widgets)
		if mark.ResourceVersion != "1" || !mark.Census.Known || mark.Census.Objects != 0 || mark.After.Sequence != 4 || mark.Since != 5 {
			t.Errorf("the mark is %+v", mark)
		}
		time.Sleep(retiredMarkEvery - 1)
		sweep()
		said("before twenty minutes are over", gone)
		time.Sleep(1)
		sweep()
		said("after twenty minutes", gone+" mark")
		service.epoch.Begin(3)
		sweep()
		said("in a new epoch", gone+" mark mark")
		if got := watchertest.LastOf(t, a.Bus, widgets).Epoch; got != 3 || service.retired[widgets].epoch != 3 {
			t.Errorf("the kind is in epoch %d, and retired in %d; want 3", got, service.retired[widgets].epoch)
		}
		if got := strings.Count(log(), "A kind is no longer served"); got != 1 {
			t.Errorf("that it is served no more is told %d times", got)
		}
	})
}

// A kind is not missing if it is wanted, if the document of its group is stale, or if its form is
// full. A kind that falls to another watcher is retired by that one.
func TestWhichKindsAreMissing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		full := widget
		full.Form = kinds.Full
		for what, c := range map[string]struct {
			kind    kinds.Kind
			want    []kinds.Kind
			silent  map[string]bool
			missing bool
		}{
			"not served": {widget, nil, nil, true}, "wanted": {widget, []kinds.Kind{widget}, nil, false},
			"silent": {widget, nil, map[string]bool{"example.com": true}, false}, "another is": {widget, nil, map[string]bool{"example.org": true}, true},
			"in full": {full, nil, nil, false},
		} {
			b := memory.New(memory.Options{})
			service, _ := idle(t, b)
			if err := b.EnsureKind(t.Context(), c.kind); err != nil {
				t.Fatal(err)
			}
			service.endUnserved(t.Context(), nil, source.Catalog{})
			service.missing[widgets], service.retired[widgets] = time.Now(), retiredKind{err: away}
			if service.endUnserved(t.Context(), c.want, source.Catalog{Silent: c.silent}); (len(service.missing) == 1) != c.missing || (len(service.retired) == 1) != c.missing || service.waiting != c.missing {
				t.Errorf("%s: missing %v, retired %v, waiting %t", what, service.missing, service.retired, service.waiting)
			}
		}
		b := memory.New(memory.Options{})
		service, _ := idle(t, b)
		if err := b.EnsureKind(t.Context(), widget); err != nil {
			t.Fatal(err)
		}
		service.config.Scope = BuiltIn
		service.retired[widgets] = retiredKind{at: time.Now()}
		if service.endUnserved(t.Context(), nil, source.Catalog{}); len(service.missing) != 0 || len(service.retired) != 0 || service.waiting || !service.reminder.IsZero() {
			t.Errorf("of a kind of other watchers: missing %v, retired %v, waiting %t; want nothing", service.missing, service.retired, service.waiting)
		}
		service.retired = map[kinds.Name]retiredKind{"a": {at: time.Unix(300, 0)}, "b": {at: time.Unix(100, 0)}, "c": {at: time.Unix(200, 0)}}
		if service.setNextMark(); !service.reminder.Equal(time.Unix(100, 0).Add(retiredMarkEvery)) {
			t.Errorf("the reminder is at %v, want for the earliest mark", service.reminder)
		}
	})
}

// The watcher removes the streams of a retired kind when they hold marks alone, or nothing.
func TestWhichStreamsAreRemoved(t *testing.T) {
	t.Parallel()
	logW := subject.LogStream(widgets)
	for what, c := range map[string]struct {
		objects int
		mark    bool
		change  func(*bustest.Bus)
		removed bool
	}{
		"nothing":                        {0, false, func(*bustest.Bus) {}, true},
		"an object":                      {1, false, func(*bustest.Bus) {}, false},
		"an object and a mark":           {1, true, func(*bustest.Bus) {}, false},
		"a mark":                         {0, true, func(*bustest.Bus) {}, true},
		"a mark behind what has expired": {1, true, func(a *bustest.Bus) { watchertest.Stand(a, logW, bus.State{First: 2, Last: 2, Messages: 1}) }, true},
		"the last is not there":          {0, true, func(a *bustest.Bus) { watchertest.Lose(a, 1) }, false},
		"the last is torn":               {0, true, func(a *bustest.Bus) { watchertest.Tear(a, 1) }, false},
		"the log is away":                {0, false, func(a *bustest.Bus) { a.Fail(bustest.StreamState, away, logW) }, false},
		"they cannot be removed":         {0, false, func(a *bustest.Bus) { a.Fail(bustest.DeleteKind, away) }, false},
	} {
		a := bustest.Wrap(memory.New(memory.Options{}))
		widgetsOn(t, a, c.objects)
		if c.mark {
			log, err := a.Append(t.Context(), widgets)
			if err != nil {
				t.Fatal(err)
			}
			after, err := kindlog.LastLink(t.Context(), a, widgets, watchertest.StateOf(t, a.Bus, logW))
			if err != nil || (podLog{log}).append(t.Context(), events.Delta{Kind: widgets, Op: events.Mark, After: after, At: time.Now()}) != nil {
				t.Fatal("mark: the mark is refused")
			}
		}
		c.change(a)
		service := &Service{
			config: Config{Bus: a}, missing: map[kinds.Name]time.Time{widgets: {}}, retired: map[kinds.Name]retiredKind{widgets: {}}, ensured: map[kinds.Name]bool{widgets: true},
		}
		removed := service.removeRetired(t.Context(), widgets)
		left := len(service.missing) + len(service.retired) + len(service.ensured)
		_, err := a.Bus.StreamState(t.Context(), logW)
		if removed != c.removed || (left == 0) != c.removed || (err != nil) != c.removed {
			t.Errorf("%s: removed %t, %d remembered, the log: %v", what, removed, left, err)
		}
	}
}
