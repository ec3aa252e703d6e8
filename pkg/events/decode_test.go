package events_test

import (
	"encoding/json"
	"reflect"
	"testing"

	"pgregory.net/rapid"

	"github.com/millrace/millrace/pkg/events"
)

// TestBodiesAreReadAsBefore: encoding/json wrote the bodies on record, and used to read them.
// Ambiguous keys are tested in [TestAmbiguousBodiesAreRefused].
func TestBodiesAreReadAsBefore(t *testing.T) {
	long := `{"controller":"c","key":{"namespace":"n","name":"a"},"lane":"act","seen":{"pods":18446744073709551615},"now":"2026-11-22T16:55:37.123456789Z",` +
		`"digest":"9223372036854775815","heard":{"act":{"turn":7,"at":"2026-11-22T16:55:37+01:00","answers":3}},"settings":{"a": [1,  2]},` +
		`"because":"\u003ctoo few\u003e \u2028 \ud800","commands":[{"verb":"update","kind":"pods","body":{"z":1,"a":{"b":null}},"if":{"uid":"u"}},{"verb":"delete","graceSeconds":0}],` +
		`"shapes":[{"x":1e400}, null],"notices":[{}],"wakeAt":"2026-11-22T16:55:37Z","trace":{"traceparent":"00-1-2-01"}}`
	texts := []string{
		long, long + " \n", long + "x", long[:len(long)-1],
		"", "null", "{}", "[]", `"turn"`, `{"unknown":[{"deep":true}],"lane":null}`, `{"lane":7}`, `{"now":"yesterday"}`, `{"digest":7}`, `{"digest":""}`,
		`{"seen":{"pods":-1}}`, `{"seen":{"pods":1.0}}`, `{"attempt":1e2}`, "{\"because\":\"\xff\"}", "{\"because\":\"\x01\"}", `{"because":"\x"}`,
		`{"triggers":null,"commands":[],"wakeAt":null}`, `{"commands":[{"of":{"kind":"pods"}}]}`, `{"settings":{"a":01}}`,
	}
	read := func(name string, fresh func() any) {
		for _, text := range texts {
			want, got := fresh(), fresh()
			before, err := json.Unmarshal([]byte(text), want), events.DecodeJSON(events.Message{Data: []byte(text)}, got)
			if (before == nil) != (err == nil) {
				t.Errorf("%s of %q: %v, and before %v", name, text, err, before)
			}
			if err == nil && !reflect.DeepEqual(want, got) {
				t.Errorf("%s of %q is\n%+v, and was\n%+v", name, text, got, want)
			}
		}
	}
	read("turn", func() any { return new(events.Turn) })
	read("outcome", func() any { return new(events.Outcome) })
	read("wake", func() any { return new(events.Wake) })
	texts = []string{
		`{"controller":"c","key":{"name":"a"},"lane":"tell","turn":9,"results":[{"command":0,"status":"applied","ref":{"kind":"pods","name":"a"},"version":"7","removed":true,` +
			`"code":409,"answer":{"body":{"a":[ 1 ]},"note":"x"}},{"command":1,"status":"skipped"}],"epochs":{"pods":2},"at":"2026-11-22T16:55:37.1Z"}`,
		`{"results":null}`, `{"results":[null]}`, `{"results":[{"answer":null}]}`, `{"at":""}`, `{"turn":"9"}`,
	}
	read("outcome", func() any { return new(events.Outcome) })
}

// TestWhateverIsDecidedIsReadAsBefore: decisions of all shapes.
func TestWhateverIsDecidedIsReadAsBefore(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		var turn, want, got events.Turn
		for _, field := range []string{"Because", "Commands", "Shapes", "Notices", "WakeAt"} {
			fill(r, reflect.ValueOf(&turn).Elem().FieldByName(field))
		}
		m, err := events.EncodeJSON(turn, events.Trace{})
		if err != nil {
			r.Fatal(err)
		}
		before, err := json.Unmarshal(m.Data, &want), events.DecodeJSON(m, &got)
		if before != nil || err != nil || !reflect.DeepEqual(want, got) {
			r.Fatalf("%s is read as\n%+v (%v), and was\n%+v (%v)", m.Data, got, err, want, before)
		}
	})
}
