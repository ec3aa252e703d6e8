package sim_test

import (
	"context"
	"flag"
	"fmt"
	"maps"
	"os"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/millrace/millrace/cmd/evidence"
	"github.com/millrace/millrace/services/reconcilers/controllers/clusterroleaggregation"
	"github.com/millrace/millrace/services/reconcilers/controllers/cronjob"
	"github.com/millrace/millrace/services/reconcilers/controllers/daemonset"
	"github.com/millrace/millrace/services/reconcilers/controllers/deployment"
	"github.com/millrace/millrace/services/reconcilers/controllers/disruption"
	"github.com/millrace/millrace/services/reconcilers/controllers/endpoints"
	"github.com/millrace/millrace/services/reconcilers/controllers/endpointslice"
	"github.com/millrace/millrace/services/reconcilers/controllers/endpointslicemirroring"
	"github.com/millrace/millrace/services/reconcilers/controllers/ephemeralvolume"
	"github.com/millrace/millrace/services/reconcilers/controllers/garbagecollector"
	"github.com/millrace/millrace/services/reconcilers/controllers/horizontalpodautoscaler"
	"github.com/millrace/millrace/services/reconcilers/controllers/job"
	"github.com/millrace/millrace/services/reconcilers/controllers/legacytokencleaner"
	"github.com/millrace/millrace/services/reconcilers/controllers/namespace"
	"github.com/millrace/millrace/services/reconcilers/controllers/nodelifecycle"
	"github.com/millrace/millrace/services/reconcilers/controllers/podgc"
	"github.com/millrace/millrace/services/reconcilers/controllers/pvcprotection"
	"github.com/millrace/millrace/services/reconcilers/controllers/pvprotection"
	"github.com/millrace/millrace/services/reconcilers/controllers/replicaset"
	"github.com/millrace/millrace/services/reconcilers/controllers/replicationcontroller"
	"github.com/millrace/millrace/services/reconcilers/controllers/resourcequota"
	"github.com/millrace/millrace/services/reconcilers/controllers/rootcapublisher"
	"github.com/millrace/millrace/services/reconcilers/controllers/serviceaccount"
	"github.com/millrace/millrace/services/reconcilers/controllers/serviceaccounttoken"
	"github.com/millrace/millrace/services/reconcilers/controllers/statefulset"
	"github.com/millrace/millrace/services/reconcilers/controllers/storageversiongc"
	"github.com/millrace/millrace/services/reconcilers/controllers/tainteviction"
	"github.com/millrace/millrace/services/reconcilers/controllers/ttl"
	"github.com/millrace/millrace/services/reconcilers/controllers/ttlafterfinished"
	"github.com/millrace/millrace/services/reconcilers/controllers/vacprotection"
	"github.com/millrace/millrace/services/reconcilers/controllers/validatingadmissionpolicystatus"
	"github.com/millrace/millrace/services/reconcilers/reconcile"
	"github.com/millrace/millrace/test/sim"
	"github.com/millrace/millrace/test/sim/access"
	"github.com/millrace/millrace/test/sim/cluster"
	"github.com/millrace/millrace/test/sim/devices"
	"github.com/millrace/millrace/test/sim/metadata"
	"github.com/millrace/millrace/test/sim/network"
	"github.com/millrace/millrace/test/sim/nodes"
	"github.com/millrace/millrace/test/sim/storage"
	"github.com/millrace/millrace/test/sim/workloads"
	"github.com/millrace/millrace/test/sim/world"
)

var (
	seed = flag.Uint64("sim.seed", 0, "seed of the first world; 0: one of the day")
	n    = flag.Uint64("sim.n", 300, "number of worlds of each shape")
	all  = flag.Uint64("sim.all", 0, "number of worlds of all shapes together, at least; 0: as -sim.n says")
	file = flag.String("sim.evidence", "", "where the figures are written to, such as docs/evidence/sim.json")
	kept = flag.String("sim.export", "", "zip file to which TestWorlds exports the record of each world, as `millrace export` does")
)

