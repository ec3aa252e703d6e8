// Command mutants measures whether the tests notice broken code. It breaks the code in one small way at a
// time, as a tired author might, and runs the tests that should notice. The last line printed is the share of
// breaks that were noticed; the exit code is 0 when it is at least the share asked for.
//
// A written mutant is data: a hunk in a file of testdata, with one line about the real bug that it resembles.
// Tests run in the order that the mutant lists, the likeliest first, and stop at the first failure.
//
// With --generated, operators ([operator]) make the mutants from the packages that are named, or from all.
// For each mutant run those tests of its package that reach its place, the quickest first, and then those of
// the packages in testdata/further.tsv; a mutant that no test reaches is uncovered. testdata/equivalent.tsv
// lists mutants that change nothing, with the reason.
//
// The tree is never changed; the go command overlays the broken files. A run that exceeds its limit counts as
// noticed, and is listed as such.
package main

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"maps"
	"os"
	"os/signal"
	"path/filepath"
	"regexp"
	"slices"
	"syscall"
	"time"

	"github.com/millrace/millrace/cmd/evidence"
	"github.com/millrace/millrace/cmd/internal/localcluster/binaries"
	"github.com/millrace/millrace/cmd/mutants/operator"
)

// errSurvived reports that too many mutants survived; the report is printed before it is returned.
var errSurvived = errors.New("too many mutants survived")

type options struct {
	only  string
	jobs  int
	least float64
	limit time.Duration
	steps int
	list  bool
	stale bool

	generated bool
	sample    int
	packages  int
	seed      uint64
	since     string
	time      time.Duration
	each      time.Duration
	evidence  string
}

func main() {
	var o options
	flag.StringVar(&o.only, "only", "", "try only the mutants whose name matches this regular expression")
	flag.IntVar(&o.jobs, "jobs", 1, "mutants tried at a time; each builds and runs tests")
	flag.Float64Var(&o.least, "least", 0, "percentage of mutants that must be killed; 0 means 98 of the written and 90 of the generated ones")
	flag.DurationVar(&o.limit, "limit", 0, "time limit of one test step, after which it counts as hung; ten times its time without a mutant, if that is more; 0 means 1m, and 5s for generated mutants")
	flag.IntVar(&o.steps, "steps", 0, "run only the first N test steps of each mutant, for a quick look; 0 means all")
	flag.BoolVar(&o.stale, "leave-out-stale", false, "try the mutants that apply to the tree although others do not; the exit code is still an error")
	flag.BoolVar(&o.list, "list", false, "list the mutants and stop")
	flag.BoolVar(&o.generated, "generated", false, "try generated mutants instead of written ones, in the packages given as arguments (./services/writer/...) or in all")
	flag.IntVar(&o.sample, "sample", 0, "number of generated mutants to try, drawn at random; 0 means all")
	flag.IntVar(&o.packages, "packages", 4, "number of packages to draw the sample from, because each must be built; 0 means all packages, with at least five mutants of each")
	flag.Uint64Var(&o.seed, "seed", 0, "seed of the sample; 0 means today's date")
	flag.StringVar(&o.since, "since", "", "try generated mutants that earlier runs killed, according to the evidence files that match this pattern, such as docs/evidence/mutants.json, and fail if one survives now")
	flag.DurationVar(&o.time, "time", 24*time.Hour, "time after which no further package is begun, or no further mutant with written mutants or --since")
	flag.DurationVar(&o.each, "each", 0, "time limit for the mutants of one package; 0 means none")
	flag.StringVar(&o.evidence, "evidence", "", "JSON file to write the figures to, such as docs/evidence/mutants.json; empty: none. If it has a run of generated mutants of this commit, drawn the same way, that run goes on; so does a run of written mutants of any commit: it tries those whose code or tests have changed, or that no run has tried")
	flag.Parse()

	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	if o.seed == 0 {
		o.seed = today(time.Now())
	}
	err := run(ctx, o, flag.Args())
	stop()
	switch {
	case errors.Is(err, errSurvived):
		os.Exit(1)
	case err != nil:
		fmt.Fprintln(os.Stderr, err)
		os.Exit(2)
	}
}

func run(ctx context.Context, o options, patterns []string) error {
	root, err := binaries.Checkout()
	if err != nil {
		return err
	}
	only, err := regexp.Compile(o.only)
	if err != nil {
		return fmt.Errorf("read --only: %w", err)
	}
	scratch, err := os.MkdirTemp("", "mutants")
	if err != nil {
		return fmt.Errorf("make a directory for broken files: %w", err)
	}
	defer os.RemoveAll(scratch)
	commit, err := evidence.Commit(ctx)
	if err != nil && o.evidence != "" {
		return err
	}
	if o.evidence != "" {
		if o.evidence, err = filepath.Abs(o.evidence); err != nil {
			return fmt.Errorf("read --evidence: %w", err)
		}
	}
	if o.generated || o.since != "" {
		o.limit = cmp.Or(o.limit, 5*time.Second)
		o.least = cmp.Or(o.least, 90)
		return runGenerated(ctx, root, scratch, commit, o, only, patterns)
	}
	o.limit = cmp.Or(o.limit, time.Minute)
	o.least = cmp.Or(o.least, 98)
	return runWritten(ctx, root, scratch, commit, o, only)
}

