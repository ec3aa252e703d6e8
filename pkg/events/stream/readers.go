package stream

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go/jetstream"
)

// A durable consumer has one of few names. Those of readers have names that the provisioner
// makes up, and a process that has the password of a service can ask for any number. So each
// user has so many at a stream, and so many in all. A user at its bound is refused, which keeps
// no other user from reading, and none of its own replicas that reads already; a replica that
// starts has room as soon as consumers that nothing reads are removed.

const (
	// mostReaders bounds the readers of a user at one stream: 32 replicas with three each,
	// which is more than any service has, and some that have died lately.
	mostReaders = 128
	// mostOfUser bounds them at all streams.
	mostOfUser = 8192
	// readerUnused is how old a consumer is that nothing reads when it is removed to make
	// room. One that reads always has a request under way, or begins anew.
	readerUnused = 5 * time.Second
	// countAgain bounds how often the server is asked for the readers of a user at a stream.
	countAgain = time.Second
	// tellRefusals bounds how often the log tells of them.
	tellRefusals = 10 * time.Second
)

// readers is what a provisioner knows of the consumers of readers. It is safe for concurrent
// use. Of several provisioners each counts what it makes, and all that there is whenever a
// bound is reached.
type readers struct {
	// list tells the readers' consumers that a user has at a stream, by name, without those
	// that it has removed.
	list func(ctx context.Context, user, stream string) ([]string, error)

	mu    sync.Mutex
	of    map[readerKey]*counted
	total map[string]int // by user, with those that are being made
	told  time.Time
}

// readerKey is a user at a stream.
type readerKey struct{ user, stream string }

// counted are the readers of a user at a stream.
type counted struct {
	made   map[string]time.Time // when each was made, or first seen
	making int
	at     time.Time // when the server was last asked for them
}

func newReaders(list func(ctx context.Context, user, stream string) ([]string, error)) *readers {
	return &readers{list: list, of: map[readerKey]*counted{}, total: map[string]int{}}
}

// admit tells whether a user may have one more reader at a stream. Then made has to be
// called, with its name or, where none came of it, with an empty one.
//
// Errors: the user has as many as it may (errNotYet); the server does not tell.
func (r *readers) admit(ctx context.Context, at readerKey) (made func(name string), err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for asked := false; ; asked = true {
		c := r.counted(at)
		here, all := len(c.made)+c.making, r.total[at.user]
		stale := at
		switch {
		case all >= mostOfUser:
			stale = r.oldest(at.user)
		case here < mostReaders && !c.at.IsZero():
			c.making++
			r.total[at.user]++
			return func(name string) { r.made(at, name) }, nil
		}
		if asked && !c.at.IsZero() || time.Since(r.counted(stale).at) < countAgain {
			r.tidy(at)
			return nil, fmt.Errorf("%w: the user %s has %d readers of %s and %d in all, and may have %d and %d", errNotYet,
				at.user, here, at.stream, all, mostReaders, mostOfUser)
		}
		if err := r.count(ctx, stale); err != nil {
			r.tidy(at)
			return nil, err
		}
	}
}

func (r *readers) counted(at readerKey) *counted {
	c := r.of[at]
	if c == nil {
		c = &counted{made: map[string]time.Time{}}
		r.of[at] = c
	}
	return c
}

// oldest is the stream at which the readers of a user were counted longest ago.
func (r *readers) oldest(user string) (found readerKey) {
	var since time.Time
	for at, c := range r.of {
		if at.user == user && len(c.made) > 0 && (found.user == "" || c.at.Before(since)) {
			found, since = at, c.at
		}
	}
	return found
}

// count asks the server for the readers of a user at a stream. The lock is held, but for
// while it asks.
func (r *readers) count(ctx context.Context, at readerKey) error {
	began := time.Now()
	r.counted(at).at = began
	r.mu.Unlock()
	names, err := r.list(ctx, at.user, at.stream)
	r.mu.Lock()
	c := r.counted(at)
	c.at = began
	var refusal *Refusal
	switch {
	case errors.As(err, &refusal):
		// The accounts are those of an earlier version. What was made long ago may be
		// gone, so only what was made lately counts.
		began = began.Add(-2 * readerIdle)
	case err != nil:
		c.at = time.Time{}
		return err
	}
	r.total[at.user] -= len(c.made)
	// What was made while the server was asked may be missing in its answer.
	maps.DeleteFunc(c.made, func(_ string, made time.Time) bool { return made.Before(began) })
	for _, name := range names {
		if c.made[name].IsZero() {
			c.made[name] = began
		}
	}
	r.total[at.user] += len(c.made)
	return nil
}

// made takes note of a reader that was made.
func (r *readers) made(at readerKey, name string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	c := r.of[at]
	if c.making--; name == "" || !c.made[name].IsZero() {
		r.total[at.user]--
	} else {
		c.made[name] = time.Now()
	}
	r.tidy(at)
}

// left takes note of a reader that is gone.
func (r *readers) left(at readerKey, name string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	c := r.of[at]
	if c == nil || c.made[name].IsZero() {
		return
	}
	delete(c.made, name)
	r.total[at.user]--
	r.tidy(at)
}

// tidy forgets a user at a stream where it has nothing.
func (r *readers) tidy(at readerKey) {
	if c := r.of[at]; c != nil && len(c.made)+c.making == 0 {
		delete(r.of, at)
	}
	if r.total[at.user] == 0 {
		delete(r.total, at.user)
	}
}

// tells tells whether the log is to tell of a refusal.
func (r *readers) tells(now time.Time) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.told.IsZero() && now.Sub(r.told) < tellRefusals {
		return false
	}
	r.told = now
	return true
}

// listReaders tells the readers of a user at a stream. Where they are many it removes those
// that nothing reads.
func (p *provider) listReaders(ctx context.Context, user, stream string) (names []string, err error) {
	handle, err := p.handle(ctx, stream)
	if err != nil {
		return nil, err
	}
	request, done := p.guarded(ctx, "CONSUMER.LIST."+stream)
	defer done()
	var unused []string
	list := handle.ListConsumers(request)
	for info := range list.Info() {
		if !strings.HasPrefix(info.Name, user+"-") {
			continue
		}
		if names = append(names, info.Name); info.NumWaiting == 0 && info.TimeStamp.Sub(info.Created) >= readerUnused {
			unused = append(unused, info.Name)
		}
	}
	if err := translated(request, list.Err()); err != nil {
		return nil, fmt.Errorf("list the consumers of %s: %w", stream, err)
	}
	if len(names) < mostReaders {
		return names, nil
	}
	gone := map[string]bool{}
	for _, name := range unused {
		if err := p.js.DeleteConsumer(ctx, stream, name); err == nil || errors.Is(err, jetstream.ErrConsumerNotFound) {
			gone[name] = true
		}
	}
	kept := names[:0]
	for _, name := range names {
		if !gone[name] {
			kept = append(kept, name)
		}
	}
	return kept, nil
}
