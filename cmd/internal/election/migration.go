package election

import (
	"context"
	"fmt"
	"os"
	"sync/atomic"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/uuid"
	"k8s.io/client-go/kubernetes"
	typed "k8s.io/client-go/kubernetes/typed/coordination/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
	"k8s.io/klog/v2"
	"k8s.io/utils/ptr"

	"github.com/millrace/millrace/pkg/events/sleep"
)

// poll is the interval at which a process reads the Lease. It bounds how long a leader acts on after
// the controllers were assigned to kube-controller-manager.
const poll = 500 * time.Millisecond

// Migration moves controllers between this process and a kube-controller-manager, by a Lease whose
// holder runs them. kube-controller-manager holds the Lease for as long as it lives. So this process
// waits until a person assigns the controllers to Millrace, and then takes the Lease:
// kube-controller-manager cannot renew it, and ends before the time at which the Lease that it had
// would have expired. Then this process acts. Once the controllers are assigned to
// kube-controller-manager again, this process stops them, and gives the Lease back.
//
// Upstream: cmd/kube-controller-manager/app, leaderElectAndRun: a leader that loses its Lease ends.
type Migration struct {
	// Options are the names and durations of the Lease. Elect has no meaning here.
	Options
	// Controllers are those that move with the Lease.
	Controllers []string
	// Ready tells why this process could not run the controllers; nil: it always can. A process that is
	// not ready does not take the Lease. It is asked while the process waits, every [readyEvery].
	Ready func(ctx context.Context) error
}

// readyEvery is the interval at which a waiting process checks whether it could run the controllers.
const readyEvery = 10 * time.Second

// Lead runs controllers while this process holds the Lease, and returns once its context has ended and
// they have stopped. The token distinguishes the terms of Millrace: it stays the same while Millrace
// processes follow one another, and is another one once another component may have acted. It is not 0.
type Lead = func(ctx context.Context, token uint64) error

// Run calls lead whenever this process holds the Lease, until the context ends.
//
// Errors: those of lead; [ErrLost], at once and without waiting for anything to stop.
func (m Migration) Run(ctx context.Context, config *rest.Config, lead Lead) error {
	host, err := os.Hostname()
	if err != nil {
		return fmt.Errorf("stand for leader: %w", err)
	}
	own := rest.CopyConfig(config)
	own.Timeout = m.Renew / 2 // Upstream: resourcelock.NewFromKubeconfig
	client, err := kubernetes.NewForConfig(own)
	if err != nil {
		return fmt.Errorf("stand for leader: %w", err)
	}
	return m.run(ctx, client.CoordinationV1(), holderPrefix+host+"_"+string(uuid.NewUUID()), lead)
}

func (m Migration) run(ctx context.Context, client typed.LeasesGetter, id string, lead Lead) error {
	c := &candidate{Migration: m, id: id, leases: client.Leases(m.LeaseNamespace), log: klog.FromContext(ctx).WithName("migration")}
	term := Term{
		Wait: func(ctx context.Context) error { <-ctx.Done(); return nil },
		Lead: func(ctx context.Context) error {
			c.become(ctx, Acting)
			return lead(ctx, c.token)
		},
	}
	for ctx.Err() == nil {
		c.announced = false
		c.givenBack.Store(false)
		lock := &resourcelock.LeaseLock{
			LeaseMeta: metav1.ObjectMeta{Namespace: m.LeaseNamespace, Name: m.LeaseName}, Client: client, LockConfig: resourcelock.ResourceLockConfig{Identity: id},
		}
		if err := m.Options.run(ctx, lock, term, candidacy{admit: c.admit, revoked: c.revoked, release: c.release}); err != nil {
			return err
		}
	}
	return nil
}

// candidate is this process as a candidate.
type candidate struct {
	Migration
	id     string
	leases typed.LeaseInterface
	log    klog.Logger

	announced bool // in this term
	// renewal is the last renewal of another holder that this process has seen, and seen is when.
	renewal metav1.MicroTime
	seen    time.Time
	// former is the holder from which this process took the Lease last, or tried to; "" if it had
	// none or was expired. It may act until from.
	former string
	from   time.Time
	token  uint64 // of the term
	// problem is why this process could not run the controllers, as of checked.
	problem string
	checked time.Time
	// told is the last problem that was logged.
	told string
	// givenBack is true once the controllers are assigned to kube-controller-manager, in this term.
	givenBack atomic.Bool
}

