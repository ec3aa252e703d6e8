package election

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
)

// lease is a Lease on a fake API server, which does not answer while it is away.
type lease struct {
	mu     sync.Mutex
	record *resourcelock.LeaderElectionRecord
	away   bool
}

// hand is the lock of one process on the Lease.
type hand struct {
	*lease
	who string
}

func (h hand) Identity() string   { return h.who }
func (h hand) Describe() string   { return "a lease" }
func (h hand) RecordEvent(string) {}

func (h hand) Get(ctx context.Context) (*resourcelock.LeaderElectionRecord, []byte, error) {
	if err := h.reach(ctx); err != nil {
		return nil, nil, err
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.record == nil {
		return nil, nil, apierrors.NewNotFound(schema.GroupResource{}, "x")
	}
	text, err := json.Marshal(h.record)
	is := *h.record
	return &is, text, err
}

func (h hand) Create(ctx context.Context, r resourcelock.LeaderElectionRecord) error {
	return h.Update(ctx, r)
}

func (h hand) Update(ctx context.Context, r resourcelock.LeaderElectionRecord) error {
	if err := h.reach(ctx); err != nil {
		return err
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.record = &r
	return nil
}

// reach waits until the API server answers, or the request times out.
func (h hand) reach(ctx context.Context) error {
	h.mu.Lock()
	away := h.away
	h.mu.Unlock()
	if away {
		<-ctx.Done()
	}
	return ctx.Err()
}

func (l *lease) is() resourcelock.LeaderElectionRecord {
	l.mu.Lock()
	defer l.mu.Unlock()
	return *l.record
}

func (l *lease) leave(away bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.away = away
}

// stander is a candidate for leader.
type stander struct {
	leads atomic.Bool // it is at it
	ended error
	done  chan struct{}
	stop  context.CancelFunc
}

// stand starts a candidate; slow is how long its work takes to stop.
func stand(t *testing.T, l *lease, who string, slow time.Duration) *stander {
	ctx, stop := context.WithCancel(t.Context())
	s := &stander{done: make(chan struct{}), stop: stop}
	o := Defaults()
	o.Elect = true
	go func() {
		defer close(s.done)
		lock := hand{l, who}
		s.ended = o.run(ctx, lock, Term{
			Wait: func(ctx context.Context) error { <-ctx.Done(); return nil },
			Lead: func(ctx context.Context) error {
				s.leads.Store(true)
				<-ctx.Done()
				time.Sleep(slow)
				s.leads.Store(false)
				return nil
			},
		}, always(lock))
	}()
	return s
}

// TestOneLeads: the other process takes over once the first has stopped, and not before, without
// waiting for the Lease to expire.
func TestOneLeads(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := &lease{}
		first := stand(t, l, "first", 7*time.Second)
		time.Sleep(time.Second)
		second := stand(t, l, "second", 0)
		time.Sleep(time.Hour)
		if !first.leads.Load() || second.leads.Load() {
			t.Fatalf("the first leads: %t, and the second: %t", first.leads.Load(), second.leads.Load())
		}
		first.stop()
		time.Sleep(6 * time.Second)
		if second.leads.Load() {
			t.Fatal("the second leads while the first still stops")
		}
		time.Sleep(6 * time.Second)
		if !second.leads.Load() || first.ended != nil {
			t.Fatalf("five seconds after the first has stopped, with %v, the second leads: %t", first.ended, second.leads.Load())
		}
		second.stop()
		<-second.done
		if second.ended != nil {
			t.Error(second.ended)
		}
	})
}

// TestALostLeaseEndsTheProcess: at once, before another process may lead, even if its work takes long
// to stop.
func TestALostLeaseEndsTheProcess(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := &lease{}
		first := stand(t, l, "first", time.Hour)
		time.Sleep(time.Minute)
		l.leave(true)
		began := l.is().RenewTime.Time
		<-first.done
		if took := time.Since(began); !errors.Is(first.ended, ErrLost) || took >= Defaults().Lease {
			t.Errorf("it ended after %v with %v", took, first.ended)
		}
		first.stop()
		time.Sleep(2 * time.Hour) // what takes long stops, too
	})
}

// TestWhoNeverLeads: a process that waits stops with its context, and does not release the Lease.
func TestWhoNeverLeads(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := &lease{}
		first := stand(t, l, "first", 0)
		time.Sleep(time.Second)
		second := stand(t, l, "second", 0)
		time.Sleep(time.Minute)
		second.stop()
		<-second.done
		if second.ended != nil || second.leads.Load() || l.is().HolderIdentity != "first" {
			t.Errorf("it ended with %v, having led: %t; %s leads", second.ended, second.leads.Load(), l.is().HolderIdentity)
		}
		first.stop()
		<-first.done
		if l.is().HolderIdentity != "" {
			t.Errorf("%s still holds the Lease", l.is().HolderIdentity)
		}
	})
}

// TestTimesThatDoNotGoTogether: Check refuses them before anything is started.
func TestTimesThatDoNotGoTogether(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*Options)
		says   string
	}{
		"the defaults":       {func(*Options) {}, ""},
		"a short lease":      {func(o *Options) { o.Lease = o.Renew }, "--leader-elect-lease-duration"},
		"a short deadline":   {func(o *Options) { o.Renew = o.Retry }, "--leader-elect-renew-deadline"},
		"no period":          {func(o *Options) { o.Retry = 0 }, "--leader-elect-retry-period"},
		"no name":            {func(o *Options) { o.LeaseName = "" }, "--leader-elect-resource-name"},
		"no election at all": {func(o *Options) { o.Elect, o.LeaseName = false, "" }, ""},
	} {
		o := Defaults()
		o.Elect = true
		c.change(&o)
		if err := o.Check(); c.says == "" && err != nil || c.says != "" && (err == nil || !strings.Contains(err.Error(), c.says)) {
			t.Errorf("%s: %v, want %q", name, err, c.says)
		}
	}
}
