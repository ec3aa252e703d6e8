package serviceflags

import (
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/millrace/millrace/pkg/events/subject"
)

// signedMetric exports for each stream how long ago the notary found it signed up to its end.
type signedMetric struct{ signed func() map[string]time.Time }

var signedSeconds = prometheus.NewDesc("millrace_notary_signed_seconds",
	"Time since this notary last found a stream signed up to its end, or first saw the stream. Logs are labelled with their kind, other streams with their controller.",
	[]string{"stream", "kind", "controller"}, nil)

// Describe implements [prometheus.Collector].
func (signedMetric) Describe(ch chan<- *prometheus.Desc) { ch <- signedSeconds }

// Collect implements [prometheus.Collector].
func (m signedMetric) Collect(ch chan<- prometheus.Metric) {
	for stream, at := range m.signed() {
		kind, _ := subject.KindOfStream(stream)
		_, controller, _ := strings.Cut(stream, "_")
		if kind != "" {
			controller = ""
		}
		ch <- prometheus.MustNewConstMetric(signedSeconds, prometheus.GaugeValue, time.Since(at).Seconds(), stream, string(kind), controller)
	}
}
