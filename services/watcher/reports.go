package watcher

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"k8s.io/klog/v2"

	"github.com/millrace/millrace/pkg/events/report"
	"github.com/millrace/millrace/pkg/events/sleep"
	"github.com/millrace/millrace/pkg/events/subject"
)

// reportEvery is how often a watcher checks which of its kinds it cannot watch.
const reportEvery = 5 * time.Second

// reportUnwatched reports on the bus which kinds this watcher cannot watch, so that readers of the
// record learn why a controller waits for one, until the context ends. It reports nothing while
// there are none.
func (s *Service) reportUnwatched(ctx context.Context) {
	var said []report.Unwatched
	var at time.Time
	for number := 1; ctx.Err() == nil; sleep.For(ctx, reportEvery) {
		now := s.unwatched(time.Now())
		if slices.Equal(now, said) && (len(now) == 0 || time.Since(at) < report.Every) {
			continue
		}
		if err := s.report(ctx, now, number); err != nil {
			klog.FromContext(ctx).V(2).Info("Cannot report which kinds cannot be watched", "because", err)
			continue
		}
		said, at, number = now, time.Now(), number+1
	}
}

// unwatched returns the kinds that this watcher cannot watch, sorted.
func (s *Service) unwatched(now time.Time) (all []report.Unwatched) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, r := range s.kinds {
		if u, ok := r.reflector.Unwatched(now); ok {
			all = append(all, u)
		}
	}
	slices.SortFunc(all, func(a, b report.Unwatched) int { return strings.Compare(string(a.Kind), string(b.Kind)) })
	return all
}

func (s *Service) report(ctx context.Context, unwatched []report.Unwatched, number int) error {
	m, err := report.Report{Replica: s.members.ID(), Unwatched: unwatched}.Encode()
	if err != nil {
		return err
	}
	m.Subject = subject.WatcherStatusSubject
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	_, err = s.config.Bus.Put(ctx, m, fmt.Sprint(s.members.ID(), "/", number))
	return err
}

// listen passes the readers' damage reports to the watches, until the context ends.
func (s *Service) listen(ctx context.Context) {
	for ctx.Err() == nil {
		err := s.config.Bus.Listen(ctx, report.DamageTopic, func(data []byte) {
			d, ok := report.DecodeDamage(data)
			if !ok {
				return // not ours
			}
			s.mu.Lock()
			r := s.kinds[d.Kind]
			s.mu.Unlock()
			if r != nil {
				r.reflector.Report(d)
			}
		})
		if err != nil {
			klog.FromContext(ctx).Error(err, "Cannot subscribe to the readers' damage reports")
			sleep.For(ctx, listenAgain)
		}
	}
}