func TestMain(m *testing.M) {
	flag.Parse()
	today := uint64(time.Now().Unix()) / (24 * 60 * 60)
	if *seed == 0 {
		*seed = 1 + today*100_000 // so that each day plays other worlds
	}
	if *all > 0 {
		*n = (*all + uint64(len(shapes)) - 1) / uint64(len(shapes))
	}
	if *slice < 0 {
		*slice = int(today % uint64(*share))
	}
	fmt.Printf("worlds from -sim.seed=%d on, perturbations of -sieve.slice=%d\n", *seed, *slice)
	// Worlds are many, small and short-lived: the collector has little to find.
	debug.SetGCPercent(1000)
	os.Exit(m.Run())
}

func workloadsControllers() []reconcile.Any {
	return []reconcile.Any{deployment.Controller, replicaset.Controller, garbagecollector.Controller}
}

func furniture() []reconcile.Any {
	publisher := rootcapublisher.New(rootcapublisher.Config{RootCA: []byte(metadata.RootCA)})
	return []reconcile.Any{serviceaccount.Controller, publisher}
}

func demolition() []reconcile.Any {
	return append(furniture(), namespace.Controller, replicaset.Controller)
}

func budgets() []reconcile.Any { return append(workloadsControllers(), disruption.Controller) }

func sets() []reconcile.Any {
	return []reconcile.Any{replicationcontroller.Controller, statefulset.Controller, garbagecollector.Controller, pvcprotection.Controller}
}

func daemons() []reconcile.Any {
	return []reconcile.Any{daemonset.Controller, garbagecollector.Controller, podgc.New(podgc.Config{})}
}

func jobs() []reconcile.Any {
	return []reconcile.Any{
		job.Controller, cronjob.Controller, ttlafterfinished.Controller, garbagecollector.Controller, podgc.New(podgc.Config{}),
	}
}

func crons() []reconcile.Any {
	return []reconcile.Any{job.Controller, cronjob.Controller, garbagecollector.Controller}
}

func networkControllers() []reconcile.Any {
	return []reconcile.Any{
		endpoints.Controller, endpointslice.New(endpointslice.Config{Max: workloads.SliceMax}), replicationcontroller.Controller, garbagecollector.Controller,
	}
}

func infrastructure() []reconcile.Any {
	return []reconcile.Any{
		ttl.Controller, podgc.New(podgc.Config{Threshold: 2}), pvcprotection.Controller, pvprotection.Controller, clusterroleaggregation.Controller,
	}
}

func quotas() []reconcile.Any {
	return []reconcile.Any{resourcequota.New(resourcequota.Config{Period: 20 * time.Minute})}
}

func quotasOften() []reconcile.Any {
	return []reconcile.Any{resourcequota.New(resourcequota.Config{Period: 5 * time.Minute})}
}

func mirrors() []reconcile.Any {
	return []reconcile.Any{endpointslicemirroring.New(endpointslicemirroring.Config{}), garbagecollector.Controller}
}

func volumes() []reconcile.Any {
	return []reconcile.Any{
		ephemeralvolume.Controller, vacprotection.Controller, pvcprotection.Controller, pvprotection.Controller, garbagecollector.Controller,
	}
}

func tokens() []reconcile.Any {
	return []reconcile.Any{serviceaccounttoken.New(serviceaccounttoken.Config{Tokens: true})}
}

// autoscalers look back no further than a minute, so that their worlds come to rest soon.
func autoscalers() []reconcile.Any {
	return append(workloadsControllers(), horizontalpodautoscaler.New(autoscaling))
}

var autoscaling = horizontalpodautoscaler.Config{Stabilization: time.Minute}

func servers() []reconcile.Any {
	return []reconcile.Any{storageversiongc.Controller, validatingadmissionpolicystatus.Controller}
}

func legacy() []reconcile.Any {
	return []reconcile.Any{legacytokencleaner.New(legacytokencleaner.Config{Period: access.Unused})}
}

func everything() []reconcile.Any { return append(workloadsControllers(), furniture()...) }

func kubelets() []reconcile.Any {
	return []reconcile.Any{nodelifecycle.New(nodelifecycle.Config{}), tainteviction.Controller}
}

type shape struct {
	options     world.Options
	controllers func() []reconcile.Any
}

// crowd is worlds with two processes of each service, and some faults.
func crowd(changes int, users []cluster.Operation, controllers func() []reconcile.Any) shape {
	return shape{world.Options{
		Watchers: 2, Replicas: 2, Writers: 2, Changes: changes, Users: users, Faults: 8, Trouble: world.All, Pace: 50 * time.Millisecond,
	}, controllers}
}

