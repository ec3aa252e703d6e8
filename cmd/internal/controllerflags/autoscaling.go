package controllerflags

import (
	"fmt"
	"time"

	"github.com/spf13/pflag"

	"github.com/millrace/millrace/services/reconcilers/controllers"
)

// autoscalingOptions are the flags of horizontal-pod-autoscaler-controller.
type autoscalingOptions struct {
	period, stabilization, startup, readiness time.Duration
	tolerance                                 float64
}

// Upstream: pkg/controller/podautoscaler/config/v1alpha1.
func newAutoscalingOptions() autoscalingOptions {
	return autoscalingOptions{
		period: 15 * time.Second, stabilization: 5 * time.Minute, startup: 5 * time.Minute, readiness: 30 * time.Second, tolerance: 0.1,
	}
}

func (o *autoscalingOptions) add(f *pflag.FlagSet) {
	f.DurationVar(&o.period, "horizontal-pod-autoscaler-sync-period", o.period, "how often each autoscaler is evaluated")
	f.DurationVar(&o.stabilization, "horizontal-pod-autoscaler-downscale-stabilization", o.stabilization,
		"how long an autoscaler does not scale below its earlier recommendations, unless its behavior sets another window; 0 turns that off")
	f.Float64Var(&o.tolerance, "horizontal-pod-autoscaler-tolerance", o.tolerance,
		"relative deviation of a metric from its target that leads to no scaling, unless the autoscaler's behavior sets another one")
	f.DurationVar(&o.startup, "horizontal-pod-autoscaler-cpu-initialization-period", o.startup,
		"time after the start of a pod in which CPU samples count only if the pod has been ready for a whole sample window")
	f.DurationVar(&o.readiness, "horizontal-pod-autoscaler-initial-readiness-delay", o.readiness,
		"time after the start of a pod in which a change of its readiness counts as initial readiness")
}

// config translates the flags to the controller's configuration. There 0 stands for the
// default, so that a flag of 0 or less becomes -1.
//
// Errors: the sync period is not positive.
func (o *autoscalingOptions) config() (controllers.Autoscaling, error) {
	if o.period <= 0 {
		return controllers.Autoscaling{}, fmt.Errorf("read --horizontal-pod-autoscaler-sync-period: %v is not more than 0", o.period)
	}
	c := controllers.Autoscaling{Period: o.period, Stabilization: o.stabilization, Tolerance: o.tolerance, Startup: o.startup, Readiness: o.readiness}
	for _, d := range []*time.Duration{&c.Stabilization, &c.Startup, &c.Readiness} {
		if *d <= 0 {
			*d = -1
		}
	}
	if c.Tolerance <= 0 {
		c.Tolerance = -1
	}
	return c, nil
}
