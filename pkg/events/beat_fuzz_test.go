package events_test

import (
	"testing"

	"github.com/millrace/millrace/pkg/events"
)

func FuzzWritersBeat(f *testing.F) {
	f.Add(events.Beat{Writer: "w", Number: 1, Turns: map[string][]uint64{"c": {1, 2}}, Full: []string{"c"}}.Encode())
	for _, seed := range []string{`{"writer":"w","number":18446744073709551615}`, `{"writer":"w","turns":{"c":[-1]}}`, `null`, `{"writer":1}`} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		b, ok := events.DecodeBeat(text)
		if ok && (b.Writer == "" || len(b.Writer) > 256) {
			t.Errorf("%q is taken for %+v", text, b)
		}
		if again, fine := events.DecodeBeat(b.Encode()); ok && (!fine || again.Writer != b.Writer && len(again.Writer) == 0) {
			t.Errorf("%+v cannot be read again", b)
		}
	})
}
