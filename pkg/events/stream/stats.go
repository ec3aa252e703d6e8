package stream

import (
	"errors"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/millrace/millrace/pkg/events/bus"
	"github.com/millrace/millrace/pkg/events/stream/natserr"
)

// stats are the metrics of a bus. Their labels are streams, durables and users, whose number
// kinds and controllers bound; never subjects.
type stats struct {
	published   *prometheus.CounterVec
	refused     *prometheus.CounterVec
	redelivered *prometheus.CounterVec
	recreated   *prometheus.CounterVec
	restarts    *prometheus.CounterVec
	handedOver  *prometheus.CounterVec
	dropped     prometheus.Counter
	forbidden   prometheus.Counter
	unsealed    *prometheus.CounterVec
	crowded     *prometheus.CounterVec
	audit       *prometheus.GaugeVec
}

func newStats() *stats {
	vec := func(name, help string, labels ...string) *prometheus.CounterVec {
		return prometheus.NewCounterVec(prometheus.CounterOpts{Namespace: "millrace", Subsystem: "bus", Name: name, Help: help}, labels)
	}
	one := func(name, help string) prometheus.Counter {
		return prometheus.NewCounter(prometheus.CounterOpts{Namespace: "millrace", Subsystem: "bus", Name: name, Help: help})
	}
	return &stats{
		published:   vec("published_total", "Messages stored, by stream.", "stream"),
		refused:     vec("publish_failures_total", "Messages that were not stored, by reason.", "reason"),
		redelivered: vec("redelivered_total", "Redeliveries of messages.", "stream", "consumer"),
		recreated:   vec("astray_total", "Consumers that were recreated because they had lost their position: the stream is shorter than their position, or they delivered history again.", "stream", "consumer"),
		restarts:    vec("reader_restarts_total", "Restarts of readers and workers.", "stream"),
		handedOver:  vec("handed_over_total", "Messages that were read from a publisher in the same process, without the server, by stream.", "stream"),
		dropped:     one("slow_reader_total", "Times that the NATS server reported this process as a slow consumer."),
		unsealed:    vec("unsealed_total", "Messages without a checksum, stored by an older version.", "stream"),
		forbidden:   one("forbidden_total", "Requests that the NATS server's permissions denied."),
		crowded:     vec("readers_refused_total", "Consumers that the provisioner refused because the user has reached its limit, by user.", "user"),
		audit: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Namespace: "millrace", Subsystem: "bus", Name: "audit_grade",
			Help: "1 where the bus meets a requirement of an audit, 0 where it does not, by requirement.",
		}, []string{"reason"}),
	}
}

func (s *stats) collectors() []prometheus.Collector {
	return []prometheus.Collector{s.published, s.refused, s.redelivered, s.recreated, s.restarts, s.handedOver, s.dropped, s.forbidden, s.unsealed, s.crowded, s.audit}
}

func (s *stats) failed(err error) {
	var refusal *natserr.Refusal
	reason := "other"
	switch {
	case errors.Is(err, bus.ErrOvertaken):
		reason = "overtaken"
	case errors.Is(err, bus.ErrTooLarge):
		reason = "too_large"
	case errors.Is(err, bus.ErrNoStream):
		reason = "no_stream"
	case errors.Is(err, bus.ErrClosed):
		reason = "closed"
	case errors.Is(err, natserr.ErrFull):
		reason = "full"
	case errors.As(err, &refusal):
		reason = "forbidden"
	}
	s.refused.WithLabelValues(reason).Inc()
}

// Describe makes a Bus a [prometheus.Collector].
func (b *Bus) Describe(ch chan<- *prometheus.Desc) {
	for _, c := range b.stats.collectors() {
		c.Describe(ch)
	}
}

// Collect makes a Bus a [prometheus.Collector].
func (b *Bus) Collect(ch chan<- prometheus.Metric) {
	for _, c := range b.stats.collectors() {
		c.Collect(ch)
	}
}