// calm is worlds without faults.
func calm(changes int, users []cluster.Operation, controllers func() []reconcile.Any) shape {
	return shape{world.Options{Changes: changes, Users: users, Pace: -1}, controllers}
}

// shapes are the worlds that are played with every seed.
var shapes = map[string]shape{
	"one operation, one fault": {world.Options{Changes: 2, Users: workloads.Workloads, Faults: 1, Trouble: world.All, Pace: -1}, workloadsControllers},
	"small":                    {world.Options{Changes: 3, Users: workloads.Workloads, Faults: 4, Trouble: world.All, Pace: -1}, workloadsControllers},
	"small, two of each": {world.Options{
		Watchers: 2, Replicas: 2, Writers: 2, Changes: 2, Users: workloads.Workloads, Faults: 4, Trouble: world.All, Pace: -1,
	}, workloadsControllers},
	"furniture": {world.Options{
		Changes: 4, Users: metadata.Furniture, Faults: 6, Trouble: world.All, Pace: -1,
	}, furniture},
	"demolition": {world.Options{
		Replicas: 2, Writers: 2, Changes: 12, Users: metadata.Demolition, Faults: 6, Trouble: world.All, Pace: 50 * time.Millisecond,
	}, demolition},
	"budgets": {world.Options{
		Replicas: 2, Writers: 2, Changes: 50, Users: workloads.Budgets, Faults: 6, Trouble: world.All, Pace: 50 * time.Millisecond,
	}, budgets},
	"sets": {world.Options{Changes: 6, Users: workloads.Sets, Last: workloads.Gather, Faults: 6, Trouble: world.All, Pace: -1}, sets},
	"sets, two of each": {world.Options{
		Watchers: 2, Replicas: 2, Writers: 2, Changes: 5, Users: workloads.Sets, Last: workloads.Gather, Faults: 6, Trouble: world.All, Pace: 50 * time.Millisecond,
	}, sets},
	"sets, settled": {world.Options{Changes: 14, Users: workloads.Sets, Last: workloads.Gather, Faults: 4, Trouble: world.All, Pace: -1, Seldom: 40}, sets},
	"daemons":       {world.Options{Changes: 8, Users: workloads.Daemons, Faults: 6, Trouble: world.All, Pace: -1}, daemons},
	"daemons, two of each": {world.Options{
		Watchers: 2, Replicas: 2, Writers: 2, Changes: 8, Users: workloads.Daemons, Faults: 6, Trouble: world.All, Pace: 50 * time.Millisecond,
	}, daemons},
	"daemons, settled": {world.Options{Changes: 14, Users: workloads.Daemons, Faults: 4, Trouble: world.All, Pace: -1, Seldom: 40}, daemons},
	"jobs":             {world.Options{Changes: 6, Users: workloads.Jobs, Faults: 6, Trouble: world.All, Pace: -1}, jobs},
	"jobs, two of each": {world.Options{
		Watchers: 2, Replicas: 2, Writers: 2, Changes: 5, Users: workloads.Jobs, Faults: 6, Trouble: world.All, Pace: 50 * time.Millisecond,
	}, jobs},
	"leaders": {world.Options{
		Watchers: 2, Replicas: 2, Writers: 2, Changes: 8, Users: workloads.Leaders, Faults: 6, Trouble: world.All, Pace: 50 * time.Millisecond,
		Skew: 3 * time.Second,
	}, jobs},
	"leaders, crashes": {world.Options{
		Replicas: 2, Writers: 2, Changes: 8, Users: workloads.Leaders, Faults: 20, Trouble: slices.Concat(world.Crashes, world.Stalls), Pace: 500 * time.Millisecond,
	}, jobs},
	"crons, calm": {world.Options{Changes: 16, Users: workloads.Crons, Pace: -1}, crons},
	"crons": {world.Options{
		Replicas: 2, Writers: 2, Changes: 16, Users: workloads.Crons, Faults: 10, Trouble: slices.Concat(world.All, slices.Repeat(world.ClockJumps, 24)), Pace: 50 * time.Millisecond,
	}, crons},
	"refusals": {world.Options{
		Replicas: 2, Changes: 10, Users: sim.Refusals, Last: sim.Admit, Faults: 4, Trouble: world.All, Pace: 50 * time.Millisecond,
	}, workloadsControllers},
	"network": {world.Options{Replicas: 2, Changes: 8, Users: network.Network, Faults: 6, Trouble: world.All, Pace: -1}, networkControllers},
	"cluster": {world.Options{Replicas: 2, Changes: 12, Users: sim.Infrastructure, Faults: 6, Trouble: world.All, Pace: -1}, infrastructure},
	"quotas": {world.Options{
		Watchers: 2, Replicas: 2, Writers: 2, Changes: 14, Users: metadata.Quotas, Faults: 6,
		Trouble: world.All, Pace: 50 * time.Millisecond,
	}, quotas},
	// A controller that has not seen a Service at its last count never hears of it, since
	// creates are charged elsewhere: it counts again after a period.
	"quotas, blind": {world.Options{
		Watchers: 2, Replicas: 2, Writers: 2, Changes: 14, Users: metadata.Quotas, Faults: 6, Trouble: world.All, Pace: 50 * time.Millisecond,
		Quiet: 11 * time.Minute,
	}, quotasOften},
	"mirrors": {world.Options{Replicas: 2, Changes: 12, Users: network.Mirrors, Faults: 6, Trouble: world.All, Pace: -1}, mirrors},
	"volumes": {world.Options{
		Replicas: 2, Writers: 2, Changes: 12, Users: storage.Volumes, Faults: 6, Trouble: world.All, Pace: 50 * time.Millisecond,
	}, volumes},
	"tokens": {world.Options{
		Watchers: 2, Replicas: 2, Writers: 2, Changes: 14, Users: access.Tokens, Faults: 6, Trouble: world.All, Pace: 50 * time.Millisecond,
	}, tokens},
	"tokens, calm": {world.Options{Replicas: 2, Changes: 20, Users: access.Tokens, Pace: -1}, tokens},
	"autoscalers": {world.Options{
		Watchers: 2, Replicas: 2, Writers: 2, Changes: 16, Users: workloads.Autoscalers, Faults: 20, Trouble: world.All, Pace: 50 * time.Millisecond, Quiet: 3 * time.Minute,
	}, autoscalers},
	"autoscalers, calm": {world.Options{Changes: 20, Users: workloads.Autoscalers, Pace: -1, Quiet: 3 * time.Minute}, autoscalers},
	"autoscalers, crashes": {world.Options{
		Changes: 16, Users: workloads.Autoscalers, Faults: 30, Trouble: slices.Concat(world.Crashes, world.Stalls), Pace: -1, Quiet: 3 * time.Minute,
	}, autoscalers},
	"servers": {world.Options{
		Watchers: 2, Replicas: 2, Writers: 2, Changes: 20, Users: metadata.Servers, Faults: 10, Trouble: world.All, Pace: 50 * time.Millisecond, Quiet: 3 * time.Minute,
	}, servers},
	"servers, calm": {world.Options{Changes: 30, Users: metadata.Servers, Pace: -1, Quiet: 3 * time.Minute}, servers},
	"legacy": {world.Options{
		Watchers: 2, Replicas: 2, Writers: 2, Changes: 40, Users: access.LegacyTokens, Faults: 10, Trouble: world.All, Pace: 50 * time.Millisecond,
	}, legacy},
	"legacy, calm": {world.Options{Changes: 40, Users: access.LegacyTokens, Pace: -1}, legacy},
	"kubelets": {world.Options{
		Watchers: 2, Replicas: 2, Writers: 2, Changes: 40, Users: nodes.Kubelets, Faults: 8, Trouble: world.All, Pace: 50 * time.Millisecond, Quiet: 4 * time.Minute,
	}, kubelets},
	"storage": {world.Options{
		Watchers: 2, Replicas: 2, Writers: 2, Changes: 40, Users: storage.Storage, Faults: 8, Trouble: world.All, Pace: 50 * time.Millisecond, Horizon: horizon, Quiet: quiet,
	}, storageControllers},
	"storage, one of each": {world.Options{Changes: 30, Users: storage.Storage, Faults: 6, Trouble: world.All, Pace: -1, Horizon: horizon, Quiet: quiet}, storageControllers},
	"storage, calm":        {world.Options{Changes: 40, Users: storage.Storage, Pace: -1, Horizon: horizon, Quiet: quiet}, storageControllers},
	"storage, settled":     {world.Options{Changes: 40, Users: storage.Storage, Faults: 4, Trouble: world.All, Pace: -1, Horizon: horizon, Quiet: quiet, Seldom: 40}, storageControllers},
	"node ranges": {world.Options{
		Watchers: 2, Replicas: 3, Writers: 3, Changes: 20, Users: network.NodeRanges, Faults: 10, Trouble: world.All, Pace: 50 * time.Millisecond,
	}, nodeRanges},
	"node ranges, calm":  {world.Options{Changes: 20, Users: network.NodeRanges, Pace: -1}, nodeRanges},
	"certificates":       crowd(40, access.Requests, certificates),
	"certificates, calm": calm(40, access.Requests, certificates),
	"devices":            crowd(30, devices.Devices, devicesControllers),
	"devices, calm":      calm(30, devices.Devices, devicesControllers),
	"joins":              crowd(30, access.Joins, joins),
	"joins, calm":        calm(30, access.Joins, joins),
	"signatures":         crowd(30, access.Joins, signatures),
	"groups":             crowd(30, network.Groups, groups),
	"groups, calm":       calm(30, network.Groups, groups),
	"migrations":         crowd(24, metadata.Migrations, migrations),
	"migrations, calm":   calm(24, metadata.Migrations, migrations),
	"labels":             crowd(30, storage.Labels, labels),
	"labels, calm":       calm(30, storage.Labels, labels),
	"pools":              crowd(40, devices.Pools, pools),
	"pools, calm":        calm(40, devices.Pools, pools),
	"cluster, calm":      calm(12, sim.Infrastructure, infrastructure),
	"calm":               calm(5, workloads.Workloads, workloadsControllers),
	"settled":            {world.Options{Changes: 12, Users: workloads.Workloads, Faults: 4, Trouble: world.All, Pace: -1, Seldom: 40}, workloadsControllers},
	"crashes": {world.Options{
		Changes: 4, Users: workloads.Workloads, Faults: 10, Trouble: world.Crashes, Pace: -1,
	}, workloadsControllers},
	"two of each": {world.Options{
		Watchers: 2, Replicas: 2, Writers: 2, Changes: 4, Users: workloads.Workloads, Faults: 8, Trouble: world.All,
		Pace: 50 * time.Millisecond, Skew: time.Second,
	}, workloadsControllers},
	"stalls": {world.Options{
		Watchers: 2, Replicas: 2, Writers: 2, Changes: 3, Users: workloads.Workloads, Faults: 6, Trouble: world.Stalls,
		Pace: 50 * time.Millisecond,
	}, workloadsControllers},
	"losses": {world.Options{
		Watchers: 2, Changes: 4, Users: workloads.Workloads, Faults: 8, Trouble: slices.Concat(world.Losses, world.Lags, world.Redeliveries, world.ClockJumps), Pace: -1,
	}, workloadsControllers},
	"everything": {world.Options{
		Replicas: 2, Writers: 2, Changes: 4, Users: sim.Everything, Faults: 8, Trouble: world.All, Pace: 50 * time.Millisecond,
	}, everything},
	"storm": {world.Options{
		Watchers: 2, Replicas: 3, Writers: 3, Changes: 8, Users: workloads.Workloads, Faults: 30, Trouble: world.All,
		Pace: 50 * time.Millisecond, Skew: time.Second,
	}, workloadsControllers},
}

