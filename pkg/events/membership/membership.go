// Package membership divides work among the replicas of a service, without a leader
// and without a lease.
//
// Every replica says a few times a second that it is there, or once a second while it
// is alone. For each piece of
// work every replica ranks those that are there in the same order (rendezvous
// hashing), so that all agree on whom it falls to, and when one comes or goes only
// the work moves that has to. They may disagree for as long as a message is under
// way, and a process that was stopped knows of nothing until it goes on: the
// membership saves double work, and never keeps anybody from doing it. What must not
// happen twice is kept from it by the streams.
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
// A replica that does not hear itself is cut off, or has been stopped. It keeps
// what it has and claims nothing, and believes what it hears only when it has
// listened for 480 ms again: the others are not gone because it could not hear
// them. So when the bus goes away and comes back, nothing moves.
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
	// glance is how often a replica looks who is silent.
	glance = heartbeat / 3
	// solitude is how often one that is alone says that it is there and looks. A replica
	// that comes says so, and is answered at once.
	solitude = time.Second
)

// Config of a membership.
type Config struct {
	// Bus carries the heartbeats.
	Bus bus.Peers
	// Service is whose replicas these are.
	Service string
	// Group is the name of those replicas of the service that do the same work, where some
	// do other work; they do not count one another. Empty is a group, too.
	Group string
	// ID tells them apart; empty: one is made up from the host's name, the process
	// id and chance. Host and process alone would not do: in containers on the
	// host's network every process is the first.
	ID string
	// Fit tells whether this replica can do work at the moment; nil: always. It is
	// asked at every glance, some times a second, and must not block.
	Fit func() bool
	// Sign signs what this replica says, and Signed tells whether a replica of the service has
	// signed what was heard: every user that may publish can say a heartbeat in any name. nil:
	// heartbeats are not signed, and each counts. Both are called some times a second and must
	// not block.
	Sign   func(heartbeat []byte) []byte
	Signed func(heartbeat []byte) bool
	// Reach asks what all replicas work on whether it answers; nil: there is no such
	// thing. A replica that gets no answer while another one does is not fit; see
	// [contact].
	Reach func(context.Context) error
	// Reached is told what came of each time that Reach was asked; may be nil.
	Reached func(context.Context, error)
}

// Membership is one replica's knowledge of all of them. It is safe for concurrent use.
type Membership struct {
	config Config

	company chan struct{} // holds a token when it is alone no more

	mu      sync.Mutex
	contact contact
	book    *book
	said    time.Time     // when the last heartbeat was
	changed chan struct{} // closed, and replaced, when the book has changed
}

// New makes the membership of a replica; it knows no other until it runs. An ID that the others
// would not take, with a space in it or too long, is a panic.
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

// ID is this replica's.
func (r *Membership) ID() string { return r.config.ID }

// Run says and hears heartbeats until the context ends, and then says goodbye.
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

// turn looks who is there, and tells when to look again. What is new is said before
// anybody here acts on it: who takes over begins when the others let go.
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

// say has no error: who is not heard, not even by itself, is cut off.
func (r *Membership) say(b announcement) {
	if data, err := json.Marshal(b); err == nil {
		_ = r.config.Bus.Say(r.config.Service, r.config.Sign(data))
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
		r.said = time.Time{} // the replica that has come is to hear of this one now
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

// Changed is closed when the answers of the membership may have changed. Ask for it
// before them.
func (r *Membership) Changed() <-chan struct{} {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.changed
}

// First tells whether a piece of work falls to this replica.
func (r *Membership) First(work string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.book.standing != fresh && r.book.rank(work) == 0
}

// Holder is the replica to which a piece of work falls, as far as this one has heard. It may
// be one that a forger made up: see to it that the work is done.
func (r *Membership) Holder(work string) string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.book.first(work)
}

// Members is the number of replicas that are there, this one among them; 33 at most.
func (r *Membership) Members() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.book.others) + 1
}

// Others is the number of other replicas that are there and fit.
func (r *Membership) Others() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.book.fitOthers()
}

// Unfit tells whether this replica is left out because it cannot do work at the moment.
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

// Check is nil when this replica takes part.
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
