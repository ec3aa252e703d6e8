// Package membership divides work among the replicas of a service, without a leader and without
// a lease.
//
// Every replica publishes a heartbeat a few times a second, or once a second while it is alone.
// For each piece of work, every replica ranks the live replicas in the same order (rendezvous
// hashing), so that all agree on the owner, and when a replica comes or goes only its work
// moves. Replicas may disagree while a message is in flight, and a suspended process knows
// nothing until it resumes: so the membership avoids duplicate work but never prevents it. The
// streams prevent what must not happen twice.
//
// # Who counts
//
//	fresh   it has not listened for long enough to know of the others; it claims
//	        nothing and comes last
//	unfit   it says itself that it can do no work at the moment; it comes after
//	        those that can. So does a replica that is cut off from what all of them
//	        work on
//	ready   in the order of the hash
//	silent  not heard of for 480 ms: it is left out. It may be dead, stopped or cut
//	        off. One that says goodbye is left out at once, and so is one whose heartbeat is
//	        late and whose connection to the bus is closed.
//
// A replica that does not hear its own heartbeats is cut off, or was suspended. It keeps its
// work and claims no more, and trusts what it hears only after it has listened for 480 ms again:
// it must not take the others for dead because it could not hear them. So when the bus goes away
// and comes back, no work moves.
package membership

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"sync"
	"time"

	"github.com/millrace/millrace/pkg/events/bus"
)

const (
	heartbeat = 120 * time.Millisecond
	silence   = 480 * time.Millisecond
	// glance is how often a replica checks for silent replicas.
	glance = heartbeat / 3
	// solitude is the interval of heartbeats and checks of a replica that is alone. A new
	// replica announces itself, and is answered at once.
	solitude = time.Second
)

// Config of a membership.
type Config struct {
	// Bus carries the heartbeats.
	Bus bus.Peers
	// Service is the service of the replicas.
	Service string
	// Group separates replicas of one service that do different work: replicas count only those
	// of their own group. Empty is a group, too.
	Group string
	// ID identifies the replica; empty: New generates one from the host's name, the process id
	// and a random suffix. Host and process id are not unique: in containers on the host's
	// network every process has id 1.
	ID string
	// Fit reports whether this replica can do work at the moment; nil: always. The membership
	// calls it at every glance, several times a second; it must not block.
	Fit func() bool
	// Sign signs this replica's heartbeats, and Signed reports whether a replica of the service
	// signed a received one: any user with the right to publish can send a heartbeat in any
	// name. nil: heartbeats are not signed, and all count. Both are called several times a
	// second and must not block.
	Sign   func(heartbeat []byte) []byte
	Signed func(heartbeat []byte) bool
	// Reach probes the server that all replicas work on (the API server); nil: there is none. A
	// replica that gets no answer while another one does is unfit; see [contact].
	Reach func(context.Context) error
	// Reached receives the result of each call of Reach; may be nil.
	Reached func(context.Context, error)
}

// Membership is one replica's view of all replicas. It is safe for concurrent use.
type Membership struct {
	config Config

	company chan struct{} // holds a token when another replica has appeared

	mu      sync.Mutex
	contact contact
	book    *book
	said    time.Time     // when this replica published its last heartbeat
	changed chan struct{} // closed and replaced when the book changes
}

// New makes the membership of a replica; it knows no others until Run. New panics for an ID that
// other replicas would reject: one that is too long or contains a space.
func New(config Config) *Membership {
	if config.Fit == nil {
		config.Fit = func() bool { return true }
	}
	if config.Sign == nil {
		config.Sign = func(heartbeat []byte) []byte { return heartbeat }
	}
	if config.Signed == nil {
		config.Signed = func([]byte) bool { return true }
	}
	if config.ID == "" {
		host, err := os.Hostname()
		if err != nil {
			host = "unknown"
		}
		if !proper(host) {
			host = "unnamed"
		}
		config.ID = fmt.Sprintf("%.64s-%d-%s", host, os.Getpid(), rand.Text()[:8])
	}
	if !proper(config.ID) { // a programming error: the replica would not hear itself
		panic(fmt.Sprintf("a replica cannot be called %q", config.ID))
	}
	return &Membership{config: config, book: newBook(config.ID), company: make(chan struct{}, 1), changed: make(chan struct{})}
}

// ID is this replica's ID.
func (r *Membership) ID() string { return r.config.ID }

