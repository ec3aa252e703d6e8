package stream

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/millrace/millrace/pkg/events/bus"
)

// How much is kept of a stream is the one setting that is changed where it is other
// than wanted: nothing rests on it but how far back a reader can look. Several
// processes may want it otherwise, as while they are being replaced one by one. So
// each stream says when the process began that said last how much is kept, and only
// one that began later changes it. Then the newest word holds, each process changes
// a stream once at the most, and who was started with an old setting undoes nothing.
// What an operator changes by hand stays until a process is started that wants it
// otherwise.

// keptSince is where a stream's metadata says when the process began that said how
// much is kept.
const keptSince = "millrace.kept-since"

// Retention is how much is kept of what belongs to a kind or a controller.
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

// bounded sets how much is kept.
func (o Options) bounded(c jetstream.StreamConfig, of string, window time.Duration) jetstream.StreamConfig {
	r := o.retention(of)
	c.MaxAge, c.MaxBytes, c.Duplicates = r.Age, unlimited(r.Bytes), min(window, r.Age)
	c.Metadata[keptSince] = o.Began.UTC().Format(time.RFC3339Nano)
	return c
}

// retained is a stream's settings with as much kept as other ones say. Ids are not
// remembered for longer than messages are kept.
func retained(other, c jetstream.StreamConfig) jetstream.StreamConfig {
	if c.Duplicates >= c.MaxAge || c.Duplicates > other.MaxAge {
		c.Duplicates = other.Duplicates
	}
	c.MaxAge, c.MaxBytes = other.MaxAge, other.MaxBytes
	return c
}

// sized tells whether it is for us to say how much is kept of a stream. The state
// keeps what is there, and wakes wait until they fire.
func sized(want jetstream.StreamConfig) bool { return want.Metadata[keptSince] != "" }

func keeps(c jetstream.StreamConfig) bus.Retention {
	return bus.Retention{Age: c.MaxAge, Bytes: max(c.MaxBytes, 0)}
}

// resizes tells whether a stream is to be kept otherwise than it is, and whether
// that is for this process to say.
func (b *Bus) resizes(have, want jetstream.StreamConfig) bool {
	if b.options.asks || !sized(want) || keeps(have) == keeps(want) {
		return false
	}
	since, err := time.Parse(time.RFC3339Nano, have.Metadata[keptSince])
	if err == nil && !since.Before(b.options.Began) {
		b.options.Log.Info("a stream is kept as long as a process says that began later", "stream", have.Name,
			"age", have.MaxAge, "bytes", have.MaxBytes, "wanted age", want.MaxAge, "wanted bytes", want.MaxBytes)
		return false
	}
	return true
}

// resize has streams keep as much as their settings say, which are their own but for
// that.
func (b *Bus) resize(ctx context.Context, streams []jetstream.StreamConfig) error {
	for _, c := range streams {
		c.Metadata = maps.Clone(c.Metadata)
		if c.Metadata == nil {
			c.Metadata = map[string]string{}
		}
		c.Metadata[keptSince] = b.options.Began.UTC().Format(time.RFC3339Nano)
		request, done := b.guarded(ctx, c.Name)
		_, err := b.js.UpdateStream(request, c)
		err = translated(request, err)
		done()
		if err != nil {
			return fmt.Errorf("change how much is kept of stream %s: %w", c.Name, err)
		}
		b.options.Log.Info("changed how much is kept of a stream", "stream", c.Name, "age", c.MaxAge, "bytes", c.MaxBytes)
	}
	return nil
}

// checkRetention names what no stream can be kept by.
func (o Options) checkRetention() error {
	var wrong []error
	for of, r := range o.Retention {
		if r.Age != 0 && r.Age < time.Second || r.Bytes < 0 {
			wrong = append(wrong, fmt.Errorf("of %s %v and %d bytes are kept, not at least 1 s and 0 bytes", of, r.Age, r.Bytes))
		}
	}
	return errors.Join(wrong...)
}
