package controllerflags

import (
	"fmt"
	"time"

	"github.com/spf13/pflag"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/services/reconcilers/controllers"
)

// nodeOptions are the flags of node-lifecycle-controller: grace periods and eviction rates.
// --node-monitor-period is moot, because no loop polls the nodes.
type nodeOptions struct {
	grace, startup         time.Duration
	rate, secondary, badly float32
	large                  int32
}

// Upstream: pkg/controller/nodelifecycle/config/v1alpha1, and cmd/kube-controller-manager.
func newNodeOptions() nodeOptions {
	return nodeOptions{grace: 50 * time.Second, startup: time.Minute, rate: 0.1, secondary: 0.01, badly: 0.55, large: 50}
}

func (o *nodeOptions) add(f *pflag.FlagSet) {
	f.DurationVar(&o.grace, "node-monitor-grace-period", o.grace,
		fmt.Sprintf("how long a node may send no heartbeat before its status is unknown; must be well above the interval of the kubelets' heartbeats and above %v, the interruption of a watch that goes unnoticed", events.SightTimeout))
	f.DurationVar(&o.startup, "node-startup-grace-period", o.startup, "the same for a node that has never reported its status")
	f.Float32Var(&o.rate, "node-eviction-rate", o.rate, "nodes per second whose pods are evicted when nodes fail in a healthy zone; 0 for none")
	f.Float32Var(&o.secondary, "secondary-node-eviction-rate", o.secondary, "the same in an unhealthy zone (--unhealthy-zone-threshold) that is large (--large-cluster-size-threshold)")
	f.Float32Var(&o.badly, "unhealthy-zone-threshold", o.badly, "fraction of a zone's nodes, at least three nodes, that must be not ready for the zone to be unhealthy")
	f.Int32Var(&o.large, "large-cluster-size-threshold", o.large, "number of nodes above which a zone is large; from a smaller unhealthy zone no pods are evicted")
}

// config translates the flags to the controller's configuration.
//
// Errors: a number is out of range.
func (o *nodeOptions) config() (controllers.Nodes, error) {
	switch {
	case o.grace <= 0:
		return controllers.Nodes{}, fmt.Errorf("read --node-monitor-grace-period: %v is not more than 0", o.grace)
	case o.startup <= 0:
		return controllers.Nodes{}, fmt.Errorf("read --node-startup-grace-period: %v is not more than 0", o.startup)
	case o.badly <= 0 || o.badly > 1:
		return controllers.Nodes{}, fmt.Errorf("read --unhealthy-zone-threshold: %v is not more than 0 and at most 1", o.badly)
	}
	c := controllers.Nodes{Grace: o.grace, Startup: o.startup, Rate: o.rate, Secondary: o.secondary, Many: o.badly, Large: int(o.large)}
	if c.Rate <= 0 {
		c.Rate = -1
	}
	if c.Secondary <= 0 {
		c.Secondary = -1
	}
	if c.Large <= 0 {
		c.Large = -1
	}
	return c, nil
}
