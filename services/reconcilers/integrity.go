package reconcilers

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/klog/v2"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/pkg/events/subject"
)

// integrity holds the kinds whose streams are damaged. The engines decide nothing on
// those.
type integrity struct {
	mu      sync.Mutex
	damaged map[kinds.Name]error
	found   *prometheus.CounterVec
	now     *prometheus.GaugeVec
	losses  *prometheus.CounterVec
	forged  *prometheus.CounterVec
}

func newIntegrity() *integrity {
	return &integrity{
		damaged: map[kinds.Name]error{},
		found: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "millrace_reconcilers_damage_total", Help: "Times that the streams of a kind were damaged or contradicted the watcher's census.",
		}, []string{"kind"}),
		now: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "millrace_reconcilers_damaged", Help: "1 while controllers wait for a kind because its streams are damaged.",
		}, []string{"kind"}),
		losses: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "millrace_reconcilers_losses_total", Help: "Times that a stream of turns, outcomes or wakes had lost acknowledged messages, and every key was requeued.",
		}, []string{"controller", "stream"}),
		forged: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "millrace_reconcilers_unproven_outcomes_total", Help: "Outcomes that were ignored because they have no trusted signature. Their turns are stored again.",
		}, []string{"controller"}),
	}
}

// refused returns the callback of a controller's loop for an outcome that does not
// count.
func (i *integrity) refused(controller string) func(events.Message, error) {
	count := i.forged.WithLabelValues(controller)
	return func(m events.Message, err error) {
		klog.Background().Error(err, "Ignored an outcome without a trusted signature", "controller", controller, "subject", m.Subject, "sequence", m.Sequence)
		count.Inc()
	}
}

// lost returns the callback of a controller's loop for a stream that has lost messages.
func (i *integrity) lost(controller string) func(stream string, what error) {
	for _, stream := range []string{subject.TurnStream(controller), subject.OutcomeStream(controller), subject.WakeStream} {
		i.losses.WithLabelValues(controller, stream) // so that the first loss is an increase
	}
	return func(stream string, what error) {
		klog.Background().Error(what, "A stream has lost acknowledged messages; requeuing every key", "controller", controller, "stream", stream)
		i.losses.WithLabelValues(controller, stream).Inc()
	}
}

// troubled returns the callback of a kind's follower for damaged and repaired streams.
func (i *integrity) troubled(ctx context.Context, kind kinds.Name) func(error) {
	log := klog.FromContext(ctx).WithValues("kind", kind)
	i.found.WithLabelValues(string(kind))
	i.now.WithLabelValues(string(kind))
	return func(err error) {
		i.mu.Lock()
		defer i.mu.Unlock()
		if err == nil {
			delete(i.damaged, kind)
			i.now.WithLabelValues(string(kind)).Set(0)
			log.Info("The streams of a kind are repaired")
			return
		}
		if i.damaged[kind] == nil {
			log.Error(err, "The streams of a kind are damaged; its controllers wait until the watcher has repaired them")
			i.found.WithLabelValues(string(kind)).Inc()
		}
		i.damaged[kind] = err
		i.now.WithLabelValues(string(kind)).Set(1)
	}
}

// check is nil while no kind's streams are damaged.
func (i *integrity) check() error {
	i.mu.Lock()
	defer i.mu.Unlock()
	if len(i.damaged) == 0 {
		return nil
	}
	kind := slices.Sorted(maps.Keys(i.damaged))[0]
	return fmt.Errorf("%s: nothing is decided until the watcher has mended its streams: %w", kind, i.damaged[kind])
}

func (i *integrity) collectors() []prometheus.Collector {
	return []prometheus.Collector{i.found, i.now, i.losses, i.forged}
}
