package election

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/client-go/tools/leaderelection/resourcelock"

	"github.com/millrace/millrace/cmd/internal/election/leasetest"
	"github.com/millrace/millrace/pkg/events/sleep"
)

const migrated = "migrated"

// manager is a kube-controller-manager with Leader Migration: client-go's leader election with its
// defaults. It ends when it loses the Lease, and starts again a while later.
type manager struct {
	acts  atomic.Bool
	terms atomic.Int64 // how often it has begun to act
	stop  context.CancelFunc
	ended chan struct{}
}

func startManager(t *testing.T, s *leasetest.Server, away time.Duration) *manager {
	ctx, stop := context.WithCancel(t.Context())
	m := &manager{stop: stop, ended: make(chan struct{})}
	go func() {
		defer close(m.ended)
		for life := 0; ctx.Err() == nil; life++ {
			elector, err := leaderelection.NewLeaderElector(leaderelection.LeaderElectionConfig{
				Lock: &resourcelock.LeaseLock{
					LeaseMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: migrated}, Client: s,
					LockConfig: resourcelock.ResourceLockConfig{Identity: fmt.Sprint("kcm-", life)},
				},
				Name: migrated, LeaseDuration: Defaults().Lease, RenewDeadline: Defaults().Renew, RetryPeriod: Defaults().Retry,
				Callbacks: leaderelection.LeaderCallbacks{
					OnStartedLeading: func(context.Context) { m.acts.Store(true); m.terms.Add(1) },
					OnStoppedLeading: func() { m.acts.Store(false) },
				},
			})
			if err != nil {
				t.Error(err)
				return
			}
			elector.Run(ctx)
			m.acts.Store(false)
			sleep.For(ctx, away)
		}
	}()
	return m
}

// process is a Millrace process.
type process struct {
	acts  atomic.Bool
	token atomic.Uint64 // of its last term
	stop  context.CancelFunc
	ended chan struct{}
	err   error
}

// startProcess starts a process whose controllers take a while to stop. led is told of each term.
func startProcess(t *testing.T, s *leasetest.Server, id string, slow time.Duration, led ...func(token uint64)) *process {
	ctx, stop := context.WithCancel(t.Context())
	p := &process{stop: stop, ended: make(chan struct{})}
	m := Migration{Options: Defaults(), Controllers: []string{"replicaset-controller"}}
	m.LeaseName = migrated
	go func() {
		defer close(p.ended)
		p.err = m.run(ctx, s, holderPrefix+id, func(ctx context.Context, token uint64) error {
			p.acts.Store(true)
			p.token.Store(token)
			for _, tell := range led {
				tell(token)
			}
			<-ctx.Done()
			time.Sleep(slow)
			p.acts.Store(false)
			return nil
		})
	}()
	return p
}

// assign writes a person's decision.
func assign(t *testing.T, s *leasetest.Server, to string) {
	t.Helper()
	for {
		l, err := s.Get(t.Context(), migrated, metav1.GetOptions{})
		if err == nil {
			err = Annotate(l, AssignedAnnotation, Assignment{ID: fmt.Sprint(time.Now().UnixNano()), To: to, By: "alice", At: time.Now()})
		}
		if err == nil {
			_, err = s.Update(t.Context(), l, metav1.UpdateOptions{})
		}
		if err == nil {
			return
		}
		time.Sleep(time.Millisecond)
	}
}

