package reconcilers

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/time/rate"
	"k8s.io/klog/v2"

	"github.com/millrace/millrace/pkg/events/report"
	"github.com/millrace/millrace/services/reconcilers/shell"
)

// signatures sign and check the heartbeats of reconcilers. A replica leaves keys to other
// replicas that it hears, and every user that may publish can forge a heartbeat. So a
// reconciler signs its heartbeats with the key for turns. Where keys are configured, a
// heartbeat without a valid signature does not count.
type signatures struct {
	of  shell.Signatures
	now func() time.Time // by the clock of the bus, because the machine's own may be wrong

	unproven prometheus.Counter
	tell     rate.Sometimes // limits the log lines about heartbeats that do not count
}

func newSignatures(of shell.Signatures, now func() time.Time) *signatures {
	return &signatures{
		of: of, now: now, tell: rate.Sometimes{Interval: 10 * time.Second},
		unproven: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "millrace_reconcilers_unproven_heartbeats_total",
			Help: "Heartbeats of reconcilers that were ignored because they have no trusted signature.",
		}),
	}
}

func (s *signatures) sign(heartbeat []byte) []byte {
	return s.of.Sign.Hint(report.Reconcilers, heartbeat, s.now())
}

// signed reports whether a trusted reconciler has signed a heartbeat.
func (s *signatures) signed(heartbeat []byte) bool {
	err := s.of.Heartbeat(heartbeat, s.now())
	if err == nil {
		return true
	}
	s.unproven.Inc()
	s.tell.Do(func() {
		klog.Background().Error(err, "Ignored a reconciler's heartbeat without a trusted signature")
	})
	return false
}
