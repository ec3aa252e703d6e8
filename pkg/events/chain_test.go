package events_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/millrace/millrace/pkg/events"
)

// chained makes a log: i for an object, m for a mark.
func chained(ops string) (log []events.Message, deltas []events.Delta) {
	var after events.Link
	for i, op := range ops {
		d := object(fmt.Sprint("p", i), i)
		if op == 'm' {
			d = events.Delta{Kind: "pods", Op: events.Mark, ResourceVersion: fmt.Sprint(i)}
		}
		d.After = after
		m := events.EncodeDelta(d)
		m.Sequence = uint64(i + 1)
		m = events.Seal(m)
		if op != 'm' {
			after = events.Link{Sequence: m.Sequence, Sum: m.Get(events.HeaderSum)}
		}
		log, deltas = append(log, m), append(deltas, d)
	}
	return log, deltas
}

// TestEveryMissingMessageIsNoticed, and every run of missing messages, except for marks and for
// messages missing at either end.
func TestEveryMissingMessageIsNoticed(t *testing.T) {
	const ops = "iimiimmiimi"
	log, deltas := chained(ops)
	for from := 1; from < len(ops)-1; from++ {
		for to := from; to < len(ops)-1; to++ {
			var chain events.Chain
			var found []events.Hole
			for i, m := range log {
				if i >= from && i <= to {
					continue
				}
				if h, ok := chain.Next(m, deltas[i]); !ok {
					found = append(found, h)
				}
			}
			lost := false
			for _, op := range ops[from : to+1] {
				lost = lost || op != 'm'
			}
			if (len(found) == 1) != lost || len(found) > 1 {
				t.Errorf("without messages %d to %d (%s) the chain finds %v, want one hole exactly if more than marks are lost", from+1, to+1, ops[from:to+1], found)
			}
			if len(found) == 1 && (found[0].From > uint64(from+1) && ops[from] != 'm' || found[0].To > uint64(to+1)) {
				t.Errorf("without messages %d to %d the chain finds %v, want a hole that begins and ends there", from+1, to+1, found)
			}
		}
	}
}

func TestAMessageInPlaceOfAnotherIsNoticed(t *testing.T) {
	log, deltas := chained("iii")
	deltas[1].ResourceVersion = "other"
	other := events.EncodeDelta(deltas[1])
	other.Sequence = 2
	log[1] = events.Seal(other)
	var chain events.Chain
	for i, m := range log {
		if _, ok := chain.Next(m, deltas[i]); ok != (i < 2) {
			t.Errorf("message %d: ok %t", i+1, ok)
		}
	}
}

// The first delta of this version follows one without a sum.
func TestNoLinkIsNoText(t *testing.T) {
	for text, link := range map[string]events.Link{"": {}, "7": {Sequence: 7}, "7 ab": {Sequence: 7, Sum: "ab"}} {
		if got := link.String(); got != text {
			t.Errorf("%+v is %q, want %q", link, got, text)
		}
	}
}

func TestALinkToAnOlderVersionsMessage(t *testing.T) {
	ref := events.Ref{Kind: "pods", Namespace: "ns", Name: "a"}
	d := events.Delta{Kind: ref.Kind, Ref: ref, Op: events.Is, UID: "u", ResourceVersion: "7", After: events.Link{Sequence: 68}}
	m := events.EncodeDelta(d)
	m.Subject = "ev.pods.0.ns.a"
	m = events.Seal(m)
	for key, values := range m.Header { // in the form in which a NATS server returns them
		m.Header[key] = []string{strings.TrimSpace(values[0])}
	}
	if err := events.Verify(m); err != nil {
		t.Error(err)
	}
	back, err := events.DecodeDelta(ref, m)
	if err != nil || back.After != d.After {
		t.Errorf("the link came back as %v (%v), want %v", back.After, err, d.After)
	}
}
