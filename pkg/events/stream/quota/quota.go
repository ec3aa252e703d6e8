package quota

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"sync"
	"time"

	"github.com/millrace/millrace/pkg/events/stream/natserr"
	"github.com/millrace/millrace/pkg/events/stream/settings"
)

// The durable consumers have a few fixed names. Readers' consumers have names that the
// provisioner generates, and a process with a service's password could order any number of
// them. So the provisioner bounds each user's consumers per stream and in total. A refusal
// affects only the user at its bound, and none of its replicas that reads already. A replica
// that starts gets a consumer as soon as the provisioner has deleted unused ones.

const (
	// MaxPerStream bounds the readers of a user at one stream: 32 replicas with three each,
	// which is more than any service has, and some that have died lately.
	MaxPerStream = 128
	// maxPerUser bounds the readers of a user at all streams.
	maxPerUser = 8192
	// recountAfter is the least interval between two counts of a user's readers at a stream.
	recountAfter = time.Second
	// logRefusalsEvery is the least interval between two refusals in the log.
	logRefusalsEvery = 10 * time.Second
)

// Readers counts the consumers of readers, for a provisioner. It is safe for concurrent use. Each
// of several provisioners counts the consumers that it creates, and asks the server for all of
// them whenever it reaches a bound.
type Readers struct {
	list func(ctx context.Context, user, stream string) ([]string, error)

	mu       sync.Mutex
	of       map[Key]*count
	total    map[string]int // by user, including those being created
	loggedAt time.Time
}

// Key is a user at a stream.
type Key struct{ User, Stream string }

// count are the readers of a user at a stream.
type count struct {
	made   map[string]time.Time // when each was created, or first seen
	making int
	at     time.Time // when the server last listed them
}

// NewReaders counts none yet. The function list returns the names of a user's consumers at a stream, without those
// that it has just deleted.
func NewReaders(list func(ctx context.Context, user, stream string) ([]string, error)) *Readers {
	return &Readers{list: list, of: map[Key]*count{}, total: map[string]int{}}
}

// Admit reserves one more reader of a user at a stream. The caller must then call made with
// the consumer's name, or with an empty name if it was not created.
//
// Errors: the user is at its bound ([natserr.ErrNotYet]); the server does not answer.
func (r *Readers) Admit(ctx context.Context, at Key) (made func(name string), err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for asked := false; ; asked = true {
		c := r.counted(at)
		here, all := len(c.made)+c.making, r.total[at.User]
		stale := at
		switch {
		case all >= maxPerUser:
			stale = r.longestUncounted(at.User)
		case here < MaxPerStream && !c.at.IsZero():
			c.making++
			r.total[at.User]++
			return func(name string) { r.made(at, name) }, nil
		}
		if asked && !c.at.IsZero() || time.Since(r.counted(stale).at) < recountAfter {
			r.dropIdle(at)
			return nil, fmt.Errorf("%w: the user %s has %d readers of %s and %d in all, and may have %d and %d", natserr.ErrNotYet,
				at.User, here, at.Stream, all, MaxPerStream, maxPerUser)
		}
		if err := r.recount(ctx, stale); err != nil {
			r.dropIdle(at)
			return nil, err
		}
	}
}

func (r *Readers) counted(at Key) *count {
	c := r.of[at]
	if c == nil {
		c = &count{made: map[string]time.Time{}}
		r.of[at] = c
	}
	return c
}

// longestUncounted is the stream whose readers of a user were counted longest ago.
func (r *Readers) longestUncounted(user string) (found Key) {
	var since time.Time
	for at, c := range r.of {
		if at.User == user && len(c.made) > 0 && (found.User == "" || c.at.Before(since)) {
			found, since = at, c.at
		}
	}
	return found
}

// recount asks the server for the readers of a user at a stream. It releases the lock during the
// request.
func (r *Readers) recount(ctx context.Context, at Key) error {
	began := time.Now()
	r.counted(at).at = began
	r.mu.Unlock()
	names, err := r.list(ctx, at.User, at.Stream)
	r.mu.Lock()
	c := r.counted(at)
	c.at = began
	var refusal *natserr.Refusal
	switch {
	case errors.As(err, &refusal):
		// The accounts are those of an earlier version, which may not list consumers. Consumers
		// created long ago may be gone, so only recent ones count.
		began = began.Add(-2 * settings.ReaderIdle)
	case err != nil:
		c.at = time.Time{}
		return err
	}
	r.total[at.User] -= len(c.made)
	// The server's answer may lack consumers that were created during the request.
	maps.DeleteFunc(c.made, func(_ string, made time.Time) bool { return made.Before(began) })
	for _, name := range names {
		if c.made[name].IsZero() {
			c.made[name] = began
		}
	}
	r.total[at.User] += len(c.made)
	return nil
}

// made records a created reader.
func (r *Readers) made(at Key, name string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	c := r.of[at]
	if c.making--; name == "" || !c.made[name].IsZero() {
		r.total[at.User]--
	} else {
		c.made[name] = time.Now()
	}
	r.dropIdle(at)
}

// Left records a deleted reader.
func (r *Readers) Left(at Key, name string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	c := r.of[at]
	if c == nil || c.made[name].IsZero() {
		return
	}
	delete(c.made, name)
	r.total[at.User]--
	r.dropIdle(at)
}

// dropIdle drops the entries of a user that has no readers.
func (r *Readers) dropIdle(at Key) {
	if c := r.of[at]; c != nil && len(c.made)+c.making == 0 {
		delete(r.of, at)
	}
	if r.total[at.User] == 0 {
		delete(r.total, at.User)
	}
}

// MayLog reports whether to log a refusal now.
func (r *Readers) MayLog(now time.Time) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.loggedAt.IsZero() && now.Sub(r.loggedAt) < logRefusalsEvery {
		return false
	}
	r.loggedAt = now
	return true
}

// Of is how many readers a user has, including those that are being created.
func (r *Readers) Of(user string) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.total[user]
}
