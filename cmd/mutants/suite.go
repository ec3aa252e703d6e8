package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/millrace/millrace/cmd/mutants/operator"
)

// suite is a test binary with a broken package in it.
type suite struct {
	dir    string // of the tests, relative to the root of the repository
	only   string // a regular expression of the tests that run
	flags  []string
	binary string
	tests  []test
}

// suiteOf parses the text form of a suite: a directory, or directory:pattern.
func suiteOf(text string) *suite {
	dir, only, some := strings.Cut(text, ":")
	if !some {
		only = "."
	}
	s := &suite{dir: dir, only: only}
	switch { // fewer cases, because there are many mutants
	case s.ofOracle():
		s.flags = []string{"-rapid.checks=300"} // instead of thousands
	case dir == simulation:
		s.flags = []string{"-sim.seed=7", "-sim.n=10"} // always the same worlds, ten of each shape
	}
	return s
}

// simulation is the directory of the simulation's tests.
const simulation = "test/sim"

// oracle is the test module outside every workspace.
const oracle = "test/oracle"

// ofOracle reports whether the tests are in a package of that module.
func (s *suite) ofOracle() bool { return s.dir == oracle || strings.HasPrefix(s.dir, oracle+"/") }

// build compiles the tests.
func (s *suite) build(ctx context.Context, root, overlay string) (out string, err error) {
	in, what, env := root, "./"+s.dir, []string(nil)
	if s.ofOracle() {
		in, what, env = filepath.Join(root, oracle), "."+strings.TrimPrefix(s.dir, oracle), []string{"GOWORK=off"}
	}
	return supervised(ctx, in, env, 20*time.Minute, []string{"go", "test", "-c", "-vet=off", "-overlay", overlay, "-o", s.binary, what})
}

// test is a test of a suite, measured with nothing broken.
type test struct {
	name    string
	took    time.Duration
	reaches []byte // by the number of a mutant: not 0 if the test reaches its place
}

// workshop builds suites and runs them.
type workshop struct {
	root    string
	scratch string
	limit   time.Duration
}

// memory is the memory limit of a test binary, in KiB: a slip may make an endless loop that fills the memory.
const memory = "6000000"

// build compiles the test binaries of some suites, with other texts for some files.
//
// Errors: one does not compile; the error has the compiler's output.
func (w *workshop) build(ctx context.Context, texts map[string][]byte, suites []string) ([]*suite, error) {
	room, err := os.MkdirTemp(w.scratch, "b")
	if err != nil {
		return nil, fmt.Errorf("make a directory for test binaries: %w", err)
	}
	replace := map[string]string{}
	for file, text := range texts {
		instead := filepath.Join(room, strconv.Itoa(len(replace))+"_"+filepath.Base(file))
		if err := os.WriteFile(instead, text, 0o600); err != nil {
			return nil, fmt.Errorf("write a broken file: %w", err)
		}
		replace[file] = instead
	}
	list, err := json.Marshal(map[string]any{"Replace": replace})
	if err != nil {
		return nil, fmt.Errorf("write an overlay: %w", err)
	}
	overlay := filepath.Join(room, "overlay.json")
	if err := os.WriteFile(overlay, list, 0o600); err != nil {
		return nil, fmt.Errorf("write an overlay: %w", err)
	}
	var all []*suite
	for i, text := range suites {
		s := suiteOf(text)
		s.binary = filepath.Join(room, strconv.Itoa(i)+".test")
		if out, err := s.build(ctx, w.root, overlay); err != nil {
			return nil, fmt.Errorf("build the tests of %s: %w\n%s", s.dir, err, out)
		}
		if _, err := os.Stat(s.binary); err == nil { // a package without tests has no binary
			all = append(all, s)
		}
	}
	return all, nil
}

// run runs some tests of a suite, in a temporary directory that it removes.
func (w *workshop) run(ctx context.Context, s *suite, tests []string, env []string, limit time.Duration) (out string, err error) {
	temp, err := os.MkdirTemp(w.scratch, "t")
	if err != nil {
		return "", fmt.Errorf("make a directory for a run: %w", err)
	}
	defer os.RemoveAll(temp)
	pattern := "^(" + strings.Join(tests, "|") + ")$"
	args := []string{
		"sh", "-c", "ulimit -d " + memory + ` && exec "$0" "$@"`,
		s.binary, "-test.run=" + pattern, "-test.failfast", "-test.paniconexit0", "-test.timeout=" + limit.String(),
	}
	// The binary has its own time-out; ours is for hangs that its time-out cannot end.
	return supervised(ctx, filepath.Join(w.root, s.dir), append(env, "TMPDIR="+temp), limit+30*time.Second, append(args, s.flags...))
}

