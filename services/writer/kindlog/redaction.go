package kindlog

import (
	"context"
	"errors"
	"sync"
	"time"

	"k8s.io/utils/clock"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/bus"
	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/pkg/events/subject"
)

// redactionAge is how long the writer caches a kind's redaction.
const redactionAge = 10 * time.Second

// Hides returns a function that reports whether the watcher hides values of a kind. It reads that
// from the record, since the watcher alone has the rules. Until the watcher has recorded a kind's
// redaction, the function returns true. Of a kind without a stream nothing is hidden.
func Hides(b bus.Bus, c clock.PassiveClock) func(context.Context, kinds.Name) bool {
	type answer struct {
		hides bool
		at    time.Time
	}
	var mu sync.Mutex
	answers := map[kinds.Name]answer{} // bounded: only kinds in [kinds.Lookup]
	return func(ctx context.Context, kind kinds.Name) bool {
		if _, known := kinds.Lookup(kind); !known {
			return false
		}
		mu.Lock()
		last, asked := answers[kind]
		mu.Unlock()
		if asked && c.Since(last.at) < redactionAge {
			return last.hides
		}
		said, err := redactionOf(ctx, b, kind)
		if err != nil {
			return !errors.Is(err, bus.ErrNoStream)
		}
		mu.Lock()
		defer mu.Unlock()
		answers[kind] = answer{said != events.Unredacted, c.Now()}
		return answers[kind].hides
	}
}

// redactionOf returns the redaction in the newest mark or gap of a kind.
func redactionOf(ctx context.Context, b bus.Bus, kind kinds.Name) (events.Redaction, error) {
	m, ok, err := b.Last(ctx, subject.LogStream(kind), subject.Mark(kind))
	if err != nil || !ok {
		return "", err
	}
	mark, err := events.DecodeDelta(events.Ref{Kind: kind}, m)
	return mark.Redaction, err
}
