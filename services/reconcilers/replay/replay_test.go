package replay_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/pkg/events/subject"
	"github.com/millrace/millrace/services/reconcilers/reconcile"
	"github.com/millrace/millrace/services/reconcilers/replay"
)

// The same code decides the same, in whatever order the turns were stored: some replicas
// lag, outcomes are heard late, and settings change.
func TestTheSameCodeDecidesTheSame(t *testing.T) {
	tell(t, func(w *world) {
		for i := range 30 {
			w.is(fmt.Sprint("m", i%7))
			if i%5 == 4 {
				w.gone(fmt.Sprint("m", i%7))
			}
			turn := w.decided(w.position[kinds.ConfigMaps.Name])
			if i%3 == 0 {
				w.failed(turn, fmt.Sprint("reason ", i))
			}
			w.decided(max(w.position[kinds.ConfigMaps.Name], 20) - 19) // a replica far behind
		}
		w.store(w.decide(5, "set otherwise: "))
		for _, o := range []replay.Options{{}, {Remembered: 2}, {Views: true}, {Since: time.Now().Add(-40 * time.Millisecond)}} {
			s, cases := w.replay(o)
			if s.Same != s.Turns || s.Turns != len(cases) || o.Since.IsZero() && s.Turns != 61 || s.Turns < 10 {
				w.Errorf("%+v: %+v\n%+v", o, s, slices.DeleteFunc(cases, func(c replay.Case) bool { return c.Verdict == replay.Same }))
			}
			if o.Remembered == 2 && s.Passes != 2 {
				w.Error("no turn was too far behind for one pass: the test has lost its point")
			}
			if o.Views != (cases[0].View != nil) || o.Views != (len(cases[0].Decision.Commands) > 0) {
				w.Errorf("%+v: the view is %s, the decision %+v", o, cases[0].View, cases[0].Decision)
			}
		}
	})
}

func TestWhatIsReplayedIsChosen(t *testing.T) {
	tell(t, func(w *world) {
		w.is("a")
		first := w.decided(1)
		middle := time.Now()
		w.wait(time.Second)
		w.is("b")
		second := w.decided(2)
		w.put(events.Turn{Controller: counter, Key: key, Lane: events.LanePark, Because: "broken"}, subject.Turn(counter, events.LanePark, key))
		for what, c := range map[string]struct {
			options replay.Options
			want    []uint64
		}{
			"all":               {replay.Options{}, []uint64{first, second}},
			"since":             {replay.Options{Since: middle.Add(time.Millisecond)}, []uint64{second}},
			"until":             {replay.Options{Until: middle}, []uint64{first}},
			"one turn":          {replay.Options{Turns: []uint64{second}}, []uint64{second}},
			"a key":             {replay.Options{Wanted: func(k events.Key) bool { return k == key }}, []uint64{first, second}},
			"another key":       {replay.Options{Wanted: func(events.Key) bool { return false }}, nil},
			"one controller":    {replay.Options{Controllers: []string{counter}}, []uint64{first, second}},
			"nothing as yet":    {replay.Options{Since: time.Now().Add(time.Hour)}, nil},
			"nothing any more ": {replay.Options{Until: time.Now().Add(-time.Hour)}, nil},
		} {
			s, cases := w.replay(c.options)
			var got []uint64
			for _, found := range cases {
				got = append(got, found.Sequence)
			}
			if !slices.Equal(got, c.want) || s.Same != len(c.want) {
				w.Errorf("%s: turns %v, want %v: %+v", what, got, c.want, s)
			}
		}
		if s, _ := w.replay(replay.Options{}); s.Parks != 1 {
			w.Errorf("%d keys were set aside", s.Parks)
		}
		_, err := replay.Run(w.Context(), w.bus, replay.Options{Controllers: []string{"absent"}, Make: again}, nil)
		if err == nil || !strings.Contains(err.Error(), "no turns of it are on record") {
			w.Errorf("an absent controller is replayed: %v", err)
		}
		enough := errors.New("enough")
		if _, err := replay.Run(w.Context(), w.bus, replay.Options{Make: again}, func(replay.Case) error { return enough }); !errors.Is(err, enough) {
			w.Errorf("the handler's error is %v", err)
		}
	})
}

