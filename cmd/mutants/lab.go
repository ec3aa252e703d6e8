package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"time"
)

// step is one run of go test. A list of tests names it, or has packages that need no special flags.
type step struct {
	dir  string
	env  []string
	args []string
}

// steps are the named steps: the levels of tests beyond a package's own, at a size that allows a hundred
// runs.
var steps = map[string]step{
	"sim":      {args: []string{"./test/sim", "-sim.n=25"}},
	"budgets":  {args: []string{"./test/sim", "-run", "TestWorlds/budgets", "-sim.n=60"}},
	"daemons":  {args: []string{"./test/sim", "-run", "TestWorlds/daemons", "-sim.n=60"}},
	"kubelets": {args: []string{"./test/sim", "-run", "TestWorlds/kubelets", "-sim.n=25"}},
	"history":  {args: []string{"./test/history"}},
	"forged":   {args: []string{"./test/turns", "-run", "Forged|Signing|KeysChange"}},
	"oracle":   {dir: "test/oracle", env: []string{"GOWORK=off"}, args: []string{"./..."}},

	"garbage":   {dir: "test/oracle", env: []string{"GOWORK=off"}, args: []string{"./metadata", "-run", "TestGarbage"}},
	"residents": {dir: "test/oracle", env: []string{"GOWORK=off"}, args: []string{"./access", "./nodes", "./policy", "-run", "TestNodesLive|TestRootCert|TestNamespacesHave|TestNodesAreTold|TestPolicies"}},
}

func stepOf(name string) step {
	if s, named := steps[name]; named {
		return s
	}
	return step{args: []string{name}}
}

// fate is the result of a mutant.
type fate string

const (
	killed   fate = "killed"
	hung     fate = "hung"
	survived fate = "survived"
	misbuilt fate = "does not build"
)

// finding is the result of one mutant, and how it came about.
type finding struct {
	mutant
	fate fate
	by   string // the step that noticed it
	test string // the first test in it that failed
	says string // the compiler's output
	took time.Duration
}

// lab tries mutants.
type lab struct {
	root    string
	scratch string
	limit   time.Duration

	measuring sync.Mutex // one step is measured at a time
	mu        sync.Mutex
	measured  map[string]time.Duration // how long each step takes with nothing broken
}

// tryAll tries mutants, and calls done for each, one at a time. It begins none after until.
//
// Errors: a step fails on the unchanged tree; done fails.
func (l *lab) tryAll(ctx context.Context, all []mutant, jobs int, until time.Time, done func(finding) error) error {
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	next := make(chan int)
	var workers sync.WaitGroup
	for range max(jobs, 1) {
		workers.Go(func() {
			for i := range next {
				f, err := l.try(ctx, all[i])
				if ctx.Err() != nil {
					return
				}
				if err == nil {
					fmt.Fprintf(os.Stderr, "%3d/%d %s\n", i+1, len(all), f.line())
					l.mu.Lock()
					err = done(f)
					l.mu.Unlock()
				}
				if err != nil {
					stop(err)
				}
			}
		})
	}
	for i := 0; i < len(all) && time.Now().Before(until) && ctx.Err() == nil; i++ {
		select {
		case next <- i:
		case <-ctx.Done():
		}
	}
	close(next)
	workers.Wait()
	return context.Cause(ctx)
}

// measure runs a step unbroken, if that has not been done: a step that fails would kill every mutant.
func (l *lab) measure(ctx context.Context, name string) error {
	l.measuring.Lock()
	defer l.measuring.Unlock()
	if l.took(name) > 0 {
		return nil
	}
	began := time.Now()
	out, err := l.test(ctx, stepOf(name), 20*time.Minute)
	if err != nil {
		return fmt.Errorf("the tests of %s fail before anything is broken: %w\n%s", name, err, out)
	}
	took := time.Since(began)
	l.mu.Lock()
	defer l.mu.Unlock()
	l.measured[name] = took
	fmt.Fprintf(os.Stderr, "%-50s passes unbroken in %v\n", name, took.Round(time.Second/10))
	return nil
}

// took is how long a step takes with nothing broken; 0: not measured.
func (l *lab) took(step string) time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.measured[step]
}

