package serviceflags

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

	"github.com/millrace/millrace/cmd/internal/controllerflags"
	"github.com/millrace/millrace/cmd/internal/election"
)

// Migration are kube-controller-manager's flags of Leader Migration.
type Migration struct {
	// Enabled is the flag --enable-leader-migration.
	Enabled bool
	file    string
	// LeaseName is the name of the Lease, and moves reports whether a controller moves with it; both
	// are set by Check.
	LeaseName string
	moves     func(controller string) bool
}

// Add adds the flags.
func (o *Migration) Add(f *pflag.FlagSet) {
	f.BoolVar(&o.Enabled, "enable-leader-migration", o.Enabled,
		"run controllers by turns with a kube-controller-manager: the holder of the Lease that --leader-migration-config names runs them; see millrace takeover")
	f.StringVar(&o.file, "leader-migration-config", o.file,
		"`file` with a LeaderMigrationConfiguration, of the same format as kube-controller-manager's; its controllers of the component \"*\" or \"millrace\" move with the Lease")
}

// Check reads the file, and checks the durations of the Lease.
//
// Errors: the file cannot be read, or is no valid configuration; no process can hold such a Lease.
func (o *Migration) Check(lease election.Options) error {
	switch {
	case !o.Enabled && o.file != "":
		return errors.New("read --leader-migration-config: it has no effect without --enable-leader-migration")
	case !o.Enabled:
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
	o.LeaseName, o.moves = is.LeaderName, func(controller string) bool { return of(controller) == leadermigration.ControllerMigrated }
	return nil
}

// Divide has the acting controllers of a choice move with the Lease.
//
// Errors: a controller acts that does not move: kube-controller-manager runs it, too.
func (o *Migration) Divide(chosen *controllerflags.Choice) error {
	if !o.Enabled {
		return nil
	}
	var others []string
	for _, name := range chosen.Names() {
		if !o.moves(name) {
			others = append(others, name)
		}
	}
	switch {
	case len(others) > 0:
		return fmt.Errorf("read --leader-migration-config: %s gives neither \"*\" nor \"millrace\" as the component of %s, so that kube-controller-manager runs them, too: leave them out of --controllers, or name them in --shadow or in the file",
			o.file, strings.Join(others, ", "))
	case len(chosen.Acting) == 0:
		return fmt.Errorf("read --leader-migration-config: %s names no controller of --controllers that is not in --shadow, so that nothing would move", o.file)
	}
	chosen.Leased = o.moves
	return nil
}

// Lease returns how a writer holds the Lease with which its controllers move; nil if they do not.
func (o *Migration) Lease(config *rest.Config, options election.Options, write *Writer, chosen controllerflags.Choice) LeaseOf {
	if !o.Enabled {
		return nil
	}
	m := election.Migration{Options: options, Controllers: slices.Sorted(slices.Values(chosen.Names())), Ready: write.ready(config, chosen)}
	m.LeaseName = o.LeaseName
	return func(ctx context.Context, lead func(context.Context, uint64) error) error {
		return m.Run(ctx, config, lead)
	}
}
