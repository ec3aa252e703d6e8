package command

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/pflag"
	"k8s.io/client-go/rest"
	"k8s.io/controller-manager/pkg/leadermigration"
	"k8s.io/controller-manager/pkg/leadermigration/config"

	"github.com/millrace/millrace/cmd/internal/election"
	"github.com/millrace/millrace/services/reconcilers/reconcile"
)

// migrationOptions are kube-controller-manager's flags of Leader Migration.
type migrationOptions struct {
	enabled bool
	file    string
	// lease is the name of the Lease, and moves tells whether a controller moves with it; both are
	// set by check.
	lease string
	moves func(controller string) bool
}

func (o *migrationOptions) add(f *pflag.FlagSet) {
	f.BoolVar(&o.enabled, "enable-leader-migration", o.enabled,
		"run controllers by turns with a kube-controller-manager: the holder of the Lease that --leader-migration-config names runs them; see millrace takeover")
	f.StringVar(&o.file, "leader-migration-config", o.file,
		"`file` with a LeaderMigrationConfiguration, of the same format as kube-controller-manager's; its controllers of the component \"*\" or \"millrace\" move with the Lease")
}

// check reads the file.
//
// Errors: the file cannot be read, or is no valid configuration; the bus is shared.
func (o *migrationOptions) check(shared bool) error {
	switch {
	case !o.enabled && o.file != "":
		return errors.New("read --leader-migration-config: it has no effect without --enable-leader-migration")
	case !o.enabled:
		return nil
	case o.file == "":
		return errors.New("read --enable-leader-migration: name the controllers in a file, --leader-migration-config; kube-controller-manager's default names those of clouds")
	case shared:
		return errors.New("read --enable-leader-migration: only a process with a bus of its own can hold the Lease; leave --nats-url out, or divide the controllers with --controllers and --shadow")
	}
	is, err := config.ReadLeaderMigrationConfiguration(o.file)
	if err != nil {
		return fmt.Errorf("read --leader-migration-config: %s: %w", o.file, err)
	}
	if errs := config.ValidateLeaderMigrationConfiguration(is); len(errs) > 0 {
		return fmt.Errorf("read --leader-migration-config: %s: %w", o.file, errs.ToAggregate())
	}
	if is.ResourceLock != config.ResourceLockLeases {
		return fmt.Errorf("read --leader-migration-config: %s: the resourceLock is %q, and only %q exist in Kubernetes", o.file, is.ResourceLock, config.ResourceLockLeases)
	}
	of := leadermigration.NewLeaderMigrator(is, election.Millrace).FilterFunc
	o.lease, o.moves = is.LeaderName, func(controller string) bool { return of(controller) == leadermigration.ControllerMigrated }
	return nil
}

// divide checks that every acting controller moves with the Lease, and returns the choices of a
// process that waits for it and of one that holds it.
//
// Errors: a controller acts that kube-controller-manager runs, too.
func (o *migrationOptions) divide(chosen choice) (waiting choice, moving []string, err error) {
	var others []string
	for _, c := range chosen.acting {
		if name := c.Describe().Name; o.moves(name) {
			moving = append(moving, name)
		} else {
			others = append(others, name)
		}
	}
	slices.Sort(moving)
	switch {
	case len(others) > 0:
		return choice{}, nil, fmt.Errorf("read --leader-migration-config: %s gives neither \"*\" nor \"millrace\" as the component of %s, so that kube-controller-manager runs them, too: leave them out of --controllers, or name them in --shadow or in the file",
			o.file, strings.Join(others, ", "))
	case len(moving) == 0:
		return choice{}, nil, fmt.Errorf("read --leader-migration-config: %s names no controller of --controllers that is not in --shadow, so that nothing would move", o.file)
	}
	return choice{looking: slices.SortedFunc(slices.Values(chosen.all()), byName)}, moving, nil
}

func byName(a, b reconcile.Any) int { return strings.Compare(a.Describe().Name, b.Describe().Name) }

// migrating runs all services: with the controllers in shadow while kube-controller-manager runs
// them, and acting while this process holds the Lease of Leader Migration.
func (o *everything) migrating(ctx context.Context, config *rest.Config) error {
	chosen, err := o.ctrl.chooseFor(config)
	if err != nil {
		return err
	}
	if !o.migration.enabled {
		return o.run(ctx, config, chosen)
	}
	waiting, moving, err := o.migration.divide(chosen)
	if err != nil {
		return err
	}
	m := election.Migration{Options: o.election, Controllers: moving}
	m.LeaseName = o.migration.lease
	return m.Run(ctx, config, election.Term{
		Wait: func(ctx context.Context) error { return o.run(ctx, config, waiting) },
		Lead: func(ctx context.Context) error { return o.run(ctx, config, chosen) },
	})
}
