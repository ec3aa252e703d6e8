package reflector

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/bus"
	"github.com/millrace/millrace/pkg/events/bus/bustest"
	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/pkg/events/report"
	"github.com/millrace/millrace/pkg/events/sleep"
	"github.com/millrace/millrace/pkg/events/storageepoch"
	"github.com/millrace/millrace/services/watcher/kindlog"
	"github.com/millrace/millrace/services/watcher/translate"
	"github.com/millrace/millrace/services/watcher/watchertest"
)

// The watcher reports a kind that it could not watch for half a minute, and since when.
func TestWhichKindsAreNotWatched(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := &Reflector{kind: kinds.Pods.Kind, metrics: NewMetrics()}
		if synced, err := k.Status(); synced || err != nil {
			t.Errorf("before anything the kind is synced: %t, %v", synced, err)
		}
		began := time.Now()
		if !k.note(away) || k.note(errors.New("away")) || !k.note(errors.New("refused")) {
			t.Error("note takes the same error for news, or another one not")
		}
		if _, told := k.Unwatched(began.Add(report.StallAfter - 1)); told {
			t.Error("the kind is reported before half a minute is over")
		}
		if u, told := k.Unwatched(began.Add(report.StallAfter)); !told || u.Reason != "refused" || u.Kind != "pods" || !u.Since.Equal(began) {
			t.Errorf("the report is %+v, %t; want the last reason, since the beginning", u, told)
		}
		k.note(nil)
		if _, told := k.Unwatched(began.Add(time.Hour)); told {
			t.Error("a kind that is watched is reported")
		}
		if synced, err := k.Status(); !synced || err != nil {
			t.Errorf("a kind that is watched is synced: %t, %v; want true", synced, err)
		}
		time.Sleep(time.Minute) // virtual
		k.note(away)
		if u, told := k.Unwatched(time.Now().Add(report.StallAfter)); !told || !u.Since.Equal(time.Now()) {
			t.Errorf("the second report is %+v, %t; want it since now", u, told)
		}
		if synced, err := k.Status(); !synced || err == nil {
			t.Errorf("a kind that was watched once is synced: %t, %v; want true, with the error", synced, err)
		}
	})
}

// After a refusal the next attempt waits longer than after a missing answer, and at least as long
// as the refusal says.
func TestHowLongAnAttemptWaits(t *testing.T) {
	t.Parallel()
	answer := func(code, seconds int) error {
		return apierrors.NewGenericServerResponse(code, "watch", schema.GroupResource{}, "", "", seconds, true)
	}
	longest := func(err error) (wait time.Duration) {
		var p RetryPause
		for range 30 {
			wait = max(wait, p.Next(err))
		}
		return wait
	}
	for what, c := range map[string]struct {
		err         error
		least, most time.Duration
	}{
		"away": {away, 300 * time.Millisecond, 900 * time.Millisecond}, "forbidden": {answer(403, 0), 5 * time.Second, 15 * time.Second},
		"expired": {answer(410, 0), 300 * time.Millisecond, 900 * time.Millisecond}, "settings": {bus.ErrSettings, 5 * time.Second, 15 * time.Second},
		"busy": {answer(429, 60), time.Minute, time.Minute},
	} {
		if got := longest(c.err); got < c.least || got > c.most {
			t.Errorf("%s: the longest wait is %v, want between %v and %v", what, got, c.least, c.most)
		}
	}
	var p RetryPause
	if first := p.Next(away); first < firstPause/2 || first > firstPause*3/2 {
		t.Errorf("at first it waits %v", first)
	}
}

func TestPatienceIsShortWithWhoIsAwayAndLongWithWhoRefuses(t *testing.T) {
	t.Parallel()
	var p RetryPause
	away, busy := errors.New("connection refused"), apierrors.NewInternalError(errors.New("webhook"))
	var longest time.Duration
	for range 50 {
		if pause := p.Next(away); pause > time.Second {
			t.Errorf("%v while no server answers", pause)
		}
		longest = max(longest, p.Next(busy))
	}
	if longest < farPause/2 || longest > 2*farPause {
		t.Errorf("at most %v while the server refuses", longest)
	}
	if pause := p.Next(apierrors.NewTooManyRequests("later", 60)); pause < time.Minute {
		t.Errorf("%v although told to wait a minute", pause)
	}
}

// Pauses begin with 50 ms, and each is about twice the one before.
func TestHowPausesGrow(t *testing.T) {
	t.Parallel()
	for range 50 {
		var p RetryPause
		for _, want := range []time.Duration{50 * time.Millisecond, 100 * time.Millisecond, 200 * time.Millisecond, 400 * time.Millisecond, 600 * time.Millisecond, 600 * time.Millisecond} {
			if got := p.Next(away); got < want/2 || got > want*3/2 {
				t.Fatalf("a pause is %v, want about %v", got, want)
			}
		}
	}
	began := time.Now()
	ended, cancel := context.WithCancel(t.Context())
	if cancel(); true {
		sleep.For(ended, time.Hour)
	}
	if took := time.Since(began); took > time.Minute {
		t.Errorf("a pause that is ended lasts %v", took)
	}
}

