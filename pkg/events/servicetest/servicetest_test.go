package servicetest_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/millrace/millrace/pkg/events/servicetest"
)

// fake is a test that keeps how it failed, and its cleanups.
type fake struct {
	testing.TB
	ctx      context.Context
	failures []string
	cleanups []func()
}

func (f *fake) Helper() {}

func (f *fake) Context() context.Context { return f.ctx }

func (f *fake) Cleanup(does func()) { f.cleanups = append(f.cleanups, does) }

func (f *fake) Errorf(format string, of ...any) {
	f.failures = append(f.failures, fmt.Sprintf(format, of...))
}

// closer notes that it was closed.
type closer struct{ order *[]string }

func (c closer) Close() error {
	*c.order = append(*c.order, "bus closed")
	return errors.New("closed before")
}

// A service runs until the test stops it, or until its cleanup, even when the context of the test
// has ended. Then what it used is closed, once.
func TestRunUntilStopped(t *testing.T) {
	for name, ends := range map[string]func(stop func(), f *fake){
		"stopped":             func(stop func(), _ *fake) { stop() },
		"the test ends":       func(_ func(), f *fake) { f.cleanups[0]() },
		"stopped, then again": func(stop func(), f *fake) { stop(); f.cleanups[0](); stop() },
	} {
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		f, began := &fake{ctx: ctx}, make(chan error)
		var order []string
		stop := servicetest.Run(f, "watcher", func(ctx context.Context) error {
			began <- ctx.Err()
			<-ctx.Done()
			order = append(order, "service ended")
			return nil
		}, closer{&order})
		if err := <-began; err != nil {
			t.Errorf("%s: the context of the service is %v when it begins, want nil", name, err)
		}
		ends(stop, f)
		if want := []string{"service ended", "bus closed"}; !slices.Equal(order, want) {
			t.Errorf("%s: the order is %q, want %q", name, order, want)
		}
		if f.failures != nil {
			t.Errorf("%s: the test fails with %q, want no failure", name, f.failures)
		}
	}
}

// An error of the service fails the test, once, with the name of the service.
func TestErrorOfTheService(t *testing.T) {
	f := &fake{ctx: t.Context()}
	stop := servicetest.Run(f, "watcher", func(context.Context) error { return errors.New("no bus") })
	stop()
	f.cleanups[0]()
	if want := []string{"watcher ended with no bus, want no error"}; !slices.Equal(f.failures, want) {
		t.Errorf("the test fails with %q, want %q", f.failures, want)
	}
}
