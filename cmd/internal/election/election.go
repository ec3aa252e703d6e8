// Package election elects one of several processes that have a bus of their own each: the one that
// holds a Lease acts, as with replicas of Kubernetes' components. Processes on one bus share the
// work, and need no leader. With [Migration], a writer holds the Lease with which controllers move
// between Millrace and kube-controller-manager.
package election

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/uuid"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
	_ "k8s.io/component-base/metrics/prometheus/clientgo/leaderelection" // leader_election_master_status
	"k8s.io/klog/v2"
)

// Options are kube-controller-manager's flags of leader election.
type Options struct {
	Elect                     bool
	Lease, Renew, Retry       time.Duration
	LeaseName, LeaseNamespace string
}

// Defaults are kube-controller-manager's, except that leader election is off.
//
// Upstream: k8s.io/component-base/config/v1alpha1, and cmd/kube-controller-manager/app/options.
func Defaults() Options {
	return Options{
		Lease: 15 * time.Second, Renew: 10 * time.Second, Retry: 2 * time.Second,
		LeaseName: "kube-controller-manager", LeaseNamespace: "kube-system",
	}
}

// ErrLost ends a leader that could not renew its Lease in time.
var ErrLost = errors.New("the Lease of the leader is lost (--leader-elect, --enable-leader-migration): another process acts from now on; this one has to be started again")

// Check refuses durations with which no process can hold a Lease.
//
// Upstream: k8s.io/client-go/tools/leaderelection, NewLeaderElector.
func (o Options) Check() error {
	switch {
	case !o.Elect:
		return nil
	case o.Lease <= o.Renew:
		return fmt.Errorf("read --leader-elect-lease-duration: %v is not more than --leader-elect-renew-deadline, %v", o.Lease, o.Renew)
	case o.Retry <= 0 || o.Renew <= time.Duration(leaderelection.JitterFactor*float64(o.Retry)):
		return fmt.Errorf("read --leader-elect-renew-deadline: %v is not more than %v times --leader-elect-retry-period, %v, which is more than 0", o.Renew, leaderelection.JitterFactor, o.Retry)
	case o.LeaseName == "" || o.LeaseNamespace == "":
		return errors.New("read --leader-elect-resource-name and --leader-elect-resource-namespace: a Lease has both")
	}
	return nil
}

// Term are the functions of a process: Wait runs until it leads, and Lead while it leads. Both
// return nil when their context ends.
type Term struct {
	Wait, Lead func(ctx context.Context) error
}

// candidacy is when a process may hold the Lease.
type candidacy struct {
	// admit blocks until the process may stand for leader, and returns from when it may lead.
	admit func(ctx context.Context) (from time.Time, err error)
	// revoked blocks until the leader has to stop.
	revoked func(ctx context.Context)
	// release gives the Lease up once everything has stopped.
	release func(log klog.Logger)
}

// always is the candidacy of a process that leads whenever no other does.
func always(lock resourcelock.Interface) candidacy {
	return candidacy{
		admit:   func(context.Context) (time.Time, error) { return time.Now(), nil },
		revoked: func(ctx context.Context) { <-ctx.Done() },
		release: func(log klog.Logger) { giveBack(log, lock) },
	}
}

// Run waits until this process leads, and leads until the context ends. It releases the Lease
// once everything has stopped.
//
// Errors: those of the term; [ErrLost], at once and without waiting for anything to stop; the
// client for the Lease cannot be made.
func (o Options) Run(ctx context.Context, config *rest.Config, t Term) error {
	host, err := os.Hostname()
	if err != nil {
		return fmt.Errorf("stand for leader: %w", err)
	}
	as := resourcelock.ResourceLockConfig{Identity: host + "_" + string(uuid.NewUUID())} // Upstream: two on one host are two
	lock, err := resourcelock.NewFromKubeconfig(resourcelock.LeasesResourceLock, o.LeaseNamespace, o.LeaseName, as, config, o.Renew)
	if err != nil {
		return fmt.Errorf("stand for leader: %w", err)
	}
	return o.run(ctx, lock, t, always(lock))
}

