package reconcilers

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/klog/v2"

	"github.com/millrace/millrace/pkg/events/report"
	"github.com/millrace/millrace/pkg/events/sleep"
	"github.com/millrace/millrace/pkg/events/subject"
	"github.com/millrace/millrace/services/reconcilers/engine"
	"github.com/millrace/millrace/services/reconcilers/shell"
)

const (
	// stallsEvery is how often the service asks the controllers whether they are stalled.
	stallsEvery = 5 * time.Second
	// stallsTimeout bounds how long a controller may take to answer.
	stallsTimeout = time.Second
	// stallsRemind is when a controller that is still stalled is logged again.
	stallsRemind = 10 * time.Minute
	// reportTimeout bounds how long a report waits for the bus.
	reportTimeout = 5 * time.Second
)

// stalls are the stalled controllers of this replica, for health checks, the log, metrics
// and the report on the bus. It is safe for concurrent use.
type stalls struct {
	clock func() time.Time

	mu    sync.Mutex
	found map[string]report.Stall
	told  map[string]time.Time // when the log last reported the stall
	// waiting are the keys that have waited for long, by controller and condition. remarked
	// is when the log last reported them, by both.
	waiting  map[string]map[report.Condition]engine.Waiting
	remarked map[string]time.Time

	seconds, keys *prometheus.Desc
}

func newStalls() *stalls {
	return &stalls{
		clock: time.Now, found: map[string]report.Stall{}, told: map[string]time.Time{},
		waiting: map[string]map[report.Condition]engine.Waiting{}, remarked: map[string]time.Time{},
		seconds: prometheus.NewDesc("millrace_reconcilers_stalled_seconds",
			"Time for which the controller has had work and decided nothing, by condition; 0 and the condition \"none\" below 30 s.",
			[]string{"controller", "condition"}, nil),
		keys: prometheus.NewDesc("millrace_reconcilers_waiting_keys",
			"Keys that have waited for a turn, its outcome or its effects for more than 10 s, by condition; absent without such keys.",
			[]string{"controller", "condition"}, nil),
	}
}

// look asks the controllers of which this replica owns keys, and reports whether anything has
// changed.
func (s *stalls) look(ctx context.Context, loops []*shell.Loop) (changed bool) {
	found := map[string]report.Stall{}
	s.drop(loops)
	for _, l := range loops {
		asking, cancel := context.WithTimeout(ctx, stallsTimeout)
		stall, stalled, known := l.Stall(asking)
		if waiting, ok := l.Waiting(asking); ok {
			s.wait(l.Name(), waiting)
		}
		cancel()
		if ctx.Err() != nil {
			return false
		}
		if before, was := s.of(l.Name()); !known && was {
			stall, stalled = before, true
		}
		if stalled {
			found[l.Name()] = stall
		}
	}
	return s.take(found)
}

func (s *stalls) of(controller string) (stall report.Stall, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	stall, ok = s.found[controller]
	return stall, ok
}

// take stores the stalls that were found, and logs the new ones.
func (s *stalls) take(found map[string]report.Stall) (changed bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.clock()
	for _, controller := range slices.Sorted(maps.Keys(found)) {
		stall := found[controller]
		before, was := s.found[controller]
		fresh := !was || before.Condition != stall.Condition
		if changed = changed || fresh || before.Detail != stall.Detail; fresh || now.Sub(s.told[controller]) >= stallsRemind {
			s.told[controller] = now
			klog.Background().Error(errors.New(stall.String()), "A controller is stalled", "controller", controller,
				"condition", stall.Condition, "since", stall.Since, "waiting", stall.Work, "advice", stall.Condition.Advice())
		}
	}
	for controller, stall := range s.found {
		if _, still := found[controller]; !still {
			changed = true
			klog.Background().Info("The controller is no longer stalled", "controller", controller, "condition", stall.Condition, "since", stall.Since)
		}
	}
	s.found = found
	return changed
}