// runGenerated tries the mutants that operators make.
func runGenerated(ctx context.Context, root, scratch, commit string, o options, only *regexp.Regexp, patterns []string) error {
	began := time.Now()
	if len(patterns) == 0 {
		patterns = everything
	}
	f, err := newFactory(root, scratch, o)
	if err != nil {
		return err
	}
	packages, err := operator.Load(ctx, root, patterns...)
	if err != nil {
		return err
	}
	some := chosen(packages, only)
	var before earlier
	if o.since != "" {
		if before, err = readEarlier(o.since); err != nil {
			return err
		}
		some = before.comparable(some)
	}
	possible := some
	switch {
	case o.sample > 0 && o.packages == 0:
		fmt.Printf("a sample of %d of all packages, drawn by the seed %d\n", o.sample, o.seed)
		some = drawFromAll(some, o.sample, o.seed)
	case o.sample > 0:
		fmt.Printf("a sample of %d, drawn by the seed %d\n", o.sample, o.seed)
		some = draw(some, o.sample, o.packages, o.seed)
	}
	if len(some) == 0 {
		return fmt.Errorf("no mutant matches %q in %v; --list shows all", o.only, patterns)
	}
	if before != nil && !o.list {
		return f.again(ctx, os.Stdout, before, some, began.Add(o.time))
	}
	if o.list {
		for _, p := range packages {
			for _, m := range some[p] {
				fmt.Printf("%s line %d:\n-%s\n+%s\n", m.Name, m.Line, m.Before, m.After)
			}
		}
		return nil
	}
	made := &proof{Commit: commit, Only: o.only, Patterns: patterns, Sample: o.sample, Each: int(o.each.Seconds())}
	if o.sample > 0 {
		made.Seed, made.Packages = o.seed, o.packages
	}
	if err := made.goOn(o.evidence); err != nil {
		return err
	}
	return f.tryAll(ctx, possible, some, made, o)
}

// tryAll tries the chosen mutants package by package, those with the fewest first, and writes the evidence
// after each.
//
// Errors: errSurvived; a package cannot be tried.
func (f *factory) tryAll(ctx context.Context, possible, some map[*operator.Package][]operator.Mutant, made *proof, o options) error {
	began, before := time.Now(), made.Seconds
	var all []outcome
	packages := slices.SortedFunc(maps.Keys(some), func(a, b *operator.Package) int {
		return cmp.Or(cmp.Compare(len(possible[a]), len(possible[b])), byDir(a, b))
	})
	made.NotTried = nil
	for i, p := range packages {
		if made.has(p.Dir) {
			continue
		}
		if time.Since(began) > o.time {
			made.NotTried = append(made.NotTried, p.Dir)
			continue
		}
		outcomes, err := f.try(ctx, p, some[p])
		switch {
		case errors.Is(err, errSlow):
			made.TooSlow = append(made.TooSlow, p.Dir)
			fmt.Fprintf(os.Stderr, "%d/%d %s: its tests alone take longer than %v; not tried\n", i+1, len(packages), p.Dir, o.each)
		case err != nil:
			return err
		default:
			all = append(all, outcomes...)
			made.add(p.Dir, outcomes, len(some[p]), len(possible[p]), o.least)
			fmt.Fprintf(os.Stderr, "%d/%d %s\n", i+1, len(packages), made.Rows[len(made.Rows)-1].line())
		}
		made.Seconds, made.LeftOut = before+int(time.Since(began).Seconds()), append(made.LeftOut, f.left...)
		f.left = nil
		if o.evidence != "" {
			if err := evidence.Write(ctx, o.evidence, made); err != nil {
				return err
			}
		}
	}
	if o.evidence != "" && len(made.NotTried) > 0 {
		if err := evidence.Write(ctx, o.evidence, made); err != nil {
			return err
		}
	}
	if made.tell(os.Stdout, all); made.Exit != 0 {
		return errSurvived
	}
	return nil
}

// runWritten tries the written mutants.
func runWritten(ctx context.Context, root, scratch, commit string, o options, only *regexp.Regexp) error {
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
	made, err := readWritten(o.evidence)
	if err != nil {
		return err
	}
	made.Commit = commit
	l := &lab{root: root, scratch: scratch, limit: o.limit, measured: map[string]time.Duration{}}
	return errors.Join(l.tryWritten(ctx, chosen, made, o), stale)
}
