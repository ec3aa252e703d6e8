package conn

import (
	"errors"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/millrace/millrace/pkg/events/bus"
	"github.com/millrace/millrace/pkg/events/stream/natserr"
)

// Stats are the metrics of a bus. Their labels are streams, durables and users, whose number
// kinds and controllers bound; never subjects.
type Stats struct {
	Published   *prometheus.CounterVec
	Refused     *prometheus.CounterVec
	Redelivered *prometheus.CounterVec
	Recreated   *prometheus.CounterVec
	Restarts    *prometheus.CounterVec
	HandedOver  *prometheus.CounterVec
	Dropped     prometheus.Counter
	Forbidden   prometheus.Counter
	Unsealed    *prometheus.CounterVec
	Crowded     *prometheus.CounterVec
	Audit       *prometheus.GaugeVec
}

func newStats() *Stats {
	vec := func(name, help string, labels ...string) *prometheus.CounterVec {
		return prometheus.NewCounterVec(prometheus.CounterOpts{Namespace: "millrace", Subsystem: "bus", Name: name, Help: help}, labels)
	}
	one := func(name, help string) prometheus.Counter {
		return prometheus.NewCounter(prometheus.CounterOpts{Namespace: "millrace", Subsystem: "bus", Name: name, Help: help})
	}
	return &Stats{
		Published:   vec("published_total", "Messages stored, by stream.", "stream"),
		Refused:     vec("publish_failures_total", "Messages that were not stored, by reason.", "reason"),
		Redelivered: vec("redelivered_total", "Redeliveries of messages.", "stream", "consumer"),
		Recreated:   vec("astray_total", "Consumers that were recreated because they had lost their position: the stream is shorter than their position, or they delivered history again.", "stream", "consumer"),
		Restarts:    vec("reader_restarts_total", "Restarts of readers and workers.", "stream"),
		HandedOver:  vec("handed_over_total", "Messages that were read from a publisher in the same process, without the server, by stream.", "stream"),
		Dropped:     one("slow_reader_total", "Times that the NATS server reported this process as a slow consumer."),
		Unsealed:    vec("unsealed_total", "Messages without a checksum, stored by an older version.", "stream"),
		Forbidden:   one("forbidden_total", "Requests that the NATS server's permissions denied."),
		Crowded:     vec("readers_refused_total", "Consumers that the provisioner refused because the user has reached its limit, by user.", "user"),
		Audit: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Namespace: "millrace", Subsystem: "bus", Name: "audit_grade",
			Help: "1 where the bus meets a requirement of an audit, 0 where it does not, by requirement.",
		}, []string{"reason"}),
	}
}

func (s *Stats) collectors() []prometheus.Collector {
	return []prometheus.Collector{s.Published, s.Refused, s.Redelivered, s.Recreated, s.Restarts, s.HandedOver, s.Dropped, s.Forbidden, s.Unsealed, s.Crowded, s.Audit}
}

// Failed counts a message that was not stored, by the reason.
func (s *Stats) Failed(err error) {
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
	s.Refused.WithLabelValues(reason).Inc()
}

// Describe makes Stats a [prometheus.Collector].
func (s *Stats) Describe(ch chan<- *prometheus.Desc) {
	for _, c := range s.collectors() {
		c.Describe(ch)
	}
}

// Collect makes Stats a [prometheus.Collector].
func (s *Stats) Collect(ch chan<- prometheus.Metric) {
	for _, c := range s.collectors() {
		c.Collect(ch)
	}
}