// admit blocks until this process has taken the Lease, and returns from when it may lead.
//
// Errors: the context ends.
func (c *candidate) admit(ctx context.Context) (from time.Time, err error) {
	for {
		from, taken, err := c.try(ctx)
		if taken {
			return from, nil
		}
		c.tell(ctx, err)
		if !sleep.For(ctx, poll) {
			return time.Time{}, context.Cause(ctx)
		}
	}
}

// tell logs a problem once.
func (c *candidate) tell(ctx context.Context, err error) {
	switch {
	case err == nil:
		c.told = ""
	case err.Error() != c.told && ctx.Err() == nil && !apierrors.IsConflict(err):
		c.told = err.Error()
		c.log.Error(err, "Cannot read or write the Lease; trying again", "lease", c.LeaseNamespace+"/"+c.LeaseName)
	}
}

// try announces this process, and takes the Lease if the controllers are assigned to Millrace and
// this process may take it.
//
// Errors: the Lease cannot be read or written; an annotation cannot be read.
func (c *candidate) try(ctx context.Context) (from time.Time, taken bool, err error) {
	l, err := c.lease(ctx)
	if err != nil {
		return time.Time{}, false, err
	}
	h, err := HandoverOf(l)
	if err != nil {
		return time.Time{}, false, err
	}
	c.check(ctx)
	if !c.announced || h.Candidate.ID == "" || h.Candidate.ID == c.id && h.Candidate.Problem != c.problem {
		h.Candidate = Candidate{Problem: c.problem, ID: c.id, Controllers: c.Controllers, State: c.standing(h.Candidate), Took: h.Candidate.Took, Token: h.Candidate.Token}
		if l, err = c.update(ctx, l, h.Candidate); err != nil {
			return time.Time{}, false, err
		}
		c.announced = true
	}
	from, may := c.may(l, h, time.Now())
	holder, _ := HolderOf(l)
	if !may || c.problem != "" && holder != c.id {
		return time.Time{}, false, nil
	}
	if holder != c.id {
		// Before the request: its answer may be lost.
		if c.former, c.from = "", from; from.After(time.Now()) {
			c.former = holder
		}
	}
	if err := c.take(ctx, l, h); err != nil {
		return time.Time{}, false, err
	}
	c.log.Info("Took the Lease: Millrace runs the controllers as soon as the former holder cannot act any more", "controllers", c.Controllers, "former", c.former, "assignedBy", h.Assigned.By)
	return from, true, nil
}

// check finds out whether this process could run the controllers, unless it has lately.
func (c *candidate) check(ctx context.Context) {
	if c.Ready == nil || time.Since(c.checked) < readyEvery {
		return
	}
	c.checked = time.Now()
	err := c.Ready(ctx)
	switch {
	case err == nil:
		c.problem = ""
	case ctx.Err() == nil && err.Error() != c.problem:
		c.problem = err.Error()
		c.log.Error(err, "Does not take the Lease: this process could not run the controllers", "controllers", c.Controllers)
	}
}

// standing is the state with which a process announces itself: it leaves the word of a predecessor
// that has stopped.
func (c *candidate) standing(before Candidate) State {
	if before.State == Stopped {
		return Stopped
	}
	return Waiting
}

// lease reads the Lease, and creates it if there is none.
func (c *candidate) lease(ctx context.Context) (*coordinationv1.Lease, error) {
	l, err := c.leases.Get(ctx, c.LeaseName, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return c.leases.Create(ctx, &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Name: c.LeaseName, Namespace: c.LeaseNamespace}}, metav1.CreateOptions{})
	}
	return l, err
}

func (c *candidate) update(ctx context.Context, l *coordinationv1.Lease, is Candidate) (*coordinationv1.Lease, error) {
	if err := Annotate(l, CandidateAnnotation, is); err != nil {
		return nil, err
	}
	return c.leases.Update(ctx, l, metav1.UpdateOptions{})
}

