package reconcilers

import (
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/millrace/millrace/services/reconcilers/controllers/replicaset"
	"github.com/millrace/millrace/services/reconcilers/controllers/replicationcontroller"
	"github.com/millrace/millrace/services/reconcilers/engine"
	"github.com/millrace/millrace/services/reconcilers/reconcile"
)

// Two controllers may share a metric, as upstream's ReplicaSet and ReplicationController
// do. It is registered once.
func TestAMetricOfTwoControllersIsOne(t *testing.T) {
	both := []reconcile.Any{replicaset.Controller, replicationcontroller.Controller}
	registry := prometheus.NewPedanticRegistry()
	u := newUpstream(both)
	for _, c := range u.collectors(both) {
		if err := registry.Register(c); err != nil {
			t.Errorf("register: %v", err)
		}
	}
}

// Queues of one name share one set of metrics.
func TestAQueueOfTwoControllersIsOne(t *testing.T) {
	u := newUpstream(nil)
	shared := queue{}.with(engine.Tally{Depth: 1, Adds: 2, Retries: 3}, time.Second).with(engine.Tally{Depth: 10, Adds: 20, Retries: 30}, 4*time.Second)
	if want := (queue{11, 22, 33, 5, 4}); shared != want {
		t.Errorf("the shared queue is %v, want %v", shared, want)
	}
	out := make(chan prometheus.Metric, 20)
	u.collectQueues(out, map[string]queue{"certificate": shared, "other": {}})
	if close(out); len(out) != 10 {
		t.Errorf("there are %d metrics of two queues", len(out))
	}
}

// The publisher of trust bundles has upstream's metrics.
func TestBundlesAreCounted(t *testing.T) {
	u := newUpstream(nil)
	u.answered(bundlePublisher, 200, time.Second)
	u.answered(bundlePublisher, 409, time.Second)
	u.answered(rootCAPublisher, 200, time.Second)
	if ok, not := testutil.ToFloat64(u.bundles.WithLabelValues("200")), testutil.ToFloat64(u.bundles.WithLabelValues("409")); ok != 1 || not != 1 || testutil.CollectAndCount(u.bundleTime) != 2 {
		t.Errorf("counted are %v and %v", ok, not)
	}
}
