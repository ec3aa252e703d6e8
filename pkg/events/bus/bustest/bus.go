// Package bustest has the bus for tests in which single calls fail, wait, are counted, or get another answer.
// [Bus] wraps any bus and passes every call on, except the calls that the test intercepts:
//
//   - [Bus.Fail] lets the calls of a method fail, of one stream or of all.
//   - A hook (OnPut, OnFollow ...) answers instead of the wrapped bus. It may call that bus itself.
//   - [Bus.Count] says how often a method was called.
//
// [Appender] does the same for the appender of a log.
package bustest

import (
	"context"
	"maps"
	"sync"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/bus"
	"github.com/millrace/millrace/pkg/events/kinds"
)

// Call is a method of a bus.
type Call string

// The methods that can fail. Each is counted and fails for its subject matter: the calls of Streams for
// a kind, a controller or a stream, those of readers for a stream, those of peers for a topic, Append
// and AppendMessage for a kind, and Store and Put for a subject.
const (
	EnsureKind       Call = "EnsureKind"
	EnsureController Call = "EnsureController"
	Kinds            Call = "Kinds"
	DeleteKind       Call = "DeleteKind"
	StreamState      Call = "StreamState"
	Append           Call = "Append"
	AppendMessage    Call = "AppendMessage" // Append of the appenders that were opened
	Store            Call = "Store"
	Put              Call = "Put"
	Follow           Call = "Follow"
	Work             Call = "Work"
	Last             Call = "Last"
	At               Call = "At"
	Consume          Call = "Consume"
	Acknowledged     Call = "Acknowledged"
	LastOf           Call = "LastOf"
	Broadcast        Call = "Broadcast"
	Listen           Call = "Listen"
	NoListeners      Call = "NoListeners" // counted; it has no error to fail with
)

// Bus is a bus of which a test intercepts single calls. Its methods are safe for concurrent use. A hook
// is set while the bus is not used; what a hook does may change at any time, if the hook sees to that.
type Bus struct {
	bus.Bus // answers all other calls; it may be nil when there are none

	OnEnsureKind       func(context.Context, kinds.Kind) error
	OnEnsureController func(ctx context.Context, controller string) error
	OnKinds            func(context.Context) ([]kinds.Kind, error)
	OnDeleteKind       func(context.Context, kinds.Name) error
	OnStreamState      func(ctx context.Context, stream string) (bus.State, error)
	OnAppend           func(context.Context, kinds.Name) (bus.Appender, error)
	OnStore            func(ctx context.Context, m events.Message, expect uint64) (uint64, error)
	OnPut              func(ctx context.Context, m events.Message, id string) (uint64, error)
	OnFollow           func(ctx context.Context, stream string, from uint64, handle func([]events.Message) error) error
	OnWork             func(context.Context, bus.Work, func(bus.Delivery)) error
	OnLast             func(ctx context.Context, stream, subject string) (events.Message, bool, error)
	OnAt               func(ctx context.Context, stream string, sequence uint64) (events.Message, bool, error)
	OnConsume          func(ctx context.Context, stream string, from uint64, dealt func() uint64, handle func([]events.Message) error) error
	OnAcknowledged     func(ctx context.Context, stream string) (uint64, bool, error)
	OnLastOf           func(ctx context.Context, stream string, subjects []string) (map[string]events.Message, error)
	OnBroadcast        func(topic string, data []byte) error
	OnListen           func(ctx context.Context, topic string, hear func([]byte)) error
	OnNoListeners      func(ctx context.Context, topic string) bool

	mu    sync.Mutex // of the following
	fails map[place]error
	calls map[place]int
}

// place is a method, and what it is called for; "" is everything.
type place struct {
	call Call
	on   string
}

// Wrap returns a bus that passes all calls on to b.
func Wrap(b bus.Bus) *Bus { return &Bus{Bus: b} }

// Fail lets the calls of a method fail with err: for these streams, topics, kinds or subjects, or for all if none
// is named. A nil err lets them succeed again. The method's hook is not called while it fails. Fail returns
// the bus.
func (b *Bus) Fail(call Call, err error, on ...string) *Bus {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.fails == nil {
		b.fails = map[place]error{}
	}
	if len(on) == 0 {
		maps.DeleteFunc(b.fails, func(p place, _ error) bool { return p.call == call })
		on = []string{""}
	}
	for _, name := range on {
		if b.fails[place{call, name}] = err; err == nil {
			delete(b.fails, place{call, name})
		}
	}
	return b
}

// Count is how often a method has been called, for these streams, topics, kinds or subjects, or for all if
// none is named.
func (b *Bus) Count(call Call, on ...string) (n int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(on) == 0 {
		on = []string{""}
	}
	for _, name := range on {
		n += b.calls[place{call, name}]
	}
	return n
}

// enter counts a call, and returns what it fails with.
func (b *Bus) enter(call Call, on string) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.calls == nil {
		b.calls = map[place]int{}
	}
	if b.calls[place{call, ""}]++; on != "" {
		b.calls[place{call, on}]++
	}
	if err := b.fails[place{call, on}]; err != nil {
		return err
	}
	return b.fails[place{call, ""}]
}
