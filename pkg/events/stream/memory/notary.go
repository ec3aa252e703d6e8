package memory

import (
	"context"
	"time"

	"github.com/millrace/millrace/pkg/events/bus"
	"github.com/millrace/millrace/pkg/events/subject"
)

var _ bus.NotaryBus = (*Bus)(nil)

// EnsureNotary makes the notary's stream; see [bus.NotaryBus].
func (b *Bus) EnsureNotary(ctx context.Context, keep time.Duration) error {
	return b.do(ctx, func() error {
		s := b.streams[subject.NotaryStream]
		switch {
		case s == nil:
			b.add(subject.NotaryStream, keep, false).keeps.Bytes = 0
		case s.keeps.Age != 0 && (keep == 0 || keep > s.keeps.Age):
			s.keeps.Age = keep
		}
		return nil
	})
}
