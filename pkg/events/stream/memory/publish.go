package memory

import (
	"context"
	"fmt"
	"maps"
	"strconv"
	"time"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/bus"
	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/pkg/events/subject"
)

// Store stores a message if the last one of its subject has the sequence
// expect; see [bus.Publisher].
func (b *Bus) Store(ctx context.Context, m events.Message, expect uint64) (sequence uint64, err error) {
	err = b.publish(ctx, m, func(s *stream) error {
		if have := s.newest[m.Subject]; have != expect {
			return fmt.Errorf("%w: the last message of %s is %d, not %d", bus.ErrOvertaken, m.Subject, have, expect)
		}
		sequence = s.store(with(m, expectHeader, strconv.FormatUint(expect, 10)), 0)
		return nil
	})
	return sequence, err
}

// The headers that a server checks when it stores a message, and keeps.
const (
	expectHeader = "Nats-Expected-Last-Subject-Sequence"
	idHeader     = "Nats-Msg-Id"
)

// with is a message with one more header.
func with(m events.Message, header, value string) events.Message {
	m = events.Seal(m)
	m.Header = maps.Clone(m.Header)
	m.Header[header] = []string{value}
	return m
}

// Put stores a message once per id; see [bus.Publisher].
func (b *Bus) Put(ctx context.Context, m events.Message, id string) (sequence uint64, err error) {
	err = b.publish(ctx, m, func(s *stream) error {
		now := b.clock.Now()
		maps.DeleteFunc(s.ids, func(_ string, p put) bool { return now.Sub(p.at) >= putWindow })
		if before, ok := s.ids[id]; ok {
			sequence = before.sequence
			return nil
		}
		sequence = s.store(with(m, idHeader, id), 0)
		s.ids[id] = put{sequence, now}
		return nil
	})
	return sequence, err
}

// Schedule sets the wake of a key; see [bus.Publisher].
func (b *Bus) Schedule(ctx context.Context, w events.Wake) error {
	m, err := events.EncodeJSON(w, w.Trace)
	if err != nil {
		return fmt.Errorf("schedule %s for %v: %w", w.Controller, w.Key, err)
	}
	m.Subject = subject.Schedule(w.Controller, w.Key)
	return b.publish(ctx, m, func(s *stream) error {
		set := s.store(m, 0)
		fired := m
		fired.Subject = subject.Wake(w.Controller, w.Key)
		b.clock.AfterFunc(w.At.Sub(b.clock.Now()), func() {
			b.mu.Lock()
			defer b.mu.Unlock()
			if s.newest[m.Subject] == set && !s.ended {
				s.remove(set)
				s.store(fired, wakeAge)
			}
		})
		return nil
	})
}

func (b *Bus) publish(ctx context.Context, m events.Message, store func(*stream) error) error {
	return b.do(ctx, func() error {
		if err := b.fits(m); err != nil {
			return err
		}
		s, err := b.streamOf(m.Subject)
		if err != nil {
			return err
		}
		return store(s)
	})
}

func (b *Bus) fits(m events.Message) error {
	size := len(m.Data)
	for key, values := range m.Header {
		for _, value := range values {
			size += len(key) + len(value)
		}
	}
	if size > b.maxMessage {
		return fmt.Errorf("publish on %s: %w: %d bytes, at most %d", m.Subject, bus.ErrTooLarge, size, b.maxMessage)
	}
	return nil
}

// appender is the publisher of a log until another appender has appended.
type appender struct {
	bus  *Bus
	log  *stream
	last uint64
	err  error
}

// Append opens a kind's log for its one publisher; see [bus.Publisher].
func (b *Bus) Append(ctx context.Context, kind kinds.Name) (bus.Appender, error) {
	a := &appender{bus: b}
	err := b.do(ctx, func() (err error) {
		if a.log, err = b.stream(subject.LogStream(kind)); err == nil {
			a.last = a.log.last
		}
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("open the log of %s: %w", kind, err)
	}
	return a, nil
}

func (a *appender) Append(ctx context.Context, m events.Message) error {
	if a.err != nil {
		return a.err
	}
	a.err = a.bus.do(ctx, func() error {
		if err := a.bus.fits(m); err != nil {
			return err
		}
		switch log := a.log; {
		case a.bus.streams[log.name] == nil:
			return fmt.Errorf("append to %s: %w", log.name, bus.ErrNoStream)
		case a.bus.streams[log.name] != log, log.last != a.last:
			return fmt.Errorf("append to %s: %w", log.name, bus.ErrOvertaken)
		}
		a.last = a.log.store(m, a.lifetime(m))
		return nil
	})
	return a.err
}

func (a *appender) lifetime(m events.Message) time.Duration {
	if events.Op(m.Get(events.HeaderOp)) != events.Mark {
		return 0
	}
	return min(markAge, a.bus.logAge)
}

func (a *appender) Flush(ctx context.Context) error {
	if a.err != nil {
		return a.err
	}
	return a.bus.do(ctx, func() error { return nil })
}

func (a *appender) Last() uint64 { return a.last }

func (a *appender) Close() error {
	a.err = fmt.Errorf("append to %s: %w", a.log.name, bus.ErrClosed)
	return nil
}
