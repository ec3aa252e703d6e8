package beside

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/kinds"
)

func message(kind kinds.Kind, sequence uint64, version any, came time.Time) arrival {
	return arrival{
		kind: kind, message: events.Message{Sequence: sequence}, came: came,
		delta: events.Delta{Kind: kind.Name, ResourceVersion: fmt.Sprint(version)},
	}
}

func versions(all []arrival) (out []string) {
	for _, a := range all {
		out = append(out, a.delta.ResourceVersion)
	}
	return out
}

func TestOrder(t *testing.T) {
	now := time.Date(2026, 11, 22, 12, 0, 0, 0, time.UTC)
	o := newOrder()
	o.push(message(kinds.Pods.Kind, 1, 10, now))
	o.push(message(kinds.Pods.Kind, 2, 12, now))
	o.push(message(kinds.ReplicaSets.Kind, 1, 11, now.Add(2*time.Second))) // later here, and earlier there
	o.push(message(kinds.ReplicaSets.Kind, 2, 13, now.Add(2*time.Second)))
	if ripe, _ := o.take(now); len(ripe) != 0 {
		t.Errorf("before now nothing came, and %v is taken", versions(ripe))
	}
	ripe, late := o.take(now.Add(time.Second))
	if want := []string{"10", "11", "12"}; !slices.Equal(versions(ripe), want) || late != 0 {
		t.Errorf("ripe are %v, %d of them late, want %v", versions(ripe), late, want)
	}
	o.push(message(kinds.Deployments.Kind, 1, 9, now.Add(2*time.Second)))
	ripe, late = o.take(now.Add(time.Minute))
	if want := []string{"9", "13"}; !slices.Equal(versions(ripe), want) || late != 1 {
		t.Errorf("taken are %v, %d of them late, want %v", versions(ripe), late, want)
	}
	if _, waiting := o.oldest(); waiting {
		t.Error("oldest has a message in an empty order")
	}
}

// Messages of a kind stay in the order of their log, whatever their resourceVersions are,
// and none is lost.
func TestOrderKeepsLogs(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		now := time.Date(2026, 11, 22, 12, 0, 0, 0, time.UTC)
		o, next, got := newOrder(), map[kinds.Name]uint64{}, map[kinds.Name]uint64{}
		check := func(ripe []arrival) {
			for _, a := range ripe {
				if got[a.kind.Name]++; a.message.Sequence != got[a.kind.Name] {
					t.Fatalf("message %d of %s comes as number %d", a.message.Sequence, a.kind.Name, got[a.kind.Name])
				}
			}
		}
		for range rapid.IntRange(0, 60).Draw(t, "messages") {
			kind := []kinds.Kind{kinds.Pods.Kind, kinds.ReplicaSets.Kind}[rapid.IntRange(0, 1).Draw(t, "kind")]
			next[kind.Name]++
			now = now.Add(time.Duration(rapid.IntRange(0, 800).Draw(t, "pause")) * time.Millisecond)
			o.push(message(kind, next[kind.Name], rapid.IntRange(0, 30).Draw(t, "version"), now))
			ripe, _ := o.take(now.Add(-time.Second))
			check(ripe)
		}
		ripe, _ := o.take(now.Add(time.Second))
		check(ripe)
		for kind, n := range next {
			if got[kind] != n {
				t.Fatalf("%d of %d messages of %s came out", got[kind], n, kind)
			}
		}
	})
}
