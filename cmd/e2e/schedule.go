package main

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
)

// schedule runs tests, several at a time.
type schedule struct {
	procs  int
	expect results // of an earlier run: the tests that took longest there begin first
	one    func(ctx context.Context, test string) result
	done   func(test string, r result) error // called for each test at its end, one at a time
}

// play runs the tests. Those that need the cluster for themselves come last, one at a time. After the context
// ends, play starts no more tests.
//
// Errors: those of done. A failing test is none.
func (s *schedule) play(ctx context.Context, tests []string) error {
	var together, alone []string
	for _, name := range tests {
		if needsCluster(name) {
			alone = append(alone, name)
		} else {
			together = append(together, name)
		}
	}
	slices.SortStableFunc(together, func(a, b string) int {
		return cmp.Compare(s.expect.result(b).took, s.expect.result(a).took)
	})
	return errors.Join(s.each(ctx, s.procs, together), s.each(ctx, 1, alone))
}

// needsCluster reports whether other tests disturb a test: the serial tests, and one that counts all ended
// pods of the cluster.
func needsCluster(test string) bool {
	return strings.Contains(test, "[Serial]") || strings.Contains(test, "[Feature:PodGarbageCollector]")
}

// each runs tests in their order, `procs` at a time.
func (s *schedule) each(ctx context.Context, procs int, tests []string) error {
	queue := make(chan string)
	var telling sync.Mutex
	var failed error
	var workers sync.WaitGroup
	for range procs {
		workers.Go(func() {
			for name := range queue {
				r := s.one(ctx, name)
				telling.Lock()
				failed = errors.Join(failed, s.done(name, r))
				telling.Unlock()
			}
		})
	}
	for _, name := range tests {
		if ctx.Err() != nil {
			break
		}
		queue <- name
	}
	close(queue)
	workers.Wait()
	return failed
}