// A session that fails is followed by one that knows the reason; a session whose context has ended
// is followed by none.
func TestHowASessionEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k, a := recorded(t, 1, 0)
		overtaken := 0
		k.overtaken = func() { overtaken++ }
		k.want = func() kinds.Kind { return kinds.Nodes.Kind }
		k.epoch, k.reports = storageepoch.New(), make(chan struct{}, 1)
		ends := func(err error, within time.Duration) string {
			t.Helper()
			logging, log := watchertest.Logged(t)
			ctx, cancel := context.WithTimeout(logging, within) // virtual
			defer cancel()
			a.Fail(bustest.EnsureKind, err)
			k.ensured, k.kind, k.expired, k.nextGap, k.damaged = false, kinds.Pods.Kind, false, events.Hole{}, false
			k.Run(ctx)
			return log()
		}
		if log := ends(fmt.Errorf("x: %w", bus.ErrOvertaken), 10*time.Millisecond); overtaken != 1 || !strings.Contains(log, "Resuming") || k.expired {
			t.Errorf("overtaken %d times, expired %t; want once, and a resume:\n%s", overtaken, k.expired, log)
		}
		if log := ends(fmt.Errorf("x: %w", bus.ErrTooLarge), 10*time.Millisecond); overtaken != 1 || !strings.Contains(log, "Resuming") {
			t.Errorf("after a message that is too large the log says\n%s", log)
		}
		if log := ends(fmt.Errorf("x: %w", errEnded), 10*time.Millisecond); !strings.Contains(log, "Resuming") {
			t.Errorf("after a watch that has ended the log says\n%s", log)
		}
		if log := ends(fmt.Errorf("y: %w", events.ErrDamaged), 10*time.Millisecond); !k.expired || !k.damaged || k.nextGap.Reason != "y: "+events.ErrDamaged.Error() || !strings.Contains(log, "The record is damaged") {
			t.Errorf("after damage the next gap is %+v, and the log says\n%s", k.nextGap, log)
		}
		if log := ends(fmt.Errorf("z: %w", errRewound), 10*time.Millisecond); !k.expired || k.nextGap.Reason != "z: "+errRewound.Error() || !strings.Contains(log, "Relisting in a new epoch") {
			t.Errorf("after a restore the next gap is %+v, and the log says\n%s", k.nextGap, log)
		}
		if epoch, _ := k.epoch.Now(); epoch != k.cursor.Epoch+1 {
			t.Errorf("the epoch is %d after %d, want the next", epoch, k.cursor.Epoch)
		}
		if log := ends(errors.New("odd"), 5*time.Second); strings.Count(log, "Cannot watch") != 1 || k.kind.Name != "pods" {
			t.Errorf("after another error the log says\n%s", log)
		}
		if _, err := k.Status(); err == nil {
			t.Error("Status has no error after another error")
		}
		if ends(fmt.Errorf("x: %w", bus.ErrNoStream), 10*time.Millisecond); k.kind.Name != "nodes" || k.ensured {
			t.Errorf("without a stream it is wanted as %s", k.kind.Name)
		}
		ended, cancel := context.WithCancel(t.Context())
		if cancel(); true {
			k.Run(ended)
		}
	})
}

// Where the bus does not answer, the watch returns that error, and does not take a missing answer
// for an empty one.
func TestWhatIsNotAnsweredIsAnError(t *testing.T) {
	t.Parallel()
	for what, c := range map[string]struct {
		do    func(ctx context.Context, k *Reflector) error
		fails []string
	}{
		"resume": {func(ctx context.Context, k *Reflector) error {
			k.logState = logState{}
			_, err := k.resume(ctx)
			return err
		}, []string{"the log", "a message", "the mark", "the reading"}},
		"contents": {func(ctx context.Context, k *Reflector) error {
			_, _, err := kindlog.Read(ctx, k.bus, "pods")
			return err
		}, []string{"the log", "a message", "the mark", "the reading"}},
		"count": {func(ctx context.Context, k *Reflector) error {
			_, err := k.count(ctx, ends(k), events.Delta{}, 1)
			return err
		}, []string{"the reading"}},
		"past": {func(ctx context.Context, k *Reflector) error {
			k.cursor = translate.Cursor{}
			_, err := k.knownPosition(ctx)
			return err
		}, []string{"a message"}},
		"keyframes": {func(ctx context.Context, k *Reflector) error { _, err := k.keyframes(ctx); return err }, []string{"the reading"}},
		"settled":   {func(ctx context.Context, k *Reflector) error { return k.staysShorter(ctx, bus.State{Last: 4}, 9) }, []string{"the log"}},
		"bury":      {func(ctx context.Context, k *Reflector) error { return k.recordDeleted(ctx, 99) }, []string{"a message"}},
		"told": {func(ctx context.Context, k *Reflector) error {
			_, err := kindlog.Newest(ctx, k.bus, "pods")
			return err
		}, []string{"the log", "a message"}},
	} {
		for _, fail := range c.fails {
			k, a := recorded(t, 3, 0)
			watchertest.Unanswered[fail](a)
			if err := c.do(t.Context(), k); !errors.Is(err, away) {
				t.Errorf("%s: %s is not answered: %v", what, fail, err)
			}
		}
	}
}
