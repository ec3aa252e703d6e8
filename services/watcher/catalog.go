package watcher

import (
	"context"
	"slices"
	"time"

	"k8s.io/klog/v2"

	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/pkg/events/sleep"
	"github.com/millrace/millrace/services/watcher/reflector"
	"github.com/millrace/millrace/services/watcher/source"
)

// discover keeps the catalog up to date, if the config asks for every kind.
func (s *Service) discover(ctx context.Context) {
	for s.config.Every && ctx.Err() == nil {
		s.findKinds(ctx)
		timer := time.NewTimer(s.untilDiscovery(time.Now()))
		select {
		case <-ctx.Done():
		case <-timer.C:
		case <-s.definerChanged:
			sleep.For(ctx, discoverEvery/4) // the API server needs a moment to serve the change
		}
		timer.Stop()
	}
}

// untilDiscovery is how long to wait before the next discovery. With several watchers it is always
// discoverEvery, since another one may be the one that watches CRDs and APIServices.
func (s *Service) untilDiscovery(now time.Time) time.Duration {
	others := s.members.Others()
	s.mu.Lock()
	defer s.mu.Unlock()
	if others > 0 || !s.watchesDefiners() || s.waiting || s.discoveryErr != nil || now.Sub(s.definerChangedAt) < discoverSettled {
		return discoverEvery
	}
	return discoverResting
}

// kindDefiners are the kinds that define other kinds.
var kindDefiners = map[kinds.Name]bool{
	kinds.NameOf("apiextensions.k8s.io", "customresourcedefinitions"): true,
	kinds.NameOf("apiregistration.k8s.io", "apiservices"):             true,
}

// watchesDefiners reports whether the kind definers are in this watcher's scope.
func (s *Service) watchesDefiners() bool {
	for kind := range kindDefiners {
		if !s.config.Scope.Has(kind) {
			return false
		}
	}
	return true
}

// noteDefinerChange notes that a CRD or an APIService has changed, and starts a discovery.
func (s *Service) noteDefinerChange(now time.Time) {
	s.mu.Lock()
	s.definerChangedAt = now
	s.mu.Unlock()
	signal(s.definerChanged)
}

func (s *Service) findKinds(ctx context.Context) {
	request, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	catalog, fresh, err := s.source.Discover(request)
	if ctx.Err() != nil {
		return
	}
	s.note(ctx, &s.discoveryErr, err)
	if err != nil {
		s.metrics.undiscovered.Inc()
		return
	}
	s.mu.Lock()
	s.catalog, s.searched = catalog, true
	waiting := s.waiting || !s.reminder.IsZero() && !time.Now().Before(s.reminder)
	s.mu.Unlock()
	if fresh || waiting {
		s.wakeUp()
	}
}

// wanted returns the kinds to watch, in a fixed order.
func (s *Service) wanted() (want []kinds.Kind, catalog source.Catalog, searched bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	want = slices.Clone(s.config.Kinds)
	for _, k := range s.catalog.Kinds {
		if !contains(want, k.Name) {
			want = append(want, k)
		}
	}
	return want, s.catalog, s.searched
}

func contains(list []kinds.Kind, name kinds.Name) bool {
	return slices.ContainsFunc(list, func(k kinds.Kind) bool { return k.Name == name })
}

// fallsHere reports whether a kind falls to this watcher. Another watcher may believe the same for a
// moment; the log then refuses one of them.
func (s *Service) fallsHere(kind kinds.Name) bool {
	return s.config.Scope.Has(kind) && s.members.First(string(kind))
}

