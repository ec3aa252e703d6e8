package reflector

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/millrace/millrace/pkg/events/bus"
	"github.com/millrace/millrace/pkg/events/bus/bustest"
	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/services/watcher/source"
)

// A session retries until the streams and the source of a kind exist, and then does not check them
// again.
func TestWhatASessionNeedsIsThere(t *testing.T) {
	t.Parallel()
	k, a := recorded(t, 1, 0)
	opened, fails := 0, error(nil)
	k.open = func(kinds.Kind) (*source.Kind, error) { opened++; return &source.Kind{}, fails }
	a.Fail(bustest.EnsureKind, away)
	if err := k.ensure(t.Context()); !errors.Is(err, away) || opened != 0 || k.ensured {
		t.Errorf("ensure on a bus that is away: %v, opened %d times; want its error, and none", err, opened)
	}
	k.ensured = true
	if err := k.ensure(t.Context()); err != nil || opened != 1 {
		t.Errorf("ensure of streams that exist: %v, opened %d times; want once", err, opened)
	}
	if err := k.ensure(t.Context()); err != nil || opened != 1 {
		t.Errorf("ensure of what is all there: %v, opened %d times; want once", err, opened)
	}
	k.ensured = false
	a.Fail(bustest.EnsureKind, nil)
	if err := k.ensure(t.Context()); err != nil || opened != 2 || !k.ensured || k.damaged {
		t.Errorf("ensure of streams that do not exist: %v, opened %d times; want twice", err, opened)
	}
	k.ensured, fails = false, away
	if err := k.ensure(t.Context()); !errors.Is(err, away) || k.ensured {
		t.Errorf("ensure of a source that cannot be opened: %v, want its error", err)
	}
}

// The watcher keeps a kind's streams where it can, and tells the operator what to do where it
// cannot.
func TestStreamsOfOtherSettings(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	refused := fmt.Errorf("make: %w", bus.ErrSettings)
	k, a := recorded(t, 1, 0)
	if err := k.settleSettings(ctx, refused); !errors.Is(err, bus.ErrSettings) || !strings.Contains(err.Error(), "Start with the settings that the streams of pods have") {
		t.Errorf("settle the settings of a kind with the same form: %v, want an error with advice", err)
	}
	if a.Fail(bustest.Kinds, away); !errors.Is(k.settleSettings(ctx, refused), away) {
		t.Error("settleSettings returns no error when the kinds cannot be listed")
	}
	if got := advise("pods", away); got != away {
		t.Errorf("another error is advised as %v", got)
	}
	a.Fail(bustest.Kinds, nil)
	if _, there, err := storedKind(ctx, k.bus, "nodes"); err != nil || there {
		t.Errorf("a kind that is not stored is there: %t, %v", there, err)
	}
	if got, there, err := storedKind(ctx, k.bus, "pods"); err != nil || !there || got != k.kind {
		t.Errorf("a kind that is stored is %+v, %t, %v", got, there, err)
	}
	other := kinds.Pods.Kind
	other.Version = "v9"
	k.kind, k.served = other, func(string) bool { return false }
	a.Fail(bustest.DeleteKind, away)
	if err := k.settleSettings(ctx, refused); !errors.Is(err, away) {
		t.Errorf("streams that cannot be removed are made anew: %v", err)
	}
	a.Fail(bustest.DeleteKind, nil).Fail(bustest.EnsureKind, refused)
	if err := k.settleSettings(ctx, refused); !errors.Is(err, bus.ErrSettings) || !strings.Contains(err.Error(), "Start with the settings") {
		t.Errorf("streams that cannot be made anew: %v", err)
	}
}
