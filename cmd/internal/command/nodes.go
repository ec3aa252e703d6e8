package command

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
		fmt.Sprintf("for how long a node may be silent before it is unknown; a watch that was away for less than %v is not noticed, so it should be well over that and the time between two renewals", events.Blind))
	f.DurationVar(&o.startup, "node-startup-grace-period", o.startup, "the same for a node that has never said how it is")
	f.Float32Var(&o.rate, "node-eviction-rate", o.rate, "nodes of a zone that are not ready whose pods go, in a second; 0 for none")
	f.Float32Var(&o.secondary, "secondary-node-eviction-rate", o.secondary, "the same in a zone that is badly off (--unhealthy-zone-threshold) and large (--large-cluster-size-threshold)")
	f.Float32Var(&o.badly, "unhealthy-zone-threshold", o.badly, "part of a zone's nodes, and three at least, that are not ready where it is badly off")
	f.Int32Var(&o.large, "large-cluster-size-threshold", o.large, "nodes that a zone has more than where it is large; of a smaller one that is badly off no pods go")
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