// try breaks the code and runs the tests until one notices. Before that, each step must pass on the unchanged
// tree.
//
// Errors: a step does not.
func (l *lab) try(ctx context.Context, m mutant) (f finding, err error) {
	began, measuring := time.Now(), time.Duration(0)
	f = finding{mutant: m, fate: survived}
	defer func() { f.took = time.Since(began) - measuring }()
	overlay, err := l.overlay(m)
	if err != nil {
		f.fate, f.says = misbuilt, err.Error()
		return f, nil
	}
	build := exec.CommandContext(ctx, "go", "build", "-o", os.DevNull, "-overlay", overlay, "./"+path.Dir(m.file))
	build.Dir = l.root
	if out, err := build.CombinedOutput(); err != nil {
		f.fate, f.says = misbuilt, string(out)
		return f, nil
	}
	for _, name := range m.tests {
		asked := time.Now()
		if err := l.measure(ctx, name); err != nil {
			return f, err
		}
		measuring += time.Since(asked)
		if f.fate, f.test, f.says = l.notices(ctx, name, overlay); f.fate != survived {
			f.by = name
			break
		}
	}
	return f, nil
}

// notices runs a step with a mutant. If a test fails, test is the first one; says is the output of tests that
// do not build.
func (l *lab) notices(ctx context.Context, name, overlay string) (fate fate, test, says string) {
	out, err := l.test(ctx, stepOf(name), max(l.limit, 10*l.took(name)), "-overlay", overlay)
	switch {
	case err == nil:
		return survived, "", ""
	case errors.Is(err, context.DeadlineExceeded), strings.Contains(out, "panic: test timed out"):
		return hung, firstFailure(out), ""
	case strings.Contains(out, "[build failed]"), strings.Contains(out, "[setup failed]"):
		return misbuilt, firstFailure(out), out // the tests never ran
	}
	return killed, firstFailure(out), ""
}

// overlay writes the broken file, and returns the overlay file that makes the go command read it in place of
// the real one.
func (l *lab) overlay(m mutant) (file string, err error) {
	text, err := m.broken(l.root)
	if err != nil {
		return "", err
	}
	dir := filepath.Join(l.scratch, filepath.FromSlash(m.name))
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", fmt.Errorf("make a directory for a broken file: %w", err)
	}
	broken := filepath.Join(dir, filepath.Base(m.file))
	if err := os.WriteFile(broken, text, 0o644); err != nil {
		return "", fmt.Errorf("write a broken file: %w", err)
	}
	real := filepath.Join(l.root, filepath.FromSlash(m.file))
	list, err := json.Marshal(map[string]any{"Replace": map[string]string{real: broken}})
	if err != nil {
		return "", fmt.Errorf("write an overlay: %w", err)
	}
	file = filepath.Join(dir, "overlay.json")
	if err := os.WriteFile(file, list, 0o644); err != nil {
		return "", fmt.Errorf("write an overlay: %w", err)
	}
	return file, nil
}

// test runs a step. Vet is off, because the tests must notice the mutant.
func (l *lab) test(ctx context.Context, s step, limit time.Duration, flags ...string) (out string, err error) {
	args := append([]string{"go", "test", "-count=1", "-failfast", "-vet=off", "-timeout", strconv.Itoa(int(limit.Seconds())) + "s"}, flags...)
	// The test binary has its own time-out; ours is for hangs that its time-out cannot end, and for building.
	return supervised(ctx, filepath.Join(l.root, filepath.FromSlash(s.dir)), s.env, limit+5*time.Minute, append(args, s.args...))
}

var failures = regexp.MustCompile(`(?m)^\s*(?:--- FAIL: (\S+)|panic: (.*))`)

// firstFailure is the first test that failed, or the message of a panic.
func firstFailure(out string) string {
	found := failures.FindStringSubmatch(out)
	if found == nil {
		return ""
	}
	return strings.Join(found[1:], "")
}

// report prints the result of every mutant.
func report(to io.Writer, findings []finding, least float64) error {
	if len(findings) == 0 {
		return nil
	}
	noticed, unfit := 0, 0
	for _, f := range findings {
		fmt.Fprintln(to, f.line())
		switch f.fate {
		case killed, hung:
			noticed++
		case misbuilt:
			unfit++
		case survived:
		}
	}
	for _, f := range findings {
		switch f.fate {
		case survived:
			fmt.Fprintf(to, "\n%s survived in %s: %s\n%s\n", f.name, f.file, f.like, strings.Join(f.hunk, "\n"))
		case misbuilt:
			fmt.Fprintf(to, "\n%s (%s) does not build:\n%s\n", f.name, f.at, f.says)
		case killed, hung:
		}
	}
	share := 100 * float64(noticed) / float64(len(findings))
	fmt.Fprintf(to, "\nkilled %d of %d (%.1f %%)\n", noticed, len(findings), share)
	switch {
	case unfit > 0:
		return fmt.Errorf("%d mutants do not build: a mutant must be code that compiles", unfit)
	case share < least:
		return errSurvived
	}
	return nil
}

func (f finding) line() string {
	text := fmt.Sprintf("%-34s %-14s %5.1fs", f.name, f.fate, f.took.Seconds())
	if f.by != "" {
		text += fmt.Sprintf("  %s %s", f.by, f.test)
	}
	return text
}
