package main

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// busy is a system that is still deleting a namespace.
func busy(until time.Time) func(context.Context, ...string) ([]byte, error) {
	return func(_ context.Context, args ...string) ([]byte, error) {
		switch {
		case args[0] != "lag":
			return nil, errors.New("the record has nothing of it yet")
		case time.Now().Before(until):
			return []byte("STREAM  WHO  LAST  BEHIND\nEV_pods  namespace-controller  7  3\n"), nil
		default:
			return []byte("no consumer is behind: all 62 have answered everything\n"), nil
		}
	}
}

var behind = question{[]string{"lag"}, " is behind: "}

func TestWhatIsStillGoingOnIsAwaited(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		defer cancel()
		if err := answered(ctx, busy(time.Now().Add(20*time.Second)), []question{behind}); err != nil {
			t.Error(err)
		}
	})
}

func TestWhatNeverComesIsAnError(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		defer cancel()
		err := answered(ctx, busy(time.Now().Add(2*patience)), []question{behind})
		if err == nil || !strings.Contains(err.Error(), "namespace-controller") {
			t.Errorf("a system that is behind for ever: %v", err)
		}
		err = answered(ctx, busy(time.Now()), []question{behind, {[]string{"history"}, "Deployment"}})
		if err == nil || !strings.Contains(err.Error(), "nothing of it") {
			t.Errorf("a command that never works: %v", err)
		}
	})
}
