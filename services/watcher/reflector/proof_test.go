package reflector

import (
	"errors"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/apiservertest"
	"github.com/millrace/millrace/pkg/events/bus/bustest"
	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/services/watcher/kindlog"
	"github.com/millrace/millrace/services/watcher/source"
	"github.com/millrace/millrace/services/watcher/translate"
	"github.com/millrace/millrace/services/watcher/watchertest"
)

// The watcher looks for the position of a kind in the last sixteen messages of its log.
func TestHowFarBackThePastIsLookedFor(t *testing.T) {
	t.Parallel()
	k, _ := recorded(t, 1, 0)
	appends := func(n int, d events.Delta) {
		t.Helper()
		for range n {
			if d.At = time.Now(); k.append(t.Context(), d) != nil {
				t.Fatal("append: the delta is refused")
			}
		}
	}
	is := func(what, version string, epoch uint64, proof string) {
		t.Helper()
		k.cursor = translate.Cursor{}
		if c, err := k.knownPosition(t.Context()); err != nil || c.Version != version || c.Epoch != epoch {
			t.Errorf("%s: the known position is %+v, %v; want %s", what, c, err, version)
		}
		last := k.appender.Last()
		newest, _, err := kindlog.At(t.Context(), k.bus, "pods", last)
		if err != nil {
			t.Fatal(err)
		}
		k.latest, k.cursor.Epoch = noDelta, 3
		if err := k.findLatest(t.Context(), newest, last); err != nil || k.latest.ResourceVersion != proof {
			t.Errorf("%s: its history is proved by %+v, %v; want %q", what, k.latest, err, proof)
		}
	}
	change := watchertest.ADelta("p0", 30)
	change.Epoch = 3
	appends(1, change)
	is("at the end", "30", 3, "30")
	finding := watchertest.ADelta("p1", 31)
	finding.Sync, finding.Epoch = true, 2
	appends(1, finding)
	is("behind a finding", "30", 3, "30")
	appends(14, events.Delta{Kind: "pods", Op: events.Gap, ContentType: kinds.JSON, Body: []byte("{}")})
	is("behind fifteen", "30", 3, "30")
	appends(1, events.Delta{Kind: "pods", Op: events.Gap, ContentType: kinds.JSON, Body: []byte("{}")})
	is("behind sixteen", "", 2, "30") // the epoch of the finding
	appends(1, events.Delta{Kind: "pods", Op: events.Gap, ContentType: kinds.JSON, Body: []byte("{}")})
	is("behind seventeen", "", 0, "")
	first, _ := recorded(t, 1, 0)
	newest, _, err := kindlog.At(t.Context(), first.bus, "pods", 2)
	if err != nil {
		t.Fatal(err)
	}
	if err := first.findLatest(t.Context(), newest, 2); err != nil || first.latest.ResourceVersion != "7" {
		t.Errorf("of the first message the history is proved by %+v, %v; want version 7", first.latest, err)
	}
	known := first.latest
	if err := first.findLatest(t.Context(), watchertest.ADelta("other", 99), 2); err != nil || first.latest.UID != known.UID {
		t.Errorf("a proof that is known is looked for again: %+v, %v", first.latest, err)
	}
}

// The watcher asks a server that cannot select an object by name for the position alone.
func TestAServerThatCannotSelect(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := watchertest.Offline(t)
		from, err := s.Source(t).Kind(kinds.Pods.Kind)
		if err != nil {
			t.Fatal(err)
		}
		otherwise := 0 // what it answers if nothing is to be selected
		s.Break(func(r apiservertest.Request) apiservertest.Fault {
			if r.Query.Has("fieldSelector") {
				return apiservertest.Fault{Code: http.StatusBadRequest}
			}
			return apiservertest.Fault{Code: otherwise}
		})
		k := &Reflector{source: from, cursor: translate.Cursor{Version: "1"}}
		k.latest = events.Delta{Ref: watchertest.APod("a"), UID: "u", ResourceVersion: "1"}
		if err := k.prove(t.Context()); err != nil {
			t.Errorf("where it stands is not found: %v", err)
		}
		if k.cursor.Version = "9"; !errors.Is(k.prove(t.Context()), errRewound) {
			t.Error("an object that stands before the position is not found")
		}
		otherwise = http.StatusForbidden
		if err := k.prove(t.Context()); !source.Refused(err) {
			t.Errorf("the proof by an API server that refuses: %v, want its refusal", err)
		}
		s.Vanish()
		before := len(s.Since("pods", time.Time{}))
		if err := k.prove(t.Context()); !source.Unreachable(err) || len(s.Since("pods", time.Time{})) != before+1 {
			t.Errorf("one that does not answer is asked again: %v", err)
		}
	})
}

