package cache

import (
	"fmt"
	"slices"
	"testing"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/services/reconcilers/cache/cachetest"
)

// An object may concern as many keys as it has dependents. Each is asked for once, however
// often the object changes, and names the newest changes.
func TestEveryKeyOfAChangeIsKept(t *testing.T) {
	m := New()
	m.Register(cachetest.Spread().Describe())
	m.Follow(kinds.ReplicaSets.Kind)
	m.Follow(kinds.Pods.Kind)
	touch := func(version int) {
		m.Fold(kinds.ReplicaSets.Name, []events.Message{
			delta(kinds.ReplicaSets.Kind, events.Is, aSet("web", version, 1, 0, ""), uint64(version)),
		})
	}
	const many = 1000
	var batch []events.Message
	for i := range many {
		batch = append(batch, delta(kinds.Pods.Kind, events.Is, aPod(fmt.Sprint("web-", i), "web", i+1), uint64(i+1)))
	}
	m.Fold(kinds.Pods.Name, batch)
	last := events.MaxTriggers + 2
	for version := 1; version <= last; version++ {
		touch(version)
	}
	all := m.readers["toy"].take()
	if len(all.Keys) != many {
		t.Fatalf("%d keys are asked for, want %d", len(all.Keys), many)
	}
	for _, k := range all.Keys {
		why := all.Causes[k]
		if n := len(why.Triggers); n != events.MaxTriggers || why.Triggers[n-1].Sequence != uint64(last) {
			t.Fatalf("%v is asked for by %+v", k, why.Triggers)
		}
		if want := []Backlog{{Kind: kinds.ReplicaSets.Name, Sequence: 2}}; !slices.Equal(why.Oldest, want) {
			t.Fatalf("%v waits since %+v, want %+v", k, why.Oldest, want)
		}
	}
	if again := m.readers["toy"].take(); len(again.Keys) > 0 {
		t.Errorf("changes that were taken ask for turns again: %v", again.Keys)
	}
}

// A reader keeps a bounded number of changes that cannot be mapped.
func TestWhatCannotBeMappedIsBounded(t *testing.T) {
	r := newReader(toy().Describe())
	r.mapChanges(Snapshot{reader: r}, "nodes", []change{{ref: events.Ref{Kind: "nodes", Name: "n"}, damage: "torn"}})
	if all := r.take(); len(all.Unmapped) != 0 {
		t.Errorf("of a kind that is not read these cannot be mapped: %v, want none", all.Unmapped)
	}
	var changes []change
	for i := range mostUnmapped + 1 {
		changes = append(changes, change{ref: events.Ref{Kind: "pods", Name: fmt.Sprint(i)}, damage: "torn"})
	}
	r.mapChanges(Snapshot{reader: r}, "pods", changes)
	if all := r.take(); len(all.Unmapped) != 1024 || all.Unmapped[0].Ref.Name != "1" || all.Unmapped[0].Reason != "torn" {
		t.Errorf("%d objects that cannot be mapped are kept, want the newest 1024", len(all.Unmapped))
	}
}

// Causes name the newest triggers, and count the oldest change of each kind as waiting.
func TestCausesAreBounded(t *testing.T) {
	var c Causes
	for i := range events.MaxTriggers + 5 {
		c.add(events.Trigger{Sequence: uint64(100 - i), Ref: events.Ref{Kind: "pods"}}, epoch)
	}
	c.add(events.Trigger{Sequence: 200, Ref: events.Ref{Kind: "nodes"}}, epoch)
	if len(c.Triggers) != events.MaxTriggers || c.Triggers[len(c.Triggers)-1].Sequence != 200 {
		t.Errorf("named are %d, the last %v", len(c.Triggers), c.Triggers[len(c.Triggers)-1])
	}
	c.AddOldest(Backlog{Kind: "pods", Sequence: 300})
	want := []Backlog{{"pods", uint64(100 - events.MaxTriggers - 4), epoch}, {"nodes", 200, epoch}}
	if !slices.Equal(c.Oldest, want) {
		t.Errorf("waiting are %v, want %v", c.Oldest, want)
	}
}
