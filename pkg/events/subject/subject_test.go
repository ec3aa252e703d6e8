package subject_test

import (
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/pkg/events/subject"
)

func arbitraryKind() *rapid.Generator[kinds.Name] {
	return rapid.Map(rapid.StringMatching(`[a-z][a-z0-9-]{0,10}(\.[a-z0-9-]{1,8}){0,3}`),
		func(s string) kinds.Name { return kinds.Name(s) })
}

func arbitraryName() *rapid.Generator[string] {
	return rapid.OneOf(rapid.StringN(1, 20, 80), rapid.SampledFrom([]string{"_", ".", "*", ">", "%", "%5F", "a.b", "system:node", "_mark"}))
}

func TestDeltaSubjectsRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		ref := events.Ref{
			Kind:      arbitraryKind().Draw(t, "kind"),
			Namespace: rapid.OneOf(rapid.Just(""), arbitraryName()).Draw(t, "namespace"),
			Name:      arbitraryName().Draw(t, "name"),
		}
		s := subject.Delta(ref)
		wellFormed(t, s, 5)
		got, err := subject.ParseDelta(s)
		if err != nil || got != ref {
			t.Fatalf("%q parses as %v, %v; want %v", s, got, err, ref)
		}
	})
}

// A message is on the subject of its object, one about no object on that of its kind's marks; it
// decodes to the delta, and is not sealed.
func TestMessageOfADelta(t *testing.T) {
	ref := events.Ref{Kind: "pods", Namespace: "shop", Name: "a"}
	for on, d := range map[string]events.Delta{
		subject.Delta(ref):   {Kind: "pods", Ref: ref, Op: events.Is, UID: "u", ResourceVersion: "5"},
		subject.Mark("pods"): {Kind: "pods", Op: events.Mark, ResourceVersion: "6"},
	} {
		m := subject.Message(d)
		if m.Subject != on || subject.Of(d) != on {
			t.Errorf("the message of %+v is on %q, its subject is %q; want %q for both", d, m.Subject, subject.Of(d), on)
		}
		if m.Sealed() {
			t.Errorf("the message of %+v is sealed", d)
		}
		at, err := subject.ParseDelta(m.Subject)
		if err != nil {
			t.Fatal(err)
		}
		if got, err := events.DecodeDelta(at, m); err != nil || got.Ref != d.Ref || got.Kind != d.Kind || got.Op != d.Op || got.ResourceVersion != d.ResourceVersion {
			t.Errorf("the message of %+v decodes to %+v, %v", d, got, err)
		}
	}
}

func TestKeySubjectsRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		key := events.Key{
			Kind:      rapid.OneOf(rapid.Just(kinds.Name("")), arbitraryKind()).Draw(t, "kind"),
			Namespace: rapid.OneOf(rapid.Just(""), arbitraryName()).Draw(t, "namespace"),
			Name:      arbitraryName().Draw(t, "name"),
		}
		lane := rapid.SampledFrom([]events.Lane{events.LaneWrite, events.LaneStatus}).Draw(t, "lane")
		for _, s := range []string{subject.Turn("c", lane, key), subject.Outcome("c", lane, key)} {
			wellFormed(t, s, 7)
			controller, gotLane, got, err := subject.ParseTurn(s)
			if err != nil || controller != "c" || gotLane != lane || got != key {
				t.Fatalf("%q parses as %s %s %v, %v; want %v", s, controller, gotLane, got, err, key)
			}
		}
		for _, s := range []string{subject.Wake("c", key), subject.Schedule("c", key)} {
			wellFormed(t, s, 6)
			controller, got, err := subject.ParseWake(s)
			if err != nil || controller != "c" || got != key {
				t.Fatalf("%q parses as %s %v, %v; want %v", s, controller, got, err, key)
			}
		}
	})
}

func TestStreamsKnowTheirKind(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		kind := arbitraryKind().Draw(t, "kind")
		former := "STATE_" + kind.Token() // as triggers of earlier versions name it
		for _, stream := range []string{subject.LogStream(kind), former} {
			if got, ok := subject.KindOfStream(stream); !ok || got != kind {
				t.Fatalf("stream %q is of kind %q, %v; want %q", stream, got, ok, kind)
			}
		}
	})
}

func TestForeignSubjectsAreErrors(t *testing.T) {
	for _, s := range []string{"", "ev", "ev.pods", "ev.pods.99.a.b", "ev.pods.x.a.b", "turn.c.act.0._.a", "wake.c.0._.%zz.b", "other.pods.0.a.b"} {
		if ref, err := subject.ParseDelta(s); err == nil {
			t.Errorf("%q parses as the delta of %v", s, ref)
		}
		if _, _, key, err := subject.ParseTurn(s); err == nil {
			t.Errorf("%q parses as a turn of %v", s, key)
		}
		if _, key, err := subject.ParseWake(s); err == nil {
			t.Errorf("%q parses as a wake of %v", s, key)
		}
	}
}

// wellFormed: the server accepts the subject, and it has the intended tokens.
func wellFormed(t *rapid.T, s string, tokens int) {
	if strings.ContainsAny(s, " \t\r\n*>\x00") {
		t.Fatalf("%q holds a character that subjects may not", s)
	}
	if got := strings.Split(s, "."); len(got) != tokens {
		t.Fatalf("%q has %d tokens, want %d", s, len(got), tokens)
	}
}
