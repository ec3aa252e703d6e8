package sim_test

import (
	"strings"
	"testing"
	"time"

	"github.com/millrace/millrace/services/writer/limits"
	"github.com/millrace/millrace/test/sim/cluster"
	"github.com/millrace/millrace/test/sim/world"
)

// In worlds with every fault, a controller with a write limit never deletes more than that within the time,
// but for what a writer that died or was overtaken had in flight; and all that users want happens in the end.
func TestWriteLimits(t *testing.T) {
	set, err := limits.Parse([]byte(`{apiVersion: millrace.io/v1alpha1, kind: WriteLimits, limits: [
		{name: pods, controllers: [replicaset-controller], verbs: [delete], kinds: [pods], max: 1, within: 40s}]}`))
	if err != nil {
		t.Fatal(err)
	}
	rule := world.LimitRule{Controller: "replicaset-controller", Most: 1, Within: 40 * time.Second}
	var total cluster.Tally
	for s := *seed; s < *seed+min(*n, 300); s++ {
		o := shapes["two of each"].options
		o.Seed, o.Mute, o.Changes, o.Limits, o.Rule, o.Ignore = s, true, 10, set, rule, "I5 I7"
		w := world.New(o, shapes["two of each"].controllers())
		if err := w.Run(); err != nil {
			o.Mute = false
			t.Fatalf("%v\nagain: go test ./test/sim -run TestWriteLimits -sim.seed=%d -sim.n=1", world.New(o, shapes["two of each"].controllers()).Run(), s)
		}
		total = total.Add(w.Tally())
	}
	if total.Held < 20 {
		t.Errorf("only %d writes were held in all", total.Held)
	}
	t.Logf("%d writes were held: %v", total.Held, total)
}

// The rule bites: it breaks in worlds whose writers allow four times as much.
func TestTheRuleOfWriteLimitsBites(t *testing.T) {
	set, err := limits.Parse([]byte(`{apiVersion: millrace.io/v1alpha1, kind: WriteLimits, limits: [
		{name: pods, controllers: [replicaset-controller], verbs: [delete], kinds: [pods], max: 4, within: 40s}]}`))
	if err != nil {
		t.Fatal(err)
	}
	for s := uint64(1); s < 200; s++ {
		o := shapes["two of each"].options
		o.Seed, o.Mute, o.Changes, o.Limits, o.Ignore = s, true, 10, set, "I5 I7"
		o.Rule = world.LimitRule{Controller: "replicaset-controller", Most: 1, Within: 40 * time.Second}
		if err := world.New(o, shapes["two of each"].controllers()).Run(); err != nil {
			if !strings.Contains(err.Error(), "L1 ") {
				t.Fatal(err)
			}
			return
		}
	}
	t.Error("it is never broken")
}