func handover(t *testing.T, s *leasetest.Server) (holder string, h Handover) {
	t.Helper()
	l, err := s.Get(t.Context(), migrated, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	holder, _ = HolderOf(l)
	if h, err = HandoverOf(l); err != nil {
		t.Fatal(err)
	}
	return holder, h
}

// TestControllersMoveBetweenTheTwo: whenever a person assigns them, and whatever state they are in, the
// controllers never run in both, and soon run where they are assigned to.
func TestControllersMoveBetweenTheTwo(t *testing.T) {
	for seed := range uint64(200) {
		synctest.Test(t, func(t *testing.T) {
			r, lost := rand.New(rand.NewPCG(seed, 1)), rand.New(rand.NewPCG(seed, 2))
			s := leasetest.New()
			s.Lose(func() bool { return lost.IntN(6) == 0 })
			kcm := startManager(t, s, time.Duration(r.Int64N(int64(20*time.Second))))
			terms := map[uint64]int64{} // by token: how often kube-controller-manager had begun to act
			led := func(token uint64) {
				if before, known := terms[token]; token == 0 || known && before != kcm.terms.Load() {
					t.Errorf("seed %d: kube-controller-manager has acted between two terms with the token %d", seed, token)
				}
				terms[token] = kcm.terms.Load()
			}
			p := startProcess(t, s, "a", time.Duration(r.Int64N(int64(10*time.Second))), led)
			to := KCM
			for move := range 12 {
				if settle := time.Duration(r.Int64N(int64(20 * time.Second))); !watch(settle, kcm, &p.acts) {
					t.Fatalf("seed %d, move %d: both act", seed, move)
				}
				switch to = Millrace; r.IntN(5) {
				case 0, 1:
					to = KCM
				case 2:
					p.stop()
					<-p.ended
					p = startProcess(t, s, fmt.Sprint("after-", move), time.Duration(r.Int64N(int64(10*time.Second))), led)
				}
				assign(t, s, to)
			}
			if !watch(time.Minute, kcm, &p.acts) {
				t.Fatalf("seed %d: both act", seed)
			}
			if kcm.acts.Load() != (to == KCM) || p.acts.Load() != (to == Millrace) {
				holder, h := handover(t, s)
				t.Fatalf("seed %d: kube-controller-manager acts: %t, and Millrace: %t, assigned to %s; %s holds the Lease, and %+v", seed, kcm.acts.Load(), p.acts.Load(), to, holder, h)
			}
			kcm.stop()
			p.stop()
			<-kcm.ended
			<-p.ended
			if p.err != nil {
				t.Errorf("seed %d: %v", seed, p.err)
			}
		})
	}
}

// watch lets time pass. It returns false if both act at any moment of it.
func watch(d time.Duration, kcm *manager, millrace *atomic.Bool) bool {
	for until := time.Now().Add(d); time.Now().Before(until); time.Sleep(10 * time.Millisecond) {
		if kcm.acts.Load() && millrace.Load() {
			return false
		}
	}
	return true
}

// TestTheMoveIsShort: the controllers rest for less than five seconds in either direction.
func TestTheMoveIsShort(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := leasetest.New()
		kcm, p := startManager(t, s, 17*time.Second), startProcess(t, s, "a", 0)
		time.Sleep(time.Minute)
		for range 20 {
			for to, rests := range map[string]func() bool{
				Millrace: func() bool { return !kcm.acts.Load() && !p.acts.Load() },
				KCM:      func() bool { return !kcm.acts.Load() && !p.acts.Load() },
			} {
				assign(t, s, to)
				var rested time.Duration
				for range 3000 {
					if time.Sleep(10 * time.Millisecond); rests() {
						rested += 10 * time.Millisecond
					}
				}
				if rested >= 5*time.Second {
					t.Errorf("assigned to %s, no controller runs for %v", to, rested)
				}
				time.Sleep(time.Minute)
			}
		}
		kcm.stop()
		p.stop()
		<-kcm.ended
		<-p.ended
	})
}

// TestARestartKeepsTheControllers: a process that stops leaves the Lease to its successor. Without one,
// kube-controller-manager runs the controllers once the Lease has expired, and keeps them until a person
// decides anew.
func TestARestartKeepsTheControllers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := leasetest.New()
		kcm, first := startManager(t, s, 17*time.Second), startProcess(t, s, "first", time.Second)
		time.Sleep(time.Minute)
		assign(t, s, Millrace)
		time.Sleep(time.Minute)
		first.stop()
		<-first.ended
		time.Sleep(5 * time.Second)
		second := startProcess(t, s, "second", 0)
		time.Sleep(2 * time.Second)
		if first.err != nil || !second.acts.Load() || kcm.acts.Load() || second.token.Load() != first.token.Load() {
			t.Fatalf("after a restart, with %v, Millrace acts: %t, and kube-controller-manager: %t; the tokens are %d and %d", first.err, second.acts.Load(), kcm.acts.Load(), first.token.Load(), second.token.Load())
		}
		second.stop()
		<-second.ended
		if !watch(time.Minute, kcm, &second.acts) || !kcm.acts.Load() {
			t.Fatal("without Millrace, kube-controller-manager does not run the controllers")
		}
		third := startProcess(t, s, "third", 0)
		if !watch(time.Minute, kcm, &third.acts) || third.acts.Load() {
			t.Fatal("Millrace takes what it had left for too long")
		}
		assign(t, s, Millrace)
		if !watch(time.Minute, kcm, &third.acts) || !third.acts.Load() {
			t.Fatal("Millrace does not run what is assigned to it anew")
		}
		kcm.stop()
		third.stop()
		<-kcm.ended
		<-third.ended
	})
}

