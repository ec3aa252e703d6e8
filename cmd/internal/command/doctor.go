package command

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"k8s.io/client-go/rest"

	"github.com/millrace/millrace/cmd/internal/controllerflags"
	"github.com/millrace/millrace/cmd/internal/doctor"
	"github.com/millrace/millrace/cmd/internal/program"
	"github.com/millrace/millrace/cmd/internal/reader/printer"
	"github.com/millrace/millrace/cmd/internal/rights"
	"github.com/millrace/millrace/pkg/events/stream"
	"github.com/millrace/millrace/pkg/events/stream/embedded/datadir"
)

// ofReconcilers is the part that does not connect to the API server.
const ofReconcilers = "reconcilers"

// busPatience bounds the connect to the bus, and the requests to it, each.
const busPatience = 5 * time.Second

// doctorOptions are the flags of millrace run, which the doctor checks, and its own.
type doctorOptions struct {
	*everything
	of, custom []string
	as         string
	output     string
	color      string
	patience   time.Duration
}

func (o *doctorOptions) add(f *pflag.FlagSet) {
	f.StringSliceVar(&o.of, "of", nil, "`parts` of Millrace whose rights are checked: watcher, writer, metrics, leader (as in millrace rbac), or reconcilers, which need none (default: those of millrace run)")
	f.StringSliceVar(&o.custom, "custom-kinds", []string{rights.Any}, "custom `kinds` that the roles name, as in millrace rbac")
	f.StringVar(&o.as, "as", "", "`user` whose rights are checked, such as system:serviceaccount:millrace-system:millrace-writer; needs the right to impersonate that user (default: the user of the kubeconfig)")
	f.StringVarP(&o.output, "output", "o", "table", "output format: table, json")
	f.StringVar(&o.color, "color", "auto", "colours: auto (on a terminal), always or never")
	f.DurationVar(&o.patience, "timeout", 30*time.Second, "time limit of all checks")
}

// check validates only the doctor's own flags; examine checks all others.
func (o *doctorOptions) check() error {
	known := []string{ofWatcher, ofWriter, ofMetrics, ofLeader, ofReconcilers}
	for _, part := range o.of {
		if !slices.Contains(known, part) {
			return fmt.Errorf("read --of: %q is none of %s", part, strings.Join(known, ", "))
		}
	}
	if o.output != "table" && o.output != "json" {
		return fmt.Errorf("read --output: %q is none of table, json", o.output)
	}
	return nil
}

// newDoctor is the command that checks whether Millrace can run on this machine and cluster.
func newDoctor() *cobra.Command {
	o := &doctorOptions{everything: newEverything()}
	cmd := program.Program{
		Use: "doctor", Short: "Check whether Millrace can run here, and say what to do if it cannot",
		Long: `Checks the kubeconfig, the API server with its version, the rights that the chosen
controllers need, whether a kube-controller-manager runs the same controllers, the bus
with its servers, limits and settings, the clocks, the disk, and whether flags and files
contradict each other. It takes the flags of millrace run, from the same environment and
--config, and changes nothing. Each check is ok, a warning, failed or not checked, and
says what was found and what to do.

Services in separate processes run the same checks at their start, and log what failed.

The exit code is 0 if nothing failed, and 1 otherwise.`,
		Flags: append(o.flags(), program.Titled("API server", o.cluster.Add), program.Titled("doctor", o.add)), Check: o.check,
		Run: func(ctx context.Context) error {
			ctx, cancel := context.WithTimeout(ctx, o.patience)
			defer cancel()
			all := o.examine(ctx)
			if err := o.print(os.Stdout, all); err != nil {
				return err
			}
			return doctor.Verdict(all)
		},
	}.Command()
	cmd.Example = `  millrace doctor --kubeconfig=$HOME/.kube/config
  millrace doctor --nats-url=tls://nats:4222 --stream-replicas=3 -o json
  millrace doctor --of=writer --as=system:serviceaccount:millrace-system:millrace-writer`
	_ = cmd.RegisterFlagCompletionFunc("output", func(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
		return []string{"table", "json"}, cobra.ShellCompDirectiveNoFileComp
	})
	_ = cmd.RegisterFlagCompletionFunc("of", func(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
		return []string{ofWatcher, ofWriter, ofMetrics, ofLeader, ofReconcilers}, cobra.ShellCompDirectiveNoFileComp
	})
	return cmd
}

