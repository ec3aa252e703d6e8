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

	"github.com/millrace/millrace/pkg/events/stream/natserr"
	"github.com/millrace/millrace/pkg/events/stream/settings"
)

// The durable consumers have a few fixed names. Readers' consumers have names that the
// provisioner generates, and a process with a service's password could order any number of
// them. So the provisioner bounds each user's consumers per stream and in total. A refusal
// affects only the user at its bound, and none of its replicas that reads already. A replica
// that starts gets a consumer as soon as the provisioner has deleted unused ones.

const (
	// maxReadersPerStream bounds the readers of a user at one stream: 32 replicas with three each,
	// which is more than any service has, and some that have died lately.
	maxReadersPerStream = 128
	// maxReadersPerUser bounds the readers of a user at all streams.
	maxReadersPerUser = 8192
	// readerUnused is the age from which the provisioner deletes an unused consumer to make
	// room. A live reader always has a pull request pending, or starts a new session.
	readerUnused = 5 * time.Second
	// recountAfter is the least interval between two counts of a user's readers at a stream.
	recountAfter = time.Second
	// logRefusalsEvery is the least interval between two refusals in the log.
	logRefusalsEvery = 10 * time.Second
)

// readerQuota counts the readers' consumers, for a provisioner. It is safe for concurrent use. Each
// of several provisioners counts the consumers that it creates, and asks the server for all of
// them whenever it reaches a bound.
type readerQuota struct {
	// list returns the names of a user's consumers at a stream, without those that it has just
	// deleted.
	list func(ctx context.Context, user, stream string) ([]string, error)

	mu       sync.Mutex
	of       map[readerKey]*readerCount
	total    map[string]int // by user, including those being created
	loggedAt time.Time
}

// readerKey is a user at a stream.
type readerKey struct{ user, stream string }

// readerCount are the readers of a user at a stream.
type readerCount struct {
	made   map[string]time.Time // when each was created, or first seen
	making int
	at     time.Time // when the server last listed them
}

func newReaderQuota(list func(ctx context.Context, user, stream string) ([]string, error)) *readerQuota {
	return &readerQuota{list: list, of: map[readerKey]*readerCount{}, total: map[string]int{}}
}

// admit reserves one more reader of a user at a stream. The caller must then call made, with
// the consumer's name, or with an empty name if it was not created.
//
// Errors: the user is at its bound (natserr.ErrNotYet); the server does not answer.
func (r *readerQuota) admit(ctx context.Context, at readerKey) (made func(name string), err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for asked := false; ; asked = true {
		c := r.counted(at)
		here, all := len(c.made)+c.making, r.total[at.user]
		stale := at
		switch {
		case all >= maxReadersPerUser:
			stale = r.longestUncounted(at.user)
		case here < maxReadersPerStream && !c.at.IsZero():
			c.making++
			r.total[at.user]++
			return func(name string) { r.made(at, name) }, nil
		}
		if asked && !c.at.IsZero() || time.Since(r.counted(stale).at) < recountAfter {
			r.dropIdle(at)
			return nil, fmt.Errorf("%w: the user %s has %d readers of %s and %d in all, and may have %d and %d", natserr.ErrNotYet,
				at.user, here, at.stream, all, maxReadersPerStream, maxReadersPerUser)
		}
		if err := r.count(ctx, stale); err != nil {
			r.dropIdle(at)
			return nil, err
		}
	}
}

func (r *readerQuota) counted(at readerKey) *readerCount {
	c := r.of[at]
	if c == nil {
		c = &readerCount{made: map[string]time.Time{}}
		r.of[at] = c
	}
	return c
}

// longestUncounted is the stream whose readers of a user were counted longest ago.
func (r *readerQuota) longestUncounted(user string) (found readerKey) {
	var since time.Time
	for at, c := range r.of {
		if at.user == user && len(c.made) > 0 && (found.user == "" || c.at.Before(since)) {
			found, since = at, c.at
		}
	}
	return found
}

// count asks the server for the readers of a user at a stream. It releases the lock during the
// request.
func (r *readerQuota) count(ctx context.Context, at readerKey) error {
	began := time.Now()
	r.counted(at).at = began
	r.mu.Unlock()
	names, err := r.list(ctx, at.user, at.stream)
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
	r.total[at.user] -= len(c.made)
	// The server's answer may lack consumers that were created during the request.
	maps.DeleteFunc(c.made, func(_ string, made time.Time) bool { return made.Before(began) })
	for _, name := range names {
		if c.made[name].IsZero() {
			c.made[name] = began
		}
	}
	r.total[at.user] += len(c.made)
	return nil
}

// made records a created reader.
func (r *readerQuota) made(at readerKey, name string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	c := r.of[at]
	if c.making--; name == "" || !c.made[name].IsZero() {
		r.total[at.user]--
	} else {
		c.made[name] = time.Now()
	}
	r.dropIdle(at)
}

// left records a deleted reader.
func (r *readerQuota) left(at readerKey, name string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	c := r.of[at]
	if c == nil || c.made[name].IsZero() {
		return
	}
	delete(c.made, name)
	r.total[at.user]--
	r.dropIdle(at)
}

// dropIdle drops the entries of a user that has no readers.
func (r *readerQuota) dropIdle(at readerKey) {
	if c := r.of[at]; c != nil && len(c.made)+c.making == 0 {
		delete(r.of, at)
	}
	if r.total[at.user] == 0 {
		delete(r.total, at.user)
	}
}

// mayLog reports whether to log a refusal now.
func (r *readerQuota) mayLog(now time.Time) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.loggedAt.IsZero() && now.Sub(r.loggedAt) < logRefusalsEvery {
		return false
	}
	r.loggedAt = now
	return true
}

// listReaders lists the readers of a user at a stream. At maxReadersPerStream or more it first deletes
// the unused ones.
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
	if err := natserr.Translate(request, list.Err()); err != nil {
		return nil, fmt.Errorf("list the consumers of %s: %w", stream, err)
	}
	if len(names) < maxReadersPerStream {
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
