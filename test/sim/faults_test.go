package sim_test

import (
	"strings"
	"testing"
	"time"

	"github.com/millrace/millrace/services/reconcilers/reconcile"
	"github.com/millrace/millrace/test/sim/cluster"
	"github.com/millrace/millrace/test/sim/workloads"
	"github.com/millrace/millrace/test/sim/world"
)

func lives(t *testing.T, o world.Options, controllers []reconcile.Any) *world.World {
	t.Helper()
	w := world.New(o, controllers)
	if err := w.Run(); err != nil {
		t.Fatal(err)
	}
	return w
}

// The pods' stream stands still while a burst is created: no pod is created twice,
// however long that lasts. A fence that is kept in memory, as upstream's is, must
// fail as soon as its process is replaced.
func TestOwnWritesStayUnseen(t *testing.T) {
	for _, silence := range []time.Duration{time.Second, 10 * time.Second, time.Minute} {
		script := []world.Scene{
			{Name: "a burst", Do: func(w *world.World) { workloads.Deploy(w.Cluster, "web", 40, 1, 0); w.Silence("pods", silence) }},
			{Name: "another process", After: 250, Do: func(w *world.World) { w.KillReplica(0) }},
		}
		w := lives(t, world.Options{Script: script, Mute: true}, workloadsControllers())
		if created := workloads.Created(w.Cluster, time.Hour); created != 40 {
			t.Errorf("%v: %d pods were created for 40", silence, created)
		}
		err := world.New(world.Options{Script: script, Mute: true, Cheat: world.MemoryFence, Ignore: "I10"}, workloadsControllers()).Run()
		if silence > time.Second && (err == nil || !strings.Contains(err.Error(), "I2 ")) {
			t.Errorf("%v: a fence in memory was not noticed: %v", silence, err)
		}
	}
}

// Nodes that reject every pod at once cause no hot loop: upstream made 1,800 pods a minute
// there.
func TestRejectedPodsAreNoHotLoop(t *testing.T) {
	o := world.Options{Nodes: cluster.Reject, Mute: true, Ends: 10 * time.Minute, Script: []world.Scene{
		{Name: "create", Do: func(w *world.World) { workloads.Deploy(w.Cluster, "web", 3, 1, 0) }},
	}}
	w := world.New(o, workloadsControllers())
	if err := w.Run(); err != nil {
		t.Fatal(err)
	}
	const most = 20
	if created := workloads.Created(w.Cluster, 5*time.Minute); created > 5*most {
		t.Errorf("%d pods in the last five minutes, more than %d a minute", created, most)
	}
}

// Five other clients change the same objects all the time: there are conflicts, but fewer than
// two for each decision, and the world comes to rest as it should.
func TestConflictsDoNotMultiply(t *testing.T) {
	script := []world.Scene{{Name: "create", Do: func(w *world.World) { workloads.Deploy(w.Cluster, "web", 3, 1, 1) }}}
	for range 100 {
		script = append(script, world.Scene{Name: "five others write", After: 8, Do: func(w *world.World) { workloads.Tamper(w.Cluster) }})
	}
	script = append(script, world.Scene{Name: "roll", Do: func(w *world.World) { workloads.Image(w.Cluster, "web", "web:v1") }})
	for range 100 {
		script = append(script, world.Scene{Name: "five others write", After: 8, Do: func(w *world.World) { workloads.Tamper(w.Cluster) }})
	}
	w := lives(t, world.Options{Script: script, Mute: true}, workloadsControllers())
	tally := w.Tally()
	t.Logf("%v, %d conflicts", tally, tally.Conflicts)
	if tally.Conflicts == 0 || tally.Conflicts >= 2*tally.Turns {
		t.Errorf("%d conflicts in %d turns", tally.Conflicts, tally.Turns)
	}
}

// Clocks differ by some seconds, and nothing else goes wrong: no forbidden action depends on
// another process's clock. (Delays do: while clocks disagree whether a pod is available, its
// set's status goes to and fro.)
func TestClocksApart(t *testing.T) {
	for s := *seed; s < *seed+50; s++ {
		lives(t, world.Options{
			Seed: s, Watchers: 2, Replicas: 3, Writers: 2, Skew: 3 * time.Second, Changes: 4, Users: workloads.Workloads, Mute: true,
		}, workloadsControllers())
	}
}

// Another client reverts each action of a controller at once. No one can tell which is right,
// but the fight costs a bounded number of writes.
func TestAFightIsBounded(t *testing.T) {
	fought := 0
	script := []world.Scene{{Name: "create", Do: func(w *world.World) { workloads.Deploy(w.Cluster, "web", 2, 1, 0) }}}
	for range 30 {
		script = append(script, world.Scene{Name: "scale its replica set", Do: func(w *world.World) { fought++; workloads.ScaleSets(w.Cluster, 1) }})
	}
	w := lives(t, world.Options{Script: script, Mute: true}, workloadsControllers())
	if writes := w.Tally().Writes; writes > 30*fought {
		t.Errorf("%d writes for %d times that another client interfered", writes, fought)
	}
}
