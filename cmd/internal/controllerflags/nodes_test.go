package controllerflags

import (
	"testing"
	"time"

	"github.com/spf13/pflag"

	"github.com/millrace/millrace/services/reconcilers/controllers"
)

func TestWhatFlagsTellOfNodes(t *testing.T) {
	plain := controllers.Nodes{Grace: 50 * time.Second, Startup: time.Minute, Rate: 0.1, Secondary: 0.01, Many: 0.55, Large: 50}
	none := plain
	none.Rate, none.Secondary, none.Large = -1, -1, -1
	for _, c := range []struct {
		args  []string
		want  controllers.Nodes
		wrong bool
	}{
		{nil, plain, false},
		{[]string{"--node-eviction-rate=0", "--secondary-node-eviction-rate=0", "--large-cluster-size-threshold=0"}, none, false},
		{[]string{"--node-monitor-grace-period=40s", "--node-startup-grace-period=2m", "--node-eviction-rate=1", "--secondary-node-eviction-rate=2",
			"--unhealthy-zone-threshold=1", "--large-cluster-size-threshold=3"},
			controllers.Nodes{Grace: 40 * time.Second, Startup: 2 * time.Minute, Rate: 1, Secondary: 2, Many: 1, Large: 3}, false},
		{[]string{"--node-monitor-grace-period=0"}, plain, true}, {[]string{"--node-startup-grace-period=-1s"}, plain, true},
		{[]string{"--unhealthy-zone-threshold=0"}, plain, true}, {[]string{"--unhealthy-zone-threshold=1.1"}, plain, true},
	} {
		o, flags := New(), pflag.NewFlagSet("test", pflag.ContinueOnError)
		o.Add(flags)
		if err := flags.Parse(c.args); err != nil {
			t.Fatalf("%v: %v", c.args, err)
		}
		config, err := o.Config()
		if (err != nil) != c.wrong || err == nil && config.Nodes != c.want {
			t.Errorf("%v comes to %+v, %v; want %+v", c.args, config.Nodes, err, c.want)
		}
	}
}
