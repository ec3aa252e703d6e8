package trace

import (
	"bytes"
	"testing"

	"github.com/millrace/millrace/pkg/events"
)

// FuzzWrite: an accepted write identifies itself, and an accepted roll its writer; neither
// changes when it is encoded and decoded again.
func FuzzWrite(f *testing.F) {
	f.Add(Write{Writer: "w", ID: "1", About: events.Ref{Kind: "pods", Namespace: "ns", Name: "a"}, Begins: true}.Encode())
	f.Add(Write{UID: "u", Version: "7", Ends: true, Trace: events.Trace{Parent: "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01", Writes: 3}}.Encode())
	f.Add(Roll{Writer: "w", Open: []string{"1", "2"}}.Encode())
	f.Add([]byte(`{"writer":"w","open":[]}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		if w, ok := DecodeWrite(text); ok {
			again, fine := DecodeWrite(w.Encode())
			if len(w.Encode()) > maxWrite {
				return // JSON may take six bytes for each character
			}
			if w.UID == "" && w.ID == "" || !fine || !bytes.Equal(again.Encode(), w.Encode()) {
				t.Errorf("%q is taken for %+v", text, w)
			}
		}
		if r, ok := DecodeRoll(text); ok {
			again, fine := DecodeRoll(r.Encode())
			if len(r.Encode()) > maxRoll {
				return
			}
			if r.Writer == "" || !fine || !bytes.Equal(again.Encode(), r.Encode()) {
				t.Errorf("%q is taken for %+v", text, r)
			}
		}
	})
}