// may reports whether this process may take a Lease, and from when it may act then. A Lease that
// another process holds is taken once for each assignment: if kube-controller-manager has it again,
// Millrace had left it for too long, and a person decides anew.
func (c *candidate) may(l *coordinationv1.Lease, h Handover, now time.Time) (from time.Time, may bool) {
	holder, valid := HolderOf(l)
	if renewal := ptr.Deref(l.Spec.RenewTime, metav1.MicroTime{}); c.seen.IsZero() || !renewal.Equal(&c.renewal) {
		c.renewal, c.seen = renewal, now
	}
	expires := c.seen.Add(valid) // by this process's clock: that of the holder may be wrong
	switch {
	case h.Assigned.To != Millrace:
		return time.Time{}, false
	case holder == c.id:
		return c.from, true // the answer to an earlier request was lost
	case holder == "" || !now.Before(expires):
		return now, true
	case HeldByMillrace(holder):
		return now, h.Candidate.State == Stopped
	case h.Candidate.Took == h.Assigned.ID:
		return time.Time{}, false
	default:
		return expires, true
	}
}

// take writes this process as the holder of the Lease.
func (c *candidate) take(ctx context.Context, l *coordinationv1.Lease, h Handover) error {
	now := metav1.NowMicro()
	// An expired Lease still names its last holder.
	if holder, _ := HolderOf(l); HeldByMillrace(holder) && h.Candidate.Token != 0 {
		c.token = h.Candidate.Token
	} else {
		c.token = uint64(max(now.UnixMicro(), 1))
	}
	l.Spec.HolderIdentity, l.Spec.LeaseDurationSeconds = &c.id, ptr.To(int32(c.Lease/time.Second))
	l.Spec.AcquireTime, l.Spec.RenewTime = &now, &now
	l.Spec.LeaseTransitions = ptr.To(ptr.Deref(l.Spec.LeaseTransitions, 0) + 1)
	_, err := c.update(ctx, l, Candidate{ID: c.id, Controllers: c.Controllers, State: Taking, Took: h.Assigned.ID, Token: c.token})
	return err
}

// become writes the state of this process, in the background, until it succeeds or the context ends:
// only people and their tools read it.
func (c *candidate) become(ctx context.Context, s State) {
	go func() {
		for c.write(ctx, func(_ *coordinationv1.Lease, is *Candidate) { is.State = s }) != nil && sleep.For(ctx, poll) {
		}
	}()
}

// write changes the Lease if this process is its holder.
func (c *candidate) write(ctx context.Context, change func(*coordinationv1.Lease, *Candidate)) error {
	l, err := c.leases.Get(ctx, c.LeaseName, metav1.GetOptions{})
	if err != nil {
		return err
	}
	h, err := HandoverOf(l)
	if err != nil {
		return err
	}
	if holder, _ := HolderOf(l); holder != c.id {
		return nil
	}
	change(l, &h.Candidate)
	_, err = c.update(ctx, l, h.Candidate)
	return err
}

// revoked blocks until the controllers are not assigned to Millrace any more.
func (c *candidate) revoked(ctx context.Context) {
	for sleep.For(ctx, poll) {
		l, err := c.leases.Get(ctx, c.LeaseName, metav1.GetOptions{})
		if err != nil {
			continue // without the API server, the Lease ends by itself
		}
		if h, err := HandoverOf(l); err == nil && h.Assigned.To != Millrace {
			c.log.Info("Giving the controllers back", "controllers", c.Controllers, "to", h.Assigned.To, "assignedBy", h.Assigned.By)
			c.givenBack.Store(true)
			return
		}
	}
}

// leave writes what a Lease is like after this process. A former holder that may still act has it
// again: it goes on, or its Lease expires. Otherwise, the Lease is free if the controllers were given
// back, and left to the next Millrace process if this one only stops.
func (c *candidate) leave(l *coordinationv1.Lease, is *Candidate) {
	now := metav1.NowMicro()
	l.Spec.RenewTime = &now
	switch {
	case c.former != "" && time.Now().Before(c.from):
		l.Spec.HolderIdentity, is.State, is.Took = &c.former, Waiting, ""
	case c.givenBack.Load():
		l.Spec.HolderIdentity, l.Spec.LeaseDurationSeconds, is.State = nil, ptr.To[int32](1), Waiting
	default:
		is.State = Stopped
	}
}

// release gives the Lease up, if this process has it.
func (c *candidate) release(log klog.Logger) {
	if c.from.IsZero() {
		return // it never had the Lease
	}
	ctx, done := context.WithTimeout(context.Background(), giveBackWithin)
	defer done()
	for {
		err := c.write(ctx, c.leave)
		if err == nil {
			return
		}
		if !sleep.For(ctx, poll) {
			log.Info("The Lease is not given back; it runs out", "reason", err)
			return
		}
	}
}
