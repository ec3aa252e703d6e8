package memory

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/bus"
	"github.com/millrace/millrace/pkg/events/subject"
)

var _ bus.Archive = (*Bus)(nil)

// sizeHeader is the header with which a server replaces an omitted body.
const sizeHeader = "Nats-Msg-Size"

// Controllers are the controllers whose turns are kept; see [bus.Archive].
func (b *Bus) Controllers(ctx context.Context) ([]string, error) {
	return b.named(ctx, subject.TurnStream(""))
}

// Shadows are the controllers whose shadows are kept; see [bus.Archive].
func (b *Bus) Shadows(ctx context.Context) ([]string, error) {
	return b.named(ctx, subject.ShadowStream(""))
}

func (b *Bus) named(ctx context.Context, prefix string) (found []string, err error) {
	err = b.do(ctx, func() error {
		for name := range b.streams {
			if controller, ours := strings.CutPrefix(name, prefix); ours {
				found = append(found, controller)
			}
		}
		return nil
	})
	slices.Sort(found)
	return found, err
}

// Next is the first message of a subject from a sequence on; see [bus.Archive].
func (b *Bus) Next(ctx context.Context, name, subject string, from uint64) (events.Message, bool, error) {
	return b.get(ctx, name, func(s *stream) uint64 {
		m, _ := s.after(from, subject)
		return m.Sequence
	})
}

// Read hands over a passage of a stream; see [bus.Archive].
func (b *Bus) Read(ctx context.Context, p bus.Passage, handle func([]events.Message) error) error {
	next := p.From
	for to := uint64(0); ; {
		var batch []events.Message
		err := b.do(ctx, func() error {
			s, err := b.stream(p.Stream)
			if err != nil {
				return err
			}
			if next == 0 {
				next = s.since(p.Since)
			}
			if to == 0 {
				to = min(p.To, s.last)
				if p.To == 0 {
					to = s.last
				}
			}
			for m, ok := s.after(next, p.Subject); ok && m.Sequence <= to && len(batch) < batchSize; m, ok = s.after(next, p.Subject) {
				next = m.Sequence + 1
				m = clone(m)
				if p.HeadersOnly {
					m.Header[sizeHeader], m.Data = []string{strconv.Itoa(len(m.Data))}, nil
				}
				batch = append(batch, m)
			}
			return nil
		})
		if err != nil || len(batch) == 0 {
			return err
		}
		if err := handle(batch); err != nil {
			return err
		}
	}
}

// Consumers are the durable consumers of a stream; see [bus.Archive].
func (b *Bus) Consumers(ctx context.Context, name string) (found []bus.Consumer, err error) {
	err = b.do(ctx, func() error {
		s, err := b.stream(name)
		if err != nil {
			return err
		}
		for durable, d := range s.durables {
			found = append(found, d.standing(durable))
		}
		for i, r := range s.readings {
			c := bus.Consumer{Name: fmt.Sprint("reader-", i), Answered: r.dealt, Ended: !r.ended.IsZero()}
			for m, ok := s.after(r.dealt+1, ""); ok; m, ok = s.after(m.Sequence+1, "") {
				c.Unanswered++
			}
			found = append(found, c)
		}
		return nil
	})
	slices.SortFunc(found, func(a, b bus.Consumer) int { return strings.Compare(a.Name, b.Name) })
	return found, err
}

// standing is the progress of a durable consumer.
func (d *durable) standing(name string) bus.Consumer {
	c := bus.Consumer{Name: name, Answered: d.next - 1, Unanswered: len(d.pending)}
	for sequence, p := range d.pending {
		c.Answered = min(c.Answered, sequence-1)
		if p.attempt > 1 {
			c.Again++
		}
	}
	for m, ok := d.stream.after(d.next, ""); ok; m, ok = d.stream.after(m.Sequence+1, "") {
		c.Pending++
	}
	return c
}
