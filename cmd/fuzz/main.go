// Command fuzz runs the fuzz targets of the workspace one after the other, each for a share of the time, and
// prints a line for each. The exit code is 1 when a target crashed or hung.
//
// The go command's cache keeps inputs that reach new code, and the next run begins with them. An input that
// crashes or hangs a target is written to testdata/fuzz of the target's package, where every "go test" runs
// it from then on; nothing else in the tree changes.
//
// --seeds writes seeds for the targets from a record that "millrace export" wrote.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"regexp"
	"syscall"
	"time"

	"github.com/millrace/millrace/cmd/evidence"
	"github.com/millrace/millrace/cmd/internal/localcluster/binaries"
)

// errFound reports that a target crashed. The report is printed before it is returned.
var errFound = errors.New("a target crashed")

type options struct {
	time     time.Duration
	only     string
	slice    int
	least    time.Duration
	list     bool
	evidence string
	seeds    string
}

func main() {
	var o options
	flag.DurationVar(&o.time, "time", 15*time.Minute, "total fuzzing time of all targets, without building them")
	flag.StringVar(&o.only, "only", "", "fuzz only the targets whose <directory>:<name> matches this regular expression")
	flag.IntVar(&o.slice, "slice", 0, "number of targets to fuzz, which rotate by date; 0 means all")
	flag.BoolVar(&o.list, "list", false, "list the targets and stop")
	flag.StringVar(&o.evidence, "evidence", "", "JSON file to write the figures to, such as docs/evidence/fuzz.json; empty: none")
	flag.StringVar(&o.seeds, "seeds", "", "write seeds for the targets from this exported record and stop")
	flag.Parse()

	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, o)
	stop()
	switch {
	case errors.Is(err, errFound):
		os.Exit(1)
	case err != nil:
		fmt.Fprintln(os.Stderr, err)
		os.Exit(2)
	}
}

func run(ctx context.Context, o options) error {
	root, err := binaries.Checkout()
	if err != nil {
		return err
	}
	if o.seeds != "" {
		return plant(ctx, root, o.seeds)
	}
	only, err := regexp.Compile(o.only)
	if err != nil {
		return fmt.Errorf("read --only: %w", err)
	}
	all, err := targets(ctx, root)
	if err != nil {
		return err
	}
	chosen := choose(all, only, o.slice, time.Now())
	if len(chosen) == 0 {
		return fmt.Errorf("no target matches %q; --list shows all", o.only)
	}
	if o.list {
		for _, t := range chosen {
			fmt.Println(t)
		}
		return nil
	}
	share := o.time / time.Duration(len(chosen))
	if share < time.Second {
		return fmt.Errorf("--time=%v is less than a second for each of %d targets: give more, or fewer targets with --only or --slice", o.time, len(chosen))
	}
	commit, err := evidence.Commit(ctx)
	if err != nil && o.evidence != "" {
		return err
	}
	fmt.Printf("%d of %d targets, %v each\n", len(chosen), len(all), share.Round(time.Second/10))
	found, err := fuzzAll(ctx, root, chosen, share)
	if err != nil {
		return err
	}
	if o.evidence != "" {
		file, err := filepath.Abs(o.evidence)
		if err != nil {
			return fmt.Errorf("read --evidence: %w", err)
		}
		if err := evidence.Write(ctx, file, figures(commit, found)); err != nil {
			return err
		}
	}
	return report(os.Stdout, found)
}
