package command

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/klog/v2"

	"github.com/millrace/millrace/pkg/events/stream"
)

// auditEvery is how often a running service audits the bus.
const auditEvery = time.Minute

// audit refuses a bus whose settings are not audit grade, with --require-audit-grade.
// A shortcoming that passes by itself, such as a server that is down for the moment, does
// not stop the start, because that would add a second outage to the first.
func (o *busOptions) audit(ctx context.Context, b *stream.Bus) error {
	if !o.auditGrade {
		return nil
	}
	found, err := b.Audit(ctx)
	if err != nil {
		return err
	}
	var wrong []string
	for _, s := range found {
		if !s.Passing {
			wrong = append(wrong, s.String())
		}
	}
	if len(wrong) == 0 {
		return nil
	}
	return fmt.Errorf("the bus is not audit grade: %s (or leave out --require-audit-grade)", strings.Join(wrong, ". Also, "))
}

// auditPart audits the bus as long as the process runs, and logs when a shortcoming
// appears and when it is gone. It also exports the bus' metrics.
func auditPart(b *stream.Bus) part {
	return part{name: "audit", collectors: []prometheus.Collector{b}, run: func(ctx context.Context) error {
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
func tell(log klog.Logger, said map[string]bool, found []stream.Shortcoming) map[string]bool {
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
