// Package memory is a bus in memory, for tests: it keeps the same contract as package stream,
// without a server, a disk or a network. Readers see stored messages at once. Redelivery, wakes
// and expiry follow a clock that the test may own; the default is the time package's, which is
// virtual inside testing/synctest.
package memory

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/millrace/millrace/pkg/events/bus"
	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/pkg/events/report"
	"github.com/millrace/millrace/pkg/events/subject"
)

// Clock is the clock of a bus.
type Clock interface {
	Now() time.Time
	// AfterFunc calls f, from any goroutine but this one, when d has passed,
	// unless the function it gives is called before.
	AfterFunc(d time.Duration, f func()) (stop func() bool)
}

// Options of a bus in memory. The zero value is usable.
type Options struct {
	// Clock; nil: the time package's.
	Clock Clock
	// LogAge is how long logs, turns and outcomes are kept; 0 means 24 h.
	LogAge time.Duration
	// LogBytes bounds each of them; 0 means unbounded.
	LogBytes int64
	// MaxMessage bounds a message; 0 means 8 MiB.
	MaxMessage int
}

const (
	defaultLogAge     = 24 * time.Hour
	defaultMaxMessage = 8 << 20
	markAge           = time.Hour
	wakeAge           = 7 * 24 * time.Hour
	putWindow         = 2 * time.Minute
)

// Bus is a [bus.Bus] in memory.
type Bus struct {
	clock      Clock
	logAge     time.Duration
	logBytes   int64
	maxMessage int
	closed     chan struct{}

	mu        sync.Mutex
	streams   map[string]*stream
	listeners []*listener
}

var _ bus.Bus = (*Bus)(nil)

// New makes an empty bus.
func New(options Options) *Bus {
	b := &Bus{
		clock: options.Clock, closed: make(chan struct{}), streams: map[string]*stream{},
		logAge:     cmp.Or(options.LogAge, defaultLogAge),
		logBytes:   options.LogBytes,
		maxMessage: cmp.Or(options.MaxMessage, defaultMaxMessage),
	}
	if b.clock == nil {
		b.clock = wall{}
	}
	return b
}

type wall struct{}

func (wall) Now() time.Time { return time.Now() }

func (wall) AfterFunc(d time.Duration, f func()) func() bool { return time.AfterFunc(d, f).Stop }

// EnsureKind makes the log of a kind; see [bus.Streams].
func (b *Bus) EnsureKind(ctx context.Context, kind kinds.Kind) error {
	return b.do(ctx, func() error {
		if log, ok := b.streams[subject.LogStream(kind.Name)]; ok {
			if *log.kind != kind {
				return fmt.Errorf("%w: %s: kind is %+v, want %+v", bus.ErrSettings, log.name, *log.kind, kind)
			}
			return nil
		}
		log := b.add(subject.LogStream(kind.Name), b.logAge, false)
		log.kind = &kind
		return nil
	})
}

// EnsureController makes the streams of a controller; see [bus.Streams].
func (b *Bus) EnsureController(ctx context.Context, controller string) error {
	return b.do(ctx, func() error {
		for _, name := range []string{subject.TurnStream(controller), subject.OutcomeStream(controller)} {
			if b.streams[name] == nil {
				b.add(name, b.logAge, false)
			}
		}
		if b.streams[subject.WakeStream] == nil {
			b.add(subject.WakeStream, 0, true)
		}
		if b.streams[subject.StatusStream] == nil {
			b.add(subject.StatusStream, report.Age, false)
		}
		return nil
	})
}

// Kinds are the kinds whose logs exist, sorted by name.
func (b *Bus) Kinds(ctx context.Context) (found []kinds.Kind, err error) {
	err = b.do(ctx, func() error {
		for _, s := range b.streams {
			if s.kind != nil {
				found = append(found, *s.kind)
			}
		}
		return nil
	})
	slices.SortFunc(found, func(a, b kinds.Kind) int { return strings.Compare(string(a.Name), string(b.Name)) })
	return found, err
}

// DeleteKind removes the log of a kind; see [bus.Streams].
func (b *Bus) DeleteKind(ctx context.Context, kind kinds.Name) error {
	return b.do(ctx, func() error {
		if s := b.streams[subject.LogStream(kind)]; s != nil {
			delete(b.streams, s.name)
			s.end()
		}
		return nil
	})
}

// StreamState is the state of a stream.
func (b *Bus) StreamState(ctx context.Context, name string) (state bus.State, err error) {
	err = b.do(ctx, func() error {
		s, err := b.stream(name)
		if err != nil {
			return err
		}
		state = bus.State{
			First: s.first(), Last: s.last, Messages: uint64(len(s.messages)), Bytes: uint64(s.bytes),
			Created: s.created, Begins: s.messages[s.first()].Time, Keeps: s.keeps, Now: b.clock.Now(),
		}
		return nil
	})
	return state, err
}

// Truncate removes all messages of a stream after a sequence, like a server that lost the
// newest blocks of its disk.
func (b *Bus) Truncate(name string, last uint64) error {
	return b.do(context.Background(), func() error {
		s, err := b.stream(name)
		if err != nil {
			return err
		}
		s.truncate(last)
		return nil
	})
}

// Healthy is nil until the bus is closed.
func (b *Bus) Healthy() error {
	select {
	case <-b.closed:
		return bus.ErrClosed
	default:
		return nil
	}
}

// Close ends every reader and publisher.
func (b *Bus) Close() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.Healthy() == nil {
		close(b.closed)
		for _, s := range b.streams {
			s.end()
		}
	}
	return nil
}

// do runs a step under the bus's lock, so that it is atomic.
func (b *Bus) do(ctx context.Context, step func() error) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if err := b.Healthy(); err != nil {
		return err
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	return step()
}

func (b *Bus) add(name string, age time.Duration, coalesce bool) *stream {
	s := newStream(b, name, coalesce)
	if s.keeps.Age = age; !coalesce {
		s.keeps.Bytes = b.logBytes
	}
	b.streams[name] = s
	return s
}

// stream finds a stream, after removing its expired messages.
func (b *Bus) stream(name string) (*stream, error) {
	s := b.streams[name]
	if s == nil {
		return nil, fmt.Errorf("stream %s: %w", name, bus.ErrNoStream)
	}
	s.expire(b.clock.Now())
	return s, nil
}

// streamOf finds the stream that holds a subject.
func (b *Bus) streamOf(name string) (*stream, error) {
	if _, ok := subject.ParseNotary(name); ok {
		return b.stream(subject.NotaryStream)
	}
	if name == subject.StatusSubject || name == subject.WatcherStatusSubject {
		return b.stream(subject.StatusStream)
	}
	tokens := strings.SplitN(name, ".", 3)
	if len(tokens) < 3 {
		return nil, fmt.Errorf("no stream holds %s: %w", name, bus.ErrNoStream)
	}
	switch tokens[0] {
	case "ev":
		return b.stream(subject.LogStream(kinds.ParseToken(tokens[1])))
	case "turn":
		return b.stream(subject.TurnStream(tokens[1]))
	case "outcome":
		return b.stream(subject.OutcomeStream(tokens[1]))
	case "shadow":
		return b.stream(subject.ShadowStream(tokens[1]))
	case "sched", "wake":
		return b.stream(subject.WakeStream)
	default:
		return nil, fmt.Errorf("no stream holds %s: %w", name, bus.ErrNoStream)
	}
}
