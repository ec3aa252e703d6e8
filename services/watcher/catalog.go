package watcher

import (
	"context"
	"slices"
	"time"

	"k8s.io/klog/v2"

	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/services/watcher/source"
	"github.com/millrace/millrace/services/watcher/translate"
)

// discover keeps the catalog, and with it the API server's health, up to date.
func (s *Service) discover(ctx context.Context) {
	for ctx.Err() == nil {
		if s.config.Every {
			s.search(ctx)
		} else {
			s.noteAPI(ctx, s.ask(ctx))
		}
		pause(ctx, discoverEvery)
	}
}

func (s *Service) search(ctx context.Context) {
	request, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	catalog, fresh, err := s.source.Discover(request)
	if ctx.Err() != nil {
		return
	}
	s.noteAPI(ctx, err)
	if err != nil {
		return
	}
	s.mu.Lock()
	s.catalog, s.searched = catalog, true
	waiting := s.waiting
	s.mu.Unlock()
	if fresh || waiting {
		s.wakeUp()
	}
}

// wanted are the kinds to watch, in a fixed order.
func (s *Service) wanted() (want []kinds.Kind, catalog source.Catalog, active, searched bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	want = slices.Clone(s.config.Kinds)
	for _, k := range s.catalog.Kinds {
		if !contains(want, k.Name) {
			want = append(want, k)
		}
	}
	return want, s.catalog, s.active, s.searched
}

func contains(list []kinds.Kind, name kinds.Name) bool {
	return slices.ContainsFunc(list, func(k kinds.Kind) bool { return k.Name == name })
}

// reconcile starts and stops watches as they are wanted.
func (s *Service) reconcile(ctx context.Context) {
	want, catalog, active, searched := s.wanted()
	if !active {
		s.stopAll()
		s.standBy(ctx, want)
		return
	}
	for _, kind := range want {
		s.start(ctx, kind)
	}
	if s.config.Every && searched {
		s.sweep(ctx, want, catalog)
	}
}

// standBy makes sure that the streams are there, so that nothing is left to be
// done when this watcher becomes active.
func (s *Service) standBy(ctx context.Context, want []kinds.Kind) {
	for _, kind := range want {
		if s.warm[kind.Name] || ctx.Err() != nil {
			continue
		}
		if _, _, active, _ := s.wanted(); active {
			return
		}
		if err := s.config.Bus.EnsureKind(ctx, kind); err != nil {
			klog.FromContext(ctx).V(2).Info("Leaving the streams of a kind to the active watcher", "kind", kind.Name, "because", err)
			continue
		}
		s.warm[kind.Name] = true
	}
}

// sweep ends the kinds that are on the bus and served no more.
func (s *Service) sweep(ctx context.Context, want []kinds.Kind, catalog source.Catalog) {
	all, err := s.config.Bus.Kinds(ctx)
	if err != nil {
		klog.FromContext(ctx).Error(err, "Cannot look for kinds that are served no more")
		s.await(true)
		return
	}
	waiting := false
	for _, kind := range all {
		if contains(want, kind.Name) || catalog.Silent[kind.Name.Group()] || kind.Form == kinds.Full {
			delete(s.missing, kind.Name)
			delete(s.retired, kind.Name)
			continue
		}
		if _, known := s.missing[kind.Name]; !known {
			s.missing[kind.Name] = time.Now()
		}
		if s.retired[kind.Name] {
			continue
		}
		if time.Since(s.missing[kind.Name]) < goneAfter {
			waiting = true
			continue
		}
		s.stop(kind.Name)
		if err := s.retire(ctx, kind); err != nil {
			klog.FromContext(ctx).Error(err, "Cannot retire a kind that is served no more", "kind", kind.Name)
			waiting = true
			continue
		}
		s.retired[kind.Name] = true
		klog.FromContext(ctx).Info("A kind is served no more; its objects have been reported gone", "kind", kind.Name)
	}
	s.await(waiting)
}

// await says whether the next look at the catalog matters although nothing in
// it has changed.
func (s *Service) await(waiting bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.waiting = waiting
}

func (s *Service) start(ctx context.Context, kind kinds.Kind) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.kinds[kind.Name] != nil {
		return
	}
	ctx, stop := context.WithCancel(ctx)
	r := &running{stop: stop, done: make(chan struct{}), watch: &kindWatch{
		kind: kind, bus: s.config.Bus, open: s.source.Kind, metrics: s.metrics, age: s.config.LogAge,
		want:    func() kinds.Kind { return s.wantedNow(kind) },
		served:  func(version string) bool { return s.serves(kind.Name, version) },
		ensured: s.warm[kind.Name],
	}}
	s.kinds[kind.Name] = r
	go func() {
		defer close(r.done)
		r.watch.run(ctx)
	}()
}

// wantedNow is how a kind is wanted by now: its preferred version may change.
func (s *Service) wantedNow(kind kinds.Kind) kinds.Kind {
	want, _, _, _ := s.wanted()
	if i := slices.IndexFunc(want, func(k kinds.Kind) bool { return k.Name == kind.Name }); i >= 0 {
		return want[i]
	}
	return kind
}

// serves tells whether a version of a kind can be watched, as far as is known.
func (s *Service) serves(kind kinds.Name, version string) bool {
	_, catalog, _, _ := s.wanted()
	return catalog.Serves(kind, version)
}

func (s *Service) stop(name kinds.Name) {
	s.mu.Lock()
	r := s.kinds[name]
	delete(s.kinds, name)
	s.mu.Unlock()
	if r != nil {
		r.stop()
		<-r.done
	}
}

func (s *Service) stopAll() {
	s.mu.Lock()
	all := s.kinds
	s.kinds = map[kinds.Name]*running{}
	s.mu.Unlock()
	for _, r := range all {
		r.stop()
	}
	for _, r := range all {
		<-r.done
	}
}

// retire reports the end of every object of a kind that is served no more. The
// streams stay; the last finding makes a kind that comes back relist.
func (s *Service) retire(ctx context.Context, kind kinds.Kind) error {
	appender, err := s.config.Bus.Append(ctx, kind.Name)
	if err != nil {
		return err
	}
	defer appender.Close()
	state, err := readState(ctx, s.config.Bus, kind.Name, appender.Last())
	if err != nil || state.Empty() {
		return err
	}
	r := state.Compare("", false)
	k := &kindWatch{kind: kind, bus: s.config.Bus, metrics: s.metrics, appender: appender, cursor: translate.Cursor{Epoch: r.Epoch()}}
	for _, sequence := range r.Missing() {
		if err := k.bury(ctx, sequence); err != nil {
			return err
		}
	}
	return k.flush(ctx)
}
