package shell

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/bus"
	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/pkg/events/subject"
)

// telling is a bus whose streams tell what they are asked to, and then end with an
// error, or never.
type telling struct {
	markless
	state    bus.State
	told     map[string][]events.Message
	ends     map[string]error
	followed []string
}

func (b *telling) StreamState(context.Context, string) (bus.State, error) { return b.state, nil }

func (b *telling) At(_ context.Context, _ string, at uint64) (events.Message, bool, error) {
	return events.Message{Sequence: at, Time: epoch}, true, nil
}

func (b *telling) Consume(ctx context.Context, stream string, from uint64, _ func() uint64, handle func([]events.Message) error) error {
	return b.Follow(ctx, stream, from, handle)
}

func (*telling) Left(context.Context, string) (uint64, bool, error) { return 0, false, nil }

func (b *telling) Follow(ctx context.Context, stream string, from uint64, handle func([]events.Message) error) error {
	b.followed = append(b.followed, fmt.Sprint(stream, " ", from))
	for _, m := range b.told[stream] {
		if m.Sequence < from {
			continue
		}
		if err := handle([]events.Message{m}); err != nil {
			return err
		}
	}
	if err := b.ends[stream]; err != nil {
		return err
	}
	<-ctx.Done()
	return nil
}

var podLog, podState = subject.LogStream("pods"), subject.StateStream("pods")

// logged is what a log has at some places: pods, and at the second one a mark.
func logged(sequences ...uint64) (messages []events.Message) {
	for _, at := range sequences {
		if at == 2 {
			messages = append(messages, markAt(kinds.Pods.Kind, "1", at))
			continue
		}
		messages = append(messages, delta(kinds.Pods.Kind, events.Is, aPod(fmt.Sprint("p", at), "", int(at)), at))
	}
	return messages
}

// Who has read the state goes on with the log, and with the state again when the log
// cannot be gone by.
func TestTheLogTakesOver(t *testing.T) {
	for name, tc := range map[string]struct {
		log      []events.Message
		ends     error
		want     error // of the session; nil: it goes on
		position uint64
	}{
		"whole":          {log: logged(1, 2, 3, 4, 5), position: 5},
		"with a hole":    {log: logged(1, 2, 3, 5), want: errHole, position: 3},
		"begins later":   {log: logged(4, 5), want: errHole, position: 2},
		"is no more":     {log: logged(1, 2, 3), ends: bus.ErrNoStream, want: bus.ErrOvertaken, position: 3},
		"made anew":      {ends: bus.ErrOvertaken, want: bus.ErrOvertaken, position: 2},
		"cannot be read": {ends: events.ErrDamaged, position: 2},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := &telling{state: bus.State{First: 1, Last: 2, Messages: 9}, told: map[string][]events.Message{podState: logged(1, 2), podLog: tc.log},
					ends: map[string]error{podLog: tc.ends}}
				f := Follower{Bus: b, Memory: NewMemory(), Kind: kinds.Pods.Kind}
				ctx, cancel := context.WithCancel(t.Context())
				ended := make(chan error, 1)
				go func() { ended <- f.session(ctx) }()
				synctest.Wait()
				cancel()
				err := <-ended
				if tc.want != nil && !errors.Is(err, tc.want) {
					t.Errorf("ended with %v, want %v", err, tc.want)
				}
				if tc.want == nil && tc.ends == nil && err != nil {
					t.Errorf("ended with %v", err)
				}
				if tc.ends != nil && (err == nil || errors.Is(err, bus.ErrNoStream) || errors.Is(err, events.ErrDamaged)) {
					t.Errorf("%v speaks of the state, and the log ended with %v", err, tc.ends)
				}
				if want := []string{podState + " 1", podLog + " 3"}; !slices.Equal(b.followed, want) {
					t.Errorf("followed %v, want %v", b.followed, want)
				}
				if got := f.Memory.Position("pods"); got != tc.position {
					t.Errorf("folded up to %d, want %d", got, tc.position)
				}
			})
		})
	}
}

// A state that has been emptied is found by who reads the log beside it.
func TestAnEmptiedStateIsNoticed(t *testing.T) {
	for name, tc := range map[string]struct {
		state bus.State
		want  bool
	}{
		"as many as there are":       {bus.State{First: 1, Last: 3, Messages: 2}, false},
		"fewer, but it lags":         {bus.State{First: 1, Last: 1, Messages: 1}, false},
		"fewer":                      {bus.State{First: 3, Last: 3, Messages: 1}, true},
		"none, after its end, empty": {bus.State{First: 4, Last: 3}, true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := &telling{state: tc.state, told: map[string][]events.Message{podLog: logged(1, 2, 3)}}
				f := Follower{Bus: b, Memory: NewMemory(), Kind: kinds.Pods.Kind}
				f.Memory.Follow(f.Kind)
				f.Memory.Fold(f.Kind.Name, logged(1, 2, 3))
				ctx, cancel := context.WithTimeout(t.Context(), glanceResting+2*glanceEvery)
				defer cancel()
				if err := f.log(ctx); errors.Is(err, events.ErrDamaged) != tc.want {
					t.Errorf("reading the log ended with %v; damage: %v", err, tc.want)
				}
			})
		})
	}
}
