package stream

import (
	"context"
	"errors"
	"io"
	"reflect"
	"strings"
	"testing"

	"github.com/nats-io/nats.go"
)

// TestHeadersAreReadAsTheClientDoes: whichever way a message comes, its headers are the
// same.
func TestHeadersAreReadAsTheClientDoes(t *testing.T) {
	for _, text := range []string{
		"NATS/1.0\r\n\r\n",
		"NATS/1.0\r\nA: 1\r\nb:2\r\nA:  3 \r\nEmpty:\r\nC: a: b\r\n\r\n",
		"NATS/1.0\nA: 1\n\n",
		"NATS/1.0\r\n: nameless\r\nA: 1\r\n\r\n",
		"NATS/1.0\r\nA: 1\r\n",
		"NATS/1.0\r\nno colon\r\n\r\n",
		"HTTP/1.1\r\nA: 1\r\n\r\n",
		"",
	} {
		got, err := headersOf(text)
		want, bad := nats.DecodeHeadersMsg([]byte(text))
		if (err != nil) != (bad != nil) || err == nil && !reflect.DeepEqual(got, map[string][]string(want)) {
			t.Errorf("%q is %q, %v; the client library has %q, %v", text, got, err, want, bad)
		}
	}
}

// TestPieces: a piece that is missing, or that the server cannot send, is no end.
func TestPieces(t *testing.T) {
	piece := func(place string) *nats.Msg { return &nats.Msg{Reply: "ack.5." + place, Data: []byte("12345")} }
	status := func(code string) *nats.Msg { return &nats.Msg{Header: nats.Header{"Status": {code}}} }
	for _, c := range []struct {
		name string
		come []*nats.Msg
		want string
	}{
		{"the second is missing", []*nats.Msg{piece("2")}, "not piece 1"},
		{"the server cannot read it", []*nats.Msg{status("500")}, "gave up: 500"},
		{"the last one is short", []*nats.Msg{{Data: []byte("1")}, status("204")}, ""},
		{"there is none", []*nats.Msg{{}}, ""},
	} {
		p := &pieces{ctx: context.Background(), bus: &Bus{}, come: make(chan *nats.Msg, len(c.come))}
		for _, m := range c.come {
			p.come <- m
		}
		_, err := io.ReadAll(p)
		if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("%s: %v, want %q", c.name, err, c.want)
		}
	}
	ended, cancel := context.WithCancel(context.Background())
	cancel()
	if _, err := (&pieces{ctx: ended, bus: &Bus{}}).Read(make([]byte, 1)); !errors.Is(err, context.Canceled) {
		t.Errorf("nobody waits any more: %v", err)
	}
}
