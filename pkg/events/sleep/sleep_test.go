package sleep_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/millrace/millrace/pkg/events/sleep"
)

// TestFor: a sleep takes its whole time, or ends with the context and says so.
func TestFor(t *testing.T) {
	for _, c := range []struct {
		name                string
		sleeps, ends, takes time.Duration
	}{
		{"whole", time.Second, time.Minute, time.Second},
		{"cut", time.Minute, time.Second, time.Second},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithTimeout(t.Context(), c.ends)
				defer cancel()
				began := time.Now()
				whole := sleep.For(ctx, c.sleeps)
				if took := time.Since(began); took != c.takes || whole != (c.takes == c.sleeps) {
					t.Errorf("For took %v, and the whole time passed: %t", took, whole)
				}
			})
		})
	}
}