// reconcile starts and stops watches so that they match the wanted kinds and this watcher's share
// of them. When moved is closed it stops preparing the streams of other watchers' kinds.
func (s *Service) reconcile(ctx context.Context, moved <-chan struct{}) {
	want, catalog, searched := s.wanted()
	watched := 0
	for _, kind := range want {
		if s.watchesHere(kind.Name) {
			s.start(ctx, kind)
			watched++
		}
	}
	s.stop(func(kind kinds.Name) bool { return !s.fallsHere(kind) && !s.taken[kind] })
	if watched != s.watched {
		klog.FromContext(ctx).Info("Assigned kinds to watchers", "id", s.members.ID(), "watched", watched, "left", len(want)-watched)
		s.watched = watched
	}
	s.ensureOthers(ctx, want, moved)
	if s.config.Every && searched {
		s.endUnserved(ctx, want, catalog)
	}
}

// ensureOthers creates the streams of kinds that fall to other watchers, so that this watcher can take
// over a kind without delay.
func (s *Service) ensureOthers(ctx context.Context, want []kinds.Kind, moved <-chan struct{}) {
	for _, kind := range want {
		if s.ensured[kind.Name] || !s.config.Scope.Has(kind.Name) || s.fallsHere(kind.Name) {
			continue
		}
		select {
		case <-ctx.Done():
			return
		case <-moved:
			return
		default:
		}
		if err := s.config.Bus.EnsureKind(ctx, kind); err != nil {
			klog.FromContext(ctx).V(2).Info("Leaving the streams of a kind to its watcher", "kind", kind.Name, "because", err)
			continue
		}
		s.ensured[kind.Name] = true
	}
}

// await sets whether the next discovery wakes the loop of Run even if the catalog has not changed.
func (s *Service) await(waiting bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.waiting = waiting
}

// watches reports whether this watcher watches a kind.
func (s *Service) watches(kind kinds.Name) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.kinds[kind] != nil
}

func (s *Service) start(ctx context.Context, kind kinds.Kind) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.kinds[kind.Name] != nil {
		return
	}
	ctx, stop := context.WithCancel(ctx)
	c := s.reflectorConfig(kind)
	c.Ensured = s.ensured[kind.Name]
	if kindDefiners[kind.Name] {
		c.Changed = func() { s.noteDefinerChange(time.Now()) }
	}
	r := &running{reflector: reflector.New(c), stop: stop, done: make(chan struct{})}
	s.kinds[kind.Name] = r
	s.metrics.begin(kind.Name)
	go func() {
		defer close(r.done)
		r.reflector.Run(ctx)
	}()
}

// reflectorConfig is what a Reflector of a kind needs.
func (s *Service) reflectorConfig(kind kinds.Kind) reflector.Config {
	return reflector.Config{
		Kind: kind, Bus: s.config.Bus, Metrics: s.metrics.kinds, Epoch: s.epoch, Hide: s.config.Hide, Bound: s.config.Bound, Writes: s.writes,
		Open:   s.source.Kind,
		Want:   func() kinds.Kind { return s.wantedNow(kind) },
		Served: func(version string) bool { return s.serves(kind.Name, version) },
		Resume: s.resuming.acquire, Overtaken: func() { s.giveUpTaken(kind.Name) },
	}
}

// wantedNow returns the kind as it is wanted by now: its preferred version may have changed.
func (s *Service) wantedNow(kind kinds.Kind) kinds.Kind {
	want, _, _ := s.wanted()
	if i := slices.IndexFunc(want, func(k kinds.Kind) bool { return k.Name == kind.Name }); i >= 0 {
		return want[i]
	}
	return kind
}

// serves reports whether the newest catalog has a kind in a version.
func (s *Service) serves(kind kinds.Name, version string) bool {
	_, catalog, _ := s.wanted()
	return catalog.Serves(kind, version)
}

// stop ends the watches of the kinds that which selects, and waits for them.
func (s *Service) stop(which func(kinds.Name) bool) {
	var ending []*running
	s.mu.Lock()
	for name, r := range s.kinds {
		if which(name) {
			ending = append(ending, r)
			delete(s.kinds, name)
			s.metrics.active.WithLabelValues(string(name)).Set(0)
		}
	}
	s.mu.Unlock()
	for _, r := range ending {
		r.stop()
	}
	for _, r := range ending {
		<-r.done
	}
}
