package settings

import (
	"errors"
	"fmt"
	"maps"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/millrace/millrace/pkg/events/bus"
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
func (p Policy) retention(of string) bus.Retention {
	r := p.Retention[of]
	if r.Age == 0 {
		r.Age = p.Age
	}
	if r.Bytes == 0 {
		r.Bytes = p.Bytes
	}
	return r
}

// bounded sets a stream's retention.
func (p Policy) bounded(c jetstream.StreamConfig, of string, window time.Duration) jetstream.StreamConfig {
	r := p.retention(of)
	c.MaxAge, c.MaxBytes, c.Duplicates = r.Age, unlimited(r.Bytes), min(window, r.Age)
	c.Metadata[keptSince] = p.Began.UTC().Format(time.RFC3339Nano)
	return c
}

// Retained is the settings c with the retention of other. The server remembers ids no longer
// than it keeps messages.
func Retained(other, c jetstream.StreamConfig) jetstream.StreamConfig {
	if c.Duplicates >= c.MaxAge || c.Duplicates > other.MaxAge {
		c.Duplicates = other.Duplicates
	}
	c.MaxAge, c.MaxBytes = other.MaxAge, other.MaxBytes
	return c
}

// Sized reports whether Millrace sets a stream's retention. Wakes wait until they fire.
func Sized(want jetstream.StreamConfig) bool { return want.Metadata[keptSince] != "" }

// Keeps is how much a stream keeps.
func Keeps(c jetstream.StreamConfig) bus.Retention {
	return bus.Retention{Age: c.MaxAge, Bytes: max(c.MaxBytes, 0)}
}

// ResizedBy is the start time of the process that last set a stream's retention; ok is false if none is noted.
func ResizedBy(c jetstream.StreamConfig) (began time.Time, ok bool) {
	began, err := time.Parse(time.RFC3339Nano, c.Metadata[keptSince])
	return began, err == nil
}

// Resized notes in a stream's settings that this process sets its retention. It does not change the metadata of c.
func (p Policy) Resized(c jetstream.StreamConfig) jetstream.StreamConfig {
	c.Metadata = maps.Clone(c.Metadata)
	if c.Metadata == nil {
		c.Metadata = map[string]string{}
	}
	c.Metadata[keptSince] = p.Began.UTC().Format(time.RFC3339Nano)
	return c
}

// CheckRetention rejects retentions that are too small.
//
// Errors: one less than 1 s, or of less than 0 bytes.
func (p Policy) CheckRetention() error {
	var wrong []error
	for of, r := range p.Retention {
		if r.Age != 0 && r.Age < time.Second || r.Bytes < 0 {
			wrong = append(wrong, fmt.Errorf("of %s %v and %d bytes are kept, not at least 1 s and 0 bytes", of, r.Age, r.Bytes))
		}
	}
	return errors.Join(wrong...)
}
