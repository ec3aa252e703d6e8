package archive

import (
	"bytes"
	"testing"
)

// FuzzFile reads any bytes as a file.
func FuzzFile(f *testing.F) {
	f.Add([]byte("something else"))
	f.Add(forge(f, func(*streamIndex) {}))
	f.Add(forge(f, func(*streamIndex) {})[:200])
	f.Fuzz(func(t *testing.T, text []byte) {
		_ = readAll(text) // it neither panics nor hangs
	})
}

// FuzzParts reads a file whose parts are any text, with matching sums: so the fuzzer reaches the
// code behind the sums.
func FuzzParts(f *testing.F) {
	f.Add([]byte("stream EV_pods\nmessage 1 5 0 2 ev.pods._\n{}\n"), []byte("subjects EV_pods\n1 0 ev.pods._\n"), 1, uint64(1), uint64(1))
	f.Add([]byte("stream EV_pods\nmessage 1 5 12 2 ev.pods.a.b\nMr-Op: is\n{}\nmessage 3 9 0 0 ev.pods.a.b\n\n"), []byte("subjects EV_pods\n3 0 ev.pods.a.b\n"), 2, uint64(1), uint64(3))
	f.Add([]byte("stream EV_pods\nmessage 1 5 0 2 a\n{}\n"), []byte("subjects EV_pods\n1 0 9223372036854775807 a\n"), 1, uint64(1), uint64(1))
	f.Add([]byte("stream EV_pods\nmessage -1 5 -7 2 a\n{}\n"), []byte("subjects EV_pods\n1 -1 a\n"), -1, uint64(1), uint64(1<<63))
	f.Fuzz(func(t *testing.T, text, subjects []byte, messages int, first, last uint64) {
		w := newForgery(t)
		s := streamIndex{Stream: Stream{Name: "EV_pods", Kind: &somePods}}
		s.State.First, s.State.Last, s.State.Messages = first, last, uint64(max(messages, 0))
		s.Blocks = []block{{extent: w.frame(text), First: first, Last: last, Messages: messages, Latest: 1 << 62}}
		s.Subjects = w.frame(subjects)
		_ = readAll(w.close(encodeIndex(t, s)))
	})
}

// FuzzIndex reads a file with any index.
func FuzzIndex(f *testing.F) {
	honest := forge(f, func(*streamIndex) {})
	at, ok := decodeTrailer(honest[len(honest)-trailerSize:], int64(len(honest)))
	if !ok {
		f.Fatal("the honest file has no trailer")
	}
	whole, err := New("honest", bytes.NewReader(honest), int64(len(honest)))
	if err != nil {
		f.Fatal(err)
	}
	index, err := whole.frame(at, maxIndex)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(index)
	f.Add([]byte(`{"streams":[{"name":"TURN_c","blocks":[{"at":60,"length":-1}]}]}`))
	f.Add([]byte(`{"about":{"version":99}}`))
	f.Fuzz(func(t *testing.T, index []byte) {
		w := &forgery{pack: newForgery(t).pack}
		w.Write(honest[:at.Offset])
		_ = readAll(w.close(index))
	})
}
