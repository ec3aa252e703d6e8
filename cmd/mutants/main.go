// Command mutants asks whether the tests would notice. It breaks the code in one
// small way at a time, as somebody might who is tired, and runs the tests that
// should see it. The share of breaks that are seen is the last line printed; the
// exit code is 0 when it is as high as asked for.
//
// A mutant is data: a hunk in a file of testdata, with one line on what real bug
// it is like. The tree is never touched; the go command overlays the broken file.
// Tests run in the order that the mutant names, the likeliest first, and the
// first failure ends it. A run that does not end within its limit counts as
// noticed, and is listed as such.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"regexp"
	"syscall"
	"time"

	"github.com/millrace/millrace/cmd/internal/localcluster"
)

// errSurvived says that too much went unnoticed; the report has been printed.
var errSurvived = errors.New("too many mutants survived")

type options struct {
	only  string
	jobs  int
	least float64
	limit time.Duration
	steps int
	list  bool
	stale bool
}

func main() {
	var o options
	flag.StringVar(&o.only, "only", "", "try only the mutants whose name matches this regular expression")
	flag.IntVar(&o.jobs, "jobs", 1, "mutants tried at a time; each builds and runs tests")
	flag.Float64Var(&o.least, "least", 95, "percentage of mutants that must be killed")
	flag.DurationVar(&o.limit, "limit", time.Minute, "least time that one step of tests has before it counts as hung; ten times what it takes unbroken, if that is more")
	flag.IntVar(&o.steps, "steps", 0, "run only so many of the tests that each mutant names, for a quick look; 0 means all")
	flag.BoolVar(&o.stale, "leave-out-stale", false, "go on with the mutants that fit the tree although some do not; the exit code tells all the same")
	flag.BoolVar(&o.list, "list", false, "list the mutants and stop")
	flag.Parse()

	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, o)
	stop()
	switch {
	case errors.Is(err, errSurvived):
		os.Exit(1)
	case err != nil:
		fmt.Fprintln(os.Stderr, err)
		os.Exit(2)
	}
}

func run(ctx context.Context, o options) error {
	root, err := localcluster.Checkout()
	if err != nil {
		return err
	}
	only, err := regexp.Compile(o.only)
	if err != nil {
		return fmt.Errorf("read --only: %w", err)
	}
	all, err := catalogue(root)
	if err != nil {
		return err
	}
	var chosen []mutant
	for _, m := range all {
		if !only.MatchString(m.name) {
			continue
		}
		if o.steps > 0 {
			m.tests = m.tests[:min(o.steps, len(m.tests))]
		}
		chosen = append(chosen, m)
	}
	if len(chosen) == 0 {
		return fmt.Errorf("no mutant matches %q; --list shows all", o.only)
	}
	if o.list {
		for _, m := range chosen {
			fmt.Printf("%-34s %s\n", m.name, m.like)
		}
		return nil
	}
	chosen, stale := fitting(root, chosen)
	if stale != nil {
		if fmt.Fprintln(os.Stderr, stale); !o.stale {
			return errors.New("nothing was tried; --leave-out-stale tries the others")
		}
	}
	scratch, err := os.MkdirTemp("", "mutants")
	if err != nil {
		return fmt.Errorf("make a directory for broken files: %w", err)
	}
	defer os.RemoveAll(scratch)
	l := &lab{root: root, scratch: scratch, limit: o.limit, measured: map[string]time.Duration{}}
	findings, err := l.tryAll(ctx, chosen, o.jobs)
	if err != nil {
		return err
	}
	return errors.Join(report(os.Stdout, findings, o.least), stale)
}
