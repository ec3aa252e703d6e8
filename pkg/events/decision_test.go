package events_test

import (
	"encoding/json"
	"reflect"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/millrace/millrace/pkg/events"
)

// written is the decision as in the turn's JSON.
func written(t testing.TB, turn events.Turn) string {
	t.Helper()
	m, err := events.EncodeJSON(events.Turn{Because: turn.Because, Commands: turn.Commands, Shapes: turn.Shapes, Notices: turn.Notices, WakeAt: turn.WakeAt}, events.Trace{})
	if err != nil {
		t.Fatal(err)
	}
	text := string(m.Data)
	return strings.TrimSuffix(text[strings.Index(text, `"because":`):], "}")
}

// Every decision is written as in the turn's JSON. The test fills fields by their types, so it
// fails if a new field of a command is not written.
func TestADecisionIsWrittenAsTheTurnHasIt(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		var turn events.Turn
		for _, field := range []string{"Because", "Commands", "Shapes", "Notices", "WakeAt"} {
			fill(r, reflect.ValueOf(&turn).Elem().FieldByName(field))
		}
		if got, want := string(turn.AppendDecision(nil)), written(t, turn); got != want {
			r.Fatalf("the decision is written\n%s, want\n%s", got, want)
		}
	})
}

var (
	rawType  = reflect.TypeFor[json.RawMessage]()
	timeType = reflect.TypeFor[time.Time]()
)

// fill sets a value at random, and often leaves it empty.
func fill(r *rapid.T, v reflect.Value) {
	switch {
	case rapid.IntRange(0, 2).Draw(r, "empty") == 0 && v.Type() != rawType:
	case v.Type() == rawType:
		v.SetBytes([]byte(rapid.SampledFrom([]string{`{"a":"\u003c"}`, `[1,2]`, `null`, `{"metadata":{"name":"x"}}`}).Draw(r, "raw")))
	case v.Type() == timeType:
		at := time.Unix(rapid.Int64Range(0, 1<<33).Draw(r, "seconds"), rapid.Int64Range(0, 1e9-1).Draw(r, "nanoseconds"))
		v.Set(reflect.ValueOf(at.In(rapid.SampledFrom([]*time.Location{time.UTC, time.FixedZone("far", 3600)}).Draw(r, "zone"))))
	case v.Kind() == reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		fill(r, v.Elem())
	case v.Kind() == reflect.Struct:
		for i := range v.NumField() {
			if v.Field(i).Type() != rawType || rapid.Bool().Draw(r, "there") {
				fill(r, v.Field(i))
			}
		}
	case v.Kind() == reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), rapid.IntRange(0, 3).Draw(r, "length"), 3))
		for i := range v.Len() {
			fill(r, v.Index(i))
		}
	case v.Kind() == reflect.String:
		v.SetString(rapid.OneOf(rapid.StringMatching(`[a-z./-]{1,8}`), rapid.SampledFrom([]string{`"`, `\`, "<&>", "é", "\x00", "\u2028", "\xff", "\x7f", " "})).Draw(r, "text"))
	case v.CanInt():
		v.SetInt(rapid.Int64Range(-3, 1000).Draw(r, "number"))
	default:
		v.SetBool(true)
	}
}

// A decision with a time that has no JSON form equals no other.
func TestADecisionThatCannotBeWrittenMatchesNone(t *testing.T) {
	far := time.Date(10000, 1, 1, 0, 0, 0, 0, time.UTC)
	turn := events.Turn{Because: "it is late", WakeAt: &far}
	if text := turn.AppendDecision(nil); json.Valid(append(append([]byte("{"), text...), '}')) {
		t.Errorf("a decision that JSON cannot have is written as %s", text)
	}
}
