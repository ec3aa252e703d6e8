package stream

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/millrace/millrace/pkg/events/bus"
	"github.com/millrace/millrace/pkg/events/stream/natserr"
)

// The retention of a stream is the one setting that Millrace changes when it differs from the
// wanted one: nothing depends on it but how far back a reader can look. Several processes may
// want different retentions, as during a rolling update. So each stream's metadata has the
// start time of the process that last set the retention, and only a process that began later
// changes it. Then the newest process decides, each process changes a stream at most once, and
// a process that is started with an old setting undoes nothing. A change by an operator stays
// until a process starts that wants another retention.

// keptSince is the metadata key for the start time of the process that last set a stream's
// retention.
const keptSince = "millrace.kept-since"

// retention is how much is kept of the streams of a kind or a controller.
func (o Options) retention(of string) bus.Retention {
	r := o.Retention[of]
	if r.Age == 0 {
		r.Age = o.LogAge
	}
	if r.Bytes == 0 {
		r.Bytes = o.LogBytes
	}
	return r
}

// bounded sets a stream's retention.
func (o Options) bounded(c jetstream.StreamConfig, of string, window time.Duration) jetstream.StreamConfig {
	r := o.retention(of)
	c.MaxAge, c.MaxBytes, c.Duplicates = r.Age, unlimited(r.Bytes), min(window, r.Age)
	c.Metadata[keptSince] = o.Began.UTC().Format(time.RFC3339Nano)
	return c
}

// retained is the settings c with the retention of other. The server remembers ids no longer
// than it keeps messages.
func retained(other, c jetstream.StreamConfig) jetstream.StreamConfig {
	if c.Duplicates >= c.MaxAge || c.Duplicates > other.MaxAge {
		c.Duplicates = other.Duplicates
	}
	c.MaxAge, c.MaxBytes = other.MaxAge, other.MaxBytes
	return c
}

// sized reports whether Millrace sets a stream's retention. Wakes wait until they fire.
func sized(want jetstream.StreamConfig) bool { return want.Metadata[keptSince] != "" }

func keeps(c jetstream.StreamConfig) bus.Retention {
	return bus.Retention{Age: c.MaxAge, Bytes: max(c.MaxBytes, 0)}
}

// resizes reports whether a stream's retention differs from the wanted one and this process may
// change it.
func (b *Bus) resizes(have, want jetstream.StreamConfig) bool {
	if b.options.orders || !sized(want) || keeps(have) == keeps(want) {
		return false
	}
	since, err := time.Parse(time.RFC3339Nano, have.Metadata[keptSince])
	if err == nil && !since.Before(b.options.Began) {
		b.options.Log.Info("kept the retention of a stream that a newer process has set", "stream", have.Name,
			"age", have.MaxAge, "bytes", have.MaxBytes, "wanted age", want.MaxAge, "wanted bytes", want.MaxBytes)
		return false
	}
	return true
}

// resize sets the retentions of streams to those in the given settings, which are otherwise the
// streams' own.
func (b *Bus) resize(ctx context.Context, streams []jetstream.StreamConfig) error {
	for _, c := range streams {
		c.Metadata = maps.Clone(c.Metadata)
		if c.Metadata == nil {
			c.Metadata = map[string]string{}
		}
		c.Metadata[keptSince] = b.options.Began.UTC().Format(time.RFC3339Nano)
		request, done := b.guarded(ctx, c.Name)
		_, err := b.js.UpdateStream(request, c)
		err = natserr.Translate(request, err)
		done()
		if err != nil {
			return fmt.Errorf("change how much is kept of stream %s: %w", c.Name, err)
		}
		b.options.Log.Info("changed the retention of a stream", "stream", c.Name, "age", c.MaxAge, "bytes", c.MaxBytes)
	}
	return nil
}

// checkRetention rejects retentions that are too small.
func (o Options) checkRetention() error {
	var wrong []error
	for of, r := range o.Retention {
		if r.Age != 0 && r.Age < time.Second || r.Bytes < 0 {
			wrong = append(wrong, fmt.Errorf("of %s %v and %d bytes are kept, not at least 1 s and 0 bytes", of, r.Age, r.Bytes))
		}
	}
	return errors.Join(wrong...)
}