// again is the command that runs one world of a shape again.
func again(name string, seed uint64) string {
	return fmt.Sprintf("again: go test ./test/sim -run 'TestWorlds/%s$' -sim.seed=%d -sim.n=1", strings.ReplaceAll(name, " ", "_"), seed)
}

// figures is the results of a run's worlds.
type figures struct {
	mu     sync.Mutex
	total  cluster.Tally
	worlds map[string]uint64
	broken []string
	began  time.Time
	commit string
}

// add adds a world.
func (f *figures) add(name string, t cluster.Tally, err error, seed uint64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.total = f.total.Add(t)
	f.worlds[name]++
	if err != nil {
		first, _, _ := strings.Cut(err.Error(), "\n")
		f.broken = append(f.broken, fmt.Sprintf("%s, %s", first, again(name, seed)))
	}
}

func (f *figures) played() (sum uint64) {
	for _, n := range f.worlds {
		sum += n
	}
	return sum
}

// write writes the figures as evidence.
func (f *figures) write(ctx context.Context, to string, failed bool) error {
	code := 0
	if failed {
		code = 1
	}
	return evidence.Write(ctx, to, map[string]any{
		"commit": f.commit, "exitCode": code, "seconds": int(time.Since(f.began).Seconds()),
		"seeds": fmt.Sprintf("%d to %d, for each shape", *seed, *seed+*n-1), "worlds": f.played(), "worldsPerShape": f.worlds,
		"steps": f.total.Steps, "faults": f.total.Faults, "changes": f.total.Changes, "turns": f.total.Turns, "writes": f.total.Writes,
		"decisionsJudged": f.total.Judged, "effectsJudged": f.total.Effects, "exceptions": f.total.Excepted(),
		"writesOfOneObjectAtOnce": f.total.Busiest, "longestUnanswered": f.total.Latest.String(), "violations": len(f.broken), "broken": f.broken,
	})
}

