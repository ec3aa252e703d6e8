package subject_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/subject"
)

// A subject in any other spelling is rejected: too few tokens, another first one, a missing
// kind, an invalid escape, another slot.
func TestSubjectsThatAreRefused(t *testing.T) {
	delta := subject.Delta(events.Ref{Kind: "pods", Namespace: "shop", Name: "web"})
	turn := subject.Turn("c", events.LaneWrite, events.Key{Namespace: "shop", Name: "web"})
	wake := subject.Wake("c", events.Key{Namespace: "shop", Name: "web"})
	for _, s := range []string{
		fmt.Sprintf("ev.pods.%d.%%zz.web", events.SlotOf("", "web")), // the slot of a cluster-scoped object
		"", "ev", "ev.pods", "x.pods._mark", "ev.pods._other", "x" + delta, delta + ".more", strings.TrimSuffix(delta, ".web"),
		strings.Replace(delta, ".shop.", ".other.", 1), strings.TrimSuffix(delta, "web") + "%zz", strings.Replace(delta, "shop", "%zz", 1), strings.TrimSuffix(delta, "web") + "w%65b",
	} {
		if ref, err := subject.ParseDelta(s); err == nil {
			t.Errorf("%q is a delta of %v", s, ref)
		}
	}
	for _, s := range []string{
		"", "x" + turn, turn + ".more", wake, strings.Replace(turn, "._.", "..", 1), strings.Replace(turn, ".shop.", ".%zz.", 1), strings.Replace(turn, ".shop.", ".other.", 1),
	} {
		if c, lane, key, err := subject.ParseTurn(s); err == nil {
			t.Errorf("%q is a turn of %s %s %v", s, c, lane, key)
		}
	}
	for _, s := range []string{
		"", "x" + wake, wake + ".more", turn, strings.Replace(wake, "wake", "wait", 1), strings.Replace(wake, "._.", "..", 1), strings.Replace(wake, ".web", ".%", 1), strings.Replace(wake, ".shop.", ".other.", 1),
	} {
		if c, key, err := subject.ParseWake(s); err == nil {
			t.Errorf("%q is a wake of %s %v", s, c, key)
		}
	}
	if kind, ok := subject.KindOfStream("TURN_c"); ok {
		t.Errorf("a stream of turns is one of %s", kind)
	}
}

// A mark has only a kind.
func TestMarksAreOfTheirKind(t *testing.T) {
	if ref, err := subject.ParseDelta(subject.Mark("deployments.apps")); err != nil || ref != (events.Ref{Kind: "deployments.apps"}) {
		t.Errorf("the subject of marks is parsed as %v, %v; want the kind alone", ref, err)
	}
}

// Separators, wildcards, and everything outside printable ASCII are escaped.
func TestNamesAreOneToken(t *testing.T) {
	for name, want := range map[string]string{
		"a.b": "a%2Eb", "_": "%5F", "": "_", "a~": "a~", "a\x7f": "a%7F", "é": "%C3%A9", "a b": "a%20b", "*>%": "%2A%3E%25", "system:node": "system:node",
	} {
		s := subject.Delta(events.Ref{Kind: "pods", Namespace: "n", Name: name})
		if got := s[strings.LastIndexByte(s, '.')+1:]; got != want {
			t.Errorf("%q is the token %q, want %q", name, got, want)
		}
	}
}

// The objects of a namespace have one slot, cluster-scoped objects any.
func TestTheDeltasOfANamespace(t *testing.T) {
	for namespace, cover := range map[string]bool{"shop": true, "": true} {
		filter := subject.DeltasIn("pods", namespace)
		for _, name := range []string{"a", "b", "a.b"} {
			in := events.Ref{Kind: "pods", Namespace: namespace, Name: name}
			if subject.Matches(filter, subject.Delta(in)) != cover {
				t.Errorf("%q covers %v: %t", filter, in, !cover)
			}
			out := events.Ref{Kind: "pods", Namespace: "other", Name: name}
			if subject.Matches(filter, subject.Delta(out)) {
				t.Errorf("%q covers %v", filter, out)
			}
		}
	}
	if slot := strings.Split(subject.DeltasIn("pods", "shop"), ".")[2]; slot == "*" {
		t.Error("DeltasIn reads all slots for a namespace, want one")
	}
}
