// Command e2e runs Kubernetes' own end-to-end tests of the controllers that Millrace replaces, against
// Millrace. The real kube-controller-manager runs beside it, without those controllers.
//
// test/e2e has the lists of tests and the recorded results; its README says more. The last line printed is
// the count; the exit code is 0 when every test of the run passed.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/millrace/millrace/cmd/internal/localcluster/binaries"
)

// errFailed reports that tests failed; their failures are printed before it is returned.
var errFailed = errors.New("tests failed")

type options struct {
	by     string
	which  string
	list   string
	focus  string
	out    string
	binary string
	procs  int
	limit  time.Duration
	all    bool
	resume bool
	// attempts is how often a test that fails is run at most.
	attempts int
	export   string
	record   string
	page     bool
	// kubernetes is the minor version of the control plane and of its tests, such as 1.35; empty: that
	// of test/cluster.
	kubernetes string
}

func main() {
	var o options
	flag.StringVar(&o.by, "by", "millrace", "program that runs the controllers under test: millrace, kcm (the baseline), shadow (kcm, and millrace in shadow mode, whose decisions are compared), or none (the negative control, in which tests must fail)")
	flag.StringVar(&o.which, "controllers", "", "controllers under test (default: all that Millrace has; in the negative control without those that every namespace needs); kube-controller-manager runs the others")
	flag.StringVar(&o.list, "tests", "", "file with names of tests, instead of those in test/e2e")
	flag.StringVar(&o.focus, "focus", "", "run only tests whose name contains this text")
	flag.StringVar(&o.out, "out", "", "directory of the results (default: .millrace/e2e-<by>, and the version of $MILLRACE_KUBERNETES)")
	flag.StringVar(&o.binary, "binary", "", "the millrace program (default: bin/millrace)")
	flag.IntVar(&o.procs, "procs", 16, "number of tests at a time, of those that may run in parallel")
	flag.DurationVar(&o.limit, "limit", 30*time.Minute, "time limit of one test; in the negative control it is a minute more than the test takes with kube-controller-manager")
	flag.BoolVar(&o.all, "all", false, "also run the tests that are left out, and those of controllers that Millrace does not have; kcm always does")
	flag.BoolVar(&o.resume, "resume", false, "continue an interrupted run of the same build on a new cluster, with the tests that have no result yet")
	flag.IntVar(&o.attempts, "flake-attempts", 1, "maximum number of runs of a test that fails, alone and after all others; the results keep its first failure")
	flag.StringVar(&o.export, "export", "", "`file` for an export of the record after the tests, for millrace and shadow")
	flag.StringVar(&o.record, "record", "", "run no tests; copy this results.tsv of a whole run of --by into test/e2e and docs/conformance.md")
	flag.BoolVar(&o.page, "page", false, "run no tests; write docs/conformance.md from test/e2e")
	flag.Parse()
	o.kubernetes = os.Getenv("MILLRACE_KUBERNETES")

	signal.Ignore(syscall.SIGHUP) // a run outlasts many a terminal
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, o)
	stop()
	switch {
	case errors.Is(err, errFailed):
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
	switch {
	case o.page:
		return writePage(root)
	case o.record != "":
		return record(root, o)
	}
	if o.export != "" && o.by != "millrace" && o.by != "shadow" {
		return fmt.Errorf("--export=%s: nothing is recorded by %s; say --by=millrace or --by=shadow", o.export, o.by)
	}
	o.complete(root)
	s, err := prepare(ctx, root, o)
	if err != nil {
		return err
	}
	cluster, err := start(ctx, o)
	if err != nil {
		return errors.Join(err, s.file.close())
	}
	err = s.play(ctx, cluster)
	different := cluster.agreement(ctx, os.Stdout, o)
	if err := errors.Join(err, cluster.export(ctx, o), cluster.Stop(), s.file.close()); err != nil {
		return err
	}
	return errors.Join(report(os.Stdout, s.tests, s.outcome), different)
}

// session is one run: its tests, and the results so far.
type session struct {
	options
	tests    []string
	baseline results
	file     *resultsFile
	outcome  map[string]result
}

