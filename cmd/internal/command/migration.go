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

	"github.com/millrace/millrace/cmd/internal/doctor"
	"github.com/millrace/millrace/cmd/internal/election"
)

// migrationOptions are kube-controller-manager's flags of Leader Migration.
type migrationOptions struct {
	enabled bool
	file    string
	// leaseName is the name of the Lease, and moves reports whether a controller moves with it; both
	// are set by check.
	leaseName string
	moves     func(controller string) bool
}

func (o *migrationOptions) add(f *pflag.FlagSet) {
	f.BoolVar(&o.enabled, "enable-leader-migration", o.enabled,
		"run controllers by turns with a kube-controller-manager: the holder of the Lease that --leader-migration-config names runs them; see millrace takeover")
	f.StringVar(&o.file, "leader-migration-config", o.file,
		"`file` with a LeaderMigrationConfiguration, of the same format as kube-controller-manager's; its controllers of the component \"*\" or \"millrace\" move with the Lease")
}

// check reads the file, and checks the durations of the Lease.
//
// Errors: the file cannot be read, or is no valid configuration; no process can hold such a Lease.
func (o *migrationOptions) check(lease election.Options) error {
	switch {
	case !o.enabled && o.file != "":
		return errors.New("read --leader-migration-config: it has no effect without --enable-leader-migration")
	case !o.enabled:
		return nil
	case o.file == "":
		return errors.New("read --enable-leader-migration: name the controllers in a file, --leader-migration-config; kube-controller-manager's default names those of clouds")
	}
	lease.Elect = true
	if err := lease.Check(); err != nil {
		return err
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
	o.leaseName, o.moves = is.LeaderName, func(controller string) bool { return of(controller) == leadermigration.ControllerMigrated }
	return nil
}

// divide has the acting controllers of a choice move with the Lease.
//
// Errors: a controller acts that does not move: kube-controller-manager runs it, too.
func (o *migrationOptions) divide(chosen *choice) error {
	if !o.enabled {
		return nil
	}
	var others []string
	for _, name := range chosen.names() {
		if !o.moves(name) {
			others = append(others, name)
		}
	}
	switch {
	case len(others) > 0:
		return fmt.Errorf("read --leader-migration-config: %s gives neither \"*\" nor \"millrace\" as the component of %s, so that kube-controller-manager runs them, too: leave them out of --controllers, or name them in --shadow or in the file",
			o.file, strings.Join(others, ", "))
	case len(chosen.acting) == 0:
		return fmt.Errorf("read --leader-migration-config: %s names no controller of --controllers that is not in --shadow, so that nothing would move", o.file)
	}
	chosen.leased = o.moves
	return nil
}

// leaseOf holds a Lease; see [writer.Config].
type leaseOf = func(ctx context.Context, lead func(ctx context.Context, token uint64) error) error

// lease returns how a writer holds the Lease with which its controllers move; nil if they do not.
func (o *migrationOptions) lease(config *rest.Config, options election.Options, write *writerOptions, chosen choice) leaseOf {
	if !o.enabled {
		return nil
	}
	m := election.Migration{Options: options, Controllers: slices.Sorted(slices.Values(chosen.names())), Ready: write.ready(config, chosen)}
	m.LeaseName = o.leaseName
	return func(ctx context.Context, lead func(context.Context, uint64) error) error {
		return m.Run(ctx, config, lead)
	}
}

// ready tells which rights the writer lacks. What cannot be found out is no reason to wait: then the
// Lease cannot be taken either.
func (o *writerOptions) ready(config *rest.Config, chosen choice) func(ctx context.Context) error {
	return func(ctx context.Context) error {
		api, err := doctor.NewAPI(config)
		if err != nil {
			return err
		}
		version, err := api.Version(ctx)
		if err != nil {
			return nil
		}
		needed := o.needed(chosen, nil, version.Constrains())
		may, err := api.May(ctx, slices.Concat(needed.All, needed.Instead, needed.Bounds))
		if err != nil {
			return nil
		}
		if f := needed.Finding(may); f.State == doctor.Failed {
			return fmt.Errorf("%s: %s", f.Found, f.Do)
		}
		return nil
	}
}
