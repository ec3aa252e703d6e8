package main

import (
	"context"
	"errors"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// stagehand plays tests that only take time.
type stagehand struct {
	mu      sync.Mutex
	begun   []string
	now     int
	most    int
	beside  []string // serial tests that were not alone
	time    map[string]time.Duration
	onBegin func(test string)
}

func (s *stagehand) one(ctx context.Context, test string) result {
	s.mu.Lock()
	s.begun = append(s.begun, test)
	s.now++
	s.most = max(s.most, s.now)
	if needsCluster(test) && s.now > 1 {
		s.beside = append(s.beside, test)
	}
	s.mu.Unlock()
	if s.onBegin != nil {
		s.onBegin(test)
	}
	select {
	case <-ctx.Done():
	case <-time.After(s.time[test]):
	}
	s.mu.Lock()
	s.now--
	s.mu.Unlock()
	return result{state: "passed", took: s.time[test]}
}

func TestTheLongestBeginFirstAndSerialTestsAreAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &stagehand{time: map[string]time.Duration{}}
		expect := results{rows: map[string]string{}}
		tests := []string{"[Serial] x", "short", "[Feature:PodGarbageCollector] y", "long", "middle", "unknown"}
		for name, took := range map[string]string{"short": "1.0", "long": "30.0", "middle": "10.0", "[Serial] x": "90.0", "[Feature:PodGarbageCollector] y": "5.0"} {
			expect.rows[name] = "passed\t" + took + "\t" + name + "\t"
			s.time[name] = expect.result(name).took
		}
		told := map[string]result{}
		begun := time.Now()
		plan := &schedule{procs: 2, expect: expect, one: s.one, done: func(name string, r result) error { told[name] = r; return nil }}
		if err := plan.play(t.Context(), tests); err != nil {
			t.Fatal(err)
		}
		if first := s.begun[:2]; !slices.Contains(first, "long") || !slices.Contains(first, "middle") {
			t.Errorf("began in the order %q", s.begun)
		}
		if s.most != 2 || len(s.beside) > 0 {
			t.Errorf("%d at a time, and beside others: %q", s.most, s.beside)
		}
		if took := time.Since(begun); took != 30*time.Second+95*time.Second {
			t.Errorf("took %s", took)
		}
		if len(told) != len(tests) || told["long"].took != 30*time.Second {
			t.Errorf("told of %v", told)
		}
	})
}

func TestAnInterruptedRunBeginsNoMore(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	s := &stagehand{time: map[string]time.Duration{"a": time.Hour}, onBegin: func(string) { cancel() }}
	plan := &schedule{procs: 1, one: s.one, done: func(string, result) error { return nil }}
	if err := plan.play(ctx, []string{"a", "b", "c", "[Serial] d"}); err != nil {
		t.Fatal(err)
	}
	if len(s.begun) > 2 { // one may have been on its way to the worker
		t.Errorf("begun are %q", s.begun)
	}
}

func TestResultsThatCannotBeKeptAreAnError(t *testing.T) {
	full := errors.New("disk is full")
	plan := &schedule{procs: 1, one: (&stagehand{}).one, done: func(string, result) error { return full }}
	if err := plan.play(t.Context(), []string{"a"}); !errors.Is(err, full) {
		t.Errorf("error is %v", err)
	}
}

// TestFailedTestsAreRunAgain: with --flake-attempts a test that failed is run again, until it passes. Its result
// says so then. Tests that passed, were skipped or are not in the suite are not run again.
func TestFailedTestsAreRunAgain(t *testing.T) {
	for attempts, want := range map[int]string{0: "", 1: "", 2: "flaky broken slow", 3: "flaky broken slow broken slow"} {
		name := filepath.Join(t.TempDir(), "results.tsv")
		file, _, err := begin(name, provenance{by: "millrace", version: "v", machine: "m"}, false)
		if err != nil {
			t.Fatal(err)
		}
		s := &session{options: options{attempts: attempts}, tests: []string{"good", "flaky", "broken", "slow", "skipped", "gone"}, file: file, outcome: map[string]result{
			"good": {state: "passed"}, "flaky": {state: "failed", failure: "a conflict"}, "broken": {state: "panicked", failure: "first"}, "slow": {state: "timedout"},
			"skipped": {state: "skipped"}, "gone": {state: absent},
		}}
		var run []string
		runs := map[string]int{}
		plan := &schedule{procs: 9, one: func(_ context.Context, test string) result {
			run = append(run, test)
			if runs[test]++; test == "flaky" || runs[test] == 2 {
				return result{state: "passed"}
			}
			return result{state: "failed", failure: "again"}
		}, done: func(test string, r result) error {
			s.outcome[test] = r
			return file.add(test, r)
		}}
		if err := errors.Join(s.again(t.Context(), plan), file.close()); err != nil {
			t.Fatal(err)
		}
		if got := strings.Join(run, " "); got != want {
			t.Errorf("with %d attempts it runs %q, want %q", attempts, got, want)
		}
		kept, err := readResults(name)
		if err != nil {
			t.Fatal(err)
		}
		if got := kept.result("flaky"); attempts > 1 && (got.state != "passed" || got.failure != "failed at first: a conflict") || kept.noted("3 failed tests are run again") != (attempts > 1) {
			t.Errorf("with %d attempts %+v is kept, and %v is noted", attempts, got, kept.notes)
		}
		if got := kept.result("broken"); attempts > 1 && (got.state == "passed") != (attempts > 2) {
			t.Errorf("with %d attempts %+v is kept", attempts, got)
		}
	}
}