// run runs one term of leadership: until it is revoked, or the context ends.
func (o Options) run(ctx context.Context, lock resourcelock.Interface, t Term, c candidacy) error {
	r, err := o.stand(ctx, lock, c)
	if err != nil {
		return fmt.Errorf("stand for leader: %w", err)
	}
	defer r.end()
	waiting, stop := context.WithCancel(ctx)
	defer stop()
	go func() {
		defer stop()
		select {
		case <-r.won:
		case <-r.ended:
		case <-waiting.Done():
		}
	}()
	if err := t.Wait(waiting); err != nil {
		r.resign()
		return err
	}
	leading, revoke := context.WithCancel(ctx)
	defer revoke()
	go func() { defer revoke(); r.revoked(leading) }()
	if err := r.await(leading); err != nil || leading.Err() != nil {
		return err
	}
	r.log.Info("This process leads", "lease", lock.Describe(), "as", lock.Identity())
	return r.lead(leading, t.Lead)
}

// race is the candidacy of this process for one term.
type race struct {
	candidacy
	log klog.Logger
	// won is closed when the process holds the Lease, and may lead from the given time on. ended is
	// closed when it does not hold it any more and does not stand for it.
	won, ended chan struct{}
	from       time.Time
	end        context.CancelFunc
}

// stand starts to stand for leader.
func (o Options) stand(ctx context.Context, lock resourcelock.Interface, c candidacy) (*race, error) {
	r := &race{candidacy: c, log: klog.FromContext(ctx).WithName("election"), won: make(chan struct{}), ended: make(chan struct{})}
	elector, err := leaderelection.NewLeaderElector(leaderelection.LeaderElectionConfig{
		Lock: lock, Name: o.LeaseName, LeaseDuration: o.Lease, RenewDeadline: o.Renew, RetryPeriod: o.Retry,
		Callbacks: leaderelection.LeaderCallbacks{
			OnStartedLeading: func(context.Context) { close(r.won) },
			OnStoppedLeading: func() {},
			OnNewLeader: func(who string) {
				if who != lock.Identity() {
					r.log.Info("Waiting: another process leads. Where that is a kube-controller-manager with which controllers are divided, give another --leader-elect-resource-name", "leader", who, "lease", lock.Describe())
				}
			},
		},
	})
	if err != nil {
		return nil, err
	}
	holding, end := context.WithCancel(context.WithoutCancel(ctx))
	r.end = end
	go func() {
		defer close(r.ended)
		var err error
		if r.from, err = c.admit(holding); err == nil {
			elector.Run(klog.NewContext(holding, r.log))
		}
	}()
	return r, nil
}

// resign gives the Lease up, which the process may have just acquired.
func (r *race) resign() {
	r.end()
	<-r.ended
	r.release(r.log)
}

// await blocks until the process may lead, and resigns if the context ends before.
//
// Errors: [ErrLost].
func (r *race) await(ctx context.Context) error {
	won := func() <-chan time.Time {
		select {
		case <-ctx.Done():
		case <-r.ended:
		case <-r.won:
			return time.After(time.Until(r.from))
		}
		return nil
	}()
	select {
	case <-ctx.Done():
		r.resign()
		return nil
	case <-r.ended:
		return ErrLost
	case <-won:
		return nil
	}
}

// lead leads until the context ends, and resigns once everything has stopped.
//
// Errors: that of lead; [ErrLost], without waiting for anything to stop.
func (r *race) lead(ctx context.Context, lead func(context.Context) error) error {
	led := make(chan error, 1)
	go func() { led <- lead(ctx) }()
	select {
	case err := <-led:
		r.resign()
		return err
	case <-r.ended:
		return ErrLost
	}
}

// giveBackWithin bounds the release of the Lease by a process that has stopped.
const giveBackWithin = 5 * time.Second

// giveBack releases the Lease if this process holds it, so that another process leads at once. If
// the release fails, the Lease expires. client-go's ReleaseOnCancel also tries to release a lost
// Lease, and would delay the end of a process that must not act any more.
func giveBack(log klog.Logger, lock resourcelock.Interface) {
	ctx, done := context.WithTimeout(context.Background(), giveBackWithin)
	defer done()
	record, _, err := lock.Get(ctx)
	if err == nil && record.HolderIdentity == lock.Identity() {
		record.HolderIdentity, record.LeaseDurationSeconds = "", 1
		record.RenewTime = metav1.Now()
		err = lock.Update(ctx, *record)
	}
	if err != nil {
		log.Info("The Lease is not given back; it runs out", "reason", err)
	}
}
