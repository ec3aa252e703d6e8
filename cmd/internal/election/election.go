// Package election elects one of several processes that have a bus of their own each: the one that
// holds a Lease acts, as with replicas of Kubernetes' components. Processes on one bus share the
// work, and need no leader.
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
var ErrLost = errors.New("the Lease of the leader is lost (--leader-elect): another process acts from now on; this one has to be started again")

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

// Term are the functions of a process: Wait runs until it leads, and Lead while it leads. Wait
// returns nil when its context ends.
type Term struct {
	Wait, Lead func(ctx context.Context) error
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
	return o.run(ctx, lock, t)
}

func (o Options) run(ctx context.Context, lock resourcelock.Interface, t Term) error {
	log := klog.FromContext(ctx).WithName("election")
	won, ended := make(chan struct{}), make(chan struct{})
	elector, err := leaderelection.NewLeaderElector(leaderelection.LeaderElectionConfig{
		Lock: lock, Name: o.LeaseName, LeaseDuration: o.Lease, RenewDeadline: o.Renew, RetryPeriod: o.Retry,
		Callbacks: leaderelection.LeaderCallbacks{
			OnStartedLeading: func(context.Context) { close(won) },
			OnStoppedLeading: func() {},
			OnNewLeader: func(who string) {
				if who != lock.Identity() {
					log.Info("Waiting: another process leads. Where that is a kube-controller-manager with which controllers are divided, give another --leader-elect-resource-name", "leader", who, "lease", lock.Describe())
				}
			},
		},
	})
	if err != nil {
		return fmt.Errorf("stand for leader: %w", err)
	}
	holding, release := context.WithCancel(context.WithoutCancel(ctx))
	go func() { defer close(ended); elector.Run(klog.NewContext(holding, log)) }()
	defer release()
	waiting, stop := context.WithCancel(ctx)
	defer stop()
	go func() {
		defer stop()
		select {
		case <-won:
		case <-waiting.Done():
		}
	}()
	if err := t.Wait(waiting); err != nil || ctx.Err() != nil {
		release()
		<-ended
		giveBack(log, lock) // the process may have just acquired it
		return err
	}
	log.Info("This process leads", "lease", lock.Describe(), "as", lock.Identity())
	led := make(chan error, 1)
	go func() { led <- t.Lead(ctx) }()
	select {
	case err := <-led:
		release()
		<-ended
		giveBack(log, lock)
		return err
	case <-ended:
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
