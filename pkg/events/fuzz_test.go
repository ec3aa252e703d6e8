package events_test

import (
	"testing"

	"github.com/millrace/millrace/pkg/events"
)

// FuzzOutcome: no outcome or wake panics, whatever its results say.
func FuzzOutcome(f *testing.F) {
	for _, seed := range []string{
		`{"controller":"c","lane":"act","turn":1,"results":[{"command":-1,"status":"applied"}]}`,
		`{"results":[{"command":9223372036854775807,"status":"failed","answer":{"body":{"a":1}}}],"at":"2026-11-22T16:55:37Z"}`,
		`{"controller":"c","key":{"name":"a"},"at":"2026-11-22T16:55:37Z","because":"why"}`,
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		var o events.Outcome
		if events.DecodeJSON(events.Message{Data: body}, &o) == nil {
			o.OK()
			o.Failure()
			o.Answers()
		}
		var w events.Wake
		_ = events.DecodeJSON(events.Message{Data: body}, &w)
	})
}

// FuzzDelta: no delta panics, and one that is read says what it is.
func FuzzDelta(f *testing.F) {
	f.Add("is", "u", "1", "", "", "", "", "", []byte(`{}`))
	f.Add("mark", "", "18446744073709551616", "-1", "x y", "a\tb\tc", "1:2:3", "9/9", []byte(nil))
	f.Fuzz(func(t *testing.T, op, uid, epoch, generation, sight, manager, census, after string, body []byte) {
		m := events.Message{Data: body, Header: map[string][]string{
			events.HeaderOp: {op}, events.HeaderUID: {uid}, events.HeaderEpoch: {epoch}, events.HeaderGeneration: {generation},
			events.HeaderSight: {sight}, events.HeaderManager: {manager, manager}, events.HeaderCensus: {census}, events.HeaderAfter: {after},
		}}
		ref := events.Ref{Kind: "pods", Namespace: "ns", Name: "a"}
		d, err := events.DecodeDelta(ref, m)
		if err == nil && (d.Op == events.Is || d.Op == events.Gone) && (d.UID == "" || d.Ref != ref) {
			t.Errorf("read as %+v", d)
		}
	})
}
