package controllerflags

import (
	"reflect"
	"testing"
	"time"

	"github.com/spf13/pflag"

	"github.com/millrace/millrace/services/reconcilers/controllers"
)

func TestWhatFlagsTellOfAutoscaling(t *testing.T) {
	plain := controllers.Autoscaling{Period: 15 * time.Second, Stabilization: 5 * time.Minute, Tolerance: 0.1, Startup: 5 * time.Minute, Readiness: 30 * time.Second}
	for _, c := range []struct {
		args  []string
		want  controllers.Autoscaling
		wrong bool
	}{
		{nil, plain, false},
		{[]string{
			"--horizontal-pod-autoscaler-downscale-stabilization=0", "--horizontal-pod-autoscaler-tolerance=0",
			"--horizontal-pod-autoscaler-cpu-initialization-period=0", "--horizontal-pod-autoscaler-initial-readiness-delay=0",
		}, controllers.Autoscaling{Period: 15 * time.Second, Stabilization: -1, Tolerance: -1, Startup: -1, Readiness: -1}, false},
		{[]string{
			"--horizontal-pod-autoscaler-sync-period=1s", "--horizontal-pod-autoscaler-downscale-stabilization=2s", "--horizontal-pod-autoscaler-tolerance=0.5",
			"--horizontal-pod-autoscaler-cpu-initialization-period=3s", "--horizontal-pod-autoscaler-initial-readiness-delay=4s",
		}, controllers.Autoscaling{Period: time.Second, Stabilization: 2 * time.Second, Tolerance: 0.5, Startup: 3 * time.Second, Readiness: 4 * time.Second}, false},
		{[]string{"--horizontal-pod-autoscaler-sync-period=0"}, plain, true},
	} {
		o, flags := New(), pflag.NewFlagSet("test", pflag.ContinueOnError)
		o.Add(flags)
		if err := flags.Parse(c.args); err != nil {
			t.Fatalf("%v: %v", c.args, err)
		}
		config, err := o.Config()
		if (err != nil) != c.wrong || err == nil && !reflect.DeepEqual(config.Autoscaling, c.want) {
			t.Errorf("%v comes to %+v, %v; want %+v", c.args, config.Autoscaling, err, c.want)
		}
	}
}
