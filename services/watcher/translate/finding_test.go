package translate_test

import (
	"slices"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/services/watcher/translate"
)

var web = events.Ref{Kind: "pods", Namespace: "default", Name: "web"}

// told is a state in which an object was told of in epoch 3.
func told(op events.Op) *translate.State {
	s := translate.NewState()
	s.Fold(events.Delta{Op: op, Ref: web, UID: "u", ResourceVersion: "7", Epoch: 3}, 40)
	return s
}

func TestWhatAListedObjectIs(t *testing.T) {
	for _, c := range []struct {
		name     string
		was      events.Op
		epoch    uint64 // of the storage
		uid      types.UID
		version  string
		want     translate.Finding
		position string
	}{
		{name: "as it was", was: events.Is, uid: "u", version: "7"},
		{name: "changed", was: events.Is, uid: "u", version: "8", want: translate.Finding{Changed: true}},
		{name: "older", was: events.Is, uid: "u", version: "6", want: translate.Finding{Rewound: true}},
		{name: "another of that name", was: events.Is, uid: "v", version: "8", want: translate.Finding{Changed: true, Replaced: 40}},
		{name: "risen from the dead", was: events.Gone, uid: "u", version: "7", want: translate.Finding{Rewound: true}},
		{name: "risen in a later version", was: events.Gone, uid: "u", version: "9", want: translate.Finding{Rewound: true}},
		{name: "the successor of a dead one", was: events.Gone, uid: "v", version: "9", want: translate.Finding{Changed: true}},
		{name: "as it was, in a new epoch", was: events.Is, epoch: 4, uid: "u", version: "7", want: translate.Finding{Changed: true}},
		{name: "older, in a new epoch", was: events.Is, epoch: 4, uid: "u", version: "6", want: translate.Finding{Changed: true}},
		{name: "risen, in a new epoch", was: events.Gone, epoch: 4, uid: "u", version: "7", want: translate.Finding{Changed: true}},
		{name: "as it was, while the server is behind", was: events.Is, uid: "u", version: "7", position: "5", want: translate.Finding{Changed: true}},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := told(c.was).Compare(c.position, c.epoch)
			if got := r.See(web, c.uid, c.version); got != c.want {
				t.Errorf("it is %+v, want %+v", got, c.want)
			}
			if epoch := r.Epoch(); (epoch == 4) != (c.epoch == 4 || c.position != "") {
				t.Errorf("the epoch is %d", epoch)
			}
		})
	}
}

// TestWhatTheLogAloneKnows: of what the state has lost the log counts, and it is said
// again, or its end is; of what the state has the log is not asked.
func TestWhatTheLogAloneKnows(t *testing.T) {
	lost := func(name string) events.Ref { return events.Ref{Kind: "pods", Namespace: "default", Name: name} }
	s := told(events.Gone)
	s.Recall(events.Delta{Op: events.Is, Ref: web, UID: "u", ResourceVersion: "6", Epoch: 3}, 30)
	for i, name := range []string{"there", "other", "missing", "ended", "ended"} {
		s.Recall(events.Delta{Op: events.Is, Ref: lost(name), UID: "u", ResourceVersion: "6", Epoch: 3}, uint64(31+i))
	}
	s.Recall(events.Delta{Op: events.Gone, Ref: lost("ended"), UID: "u", ResourceVersion: "6", Epoch: 3}, 36)
	r := s.Compare("7", 0)
	if got, want := r.See(lost("there"), "u", "6"), (translate.Finding{Changed: true}); got != want {
		t.Errorf("what is as the log says is %+v, want %+v", got, want)
	}
	if got, want := r.See(lost("other"), "v", "7"), (translate.Finding{Changed: true, Replaced: 32}); got != want {
		t.Errorf("another one is %+v, want %+v", got, want)
	}
	if got := r.Missing(); !slices.Equal(got, []uint64{33}) {
		t.Errorf("the ends of messages %v are to be said, want that of 33", got)
	}
}

// Versions without an order cover each other only when they are the same.
func TestWhatAPositionCovers(t *testing.T) {
	for _, c := range []struct {
		at, version string
		want        bool
	}{
		{"7", "7", true}, {"7", "6", true}, {"7", "8", false}, {"10", "9", true}, {"9", "10", false},
		{"x1", "x1", true}, {"x1", "x2", false}, {"x2", "x1", false}, {"", "7", false},
	} {
		if got := (translate.Cursor{Version: c.at}).Covers(c.version); got != c.want {
			t.Errorf("%q covers %q: %t, want %t", c.at, c.version, got, c.want)
		}
	}
}

func TestAMarkProvesOneStateOnly(t *testing.T) {
	made := time.Date(2026, 1, 2, 3, 4, 5, 6, time.UTC)
	mark := translate.Mark("pods", "7", made, translate.Stamp{At: now})
	if !translate.Proves(mark, made) {
		t.Error("a mark does not prove its own state")
	}
	if translate.Proves(mark, made.Add(time.Nanosecond)) {
		t.Error("a mark proves a state that was made later")
	}
	if mark.Op = events.Gap; translate.Proves(mark, made) {
		t.Error("a gap proves something")
	}
}

// What is only said again says so, in the present epoch, and has no part in the
// trace of what it was at first.
func TestWhatIsSaidAgain(t *testing.T) {
	d := events.Delta{Op: events.Is, Ref: web, UID: "u", ResourceVersion: "7", By: events.Manager{Name: "kubectl"}, Trace: events.Trace{Parent: "00-1"}}
	again := translate.Again(d, translate.Stamp{At: now, Epoch: 5})
	if !again.Sync || again.Epoch != 5 || again.Trace != (events.Trace{}) || again.By != d.By || again.Op != events.Is {
		t.Errorf("said again: %+v", again)
	}
	end := translate.Tombstone(d, translate.Stamp{At: now, Epoch: 5})
	if !end.Sync || end.Epoch != 5 || end.By != (events.Manager{}) || end.Op != events.Gone || end.UID != "u" {
		t.Errorf("ended: %+v", end)
	}
}