func prepare(ctx context.Context, root string, o options) (*session, error) {
	s := &session{options: o}
	l, err := readLists(root)
	if err != nil {
		return nil, err
	}
	if s.tests, err = l.selection(o); err != nil {
		return nil, err
	}
	if s.baseline, err = kept(filepath.Join(root, "test", "e2e", "baseline.tsv")); err != nil {
		return nil, err
	}
	if err := os.MkdirAll(o.out, 0o755); err != nil {
		return nil, fmt.Errorf("make result directory: %w", err)
	}
	programs, err := binaries.Find(os.Stderr)
	if err != nil {
		return nil, err
	}
	if err := programs.Build(ctx, "kubectl", "e2e.test"); err != nil {
		return nil, err
	}
	version, err := programs.Kubernetes()
	if err != nil {
		return nil, err
	}
	of, err := provenanceOf(ctx, o, version)
	if err != nil {
		return nil, err
	}
	if s.file, s.outcome, err = begin(filepath.Join(o.out, "results.tsv"), of, o.resume); err != nil || o.kubernetes == "" {
		return s, err
	}
	return s, s.leaveOut(ctx, programs.Path("e2e.test"), version)
}

// leaveOut gives the tests that the suite of another version of Kubernetes does not have their result.
func (s *session) leaveOut(ctx context.Context, suite, version string) error {
	has, err := testsOf(ctx, suite)
	if err != nil {
		return err
	}
	for _, test := range s.tests {
		if _, known := s.outcome[test]; known || has[test] {
			continue
		}
		s.outcome[test] = result{state: absent, failure: "no test of " + version}
		if err := s.file.add(test, s.outcome[test]); err != nil {
			return err
		}
	}
	return nil
}

// play runs the tests that have no outcome yet.
//
// Errors: results could not be written, or a process of the cluster ended.
func (s *session) play(ctx context.Context, cluster *stage) error {
	left := slices.DeleteFunc(slices.Clone(s.tests), func(test string) bool { _, known := s.outcome[test]; return known })
	begun := time.Now()
	since := func() time.Duration { return time.Since(begun).Round(time.Second) }
	fmt.Fprintf(os.Stderr, "running %d tests, %d at a time; results are in %s\n", len(left), s.procs, s.file.Name())
	on := &suite{cluster: cluster.Cluster, out: s.out, limit: func(test string) time.Duration {
		return s.limitOf(s.baseline.result(test).took)
	}}
	plan := &schedule{
		procs: s.procs, expect: s.baseline, one: on.one,
		done: func(test string, r result) error {
			s.outcome[test] = r
			fmt.Fprintf(os.Stderr, "%s, %d of %d: %s in %.1fs: %s\n", since(), len(s.outcome), len(s.tests), r.state, r.took.Seconds(), test)
			return s.file.add(test, r)
		},
	}
	err := errors.Join(plan.play(ctx, left), s.again(ctx, plan), cluster.alive())
	switch {
	case err != nil:
		s.file.note(broken + ": " + firstWords(err.Error()))
	case ctx.Err() == nil:
		s.file.note(fmt.Sprintf("%s at %s after %s, %d tests at a time", ended, now(), since(), s.procs))
	}
	return err
}

// again runs failed tests again, alone, as often as --flake-attempts says, and keeps the first failure.
//
// Errors: results could not be written.
func (s *session) again(ctx context.Context, plan *schedule) error {
	first := func(test string) string {
		return strings.TrimPrefix(s.outcome[test].failure, failedAtFirst)
	}
	for attempt := 2; attempt <= s.attempts && ctx.Err() == nil; attempt++ {
		failed := slices.DeleteFunc(slices.Clone(s.tests), func(test string) bool { return !s.outcome[test].failed() })
		if len(failed) == 0 {
			break
		}
		s.file.note(fmt.Sprintf("%d failed tests are run again, alone", len(failed)))
		once := *plan
		once.done = func(test string, r result) error {
			if r.state == "passed" {
				r.failure = failedAtFirst + first(test)
			}
			return plan.done(test, r)
		}
		if err := once.each(ctx, 1, failed); err != nil {
			return err
		}
	}
	return nil
}

// failedAtFirst begins what is kept beside the result of a test that has passed at last.
const failedAtFirst = "failed at first: "

// limitOf is the limit of a test that takes this long with kube-controller-manager.
func (o options) limitOf(took time.Duration) time.Duration {
	if o.by == "none" {
		return took + time.Minute
	}
	return o.limit
}

// complete makes every path absolute, because the tests run in directories of their own.
func (o *options) complete(root string) {
	for _, path := range []struct {
		of      *string
		missing string
	}{
		{&o.list, ""},
		{&o.out, filepath.Join(root, ".millrace", strings.TrimSuffix("e2e-"+o.by+"-"+o.kubernetes, "-"))},
		{&o.binary, filepath.Join(root, "bin", "millrace")},
		{&o.export, ""},
	} {
		if *path.of == "" {
			*path.of = path.missing
		} else if absolute, err := filepath.Abs(*path.of); err == nil {
			*path.of = absolute
		}
	}
}