func TestWorlds(t *testing.T) {
	f := &figures{worlds: map[string]uint64{}, began: time.Now()}
	if *file != "" {
		var err error
		if f.commit, err = evidence.Commit(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	var records *exports
	if *kept != "" {
		records = newExports(t, *kept)
		t.Cleanup(func() { records.close(t) })
	}
	for _, name := range slices.Sorted(maps.Keys(shapes)) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for s := *seed; s < *seed+*n && !t.Failed(); s++ {
				options := shapes[name].options
				options.Seed, options.Mute = s, true
				w := world.New(options, shapes[name].controllers())
				err := w.Run()
				if records != nil {
					records.add(t, w, name, s)
				}
				if f.add(name, w.Tally(), err, s); err != nil {
					options.Mute = false // once more, with the transcript
					t.Errorf("%v\n%s", world.New(options, shapes[name].controllers()).Run(), again(name, s))
				}
			}
		})
	}
	t.Cleanup(func() {
		took := time.Since(f.began).Seconds()
		t.Logf("the exceptions:\n%s", f.total.Exceptions())
		t.Logf("%d worlds on %d cores in %.0f s (%.0f/s): %v (%.0f requests/s)", f.played(), runtime.GOMAXPROCS(0), took, float64(f.played())/took, f.total, float64(f.total.Writes)/took)
		if *file == "" {
			return
		}
		if err := f.write(context.WithoutCancel(t.Context()), *file, t.Failed()); err != nil {
			t.Error(err)
		}
	})
}

