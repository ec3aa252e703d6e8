package main

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"
)

const (
	// stalled is the time after which an input that does not return counts as a hang.
	stalled = 30 * time.Second
	// minimize bounds the search for a smaller input with the same effect.
	minimize = "2s"
)

// instrument makes the compiler instrument our own packages only. The fuzzer then chooses inputs by the code
// that they reach there. All other packages come from the cache of ordinary builds: to instrument them takes
// minutes and finds their bugs.
const instrument = "-gcflags=github.com/millrace/millrace/...=-d=libfuzzer"

// finding is the result of one target.
type finding struct {
	target
	executions uint64
	fresh      int // inputs that reached new code
	corpus     int // inputs in all
	took       time.Duration
	crashed    bool
	says       string // the output of a crash
}

// fuzzAll fuzzes the targets package by package, each target for a share of time.
//
// Errors: a package does not build; the context ended.
func fuzzAll(ctx context.Context, root string, chosen []target, share time.Duration) ([]finding, error) {
	scratch, err := os.MkdirTemp("", "fuzz")
	if err != nil {
		return nil, fmt.Errorf("make a directory for test programs: %w", err)
	}
	defer os.RemoveAll(scratch)
	env, err := exec.CommandContext(ctx, "go", "env", "GOCACHE").Output()
	if err != nil {
		return nil, fmt.Errorf("find the go command's cache: %w", err)
	}
	cache := filepath.Join(strings.TrimSpace(string(env)), "fuzz")
	var found []finding
	program, built := filepath.Join(scratch, "fuzz.test"), ""
	for _, t := range chosen {
		if built != t.dir {
			if err := build(ctx, root, t.dir, program); err != nil {
				return found, err
			}
			built = t.dir
		}
		s := session{target: t, dir: filepath.Join(root, filepath.FromSlash(t.dir)), program: program, cache: filepath.Join(cache, filepath.FromSlash(t.dir)), share: share, stalled: stalled}
		f, err := s.fuzz(ctx)
		if err != nil {
			return found, err
		}
		fmt.Println(f.line())
		found = append(found, f)
	}
	return found, nil
}

// build compiles the test program of a package. It has no time-out.
func build(ctx context.Context, root, dir, program string) error {
	c := exec.CommandContext(ctx, "go", "test", "-c", "-vet=off", instrument, "-o", program, "./"+dir)
	c.Dir = root
	if out, err := c.CombinedOutput(); err != nil {
		return fmt.Errorf("build the tests of %s: %w\n%s", dir, err, out)
	}
	return nil
}

// session is the run of one target.
type session struct {
	target
	dir, program, cache string
	share, stalled      time.Duration
}

// fuzz runs the target for its share of time. If an input hangs the target, fuzz ends the process such that
// the fuzzer records the input as a crash.
//
// Errors: the program does not start, or the context ended.
func (s session) fuzz(ctx context.Context) (f finding, err error) {
	f.target = s.target
	c := exec.CommandContext(ctx, s.program, "-test.run=^"+s.name+"$", "-test.fuzz=^"+s.name+"$", "-test.fuzztime="+s.share.String(),
		"-test.fuzzcachedir="+s.cache, "-test.fuzzminimizetime="+minimize, "-test.timeout=0")
	c.Dir = s.dir
	c.Cancel = func() error { return c.Process.Signal(os.Interrupt) } // the interrupted process ends its workers
	c.WaitDelay = 10 * time.Second
	var out output
	c.Stdout, c.Stderr = &out, &out
	began := time.Now()
	if err := c.Start(); err != nil {
		return f, fmt.Errorf("start %v: %w", s.target, err)
	}
	ended := make(chan struct{})
	var watching sync.WaitGroup
	watching.Go(func() { s.watch(c.Process.Pid, &out, ended) })
	failed := c.Wait()
	close(ended)
	watching.Wait()
	if ctx.Err() != nil {
		return f, context.Cause(ctx)
	}
	f.took = time.Since(began)
	f.read(out.text())
	if failed != nil && !(f.took >= s.share && timeIsUp(out.text())) {
		f.crashed, f.says = true, out.text()
	}
	return f, nil
}

// watch ends the workers of a process whose progress does not change for too long.
func (s session) watch(pid int, out *output, ended <-chan struct{}) {
	tick := time.NewTicker(min(s.stalled/4, time.Second))
	defer tick.Stop()
	last, since := "", time.Now()
	for {
		select {
		case <-ended:
			return
		case <-tick.C:
		}
		if now := progress(out.text()); now != last {
			last, since = now, time.Now()
		}
		if time.Since(since) < s.stalled {
			continue
		}
		out.add("fuzz: nothing ended for " + s.stalled.String() + ": the input of each worker is taken for one that hangs\n")
		for _, worker := range children(pid) {
			_ = syscall.Kill(worker, syscall.SIGQUIT) // its stacks go to the output
		}
		last, since = "", time.Now()
	}
}

// children are the child processes of a process.
func children(pid int) (found []int) {
	tasks, _ := filepath.Glob("/proc/" + strconv.Itoa(pid) + "/task/*/children")
	for _, task := range tasks {
		text, err := os.ReadFile(task)
		if err != nil {
			continue // it has ended
		}
		for _, word := range strings.Fields(string(text)) {
			if child, err := strconv.Atoi(word); err == nil {
				found = append(found, child)
			}
		}
	}
	return found
}

// output collects the output of a process.
type output struct {
	mu  sync.Mutex
	all bytes.Buffer
}

// Write is part of [io.Writer].
func (o *output) Write(text []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.all.Write(text)
}

func (o *output) add(text string) { _, _ = io.WriteString(o, text) }

func (o *output) text() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.all.String()
}

var (
	// elapsed is the part of a line that differs even without progress.
	elapsed = regexp.MustCompile(`elapsed: \S+, |\(\d+/sec\)`)
	counted = regexp.MustCompile(`execs: (\d+) \(\d+/sec\)(?:, new interesting: (\d+) \(total: (\d+)\))?`)
)

// progress is the last line of an output without its times. The search for a smaller input counts as
// progress, because it has its own bound.
func progress(text string) string {
	lines := strings.Split(strings.TrimSpace(text), "\n")
	last := lines[len(lines)-1]
	if strings.Contains(last, "minimizing") {
		return last
	}
	return strconv.Itoa(len(slices.DeleteFunc(lines, func(l string) bool { return strings.HasPrefix(l, "fuzz: elapsed") }))) + elapsed.ReplaceAllString(last, "")
}

// ended matches the whole output of a fuzzer that reports the end of its time as a failure: it checks whether
// its workers were told to stop a moment before they are.
//
// Upstream: go/src/internal/fuzz/fuzz.go, stop in CoordinateFuzzing.
var ended = regexp.MustCompile(`(?m)^--- FAIL: \w+ \(\S+\)\n    context deadline exceeded\nFAIL\s*\z`)

// timeIsUp reports whether a fuzzer failed only because its time ended.
func timeIsUp(text string) bool { return ended.MatchString(text) }

// read takes the figures from an output.
func (f *finding) read(text string) {
	lines := bufio.NewScanner(strings.NewReader(text))
	lines.Buffer(nil, len(text)+1)
	for lines.Scan() {
		if n := counted.FindStringSubmatch(lines.Text()); n != nil {
			f.executions, _ = strconv.ParseUint(n[1], 10, 64)
			f.fresh, _ = strconv.Atoi(n[2])
			f.corpus, _ = strconv.Atoi(n[3])
		}
	}
}