// A turn whose view or settings cannot be rebuilt is unjudged: no agreement, and no difference.
func TestWhatCannotBeJudgedIsNamed(t *testing.T) {
	for what, c := range map[string]struct {
		why  replay.Why
		make func(w *world)
	}{
		"an unreadable turn": {replay.Unread, func(w *world) {
			w.put(7, subject.Turn(counter, events.LaneWrite, key))
		}},
		"settings of another version": {replay.Foreign, func(w *world) {
			turn := w.decide(1, "")
			turn.Settings = json.RawMessage(`7`)
			w.store(turn)
		}},
		"a kind without a log": {replay.Expired, func(w *world) {
			turn := w.decide(1, "")
			turn.Seen["pods"], turn.Digest = 4, turn.Digest+1
			w.store(turn)
		}},
		"a kind without a log of which nothing was seen": {replay.Apart, func(w *world) {
			turn := w.decide(1, "")
			turn.Seen["pods"], turn.Digest = 0, turn.Digest+1
			w.store(turn)
		}},
		"a log that lost its end": {replay.Expired, func(w *world) {
			turn := w.decide(1, "")
			turn.Seen["configmaps"], turn.Digest = 1000, turn.Digest+1
			w.store(turn)
		}},
		"a view of no one moment": {replay.Apart, func(w *world) {
			turn := w.decide(1, "")
			turn.Digest++
			w.store(turn)
		}},
		"an outcome that is gone": {replay.Unheard, func(w *world) {
			turn := w.decide(1, "")
			turn.Heard = map[events.Lane]events.Heard{events.LaneWrite: {Turn: 3, At: time.Now()}}
			w.store(turn)
		}},
		"a version that knew what it did not say": {replay.Older, func(w *world) {
			turn := w.decide(1, "")
			turn.Digest, turn.Heard, turn.Because = 0, nil, "who knows why"
			w.store(turn)
		}},
	} {
		t.Run(what, func(t *testing.T) {
			tell(t, func(w *world) {
				w.is("a")
				w.decided(1)
				c.make(w)
				w.unjudged(replay.Options{}, c.why)
			})
		})
	}
}

// A turn of a version that did not record what it knew is replayed with the newest outcome
// of that time. It is the same if that gives the same decision.
func TestOlderTurnsAreTheSameWhereTheyAre(t *testing.T) {
	tell(t, func(w *world) {
		w.is("a")
		for range 3 {
			turn := w.decide(w.position["configmaps"], "")
			turn.Digest, turn.Heard = 0, nil
			w.failed(w.store(turn), "quota")
			w.is("b")
		}
		if s, cases := w.replay(replay.Options{}); s.Same != 3 {
			w.Errorf("%+v\n%+v", s, cases)
		}
	})
}

// The beginning of the record has expired. A turn that rests on it is not judged; a turn
// whose whole view is on record is, even before every object has been recorded again.
func TestTheBeginOfTheRecordIsKeptNoMore(t *testing.T) {
	tell(t, func(w *world) {
		w.is("old")
		w.is("kept")
		w.decided(1)
		w.wait(23*time.Hour + 30*time.Minute)
		w.decided(2)
		w.is("new")
		w.wait(time.Hour) // the first messages have expired now
		before := w.decided(3)
		w.is("kept")
		w.gone("old")
		whole := w.decided(5)
		s, cases := w.replay(replay.Options{})
		verdicts := map[uint64]replay.Verdict{}
		for _, c := range cases {
			verdicts[c.Sequence] = c.Verdict
		}
		if verdicts[whole] != replay.Same || verdicts[before] != replay.Unjudged || s.Differ > 0 || s.Unjudged[replay.Expired] != s.Turns-1 {
			w.Errorf("%+v\n%+v", s, cases)
		}
		if s.Passes != 1 {
			w.Error("a second pass looks for a turn that is not kept any more")
		}
	})
}

// A replay notices other code by any byte that differs in a decision.
func TestOtherCodeDiffers(t *testing.T) {
	tell(t, func(w *world) {
		w.is("a")
		w.decided(1)
		other := counts("")
		other.Decide = func(v view, now time.Time) reconcile.Decision {
			d := counts("").Decide(v, now)
			d.Because = "I know better"
			return d
		}
		s, cases := w.replay(replay.Options{Make: func(string, json.RawMessage) (reconcile.Any, error) { return other, nil }})
		if s.Differ != 1 || cases[0].Now == nil || cases[0].Now.Because != "I know better" || cases[0].Turn.Because == cases[0].Now.Because {
			w.Errorf("%+v\n%+v", s, cases)
		}
		other.Observe = func(reconcile.Snapshot, events.Key) (view, bool) { panic("blind") }
		s, cases = w.replay(replay.Options{Make: func(string, json.RawMessage) (reconcile.Any, error) { return other, nil }})
		if s.Differ != 1 || !strings.Contains(cases[0].Broken, "blind") {
			w.Errorf("%+v\n%+v", s, cases)
		}
	})
}

// Decision restores the decision of a packed turn.
func TestADecisionIsUnpacked(t *testing.T) {
	d := reconcile.Do("because",
		reconcile.Create(kinds.ConfigMaps.Kind, "ns", "a", []byte(`{}`), reconcile.WithEvents(&events.Notice{Message: "done"}, nil)),
		reconcile.Create(kinds.ConfigMaps.Kind, "ns", "b", []byte(`{}`), reconcile.WithEvents(nil, &events.Notice{Message: "not done"})),
	)
	turn := events.Turn{Because: d.Because, Commands: slices.Clone(d.Commands)}
	turn.Pack()
	if len(turn.Shapes) == 0 || len(turn.Notices) != 2 {
		t.Fatalf("the turn has nothing packed: %+v", turn)
	}
	if got, want := string(reconcile.Body(replay.Decision(turn))), string(reconcile.Body(d)); got != want {
		t.Errorf("unpacked: %s\nwant      %s", got, want)
	}
}
