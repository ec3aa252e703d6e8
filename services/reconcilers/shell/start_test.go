package shell

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"testing"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/bus"
	"github.com/millrace/millrace/pkg/events/kinds"
)

// markless is a bus whose kinds have no mark, so that followers begin with the first message.
type markless struct{ bus.Bus }

func (markless) Last(context.Context, string, string) (events.Message, bool, error) {
	return events.Message{}, false, nil
}

// storedState is a bus with a state stream whose mark comes last. It records where followers
// begin.
type storedState struct {
	edges
	state []events.Message
	begun []uint64
}

func (b *storedState) Last(context.Context, string, string) (events.Message, bool, error) {
	if len(b.state) == 0 {
		return events.Message{}, false, nil
	}
	return b.state[len(b.state)-1], true, nil
}

// Consume delivers nothing: the state has all messages of the log.
func (b *storedState) Consume(ctx context.Context, _ string, from uint64, _ func() uint64, _ func([]events.Message) error) error {
	b.begun = append(b.begun, from)
	<-ctx.Done()
	return nil
}

func (*storedState) Acknowledged(context.Context, string) (uint64, bool, error) { return 0, false, nil }

func (b *storedState) Follow(ctx context.Context, _ string, from uint64, handle func([]events.Message) error) error {
	b.begun = append(b.begun, from)
	var batch []events.Message
	for _, m := range b.state {
		if m.Sequence >= from {
			batch = append(batch, m)
		}
	}
	if err := handle(batch); err != nil {
		return err
	}
	<-ctx.Done()
	return nil
}

// TestReadingBeginsWhereEverythingHasBeenSaidSince, and is not misled by a mark.
func TestReadingBeginsWhereEverythingHasBeenSaidSince(t *testing.T) {
	pod := func(at uint64) events.Message {
		return delta(kinds.Pods.Kind, events.Is, aPod(fmt.Sprint("p", at), "", int(at)), at)
	}
	end := delta(kinds.Pods.Kind, events.Gone, aPod("p1", "", 4), 4)
	since := func(at uint64, there ...events.Message) events.Message {
		m := markAt(kinds.Pods.Kind, "9", 9)
		m.Header[events.HeaderSince] = []string{strconv.FormatUint(at, 10)}
		return said(m, there...)
	}
	damaged := since(7, pod(7))
	damaged.Header[events.HeaderSince] = []string{"8"}
	for name, tc := range map[string]struct {
		state   []events.Message
		trouble error
		begun   []uint64
		objects int
	}{
		"a mark that says since when":   {[]events.Message{end, pod(7), pod(8), since(7, pod(7), pod(8))}, nil, []uint64{7}, 2},
		"a mark that does not":          {[]events.Message{end, pod(7), since(0, pod(7))}, nil, []uint64{1}, 1},
		"no message":                    {nil, nil, []uint64{1}, 0},
		"a damaged mark":                {[]events.Message{pod(7), damaged}, nil, []uint64{1}, 1},
		"trouble":                       {[]events.Message{end, pod(7), since(7, pod(7))}, errors.New("trouble"), []uint64{1}, 1},
		"something is there before it":  {[]events.Message{pod(3), pod(7), since(7, pod(3), pod(7))}, nil, []uint64{7, 1}, 2},
		"something is missing anywhere": {[]events.Message{pod(7), since(7, pod(3), pod(7))}, nil, []uint64{7, 1}, 1},
	} {
		t.Run(name, func(t *testing.T) {
			b := &storedState{edges: edges{log: shape{9, 9}, state: shape{9, 9}}, state: tc.state}
			f := Follower{Bus: b, Memory: NewMemory(), Kind: kinds.Pods.Kind, goal: streamEnd{sequence: 9}}
			f.Memory.Follow(f.Kind)
			f.trouble.err = tc.trouble
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			for range len(tc.begun) {
				from, err := f.startSequence(ctx)
				if err != nil {
					t.Fatal(err)
				}
				err = b.Follow(ctx, "", from, func(batch []events.Message) error {
					cancel()
					if len(batch) == 0 {
						return nil
					}
					f.Memory.Fold(f.Kind.Name, batch)
					return f.checkCensus(t.Context())
				})
				if misled := errors.Is(err, errSkippedObjects); misled != (len(b.begun) < len(tc.begun)) {
					t.Fatalf("after beginning with %v: %v", b.begun, err)
				} else if misled {
					f.mustReadAll = true
					f.forget()
				}
			}
			if got := f.Memory.Count(f.Kind.Name); !slices.Equal(b.begun, tc.begun) || got != tc.objects {
				t.Errorf("it began with %v and found %d, want %v and %d", b.begun, got, tc.begun, tc.objects)
			}
		})
	}
}
