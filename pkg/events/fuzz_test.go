package events_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"reflect"
	"strings"
	"testing"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/subject"
)

// readers fails if encoding/json decodes a body to another value, or if the value changes when
// it is encoded and decoded again.
func readers[T any](t *testing.T, body []byte) (value T, ok bool) {
	t.Helper()
	if err := events.DecodeJSON(events.Message{Data: body}, &value); err != nil {
		if !strings.Contains(err.Error(), "decode ") {
			t.Errorf("%q is refused without saying what it should have been: %v", body, err)
		}
		return value, false
	}
	var other T
	if err := json.Unmarshal(body, &other); err != nil || !reflect.DeepEqual(value, other) {
		t.Fatalf("%q is read as\n%+v, and by encoding/json as\n%+v, %v", body, value, other, err)
	}
	first, err := events.EncodeJSON(value, events.Trace{})
	if err != nil {
		t.Fatalf("%q is read as %+v, which cannot be written: %v", body, value, err)
	}
	var again T
	if err := events.DecodeJSON(first, &again); err != nil {
		t.Fatalf("%s was written and cannot be read: %v", first.Data, err)
	}
	if second, err := events.EncodeJSON(again, events.Trace{}); err != nil || !bytes.Equal(first.Data, second.Data) {
		t.Fatalf("%s is written again as %s, %v", first.Data, second.Data, err)
	}
	return value, true
}

// FuzzTurn: two readers understand the same, and the accessors of the turn do not panic.
func FuzzTurn(f *testing.F) {
	for _, seed := range []string{
		`{"lane":"act","shapes":[{"metadata":null}],"commands":[{"verb":"create","kind":"pods","version":"v1","name":"a","shape":1}]}`,
		`{"Lane":"act","lane":"tell","commands":[{"shape":-1,"applied":9223372036854775807}]}`,
		`{"now":"0000-01-01T00:00:00+23:59","wakeAt":"9999-12-31T23:59:59-23:59","seen":{"pods":18446744073709551615}}`,
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		turn, ok := readers[events.Turn](t, body)
		if !ok {
			return
		}
		for _, c := range turn.Commands {
			turn.BodyOf(c)
			turn.NoticeAt(c.Applied)
			turn.NoticeAt(c.Failed)
			_, _, _ = c.Lane(), c.Searches(), c.FillsToken()
		}
	})
}

// FuzzOutcome: two readers understand the same, and the accessors of the outcome do not panic.
func FuzzOutcome(f *testing.F) {
	for _, seed := range []string{
		`{"controller":"c","lane":"act","turn":1,"results":[{"command":-1,"status":"applied"}]}`,
		`{"results":[{"command":9223372036854775807,"status":"failed","answer":{"body":{"a":1}}}],"at":"2026-11-22T16:55:37Z"}`,
		`{"results":null,"results":[]}`,
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		o, ok := readers[events.Outcome](t, body)
		if !ok {
			return
		}
		if r, failed := o.Failure(); failed && (o.OK() || r.OK()) {
			t.Errorf("%s is in order, and failed with %+v", body, r)
		}
		o.Answers()
		o.Forged()
	})
}

// FuzzWake: two readers understand the same.
func FuzzWake(f *testing.F) {
	f.Add([]byte(`{"controller":"c","key":{"name":"a"},"at":"2026-11-22T16:55:37Z","because":"why"}`))
	f.Add([]byte(`{"key":{"Name":"a","name":"b"},"at":"1e9"}`))
	f.Fuzz(func(t *testing.T, body []byte) { readers[events.Wake](t, body) })
}

// FuzzDelta: a decoded delta has everything that its op requires, and does not change when it is
// encoded and decoded again. An error names the header.
func FuzzDelta(f *testing.F) {
	f.Add("ev.pods.0.ns.a", []byte(`{"Millrace-Op":["is"],"Kube-Uid":["u"],"Millrace-Epoch":["1"],"Millrace-At":["2026-11-22T16:55:37Z"]}`), []byte(`{}`))
	f.Add(subject.Delta(events.Ref{Kind: "pods", Namespace: "ns", Name: "a"}),
		[]byte(`{"Millrace-Op":["gone"],"Kube-Uid":["u"],"Kube-Manager":["a\tb\tc",""," ","\t\t\t"],"Millrace-Author":["proven"],"Millrace-Census":["1 2"],"Millrace-After":["9 f"]}`), []byte(nil))
	f.Add("ev.pods._mark", []byte(`{"Millrace-Op":["mark"],"Millrace-Epoch":["18446744073709551616"],"Kube-Generation":["-1"],"Millrace-Sight":["x y"]}`), []byte(nil))
	f.Add("ev.pods.0.ns.a", []byte(`{"Millrace-Op":["is"],"Kube-Uid":["u"],"Kube-Manager":["\u0001","a\tUpdate"],"Millrace-Author":["proven"]}`), []byte(`{}`))
	f.Fuzz(func(t *testing.T, at string, header, body []byte) {
		ref, err := subject.ParseDelta(at)
		m := events.Message{Subject: at, Data: body}
		if err != nil || json.Unmarshal(header, &m.Header) != nil {
			return
		}
		d, err := events.DecodeDelta(ref, m)
		if err != nil {
			if !errors.Is(err, events.ErrDamaged) && !strings.Contains(err.Error(), "header ") && !strings.Contains(err.Error(), "Kube-Uid") {
				t.Errorf("the refusal of %v names no header: %v", m.Header, err)
			}
			return
		}
		if (d.Op == events.Is || d.Op == events.Gone) && (d.UID == "" || d.Ref != ref) {
			t.Errorf("read as %+v", d)
		}
		first := events.EncodeDelta(d)
		again, err := events.DecodeDelta(ref, first)
		if err != nil {
			t.Fatalf("%v was written and cannot be read: %v", first.Header, err)
		}
		if second := events.EncodeDelta(again); !reflect.DeepEqual(first, second) {
			t.Errorf("%v is written again as %v", first.Header, second.Header)
		}
	})
}
