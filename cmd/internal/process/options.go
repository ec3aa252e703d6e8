package process

import (
	"errors"
	"time"

	"github.com/spf13/pflag"
	zgates "k8s.io/component-base/zpages/features"

	"github.com/millrace/millrace/cmd/internal/controllerflags"
	"github.com/millrace/millrace/cmd/internal/health"
	"github.com/millrace/millrace/cmd/internal/health/delegated"
	"github.com/millrace/millrace/cmd/internal/telemetry"
	"github.com/millrace/millrace/cmd/internal/zpages"
)

// Options are the flags that every process has.
type Options struct {
	addressOptions
	profiling bool
	// contention adds block profiles to profiling.
	contention bool
	metrics    metricOptions
	access     health.Access
	delegated  delegated.Options
	tls        tlsOptions
	// Controllers has the controllers, which /configz shows, and the feature gates, which turn pages off;
	// nil in a process without controllers.
	Controllers *controllerflags.Options
	// BusCert and BusKey are the certificate files of the NATS server in this process.
	BusCert, BusKey string
	grace           time.Duration
	// Tracing are the flags of the spans that the process exports.
	Tracing telemetry.Options
}

// NewOptions has the defaults of the flags.
func NewOptions() Options {
	return Options{addressOptions: newAddressOptions(), access: newAccess(), delegated: delegated.Defaults(), grace: 10 * time.Second, Tracing: telemetry.NewOptions()}
}

// Add adds the flags, except those of Tracing.
func (o *Options) Add(f *pflag.FlagSet) {
	o.addressOptions.add(f, "`address` of /healthz, /livez, /readyz, /metrics, /configz, /flagz and /statusz; empty serves none")
	o.metrics.add(f)
	addAccess(f, &o.access)
	addDelegation(f, &o.delegated)
	o.tls.add(f)
	f.BoolVar(&o.profiling, "profiling", o.profiling, "serve /debug/pprof on the health address, with the access rules of /metrics")
	f.BoolVar(&o.contention, "contention-profiling", o.contention, "with --profiling, also serve block profiles")
	f.DurationVar(&o.grace, "shutdown-timeout", o.grace, "how long to finish what is in flight after SIGTERM")
	f.DurationVar(&o.grace, "controller-shutdown-timeout", o.grace, "the same as --shutdown-timeout")
}

// Check validates the flags before anything is started.
//
// Errors: the address is given twice, or is out of range; no such metrics can be shown.
func (o *Options) Check() error {
	_, _, err := o.Address()
	return errors.Join(err, o.metrics.check())
}

// pages is the content of /flagz, /configz and /statusz, as far as feature gates enable them.
func (o *Options) pages() health.About {
	about := health.About{Version: controllerflags.Kubernetes}
	if o.Controllers.GateOn(string(zgates.ComponentFlagz)) && o.Flags != nil {
		about.Flags = zpages.Flags{Set: o.Flags}
	}
	if o.Controllers != nil && o.Flags != nil {
		about.Config = zpages.Config(o.Flags, o.Controllers.Chosen)
	}
	about.Status = o.Controllers.GateOn(string(zgates.ComponentStatusz))
	return about
}
