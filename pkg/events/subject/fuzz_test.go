package subject_test

import (
	"strings"
	"testing"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/subject"
)

// FuzzSubject: a parsed subject is exactly the one that its parts would give. If a key had two
// subjects, its turns would have two orders.
func FuzzSubject(f *testing.F) {
	for _, key := range []events.Key{{Namespace: "ns", Name: "a.b"}, {Kind: "pods", Name: "_"}, {Namespace: "*", Name: ">%"}} {
		f.Add(subject.Turn("c", events.LaneWrite, key))
		f.Add(subject.Outcome("c", events.LaneStatus, key))
		f.Add(subject.Wake("c", key))
		f.Add(subject.Schedule("c", key))
	}
	f.Add(subject.Delta(events.Ref{Kind: "deployments.apps", Namespace: "ns", Name: "web"}))
	f.Add(subject.Mark("pods"))
	// The same names in another spelling.
	f.Add(strings.Replace(subject.Turn("c", events.LaneWrite, events.Key{Namespace: "ns", Name: "web"}), ".web", ".w%65b", 1))
	f.Add(strings.Replace(subject.Delta(events.Ref{Kind: "pods", Namespace: "ns", Name: "a.b"}), "%2E", "%2e", 1))
	f.Fuzz(func(t *testing.T, text string) {
		if ref, err := subject.ParseDelta(text); err == nil && text != subject.Delta(ref) && text != subject.Mark(ref.Kind) {
			t.Errorf("%q is read as %+v, which has %q", text, ref, subject.Delta(ref))
		}
		if c, lane, key, err := subject.ParseTurn(text); err == nil && text != subject.Turn(c, lane, key) && text != subject.Outcome(c, lane, key) {
			t.Errorf("%q is read as %q, %q, %+v, which has %q", text, c, lane, key, subject.Turn(c, lane, key))
		}
		if c, key, err := subject.ParseWake(text); err == nil && text != subject.Wake(c, key) && text != subject.Schedule(c, key) {
			t.Errorf("%q is read as %q, %+v, which has %q", text, c, key, subject.Wake(c, key))
		}
		if stream, ok := subject.ParseNotary(text); ok && text != subject.Notary(stream) {
			t.Errorf("%q is read as %q", text, stream)
		}
	})
}
