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
	expect results // of an earlier run: what took long there begins first
	one    func(ctx context.Context, test string) result
	done   func(test string, r result) error // is told of each test at its end, one at a time
}

// play runs the tests; those that need the cluster for themselves come last, one at a time.
// Once the context ends, no more begin.
//
// Errors: those of done. That a test fails is none.
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

// needsCluster is true for tests that others disturb: the serial ones, and one that
// counts all ended pods of the cluster.
func needsCluster(test string) bool {
	return strings.Contains(test, "[Serial]") || strings.Contains(test, "[Feature:PodGarbageCollector]")
}

// each runs tests in their order, some at a time.
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
