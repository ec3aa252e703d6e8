package memory

import (
	"context"
	"fmt"
	"slices"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/bus"
)

// batchSize bounds the messages that a follower gets at once.
const batchSize = 2000

// Last is the newest message of a subject; see [bus.Reader].
func (b *Bus) Last(ctx context.Context, name, subject string) (events.Message, bool, error) {
	return b.get(ctx, name, func(s *stream) uint64 { return s.newest[subject] })
}

// LastOf is the newest message of each of many subjects; see [bus.LastReader].
func (b *Bus) LastOf(ctx context.Context, name string, subjects []string) (map[string]events.Message, error) {
	found := make(map[string]events.Message, len(subjects))
	err := b.do(ctx, func() error {
		s, err := b.stream(name)
		if err != nil {
			return err
		}
		for _, subject := range subjects {
			if m, ok := s.messages[s.newest[subject]]; ok {
				found[subject] = clone(m)
			}
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return found, nil
}

// At is the message at a sequence; see [bus.Reader].
func (b *Bus) At(ctx context.Context, name string, sequence uint64) (events.Message, bool, error) {
	return b.get(ctx, name, func(*stream) uint64 { return sequence })
}

func (b *Bus) get(ctx context.Context, name string, which func(*stream) uint64) (m events.Message, ok bool, err error) {
	err = b.do(ctx, func() error {
		s, err := b.stream(name)
		if err != nil {
			return err
		}
		if m, ok = s.messages[which(s)]; ok {
			m = clone(m)
		}
		return nil
	})
	return m, ok, err
}

// Follow reads a stream in order and goes on for ever; see [bus.Reader].
func (b *Bus) Follow(ctx context.Context, name string, from uint64, handle func([]events.Message) error) error {
	f := follower{bus: b, name: name, next: max(from, 1)}
	for {
		batch, changed, err := f.read(ctx)
		switch {
		case ctx.Err() != nil:
			return nil
		case err != nil:
			return fmt.Errorf("follow %s: %w", name, err)
		case len(batch) > 0:
			f.next = batch[len(batch)-1].Sequence + 1
			if err := handle(batch); err != nil {
				return err
			}
			continue
		}
		select {
		case <-ctx.Done():
			return nil
		case <-changed:
		}
	}
}

type follower struct {
	bus    *Bus
	name   string
	next   uint64
	stream *stream // the stream that existed at first
}

func (f *follower) read(ctx context.Context) (batch []events.Message, changed <-chan struct{}, err error) {
	err = f.bus.do(ctx, func() error {
		s, err := f.bus.stream(f.name)
		if err != nil {
			return err
		}
		if f.stream == nil {
			f.stream = s
		}
		if s != f.stream || s.last+1 < f.next {
			return bus.ErrOvertaken
		}
		batch, changed = s.from(f.next, batchSize), s.changed
		return nil
	})
	return batch, changed, err
}

// Broadcast publishes to every listener of a topic; see [bus.Peers]. A listener that is too slow
// misses the message.
func (b *Bus) Broadcast(topic string, data []byte) error {
	return b.do(context.Background(), func() error {
		for _, l := range b.listeners {
			if l.topic != topic {
				continue
			}
			select {
			case l.heard <- slices.Clone(data):
			default:
			}
		}
		return nil
	})
}

// NoListeners reports whether nothing listens on a topic; see [bus.Peers].
func (b *Bus) NoListeners(ctx context.Context, topic string) (absent bool) {
	_ = b.do(ctx, func() error {
		absent = !slices.ContainsFunc(b.listeners, func(l *listener) bool { return l.topic == topic })
		return nil
	})
	return absent
}

type listener struct {
	topic string
	heard chan []byte
}

// Listen hears a topic until the context ends; see [bus.Peers].
func (b *Bus) Listen(ctx context.Context, topic string, hear func(data []byte)) error {
	l := &listener{topic, make(chan []byte, 256)}
	b.mu.Lock()
	b.listeners = append(b.listeners, l)
	b.mu.Unlock()
	defer func() {
		b.mu.Lock()
		defer b.mu.Unlock()
		b.listeners = slices.DeleteFunc(b.listeners, func(other *listener) bool { return other == l })
	}()
	for {
		select {
		case data := <-l.heard:
			hear(data)
		case <-ctx.Done():
			return nil
		case <-b.closed:
			return fmt.Errorf("listen on %s: %w", topic, bus.ErrClosed)
		}
	}
}