// drop removes the waiting keys of controllers of which this replica owns no keys any more.
func (s *stalls) drop(but []*shell.Loop) {
	s.mu.Lock()
	defer s.mu.Unlock()
	maps.DeleteFunc(s.waiting, func(controller string, _ map[report.Condition]engine.Waiting) bool {
		return !slices.ContainsFunc(but, func(l *shell.Loop) bool { return l.Name() == controller })
	})
}

// wait stores the waiting keys of a controller, and logs the new ones.
func (s *stalls) wait(controller string, waiting map[report.Condition]engine.Waiting) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.clock()
	for condition := range s.waiting[controller] {
		if _, still := waiting[condition]; !still {
			delete(s.remarked, controller+"/"+string(condition))
		}
	}
	s.waiting[controller] = waiting
	for _, condition := range slices.Sorted(maps.Keys(waiting)) {
		w, at := waiting[condition], controller+"/"+string(condition)
		if last, told := s.remarked[at]; told && now.Sub(last) < stallsRemind {
			continue
		}
		s.remarked[at] = now
		klog.Background().Info("Keys wait", "controller", controller, "condition", condition, "reason", condition.Reason(), "about", w.About,
			"keys", w.Keys, "oldest", w.Oldest.String(), "since", w.Since, "advice", condition.Advice())
	}
}

// all are the stalled controllers, sorted.
func (s *stalls) all() []report.Stall {
	s.mu.Lock()
	defer s.mu.Unlock()
	list := make([]report.Stall, 0, len(s.found))
	for _, controller := range slices.Sorted(maps.Keys(s.found)) {
		list = append(list, s.found[controller])
	}
	return list
}

// check is the health check of a controller.
func (s *stalls) check(controller string) error {
	stall, ok := s.of(controller)
	if !ok {
		return nil
	}
	return fmt.Errorf("decides nothing since %s although %d wait: %v; %s", stall.Since.UTC().Format(time.RFC3339), stall.Work, stall, stall.Condition.Advice())
}

func (s *stalls) collect(out chan<- prometheus.Metric, controller string) {
	condition, seconds := "none", 0.0
	if stall, ok := s.of(controller); ok {
		condition, seconds = string(stall.Condition), max(s.clock().Sub(stall.Since), 0).Seconds()
	}
	out <- prometheus.MustNewConstMetric(s.seconds, prometheus.GaugeValue, seconds, controller, condition)
	s.mu.Lock()
	defer s.mu.Unlock()
	for condition, w := range s.waiting[controller] {
		out <- prometheus.MustNewConstMetric(s.keys, prometheus.GaugeValue, float64(w.Keys), controller, string(condition))
	}
}

// watchStalls finds stalled controllers and reports them, until the context ends.
func (s *Service) watchStalls(ctx context.Context) {
	var reported time.Time
	for number := 0; ctx.Err() == nil; sleep.For(ctx, stallsEvery) {
		var mine []*shell.Loop
		for _, l := range s.loops {
			if s.share(l.Name()) != 0 {
				mine = append(mine, l)
			}
		}
		if !s.stalls.look(ctx, mine) && time.Since(reported) < report.Every {
			continue
		}
		number++
		if err := s.report(ctx, mine, number); err != nil {
			klog.FromContext(ctx).V(2).Info("Cannot report how the controllers stand", "because", err)
			continue
		}
		reported = time.Now()
	}
}

// report publishes the state of the controllers of which this replica owns keys.
func (s *Service) report(ctx context.Context, loops []*shell.Loop, number int) error {
	r := report.Report{Replica: s.members.ID(), Stalled: s.stalls.all()}
	for _, l := range loops {
		r.Controllers = append(r.Controllers, l.Name())
	}
	slices.Sort(r.Controllers)
	m, err := r.Encode()
	if err != nil {
		return err
	}
	m.Subject = subject.StatusSubject
	ctx, cancel := context.WithTimeout(ctx, reportTimeout)
	defer cancel()
	_, err = s.config.Bus.Put(ctx, m, fmt.Sprint(r.Replica, "/", number))
	return err
}
