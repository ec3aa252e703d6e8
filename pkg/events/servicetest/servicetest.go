// Package servicetest runs a service for a test, which stops it when it wants to.
package servicetest

import (
	"context"
	"io"
	"sync"
	"testing"
)

// Run runs a service until stop is called or the test ends, and then closes what the service used.
// stop returns when all of that is done; further calls do nothing. An error of the service fails
// the test.
//
// The context of the service outlives that of the test, which ends before the first cleanup: a
// service stops in the order of the cleanups, before what it uses.
func Run(t testing.TB, name string, run func(context.Context) error, uses ...io.Closer) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	ended := make(chan error, 1)
	go func() { ended <- run(ctx) }()
	stop = sync.OnceFunc(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("%s ended with %v, want no error", name, err)
		}
		for _, u := range uses {
			_ = u.Close() // a test may have closed it to cut the service off
		}
	})
	t.Cleanup(stop)
	return stop
}
