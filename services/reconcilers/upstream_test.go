package reconcilers

import (
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/millrace/millrace/services/reconcilers/controllers/replicaset"
	"github.com/millrace/millrace/services/reconcilers/controllers/replicationcontroller"
	"github.com/millrace/millrace/services/reconcilers/reconcile"
)

// Two controllers may have one metric, as upstream's keepers of sets do; a
// registry takes it once.
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
