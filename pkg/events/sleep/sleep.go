// Package sleep waits for a time, or until a context ends: time.Sleep for loops that must stop with
// their context.
package sleep

import (
	"context"
	"time"
)

// For waits for a time, and reports whether the whole time passed before the context ended.
func For(ctx context.Context, d time.Duration) (whole bool) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}
