package fault

import (
	"reflect"
	"slices"
	"testing"
	"time"
)

var site = Site{
	Services: []string{"watcher-1", "watcher-2", "writer-1", "writer-2"},
	Buses:    []string{"bus-1", "bus-2", "bus-3"},
	Servers:  []string{"etcd", "kube-apiserver"},
	Wires:    []string{"watcher-1>bus", "writer-1>api"},
	Fronts:   []string{"writer-1"},
}

func TestPlanIsAFunctionOfItsSeed(t *testing.T) {
	a, b := Plan(7, 300, time.Minute, site), Plan(7, 300, time.Minute, site)
	if !reflect.DeepEqual(a, b) {
		t.Error("two plans of one seed differ")
	}
	if reflect.DeepEqual(a, Plan(8, 300, time.Minute, site)) {
		t.Error("two seeds have one plan")
	}
}

func TestPlanFillsTheTime(t *testing.T) {
	const over = 10 * time.Minute
	plan := Plan(1, 500, over, site)
	if len(plan) != 500 {
		t.Fatalf("%d faults", len(plan))
	}
	last := time.Duration(0)
	for _, f := range plan {
		if f.At < last || f.At > over {
			t.Errorf("fault %d is at %v, after one at %v, in %v", f.Number, f.At, last, over)
		}
		last = f.At
	}
	if last < over*99/100 {
		t.Errorf("the last fault is at %v of %v", last, over)
	}
}

// TestPlanHasEverything: a hundred faults have each kind in its share.
func TestPlanHasEverything(t *testing.T) {
	seen, several := map[Kind]int{}, 0
	for _, f := range Plan(1, 100, time.Minute, site) {
		seen[f.Kind]++
		if len(f.Targets) > 1 {
			several++
		}
		if dup := slices.Compact(slices.Sorted(slices.Values(f.Targets))); len(dup) != len(f.Targets) {
			t.Errorf("one target twice: %v", f)
		}
		if f.For < 0 || f.For > time.Minute {
			t.Errorf("out of bounds: %v", f)
		}
	}
	want := map[Kind]int{}
	for _, c := range deck {
		want[c.kind] += c.share
	}
	if !reflect.DeepEqual(seen, want) {
		t.Errorf("the shares are %v, want %v", seen, want)
	}
	if several < 20 {
		t.Errorf("%d faults have more than one target", several)
	}
}

// TestMostlyShort: long pauses exist, and are rare.
func TestMostlyShort(t *testing.T) {
	var pauses []time.Duration
	for _, f := range Plan(1, 2000, time.Hour, Site{Services: site.Services}) {
		if f.Kind == Pause {
			pauses = append(pauses, f.For)
		}
	}
	slices.Sort(pauses)
	if median := pauses[len(pauses)/2]; median > 4*time.Second {
		t.Errorf("the median of pauses is %v", median)
	}
	if longest := pauses[len(pauses)-1]; longest < 40*time.Second {
		t.Errorf("the longest pause is %v", longest)
	}
}

func TestSinglesGoRound(t *testing.T) {
	hit := map[string]int{}
	round := 2*len(site.Services) + len(site.Buses) + len(site.Wires)
	for i, f := range Singles(2*round, site) {
		if f.Number != i+1 || len(f.Targets) != 1 {
			t.Errorf("number %d is %v", i+1, f)
		}
		hit[string(f.Kind)+" "+f.Targets[0]]++
	}
	for kind, names := range map[Kind][]string{
		Kill: slices.Concat(site.Services, site.Buses), Pause: site.Services, HalfOpen: site.Wires,
	} {
		for _, name := range names {
			if of := string(kind) + " " + name; hit[of] != 2 {
				t.Errorf("there are %d of %s, want 2", hit[of], of)
			}
		}
	}
	if len(hit) != round {
		t.Errorf("the singles are %v", hit)
	}
	if all := Singles(3, Site{}); len(all) != 0 {
		t.Errorf("nothing can be broken, and the singles are %v", all)
	}
}

func TestPlanOfNothing(t *testing.T) {
	if plan := Plan(1, 10, time.Minute, Site{}); len(plan) != 0 {
		t.Errorf("nothing can be broken, and the plan is %v", plan)
	}
}
