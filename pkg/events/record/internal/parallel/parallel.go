// Package parallel makes the requests of one question at the same time, and bounds how many are
// under way.
package parallel

import (
	"context"
	"sync"
)

// limit is how many requests of one question [Each] has under way at most.
const limit = 16

// Each calls do for 0 to n-1, at most 16 at a time. It waits for all calls; after an error, it
// cancels the context of the others and begins no more.
//
// Errors: the first one of do; the cause of the end of ctx.
func Each(ctx context.Context, n int, do func(ctx context.Context, i int) error) error {
	return Do(ctx, n, limit, do)
}

// Do is [Each] with another limit, atOnce.
func Do(ctx context.Context, n, atOnce int, do func(ctx context.Context, i int) error) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var work sync.WaitGroup
	places := make(chan struct{}, atOnce)
	for i := range n {
		places <- struct{}{}
		work.Go(func() {
			defer func() { <-places }()
			if ctx.Err() != nil {
				return
			}
			if err := do(ctx, i); err != nil {
				cancel(err)
			}
		})
	}
	work.Wait()
	return context.Cause(ctx)
}