// TestTwoProcessesDoNotTakeFromEachOther: one stands by until the other has gone.
func TestTwoProcessesDoNotTakeFromEachOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := leasetest.New()
		first := startProcess(t, s, "first", 0)
		time.Sleep(time.Second)
		assign(t, s, Millrace)
		time.Sleep(time.Minute)
		second := startProcess(t, s, "second", 0)
		time.Sleep(time.Hour)
		if !first.acts.Load() || second.acts.Load() {
			t.Fatalf("the first acts: %t, and the second: %t", first.acts.Load(), second.acts.Load())
		}
		first.stop()
		<-first.ended
		time.Sleep(2 * time.Second)
		if !second.acts.Load() {
			t.Error("the second does not act once the first has stopped")
		}
		second.stop()
		<-second.ended
	})
}

// TestALostAPIServerEndsTheProcess: a process that cannot renew the Lease ends at once, before the Lease
// expires, even if its controllers take long to stop.
func TestALostAPIServerEndsTheProcess(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := leasetest.New()
		p := startProcess(t, s, "a", time.Hour)
		time.Sleep(time.Second)
		assign(t, s, Millrace)
		time.Sleep(time.Minute)
		began := time.Now()
		s.Leave(errors.New("the API server is away"))
		<-p.ended
		if took := time.Since(began); !errors.Is(p.err, ErrLost) || took >= Defaults().Lease {
			t.Errorf("it ended after %v with %v", took, p.err)
		}
		p.stop()
		time.Sleep(2 * time.Hour)
	})
}

// TestWhatALeaseSays: annotations that cannot be read are an error, and change nothing.
func TestWhatALeaseSays(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := leasetest.New()
		if _, err := s.Create(t.Context(), &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{
			Name: migrated, Annotations: map[string]string{AssignedAnnotation: `{"to":`},
		}}, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		p := startProcess(t, s, "a", 0)
		time.Sleep(time.Minute)
		if l, err := s.Get(t.Context(), migrated, metav1.GetOptions{}); err != nil || p.acts.Load() || l.Annotations[CandidateAnnotation] != "" {
			t.Errorf("it acts: %t, and the Lease is %v, %v", p.acts.Load(), l, err)
		}
		p.stop()
		<-p.ended
	})
}

// TestAProcessThatCouldNotActDoesNotTakeTheLease: it says why, and takes the Lease once it could.
func TestAProcessThatCouldNotActDoesNotTakeTheLease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := leasetest.New()
		var able atomic.Bool
		m := Migration{Options: Defaults(), Controllers: []string{"replicaset-controller"}, Ready: func(context.Context) error {
			if !able.Load() {
				return errors.New("a right is missing")
			}
			return nil
		}}
		m.LeaseName = migrated
		ctx, stop := context.WithCancel(t.Context())
		var acts atomic.Bool
		ended := make(chan error, 1)
		go func() {
			ended <- m.run(ctx, s, holderPrefix+"a", func(ctx context.Context, _ uint64) error {
				acts.Store(true)
				<-ctx.Done()
				return nil
			})
		}()
		time.Sleep(time.Second)
		kcm := startManager(t, s, time.Second)
		assign(t, s, Millrace)
		time.Sleep(time.Minute)
		holder, h := handover(t, s)
		if acts.Load() || !kcm.acts.Load() || HeldByMillrace(holder) || h.Candidate.Problem != "a right is missing" {
			t.Errorf("it acts: %t; %s holds the Lease, and the problem is %q", acts.Load(), holder, h.Candidate.Problem)
		}
		able.Store(true)
		time.Sleep(time.Minute)
		if _, h := handover(t, s); !acts.Load() || kcm.acts.Load() || h.Candidate.Problem != "" {
			t.Errorf("once it could, it acts: %t; the problem is %q", acts.Load(), h.Candidate.Problem)
		}
		stop()
		kcm.stop()
		<-kcm.ended
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
}