// Run publishes and receives heartbeats until the context ends, and then says goodbye.
func (r *Membership) Run(ctx context.Context) {
	var beside sync.WaitGroup
	beside.Go(func() { r.listen(ctx) })
	beside.Go(func() { r.probe(ctx) })
	beside.Go(func() { r.present(ctx) })
	beside.Go(func() { r.missAll(ctx) })
	defer beside.Wait()
	next := time.NewTimer(0)
	defer next.Stop()
	for {
		select {
		case <-ctx.Done():
			r.say(announcement{ID: r.config.ID, Group: r.config.Group, Bye: true})
			return
		case <-r.company:
		case <-next.C:
		}
		next.Reset(r.turn())
	}
}

// turn checks which replicas are alive, and returns when to check again. It publishes a change
// of this replica's standing before work moves here, so that another replica takes over when
// this one lets go.
func (r *Membership) turn() (wait time.Duration) {
	fit := r.config.Fit()
	r.mu.Lock()
	now, before, doubted := time.Now(), r.book.standing, r.book.doubtful
	r.book.doubtful = r.contact.doubts(now)
	fit = fit && !r.contact.lost(now, r.book.sureOthers(now))
	changed := r.book.turn(now, fit)
	say := announcement{ID: r.config.ID, Group: r.config.Group, Standing: r.book.standing, Doubtful: r.book.doubtful}
	wait = glance
	if r.book.alone(now) {
		wait = solitude
	}
	due := now.Sub(r.said) >= max(wait, heartbeat) || say.Standing != before || say.Doubtful != doubted
	if due {
		r.said = now
	}
	r.mu.Unlock()
	if due {
		r.say(say)
	}
	if changed {
		r.tell()
	}
	return wait
}

// say returns no error: a replica that is not heard, even by itself, counts as cut off.
func (r *Membership) say(b announcement) {
	if data, err := json.Marshal(b); err == nil {
		_ = r.config.Bus.Broadcast(r.config.Service, r.config.Sign(data))
	}
}

func (r *Membership) listen(ctx context.Context) {
	for ctx.Err() == nil {
		_ = r.config.Bus.Listen(ctx, r.config.Service, func(data []byte) {
			if b, ok := decode(data); ok && b.Group == r.config.Group && r.config.Signed(data) && r.hear(b) {
				r.tell()
			}
		})
		select {
		case <-ctx.Done():
		case <-time.After(heartbeat):
		}
	}
}

func (r *Membership) hear(b announcement) (changed bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	now := time.Now()
	alone := r.book.alone(now)
	changed = r.book.hear(b, now)
	if alone && !r.book.alone(now) {
		r.said = time.Time{} // publish at once, for the new replica
		select {
		case r.company <- struct{}{}:
		default:
		}
	}
	return changed
}

func (r *Membership) tell() {
	r.mu.Lock()
	defer r.mu.Unlock()
	close(r.changed)
	r.changed = make(chan struct{})
}

// Changed is closed when the membership's answers may have changed. Call it before reading them.
func (r *Membership) Changed() <-chan struct{} {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.changed
}

// First reports whether this replica owns a piece of work.
func (r *Membership) First(work string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.book.standing != fresh && r.book.rank(work) == 0
}

// Holder is the owner of a piece of work, as far as this replica has heard. A forger may have
// made that replica up: check that the work gets done.
func (r *Membership) Holder(work string) string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.book.first(work)
}

// Members is the number of live replicas, including this one; at most 33.
func (r *Membership) Members() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.book.others) + 1
}

// Others is the number of other replicas that are live and fit.
func (r *Membership) Others() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.book.fitOthers()
}

// Unfit reports whether this replica has no work because it cannot do any at the moment.
func (r *Membership) Unfit() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.book.standing == unfit
}

// rank is this replica's rank as a worker; see [bus.Work].
func (r *Membership) rank(work string) (rank int, changed <-chan struct{}) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.book.level(work), r.changed
}

var errUnheard = errors.New("this replica does not hear its own heartbeats on the bus, so it knows nothing of the others and claims no work")

// Check is nil when this replica takes part in the membership.
func (r *Membership) Check() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case !r.book.inTouch(time.Now()):
		return errUnheard
	case r.book.standing == fresh:
		return fmt.Errorf("listening for %v who else is there", silence)
	default:
		return nil
	}
}
