package watcher

import (
	"context"
	"fmt"
	"time"

	"k8s.io/klog/v2"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/bus"
	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/pkg/events/subject"
	"github.com/millrace/millrace/services/watcher/kindlog"
	"github.com/millrace/millrace/services/watcher/reflector"
	"github.com/millrace/millrace/services/watcher/source"
)

// No session watches a kind that is on the bus but not served by the API server. Its log would not
// move: when the storage goes back to before the kind was defined, the log would stay in an epoch
// that has ended, and controllers that read every kind would wait for it. So the watcher that the
// kind falls to retires it in the epoch of the storage: it records the end of each object, and then
// a mark that says that nothing is left. It records that mark again in every later epoch, and
// before the last one expires, for as long as the kind has streams.

// retiredMarkEvery is the interval between marks of a kind that is not served. Marks expire after an hour.
const retiredMarkEvery = 20 * time.Minute

// retiredKind is what this watcher has recorded of a kind that is not served.
type retiredKind struct {
	epoch uint64
	at    time.Time
	err   error // why it could not be recorded; nil: it was
}

// endUnserved ends the kinds that are on the bus but not served.
func (s *Service) endUnserved(ctx context.Context, want []kinds.Kind, catalog source.Catalog) {
	all, err := s.config.Bus.Kinds(ctx)
	if err != nil {
		klog.FromContext(ctx).Error(err, "Cannot find kinds that are no longer served")
		s.await(true)
		return
	}
	waiting := false
	for _, kind := range all {
		if !s.fallsHere(kind.Name) {
			delete(s.retired, kind.Name)
			continue
		}
		if contains(want, kind.Name) || catalog.Silent[kind.Name.Group()] || kind.Form == kinds.Full {
			delete(s.missing, kind.Name)
			delete(s.retired, kind.Name)
			continue
		}
		if _, known := s.missing[kind.Name]; !known {
			s.missing[kind.Name] = time.Now()
		}
		if time.Since(s.missing[kind.Name]) < goneAfter {
			waiting = true
			continue
		}
		if err := s.endKind(ctx, kind); err != nil {
			if before := s.retired[kind.Name].err; fmt.Sprint(before) != fmt.Sprint(err) {
				klog.FromContext(ctx).Error(err, "Cannot retire a kind that is no longer served", "kind", kind.Name)
			}
			s.retired[kind.Name] = retiredKind{err: err}
			waiting = true
		}
	}
	s.await(waiting)
	s.setNextMark()
}

// endKind retires a kind that is not served, unless that was done recently and in this epoch. It
// removes the streams of a retired kind when they hold nothing but marks.
func (s *Service) endKind(ctx context.Context, kind kinds.Kind) error {
	epoch, _ := s.epoch.Now()
	said, retired := s.retired[kind.Name]
	retired = retired && said.err == nil
	if retired && s.removeRetired(ctx, kind.Name) || retired && said.epoch >= epoch && time.Since(said.at) < retiredMarkEvery {
		return nil
	}
	s.stop(func(name kinds.Name) bool { return name == kind.Name })
	epoch, err := reflector.Retire(ctx, s.reflectorConfig(kind), s.position)
	if err != nil {
		return err
	}
	s.retired[kind.Name] = retiredKind{epoch: epoch, at: time.Now()}
	if !retired {
		klog.FromContext(ctx).Info("A kind is no longer served; recorded its objects as deleted", "kind", kind.Name)
	}
	return nil
}

// setNextMark sets when the kinds that are not served need their next mark.
func (s *Service) setNextMark() {
	var next time.Time
	for _, said := range s.retired {
		if at := said.at.Add(retiredMarkEvery); next.IsZero() || at.Before(next) {
			next = at
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.reminder = next
}

// removeRetired removes the streams of a retired kind when they hold nothing but marks, because all else
// has expired. It reports whether it removed them.
func (s *Service) removeRetired(ctx context.Context, kind kinds.Name) bool {
	log, err := s.config.Bus.StreamState(ctx, subject.LogStream(kind))
	if err != nil || log.Messages > 0 && !s.onlyMarks(ctx, kind, log) {
		return false
	}
	if err := s.config.Bus.DeleteKind(ctx, kind); err != nil {
		klog.FromContext(ctx).Error(err, "Cannot remove the empty streams of a kind that is no longer served", "kind", kind)
		return false
	}
	delete(s.missing, kind)
	delete(s.retired, kind)
	delete(s.ensured, kind)
	return true
}

// onlyMarks reports whether a log holds marks alone: its last mark links to the last message that is not
// a mark, and that message has expired.
func (s *Service) onlyMarks(ctx context.Context, kind kinds.Name, log bus.State) bool {
	last, there, err := kindlog.At(ctx, s.config.Bus, kind, log.Last)
	return err == nil && there && last.Op == events.Mark && last.After.Sequence < log.First
}

// position returns the newest version of the storage.
func (s *Service) position(ctx context.Context) (string, error) {
	namespaces := kinds.Namespaces.Kind
	namespaces.Form = kinds.Metadata
	k, err := s.source.Kind(namespaces)
	if err != nil {
		return "", err
	}
	version, _, err := k.Position(ctx, "", "")
	return version, err
}
