package process

import (
	"fmt"

	"github.com/spf13/pflag"
	"k8s.io/component-base/metrics"

	"github.com/millrace/millrace/cmd/internal/controllerflags"
)

// metricOptions are the flags that hide and show metrics.
type metricOptions struct {
	disabled []string
	hidden   string
}

func (o *metricOptions) add(f *pflag.FlagSet) {
	f.StringSliceVar(&o.disabled, "disabled-metrics", o.disabled, "`names` of metrics that /metrics leaves out")
	f.StringVar(&o.hidden, "show-hidden-metrics-for-version", o.hidden,
		"also show the metrics of Kubernetes' libraries that are hidden since this `version`; only the previous one is possible: "+controllerflags.Previous)
}

// check refuses a version other than the previous one.
//
// Upstream: k8s.io/component-base/metrics.
func (o *metricOptions) check() error {
	if o.hidden != "" && o.hidden != controllerflags.Previous {
		return fmt.Errorf("read --show-hidden-metrics-for-version: %q must be omitted or have the value %s", o.hidden, controllerflags.Previous)
	}
	return nil
}

func (o *metricOptions) apply() {
	if o.hidden != "" {
		metrics.SetShowHidden()
	}
}
