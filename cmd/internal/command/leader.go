package command

import (
	"context"

	"github.com/spf13/pflag"
	"k8s.io/client-go/rest"

	"github.com/millrace/millrace/cmd/internal/election"
)

// addElection adds the flags of leader election.
func addElection(f *pflag.FlagSet, o *election.Options) {
	const only = "; with --leader-elect alone"
	f.BoolVar(&o.Elect, "leader-elect", o.Elect,
		"act only while this process holds a Lease, where several have a bus of their own each; on a bus that they share (--nats-url) they share out the work, and need none")
	f.DurationVar(&o.Lease, "leader-elect-lease-duration", o.Lease, "for how long the Lease counts that a leader does not renew"+only)
	f.DurationVar(&o.Renew, "leader-elect-renew-deadline", o.Renew, "for how long a leader tries to renew it before it ends"+only)
	f.DurationVar(&o.Retry, "leader-elect-retry-period", o.Retry, "how often it is tried to get or renew it"+only)
	f.StringVar(&o.LeaseName, "leader-elect-resource-name", o.LeaseName,
		"`name` of the Lease: by default kube-controller-manager's, so that one waits for the other; where the controllers are divided between the two, give another"+only)
	f.StringVar(&o.LeaseNamespace, "leader-elect-resource-namespace", o.LeaseNamespace, "`namespace` of the Lease"+only)
}

// elected runs everything: once this process leads, with --leader-elect and a bus of its own, and
// at once otherwise.
func (o *everything) elected(ctx context.Context, config *rest.Config) error {
	if !o.election.Elect || o.bus.at.URL != "" {
		return o.run(ctx, config)
	}
	return o.election.Run(ctx, config, election.Term{
		Wait: func(ctx context.Context) error { return o.service.run(ctx, []part{standby()}) },
		Lead: func(ctx context.Context) error { return o.run(ctx, config) },
	})
}

// standby keeps the health address of a process that waits for the Lease: it is live and ready.
func standby() part {
	return part{name: "standby", run: func(ctx context.Context) error { <-ctx.Done(); return nil }}
}
