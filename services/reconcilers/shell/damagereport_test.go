package shell

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/millrace/millrace/pkg/events/bus"
	"github.com/millrace/millrace/pkg/events/bus/bustest"
	"github.com/millrace/millrace/pkg/events/eventually"
	"github.com/millrace/millrace/pkg/events/report"
	"github.com/millrace/millrace/services/reconcilers/cache"
)

// deaf returns a bus whose streams cannot be followed.
func deaf() bus.Bus {
	return (&bustest.Bus{
		OnStreamState: func(context.Context, string) (bus.State, error) { return bus.State{}, nil },
	}).Fail(bustest.Follow, bus.ErrNoStream)
}

func TestAStreamThatCannotBeFollowedIsTrouble(t *testing.T) {
	memory := cache.New()
	memory.Register(toy().Describe())
	l := NewLoop(deaf(), toy(), memory, Settings{}, nil)
	if err := l.Trouble(); err != nil {
		t.Fatalf("the loop has the trouble %v before it has tried anything, want none", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	go l.followOutcomes(ctx, func() {})
	eventually.True(t, eventually.Long, "an engine that hears no outcomes is in trouble", func() bool { return l.Trouble() != nil })
}

// Trouble lasts when it goes on for half a minute after lasting was called. Trouble that began
// later, ended by then, or whose timer was stopped, does not.
func TestWhatTroubleLasts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		torn := errors.New("torn")
		for what, c := range map[string]struct {
			change func(*damageReport)
			lasts  time.Duration // 0: it does not
		}{
			"it goes on": {func(*damageReport) {}, 30 * time.Second},
			"another is called off": {func(of *damageReport) {
				of.afterLasting(func(error) { t.Error("afterLasting calls a function that was stopped") })()
			}, 30 * time.Second},
			"over": {func(of *damageReport) { time.AfterFunc(time.Second, func() { of.end() }) }, 0},
		} {
			var of damageReport
			of.begin(torn, report.Damage{})
			began, lasted := time.Now(), time.Duration(0)
			stop := of.afterLasting(func(err error) {
				if lasted = time.Since(began); !errors.Is(err, torn) {
					t.Errorf("%s: afterLasting passes %v, want the damage that began", what, err)
				}
			})
			c.change(&of)
			time.Sleep(time.Minute) // virtual
			synctest.Wait()
			if stop(); lasted != c.lasts {
				t.Errorf("%s: afterLasting calls after %v, want %v (0: never)", what, lasted, c.lasts)
			}
		}
		var of damageReport
		of.afterLasting(func(error) { t.Error("afterLasting calls for damage that began after it") })
		time.Sleep(10 * time.Second)
		of.begin(torn, report.Damage{})
		time.Sleep(time.Minute)
		synctest.Wait()
	})
}
