package main

import (
	"context"
	"errors"
	"slices"
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