// A storage position before the cursor belongs to another history.
func TestAPositionThatLiesBefore(t *testing.T) {
	t.Parallel()
	s := watchertest.Serve(t)
	s.PutPod("a", 0)
	from, err := s.Source(t).Kind(kinds.Pods.Kind)
	if err != nil {
		t.Fatal(err)
	}
	ref := events.Ref{Kind: "pods", Namespace: "default", Name: "a"}
	for what, c := range map[string]struct {
		cursor  translate.Cursor
		latest  events.Delta
		rewound bool
	}{
		"as it was":                     {translate.Cursor{Version: "2"}, events.Delta{Ref: ref, UID: "uid-2", ResourceVersion: "2"}, false},
		"the position lies before":      {translate.Cursor{Version: "3"}, noDelta, true},
		"the object lies before":        {translate.Cursor{Version: "1"}, events.Delta{Ref: ref, UID: "uid-2", ResourceVersion: "3"}, true},
		"another object lies before":    {translate.Cursor{Version: "1"}, events.Delta{Ref: ref, UID: "uid-9", ResourceVersion: "3"}, false},
		"the object, of an older epoch": {translate.Cursor{Version: "1", Epoch: 2}, events.Delta{Ref: ref, UID: "uid-2", ResourceVersion: "3"}, false},
		"an object that is not there":   {translate.Cursor{Version: "1"}, events.Delta{Ref: events.Ref{Kind: "pods", Namespace: "default", Name: "b"}, UID: "uid-2", ResourceVersion: "3"}, false},
	} {
		k := &Reflector{source: from, cursor: c.cursor, latest: c.latest}
		if err := k.prove(t.Context()); errors.Is(err, errRewound) != c.rewound || !c.rewound && err != nil {
			t.Errorf("%s: the proof ends with %v, want a restore: %t", what, err, c.rewound)
		}
	}
	s.Refuse("pods", 403)
	if err := (&Reflector{source: from}).prove(t.Context()); err == nil {
		t.Error("a refusal proves something")
	}
}

// An object among the last messages of the log proves the history of the watched epoch.
func TestWhatProvesHistory(t *testing.T) {
	t.Parallel()
	k, a := recorded(t, 3, 0)
	last, _, err := kindlog.At(t.Context(), k.bus, "pods", 4)
	if err != nil {
		t.Fatal(err)
	}
	if err := k.findLatest(t.Context(), last, 4); err != nil || k.latest.Ref.Name != "p2" || k.latest.Body != nil {
		t.Errorf("behind a mark the proof is %+v, %v", k.latest, err)
	}
	k.latest, k.cursor.Epoch = noDelta, 3
	if err := k.findLatest(t.Context(), last, 4); err != nil || k.latest.UID != "" {
		t.Errorf("the proof from another epoch is %+v, %v; want none", k.latest, err)
	}
	k.cursor.Epoch = 0
	watchertest.Tear(a, 3)
	if err := k.findLatest(t.Context(), last, 4); err != nil || k.latest.UID != "" {
		t.Errorf("the proof from a torn message is %+v, %v; want none", k.latest, err)
	}
	watchertest.Lose(a, 3)
	if err := k.findLatest(t.Context(), last, 4); err != nil || k.latest.UID != "" {
		t.Errorf("the proof from a missing message is %+v, %v; want none", k.latest, err)
	}
	a.Fail(bustest.At, away, logPods)
	if err := k.findLatest(t.Context(), last, 4); !errors.Is(err, away) {
		t.Errorf("the proof on a bus that is away: %v, want its error", err)
	}
}
