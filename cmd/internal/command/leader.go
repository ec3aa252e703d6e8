package command

import (
	"context"

	"github.com/spf13/pflag"
	"k8s.io/client-go/rest"

	"github.com/millrace/millrace/cmd/internal/election"
	"github.com/millrace/millrace/cmd/internal/process"
)

// addElection adds the flags of leader election.
func addElection(f *pflag.FlagSet, o *election.Options) {
	const only = "; with --leader-elect or --enable-leader-migration"
	f.BoolVar(&o.Elect, "leader-elect", o.Elect,
		"act only while this process holds a Lease, for processes with a bus of their own each; processes on one bus (--nats-url) share the work and need no Lease")
	f.DurationVar(&o.Lease, "leader-elect-lease-duration", o.Lease, "how long a Lease is valid that its leader does not renew"+only)
	f.DurationVar(&o.Renew, "leader-elect-renew-deadline", o.Renew, "how long a leader tries to renew the Lease before it stops leading"+only)
	f.DurationVar(&o.Retry, "leader-elect-retry-period", o.Retry, "interval of the attempts to acquire or renew the Lease"+only)
	f.StringVar(&o.LeaseName, "leader-elect-resource-name", o.LeaseName,
		"`name` of the Lease; the default is kube-controller-manager's, so that only one of the two acts. Set another name to run some controllers in each; with --leader-elect alone")
	f.StringVar(&o.LeaseNamespace, "leader-elect-resource-namespace", o.LeaseNamespace, "`namespace` of the Lease"+only)
}

const waitsForLease = "--enable-leader-migration"

// waits is the flag by which this process acts only while it holds a Lease; "" if there is none.
func (o *everything) waits() string {
	switch {
	case o.migration.Enabled:
		return waitsForLease
	case o.bus.Connection.URL != "":
		return ""
	case o.election.Elect:
		return "--leader-elect"
	default:
		return ""
	}
}

// leases are the Leases that the process may hold.
func (o *everything) leases() (namespace string, names []string) {
	if o.election.Elect || !o.migration.Enabled {
		names = append(names, o.election.LeaseName)
	}
	if o.migration.Enabled {
		names = append(names, o.migration.LeaseName)
	}
	return o.election.LeaseNamespace, names
}

// elected runs everything: once this process leads, with --leader-elect and a bus of its own, and
// at once otherwise.
func (o *everything) elected(ctx context.Context, config *rest.Config) error {
	if !o.election.Elect || o.bus.Connection.URL != "" {
		return o.run(ctx, config)
	}
	return o.election.Run(ctx, config, election.Term{
		Wait: func(ctx context.Context) error { return o.service.Run(ctx, []process.Part{standby()}) },
		Lead: func(ctx context.Context) error { return o.run(ctx, config) },
	})
}

// standby keeps the health address of a process that waits for the Lease: it is live and ready.
func standby() process.Part {
	return process.Part{Name: "standby", Run: func(ctx context.Context) error { <-ctx.Done(); return nil }}
}
