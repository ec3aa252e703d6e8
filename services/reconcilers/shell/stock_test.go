package shell

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/bus"
	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/pkg/events/subject"
)

// stock is a bus of streams that hold the messages put into them. Its other methods are nil.
type stock struct {
	bus.Bus

	hearing sync.Mutex // listeners hear one message at a time, as on a bus

	mu      sync.Mutex
	streams map[string][]events.Message
	ears    map[string][]func([]byte)
}

// stocked is a bus with the streams of the toy and of some pods.
func stocked(t *testing.T, pods int) *stock {
	t.Helper()
	log := subject.LogStream("pods")
	b := &stock{
		streams: map[string][]events.Message{subject.TurnStream("toy"): nil, subject.OutcomeStream("toy"): nil, log: nil},
		ears:    map[string][]func([]byte){},
	}
	for i := range pods {
		b.put(log, delta(kinds.Pods.Kind, events.Is, aPod(fmt.Sprint("p", i), "", i+1), 0))
	}
	return b
}

func (b *stock) put(stream string, m events.Message) uint64 {
	b.mu.Lock()
	defer b.mu.Unlock()
	m.Stream, m.Sequence, m.Time = stream, uint64(len(b.streams[stream])+1), time.Now()
	b.streams[stream] = append(b.streams[stream], m)
	return m.Sequence
}

func (b *stock) StreamState(_ context.Context, stream string) (bus.State, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	held, there := b.streams[stream]
	if !there {
		return bus.State{}, bus.ErrNoStream
	}
	n := uint64(len(held))
	return bus.State{First: 1, Last: n, Messages: n, Now: time.Now()}, nil
}

func (b *stock) At(_ context.Context, stream string, sequence uint64) (m events.Message, there bool, err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if held := b.streams[stream]; sequence > 0 && sequence <= uint64(len(held)) {
		return held[sequence-1], true, nil
	}
	return m, false, nil
}

func (b *stock) Last(_ context.Context, stream, subject string) (last events.Message, there bool, err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, m := range b.streams[stream] {
		if m.Subject == subject {
			last, there = m, true
		}
	}
	return last, there, nil
}

func (b *stock) LastOf(ctx context.Context, stream string, subjects []string) (map[string]events.Message, error) {
	found := map[string]events.Message{}
	for _, s := range subjects {
		if m, there, _ := b.Last(ctx, stream, s); there {
			found[s] = m
		}
	}
	return found, nil
}

func (b *stock) Store(ctx context.Context, m events.Message, expect uint64) (uint64, error) {
	stream := subject.TurnStream("toy")
	if last, _, _ := b.Last(ctx, stream, m.Subject); last.Sequence != expect {
		return 0, bus.ErrOvertaken
	}
	return b.put(stream, m), nil
}

func (b *stock) Broadcast(topic string, data []byte) error {
	b.mu.Lock()
	ears := b.ears[topic]
	b.mu.Unlock()
	b.hearing.Lock()
	defer b.hearing.Unlock()
	for _, hear := range ears {
		hear(data)
	}
	return nil
}

func (b *stock) Listen(ctx context.Context, topic string, hear func([]byte)) error {
	b.mu.Lock()
	b.ears[topic] = append(b.ears[topic], hear)
	b.mu.Unlock()
	<-ctx.Done()
	return nil
}
