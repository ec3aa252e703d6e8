package passage

import (
	"bytes"
	"context"
	"errors"
	"io"
	"reflect"
	"strings"
	"testing"

	"github.com/nats-io/nats-server/v2/server/archive"
	"github.com/nats-io/nats.go"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/bus"
	"github.com/millrace/millrace/pkg/events/stream/internal/conn"
)

// TestHeadersAreReadAsTheClientDoes: whichever way a message comes, its headers are the
// same.
func TestHeadersAreReadAsTheClientDoes(t *testing.T) {
	t.Parallel()
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
	t.Parallel()
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
		p := &backupReader{ctx: context.Background(), on: conn.New(conn.Options{}), incoming: make(chan *nats.Msg, len(c.come))}
		for _, m := range c.come {
			p.incoming <- m
		}
		_, err := io.ReadAll(p)
		if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("%s: %v, want %q", c.name, err, c.want)
		}
	}
	ended, cancel := context.WithCancel(context.Background())
	cancel()
	if _, err := (&backupReader{ctx: ended, on: conn.New(conn.Options{})}).Read(make([]byte, 1)); !errors.Is(err, context.Canceled) {
		t.Errorf("the reader does not wait any more: %v", err)
	}
}

// TestABackupWithoutItsEnd is not whole, wherever it was cut.
func TestABackupWithoutItsEnd(t *testing.T) {
	t.Parallel()
	var whole bytes.Buffer
	out := archive.NewWriter(&whole)
	ends := []int{}
	for _, h := range []archive.Header{{Name: "state.json"}, {Name: "a", Sequence: 1, PayloadSize: 1}, {Name: "b", Sequence: 2, PayloadSize: 1}, {}} {
		if err := out.WriteHeader(&h); err != nil {
			t.Fatal(err)
		}
		if _, err := out.Write(make([]byte, h.PayloadSize)); err != nil {
			t.Fatal(err)
		}
		ends = append(ends, whole.Len())
	}
	for cut := range whole.Len() + 1 {
		var got []string
		calls := 0
		r := &read{Passage: bus.Passage{To: 2}, handle: func(batch []events.Message) error {
			calls++
			for _, m := range batch {
				got = append(got, m.Subject)
			}
			return nil
		}}
		err := r.unpack(archive.NewReader(bytes.NewReader(whole.Bytes()[:cut])))
		if (err == nil) != (cut == whole.Len()) || err == nil && (strings.Join(got, "") != "ab" || calls != 1) {
			t.Errorf("cut at %d of %v: there are %v, %v", cut, ends, got, err)
		}
	}
}

// TestAnEntryThatIsTooLarge is refused before there is room made for it.
func TestAnEntryThatIsTooLarge(t *testing.T) {
	t.Parallel()
	if _, err := unpacked("S", &archive.Header{Name: "a", HeaderSize: 1, PayloadSize: 256 << 20}, strings.NewReader("")); err == nil || !strings.Contains(err.Error(), "said to have 268435457 bytes") {
		t.Errorf("an entry that is too large is unpacked: %v, want an error with its size", err)
	}
	for text, h := range map[string]archive.Header{"NATS/1.0\r\nA: 1\r\n\r\nbody": {HeaderSize: 18, PayloadSize: 4}, "body": {PayloadSize: 4}} {
		h.Name, h.Sequence, h.Timestamp = "a", 7, 9
		m, err := unpacked("S", &h, strings.NewReader(text))
		if err != nil || m.Subject != "a" || m.Stream != "S" || m.Sequence != 7 || m.Time.UnixNano() != 9 || string(m.Data) != "body" || (len(m.Header) == 1) != (h.HeaderSize > 0) {
			t.Errorf("%q is unpacked as %+v, %v", text, m, err)
		}
		if _, err := unpacked("S", &h, strings.NewReader(text[1:])); err == nil {
			t.Errorf("%q is unpacked without its beginning", text)
		}
	}
}
