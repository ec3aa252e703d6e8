package busflags

import (
	"context"
	"errors"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/klog/v2"

	"github.com/millrace/millrace/cmd/internal/credentials"
	"github.com/millrace/millrace/cmd/internal/process"
	"github.com/millrace/millrace/pkg/events/access"
	"github.com/millrace/millrace/pkg/events/stream"
	"github.com/millrace/millrace/pkg/events/stream/audit"
	"github.com/millrace/millrace/pkg/events/stream/embedded"
)

// ProvisionerPart creates the streams and consumers that services on the same bus ask for.
func ProvisionerPart(b *stream.Bus) process.Part {
	return process.Part{
		Name:   access.Provisioner,
		Run:    func(ctx context.Context) error { return b.Provide(ctx, credentials.Controllers()) },
		Checks: map[string]func() error{"provisioner-bus": b.Healthy},
	}
}

// StorePart exports the store metrics of the server in this process. Without such a server, it
// makes room on the servers of --nats-url, if size limits them.
func StorePart(server *embedded.Server, b *stream.Bus, size StoreSize) []process.Part {
	if server == nil && size == 0 {
		return nil
	}
	if server == nil {
		limit := b.StoreLimit(int64(size))
		return []process.Part{{Name: "store", Collectors: []prometheus.Collector{limit}, Run: limit.Run}}
	}
	return []process.Part{{Name: "store", Collectors: []prometheus.Collector{server}, Run: func(ctx context.Context) error {
		<-ctx.Done()
		return nil
	}}}
}

// auditEvery is how often a running service audits the bus.
const auditEvery = time.Minute

// AuditPart audits the bus as long as the process runs, and logs when a shortcoming
// appears and when it is gone. It also exports the bus' metrics.
func AuditPart(b *stream.Bus) process.Part {
	return process.Part{Name: "audit", Collectors: []prometheus.Collector{b}, Run: func(ctx context.Context) error {
		log := klog.FromContext(ctx)
		again := time.NewTicker(auditEvery)
		defer again.Stop()
		said := map[string]bool{}
		for {
			found, err := b.Audit(ctx)
			if err == nil {
				said = tell(log, said, found)
			} else if !errors.Is(err, context.Canceled) {
				log.V(2).Info("Cannot look at the bus", "error", err)
			}
			select {
			case <-ctx.Done():
				return nil
			case <-again.C:
			}
		}
	}}
}

// tell logs shortcomings that have appeared or gone since the last call.
func tell(log klog.Logger, said map[string]bool, found []audit.Shortcoming) map[string]bool {
	now := map[string]bool{}
	for _, s := range found {
		now[s.Reason] = true
		if !said[s.Reason] {
			log.Info("The bus does not meet the requirements of an audit: "+s.What, "reason", s.Reason, "cure", s.Cure)
		}
	}
	for reason := range said {
		if !now[reason] {
			log.Info("The bus meets the requirements of an audit again", "reason", reason)
		}
	}
	return now
}