// The simulation is useful only if it detects what it is for.
func TestItBites(t *testing.T) {
	for name, tc := range map[string]struct {
		cheat  world.Cheat
		worlds string
		ignore string
		rule   string
	}{
		"half of the fence":                  {world.HalfFence, "two of each", "", "I8"},
		"half of the fence, by what it does": {world.HalfFence, "two of each", "I8", "I2"},
		"a fence in memory":                  {world.MemoryFence, "two of each", "", "I10"},
		// No process stores what it decided before it stood still. So the effect is rare, and in most
		// shapes I8 is broken before.
		"a fence in memory, by what it does": {world.MemoryFence, "budgets", "I10", "I2"},
		// Without conditions the request itself shows the mistake: since no turn is decided on
		// an older view than the key's last one, it has no other effect.
		"turns without conditions": {world.Heedless, "two of each", "", "I4"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for s := uint64(1); s <= 1000; s++ {
				worlds := shapes[tc.worlds]
				options := worlds.options
				options.Seed, options.Cheat, options.Ignore, options.Mute = s, tc.cheat, tc.ignore, true
				if err := world.New(options, worlds.controllers()).Run(); err != nil && strings.Contains(err.Error(), tc.rule) {
					return
				}
			}
			t.Error("1000 worlds noticed nothing")
		})
	}
}

func TestAWorldIsItsSeed(t *testing.T) {
	for name, s := range shapes {
		options := s.options
		options.Seed = *seed
		first, second := world.New(options, s.controllers()), world.New(options, s.controllers())
		errFirst, errSecond := first.Run(), second.Run()
		if (errFirst == nil) != (errSecond == nil) || first.Story() != second.Story() {
			t.Errorf("%s: the same seed gave two worlds", name)
		}
	}
}