var testName = regexp.MustCompile(`(?m)^(Test|Fuzz|Example)\S*$`)

// measure runs each test of a suite alone with nothing broken, `jobs` at a time, and records its duration and
// the places that it reaches. It leaves out and returns tests that fail twice.
//
// Errors: errSlow, if tests are left when the time is over; zero: no bound.
func (w *workshop) measure(ctx context.Context, s *suite, mutants, jobs int, until time.Time) (left []string, err error) {
	out, err := supervised(ctx, filepath.Join(w.root, s.dir), nil, time.Minute, []string{s.binary, "-test.list=" + s.only})
	if err != nil {
		return nil, fmt.Errorf("list the tests of %s: %w\n%s", s.dir, err, out)
	}
	names := testName.FindAllString(out, -1)
	tests, errs := make([]test, len(names)), make([]error, len(names))
	next := make(chan int)
	var workers sync.WaitGroup
	for range max(jobs, 1) {
		workers.Go(func() {
			for i := range next {
				tests[i], errs[i] = w.measureTest(ctx, s, names[i], mutants)
			}
		})
	}
	slow := false
	for i := range names {
		if slow = !until.IsZero() && time.Now().After(until); slow {
			break
		}
		next <- i
	}
	close(next)
	workers.Wait()
	if slow || ctx.Err() != nil {
		return nil, cmp.Or(ctx.Err(), errSlow)
	}
	for i, err := range errs {
		if err != nil {
			left = append(left, s.dir+":"+names[i])
			continue
		}
		s.tests = append(s.tests, tests[i])
	}
	slices.SortStableFunc(s.tests, func(a, b test) int { return int(a.took - b.took) })
	return left, nil
}

// measureTest runs one test with nothing broken.
//
// Errors: the test fails twice.
func (w *workshop) measureTest(ctx context.Context, s *suite, name string, mutants int) (t test, err error) {
	seen := filepath.Join(filepath.Dir(s.binary), "seen."+name)
	for range 2 {
		if err := os.WriteFile(seen, make([]byte, max(mutants, 1)), 0o600); err != nil {
			return t, fmt.Errorf("make room for what is reached: %w", err)
		}
		began := time.Now()
		if _, err = w.run(ctx, s, []string{name}, []string{operator.EnvSeen + "=" + seen}, 20*time.Minute); err == nil {
			t = test{name: name, took: time.Since(began)}
			t.reaches, err = os.ReadFile(seen)
			break
		}
	}
	return t, err
}

// reaching returns the tests that reach the place of a mutant, the quickest first, in two batches: those that
// take two seconds together, and the rest.
func (s *suite) reaching(id int) (batches [][]test) {
	var quick, rest []test
	sum := time.Duration(0)
	for _, t := range s.tests {
		switch {
		case t.reaches[id] == 0:
		case len(quick) == 0 || sum+t.took < 2*time.Second:
			quick, sum = append(quick, t), sum+t.took
		default:
			rest = append(rest, t)
		}
	}
	for _, b := range [][]test{quick, rest} {
		if len(b) > 0 {
			batches = append(batches, b)
		}
	}
	return batches
}

// verdict derives the fate of a mutant from a run of tests, and the test that failed.
func verdict(out string, err error) (f fate, by string) {
	switch {
	case err == nil:
		return survived, ""
	case errors.Is(err, context.DeadlineExceeded), strings.Contains(out, "panic: test timed out"):
		return hung, ""
	default:
		return killed, firstFailure(out)
	}
}

// try runs tests with a mutant switched on until one notices. If they do not end, it runs them with three
// times the limit before the mutant counts as hung.
func (w *workshop) try(ctx context.Context, s *suite, tests []test, on int) (f fate, by string) {
	var names []string
	sum := time.Duration(0)
	for _, t := range tests {
		names, sum = append(names, t.name), sum+t.took
	}
	limit := max(w.limit, 10*sum)
	env := []string{operator.EnvOn + "=" + strconv.Itoa(on)}
	if f, by = verdict(w.run(ctx, s, names, env, limit)); f == hung {
		f, by = verdict(w.run(ctx, s, names, env, 3*limit))
	}
	return f, by
}
