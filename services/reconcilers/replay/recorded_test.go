package replay_test

import (
	"encoding/json"
	"reflect"
	"strings"
	"testing"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/subject"
	"github.com/millrace/millrace/services/reconcilers/replay"
)

// A case has the whole recorded turn, whatever its verdict.
func TestACaseHasTheWholeTurn(t *testing.T) {
	tell(t, func(w *world) {
		w.is("a")
		same := w.decide(1, "")
		same.Code, same.Token, same.Attempt, same.Repeats, same.Trace = "v3", 7, 2, 5, events.Trace{Parent: "00-a-b-01", Writes: 3}
		differs := w.decide(1, "")
		differs.Because = "for an unknown reason"
		unjudged := w.decide(1, "")
		unjudged.Digest++
		var want []events.Turn
		for _, turn := range []events.Turn{same, differs, unjudged} {
			w.store(turn)
			var stored events.Turn
			w.must(json.Unmarshal(text(w, turn), &stored))
			want = append(want, stored)
		}
		for _, views := range []bool{false, true} {
			_, cases := w.replay(replay.Options{Views: views})
			for i, verdict := range []replay.Verdict{replay.Same, replay.Differs, replay.Unjudged} {
				if c := cases[i]; c.Verdict != verdict || string(text(w, c.Turn)) != string(text(w, want[i])) || !reflect.DeepEqual(c.Turn.Trace, want[i].Trace) {
					w.Errorf("views %t: %s, want %s of the turn\n%s, want\n%s", views, c.Verdict, verdict, text(w, c.Turn), text(w, want[i]))
				}
			}
		}
	})
}

func text(w *world, turn events.Turn) []byte {
	w.Helper()
	m, err := events.EncodeJSON(turn, turn.Trace)
	w.must(err)
	return m.Data
}

// The replay reads a turn as JSON, also in another form than Millrace writes. A field that
// occurs twice makes the turn unreadable, or gives it another decision.
func TestATurnIsWhatAReaderOfItSees(t *testing.T) {
	const because = `,"because":`
	for what, c := range map[string]struct {
		write func(turn string) string
		want  replay.Verdict
	}{
		"as it is":                    {func(s string) string { return s }, replay.Same},
		"in other words behind":       {func(s string) string { return strings.TrimSuffix(s, "}") + `,"because":"another"}` }, replay.Differs},
		"without commands in the end": {func(s string) string { return strings.TrimSuffix(s, "}") + `,"commands":null}` }, replay.Differs},
		"with a shape more":           {func(s string) string { return strings.TrimSuffix(s, "}") + `,"shapes":[{}]}` }, replay.Differs},
		"in other words before":       {func(s string) string { return strings.Replace(s, because, `,"Because":"another"`+because, 1) }, replay.Unjudged},
		"with a shape more before":    {func(s string) string { return strings.Replace(s, because, `,"shapes":[{}]`+because, 1) }, replay.Differs},
		"with spaces":                 {func(s string) string { return strings.Replace(s, because, ` , "because" : `, 1) }, replay.Same},
		"with an unknown field":       {func(s string) string { return strings.TrimSuffix(s, "}") + `,"mood":"good"}` }, replay.Same},
		"in settings that look like it": {func(s string) string {
			return strings.Replace(s, `"settings":{`, `"settings":{"x":1,"because":"set",`, 1)
		}, replay.Same},
		"cut off":          {func(s string) string { return s[:len(s)-3] }, replay.Unjudged},
		"more than a turn": {func(s string) string { return s + `{}` }, replay.Unjudged},
		"closed twice":     {func(s string) string { return s + `}` }, replay.Unjudged},
		"not closed":       {func(s string) string { return strings.TrimSuffix(s, "}") }, replay.Unjudged},
		"closed too early": {func(s string) string { return strings.Replace(s, because, `}`+because, 1) }, replay.Unjudged},
	} {
		t.Run(what, func(t *testing.T) {
			tell(t, func(w *world) {
				w.is("a")
				turn := w.decide(1, "")
				written := c.write(string(text(w, turn)))
				w.write(events.Message{Data: []byte(written)}, subject.Turn(counter, turn.Lane, turn.Key))
				_, cases := w.replay(replay.Options{})
				if len(cases) != 1 || cases[0].Verdict != c.want {
					w.Errorf("the turn %s\nis judged %+v, want %s", written, cases, c.want)
				}
				if c.want == replay.Unjudged && cases[0].Why != replay.Unread {
					w.Errorf("the turn is not judged because of %s: %s", cases[0].Why, cases[0].Detail)
				}
			})
		})
	}
}
