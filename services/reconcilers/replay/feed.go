package replay

import (
	"context"
	"runtime"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/bus"
)

// crew runs work in parallel, as much at once as there are processors.
type crew chan struct{}

func newCrew() crew { return make(crew, runtime.GOMAXPROCS(0)) }

// do runs work; done is closed when it has ended.
func (c crew) do(work func()) (done chan struct{}) {
	done = make(chan struct{})
	go func() {
		defer close(done)
		c <- struct{}{}
		defer func() { <-c }()
		work()
	}()
	return done
}

// feed reads a passage ahead of its consumer, and decodes it in parallel.
type feed[T any] struct {
	ahead   chan *portion[T]
	current []T
	err     error // of the read; valid once ahead is closed
}

// portion is a run of consecutive messages, decoded when done is closed.
type portion[T any] struct {
	items []T
	done  chan struct{}
}

const (
	portionSize = 128
	portions    = 8 // that are read ahead
)

// open begins to read. The caller must end the context or take everything.
func open[T any](ctx context.Context, archive bus.Archive, p bus.Passage, c crew, decode func(events.Message) T) *feed[T] {
	f := &feed[T]{ahead: make(chan *portion[T], portions)}
	go func() {
		defer close(f.ahead)
		f.err = archive.Read(ctx, p, func(batch []events.Message) error {
			for len(batch) > 0 {
				part := batch[:min(len(batch), portionSize)]
				batch = batch[len(part):]
				next := &portion[T]{items: make([]T, len(part))}
				next.done = c.do(func() {
					for i, m := range part {
						next.items[i] = decode(m)
					}
				})
				select {
				case f.ahead <- next:
				case <-ctx.Done():
					return ctx.Err()
				}
			}
			return nil
		})
	}()
	return f
}

// more returns the next items that have not been taken; empty at the end.
//
// Errors: the stream cannot be read.
func (f *feed[T]) more() ([]T, error) {
	for len(f.current) == 0 {
		next, ok := <-f.ahead
		if !ok {
			return nil, f.err
		}
		<-next.done
		f.current = next.items
	}
	return f.current, nil
}

// take removes the first n items that more returned.
func (f *feed[T]) take(n int) { f.current = f.current[n:] }
