package process

import (
	"context"
	"errors"
	"runtime/debug"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// TestPartsStopInOrder: each part stops only after the one before it has finished.
func TestPartsStopInOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var ended []string
		slow := func(name string, takes time.Duration) Part {
			return Part{Name: name, Run: func(ctx context.Context) error {
				<-ctx.Done()
				time.Sleep(takes)
				ended = append(ended, name)
				return nil
			}}
		}
		ctx, stop := context.WithCancel(t.Context())
		time.AfterFunc(time.Minute, stop)
		o := Options{grace: 10 * time.Second}
		if err := o.Run(ctx, []Part{slow("deciding", 3*time.Second), slow("writing", time.Second), slow("watching", 0)}); err != nil {
			t.Errorf("run ended with %v", err)
		}
		if got := strings.Join(ended, " "); got != "deciding writing watching" {
			t.Errorf("the parts ended in the order %s", got)
		}
	})
}

func TestAFailingPartStopsTheProcess(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		broken := errors.New("broken")
		finished := false
		o := Options{grace: 10 * time.Second}
		err := o.Run(t.Context(), []Part{
			{Name: "sound", Run: func(ctx context.Context) error { <-ctx.Done(); finished = true; return nil }},
			{Name: "weak", Run: func(context.Context) error { return broken }},
		})
		if !errors.Is(err, broken) || !strings.Contains(err.Error(), "weak") {
			t.Errorf("run ended with %v, want the failure and whose it is", err)
		}
		if !finished {
			t.Error("the other part was not stopped")
		}
	})
}

// TestGraceEnds: a part that does not finish in time does not delay the end of the process.
func TestGraceEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, stop := context.WithCancel(t.Context())
		begun := time.Now()
		time.AfterFunc(time.Second, stop)
		release := make(chan struct{})
		o := Options{grace: 10 * time.Second}
		if err := o.Run(ctx, []Part{{Name: "stuck", Run: func(context.Context) error { <-release; return nil }}}); err != nil {
			t.Errorf("run ended with %v", err)
		}
		if took := time.Since(begun); took != 11*time.Second {
			t.Errorf("run ended after %v, want the second before it was told and ten of grace", took)
		}
		close(release)
	})
}

// TestGarbageIsLimitedUnlessTheOperatorHasDecided: a value of GOGC in the environment stays.
func TestGarbageIsLimitedUnlessTheOperatorHasDecided(t *testing.T) {
	before := debug.SetGCPercent(100)
	defer debug.SetGCPercent(before)
	for value, want := range map[string]int{"70": 100, "off": 100, "": 50} {
		debug.SetGCPercent(100) // the runtime has read the environment at the start
		limitGarbage(environment("GOGC", value))
		if got := debug.SetGCPercent(100); got != want {
			t.Errorf("with GOGC=%q the heap grows by %d %%, want %d %%", value, got, want)
		}
	}
	limitGarbage(environment("GOMEMLIMIT", "1800MiB"))
	if got := debug.SetGCPercent(100); got != 50 {
		t.Errorf("with a memory limit the heap grows by %d %%, want 50 %%", got)
	}
}

// environment looks up a variable where only one is set.
func environment(name, value string) func(string) (string, bool) {
	return func(asked string) (string, bool) {
		if asked != name {
			return "", false
		}
		return value, true
	}
}