// print writes the findings as a table or JSON.
func (o *doctorOptions) print(out io.Writer, all []doctor.Finding) error {
	if o.output == "json" {
		text, err := json.MarshalIndent(all, "", "  ")
		if err != nil {
			return fmt.Errorf("write what was found: %w", err)
		}
		_, err = fmt.Fprintf(out, "%s\n", text)
		return err
	}
	paper, err := printer.NewPaper(out, o.color)
	if err != nil {
		return err
	}
	colours := map[doctor.State]printer.Colour{doctor.OK: printer.Green, doctor.Warning: printer.Yellow, doctor.Failed: printer.Red, doctor.NotChecked: printer.Dim}
	rows := make([][]printer.Cell, len(all))
	for i, f := range all {
		rows[i] = []printer.Cell{{Text: f.Check}, {Text: string(f.State), Colour: colours[f.State]}, {Text: f.String()}}
	}
	paper.Table([]string{"CHECK", "STATE", "FOUND, AND WHAT TO DO"}, rows)
	return nil
}

// examine makes all checks.
func (o *doctorOptions) examine(ctx context.Context) []doctor.Finding {
	var config *rest.Config
	var all, cluster, bus []doctor.Finding
	asks := !slices.Equal(o.of, []string{ofReconcilers})
	if asks {
		seen, found := o.cluster.Look()
		all, config = append(all, seen.Finding()), found
	}
	chosen, settings := o.contradictions(config)
	var both sync.WaitGroup
	if asks {
		both.Go(func() { cluster = o.lookAtCluster(ctx, config, chosen) })
	}
	both.Go(func() { bus = o.lookAtBus(ctx, chosen) })
	both.Wait()
	return slices.Concat(all, cluster, bus, []doctor.Finding{o.disk(), settings})
}

// lookAtCluster checks the API server, as the user of --as.
func (o *doctorOptions) lookAtCluster(ctx context.Context, config *rest.Config, chosen controllerflags.Choice) []doctor.Finding {
	if config == nil {
		return doctor.Unchecked("no API server is named", append([]string{doctor.CheckAPIServer}, doctor.ServerChecks...)...)
	}
	config = rest.CopyConfig(config)
	config.UserAgent = "millrace/" + program.Version
	config.Impersonate.UserName = o.as
	return lookAtServer(ctx, config, o.waits(), chosen, o.needed(chosen))
}

// lookAtServer runs the checks of an API server.
func lookAtServer(ctx context.Context, config *rest.Config, waits string, chosen controllerflags.Choice, needed func(bool) []doctor.Needed) []doctor.Finding {
	api, err := doctor.NewAPI(config)
	if err != nil {
		return doctor.NoClient(err)
	}
	return doctor.Cluster{API: api, Needed: needed, Acting: chosen.Names(), Waits: waits}.Look(ctx)
}

// lookAtBus connects to the bus and checks it.
func (o *doctorOptions) lookAtBus(ctx context.Context, chosen controllerflags.Choice) []doctor.Finding {
	if o.bus.Connection.URL == "" {
		return doctor.Unchecked("millrace run has a bus of its own, on --data-dir; --nats-url names another", doctor.CheckBus)
	}
	w := o.bus.Wanted(streamsOf(chosen))
	options, err := o.bus.StreamOptions("doctor")
	if err != nil {
		return doctor.Unreached(w, err)
	}
	if options.User != "" {
		w.User = options.User
	}
	options.AtOnce = true
	connecting, done := context.WithTimeout(ctx, busPatience)
	b, err := stream.Connect(connecting, options)
	done()
	if err != nil {
		return doctor.Unreached(w, err)
	}
	defer b.Close()
	asking, end := context.WithTimeout(ctx, busPatience)
	defer end()
	return doctor.Bus(b.Inspect(asking), w)
}

// disk checks the data directory of the embedded server.
func (o *doctorOptions) disk() doctor.Finding {
	if o.bus.Connection.URL != "" {
		return doctor.Unchecked("the streams are on the servers of --nats-url", doctor.CheckDisk)[0]
	}
	d := doctor.Disk{Dir: o.server.DataDir, Bound: int64(o.server.Store)}
	at, err := nearest(d.Dir)
	if err != nil {
		d.Err = err
		return d.Finding()
	}
	d.Free, d.Has, err = datadir.Space(at)
	if at != d.Dir {
		d.Has = 0 // a directory above holds other data as well
	}
	d.Known = err == nil
	return d.Finding()
}

// nearest is dir, or its nearest ancestor that exists.
//
// Errors: it is not a directory, or is not writable.
func nearest(dir string) (string, error) {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return "", err
	}
	for at := dir; ; at = filepath.Dir(at) {
		info, err := os.Stat(at)
		switch {
		case errors.Is(err, fs.ErrNotExist) && at != filepath.Dir(at):
			continue
		case err != nil:
			return "", err
		case !info.IsDir():
			return "", fmt.Errorf("%s is no directory", at)
		}
		const write, search = 2, 1
		if err := syscall.Access(at, write|search); err != nil {
			return "", fmt.Errorf("write in %s: %w", at, err)
		}
		return at, nil
	}
}
