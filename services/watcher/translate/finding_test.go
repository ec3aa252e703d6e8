package translate_test

import (
	"slices"
	"testing"

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
				t.Errorf("the object is %+v, want %+v", got, c.want)
			}
			if epoch := r.Epoch(); (epoch == 4) != (c.epoch == 4 || c.position != "") {
				t.Errorf("the epoch is %d", epoch)
			}
		})
	}
}

// TestWhatIsSaidAllAgain: every listed object is said again, and nothing else is judged otherwise.
func TestWhatIsSaidAllAgain(t *testing.T) {
	for _, c := range []struct {
		name    string
		was     events.Op
		uid     types.UID
		version string
		want    translate.Finding
	}{
		{"as it was", events.Is, "u", "7", translate.Finding{Changed: true}},
		{"changed", events.Is, "u", "8", translate.Finding{Changed: true}},
		{"older", events.Is, "u", "6", translate.Finding{Rewound: true}},
		{"another of that name", events.Is, "v", "8", translate.Finding{Changed: true, Replaced: 40}},
		{"risen from the dead", events.Gone, "u", "7", translate.Finding{Rewound: true}},
	} {
		r := told(c.was).Compare("7", 0)
		r.Again()
		if got := r.See(web, c.uid, c.version); got != c.want {
			t.Errorf("%s: the object is %+v, want %+v", c.name, got, c.want)
		}
	}
	r := told(events.Is).Compare("7", 0)
	if r.Again(); !slices.Equal(r.Missing(), []uint64{40}) {
		t.Errorf("missing are %v, want 40", r.Missing())
	}
}

// TestWhatIsForgotten: of an object whose last delta cannot be read nothing is known, but how far its
// kind was watched is.
func TestWhatIsForgotten(t *testing.T) {
	s := told(events.Is)
	s.Forget(web)
	s.Forget(events.Ref{Kind: "pods", Namespace: "default", Name: "never there"})
	r := s.Compare("7", 0)
	if got := r.Missing(); len(got) != 0 {
		t.Errorf("the ends of messages %v are to be said", got)
	}
	for _, changed := range []bool{true, false} { // it is new, and then known
		if got, want := r.See(web, "u", "7"), (translate.Finding{Changed: changed}); got != want {
			t.Errorf("the listed object is %+v, want %+v", got, want)
		}
	}
	if epoch := s.Compare("6", 0).Epoch(); epoch != 4 {
		t.Errorf("before what was forgotten the epoch is %d, want 4", epoch)
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

// What is only said again says so, in the present epoch, and has no part in the
// trace of what it was at first.
func TestWhatIsSaidAgain(t *testing.T) {
	d := events.Delta{Op: events.Is, Ref: web, UID: "u", ResourceVersion: "7", By: events.Manager{Name: "kubectl"}, Trace: events.Trace{Parent: "00-1"}}
	again := translate.Again(d, translate.Stamp{At: now, Epoch: 5})
	if !again.Sync || again.Epoch != 5 || again.Trace != (events.Trace{}) || again.By != d.By || again.Op != events.Is {
		t.Errorf("the repeated delta is %+v, want a sync in epoch 5 without a trace", again)
	}
	end := translate.Tombstone(d, translate.Stamp{At: now, Epoch: 5})
	if !end.Sync || end.Epoch != 5 || end.By != (events.Manager{}) || end.Op != events.Gone || end.UID != "u" {
		t.Errorf("ended: %+v", end)
	}
}
