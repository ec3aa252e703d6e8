package ingest_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/millrace/millrace/pkg/events/stream/ingest"
)

func sent(n int) *ingest.Batch {
	b := ingest.New("_INBOX.x", "id")
	for range n {
		b.Next()
	}
	return b
}

// TestWhatABatchSays: the server reads the place of a message from its reply subject.
func TestWhatABatchSays(t *testing.T) {
	b := ingest.New("_INBOX.x", "id")
	for _, want := range []string{"_INBOX.x.id.1.fail.1.0.$FI", "_INBOX.x.id.1.fail.2.1.$FI", "_INBOX.x.id.1.fail.3.1.$FI"} {
		if got := b.Next(); got != want || !b.Owns(got) {
			t.Errorf("the next message has %s, want %s", got, want)
		}
	}
	if got, want := b.Ping(), "_INBOX.x.id.1.fail.3.4.$FI"; got != want {
		t.Errorf("a ping has %s, want %s", got, want)
	}
	if got, want := sent(12).Ping(), "_INBOX.x.id.1.fail.12.4.$FI"; got != want {
		t.Errorf("a ping behind twelve messages has %s, want %s", got, want)
	}
	if b.Owns(ingest.New("_INBOX.x", "id2").Next()) {
		t.Error("the batch takes another one's messages for its own")
	}
}

// TestWhatTheServerSays: only what the server says is stored counts, and nothing does that
// was not sent.
func TestWhatTheServerSays(t *testing.T) {
	const lacking = `{"type":"gap","last_seq":3,"seq":5}`
	broken := func(err error) bool { return errors.Is(err, ingest.ErrBroken) }
	wrong := func(err error) bool {
		var api *jetstream.APIError
		return errors.As(err, &api) && api.ErrorCode == jetstream.JSErrCodeStreamWrongLastSequence
	}
	for name, tc := range map[string]struct {
		answers []string
		stored  uint64
		ended   func(error) bool
	}{
		"nothing":                     {nil, 0, nil},
		"the first answer":            {[]string{`{"type":"ack","seq":0,"msgs":1}`}, 0, nil},
		"some":                        {[]string{`{"type":"ack","seq":1,"msgs":1}`, `{"type":"ack","seq":2,"msgs":1}`}, 2, nil},
		"an old answer":               {[]string{`{"type":"ack","seq":4,"msgs":1}`, `{"type":"ack","seq":2,"msgs":1}`}, 4, nil},
		"more than was sent":          {[]string{`{"type":"ack","seq":9,"msgs":1}`}, 5, nil},
		"a gap":                       {[]string{`{"type":"ack","seq":2,"msgs":1}`, lacking, `{"stream":"EV_pods","seq":70,"batch":"id","count":2}`}, 2, func(err error) bool { return broken(err) && strings.Contains(err.Error(), "lacks messages 3 to 4") }},
		"a refusal of the first":      {[]string{`{"error":{"code":400,"err_code":10071,"description":"wrong last sequence: 7"},"stream":"EV_pods","seq":0}`}, 0, wrong},
		"a refusal of a later one":    {[]string{`{"type":"err","seq":3,"error":{"code":400,"err_code":10071,"description":"wrong last sequence: 7"}}`, `{"stream":"EV_pods","seq":70,"batch":"id","count":2}`}, 2, wrong},
		"a batch that is not known":   {[]string{`{"error":{"code":400,"err_code":10208,"description":"batch publish ID unknown"},"stream":"EV_pods","seq":0}`}, 0, broken},
		"a server that is too old":    {[]string{`{"stream":"EV_pods","seq":70}`}, 0, func(err error) bool { return errors.Is(err, ingest.ErrUnsupported) }},
		"the end of the batch":        {[]string{`{"stream":"EV_pods","seq":70,"batch":"id","count":4}`}, 4, broken},
		"an answer of other types":    {[]string{`{"type":"ack","seq":3,"last_seq":"none"}`}, 0, func(err error) bool { return strings.Contains(err.Error(), "read an answer") }},
		"what is no answer":           {[]string{`+OK`}, 0, func(err error) bool { return strings.Contains(err.Error(), "read an answer") }},
		"an answer of another server": {[]string{`{"type":"later"}`}, 0, func(err error) bool { return strings.Contains(err.Error(), `"later"`) }},
	} {
		b := sent(5)
		for _, a := range tc.answers {
			b.Hear([]byte(a))
		}
		if b.Stored() != tc.stored || b.Open() != 5-int(tc.stored) {
			t.Errorf("%s: %v, want %d stored", name, b, tc.stored)
		}
		if ended := tc.ended != nil; ended != (b.Err() != nil) || ended && !tc.ended(b.Err()) {
			t.Errorf("%s: ended by %v", name, b.Err())
		}
	}
}
