package conn

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/millrace/millrace/pkg/events/bus"
	"github.com/millrace/millrace/pkg/events/stream/natserr"
)

// The end of a request ends its context, and no later refusal does.
func TestARequestThatIsOver(t *testing.T) {
	t.Parallel()
	b := New(Options{})
	over, done := b.Guarded(t.Context(), "TURN_c")
	other, end := b.Guarded(t.Context(), "TURN_c")
	defer end()
	if done(); over.Err() == nil || len(b.waiting) != 1 {
		t.Errorf("the context of a finished request is not over (%v), or %d requests wait, want 1", over.Err(), len(b.waiting))
	}
	b.refuse(errors.New("permissions violation for TURN_d"))
	if other.Err() != nil {
		t.Errorf("a refusal of something else ends it: %v", context.Cause(other))
	}
	b.refuse(errors.New("permissions violation for TURN_c"))
	var refusal *natserr.Refusal
	if !errors.As(context.Cause(other), &refusal) || errors.As(context.Cause(over), &refusal) || testutil.ToFloat64(b.Stats.Forbidden) != 2 {
		t.Errorf("a refusal ends it with %v, and one that was over with %v", context.Cause(other), context.Cause(over))
	}
}

// Messages that were not stored are counted by reason.
func TestFailuresAreCountedByReason(t *testing.T) {
	t.Parallel()
	s := newStats()
	all := map[string]error{
		"overtaken": bus.ErrOvertaken, "too_large": bus.ErrTooLarge, "no_stream": bus.ErrNoStream, "closed": bus.ErrClosed, "full": natserr.ErrFull,
		"forbidden": &natserr.Refusal{Err: errors.New("no")}, "other": errors.New("something else"),
	}
	for _, err := range all {
		s.Failed(fmt.Errorf("publish: %w", err))
	}
	for reason := range all {
		if got := testutil.ToFloat64(s.Refused.WithLabelValues(reason)); got != 1 {
			t.Errorf("%v are counted as %s, want 1", got, reason)
		}
	}
}

// That no provisioner answered counts until one does.
func TestWhetherThereIsAProvisioner(t *testing.T) {
	t.Parallel()
	b := New(Options{})
	b.NoteProvisioner(fmt.Errorf("ask: %w", nats.ErrNoResponders))
	if b.noProvisionerSince.IsZero() || time.Since(b.noProvisionerSince) > time.Minute {
		t.Errorf("where none answers there is none since %v", b.noProvisionerSince)
	}
	for _, err := range []error{nil, nats.ErrTimeout} {
		b.noProvisionerSince = time.Now()
		if b.NoteProvisioner(err); !b.noProvisionerSince.IsZero() {
			t.Errorf("after %v the provisioner is missing since %v, want not at all", err, b.noProvisionerSince)
		}
	}
}
