package shell

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/bus"
	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/pkg/events/subject"
)

// telling is a bus whose streams deliver the given messages, and then end with an error, or
// never.
type telling struct {
	markless
	state    bus.State
	told     map[string][]events.Message
	ends     map[string]error
	batched  bool // deliver the messages of a stream as one batch
	followed []string
}

func (b *telling) StreamState(context.Context, string) (bus.State, error) { return b.state, nil }

func (b *telling) At(_ context.Context, _ string, at uint64) (events.Message, bool, error) {
	return events.Message{Sequence: at, Time: epoch}, true, nil
}

func (b *telling) Consume(ctx context.Context, stream string, from uint64, _ func() uint64, handle func([]events.Message) error) error {
	return b.Follow(ctx, stream, from, handle)
}

func (*telling) Acknowledged(context.Context, string) (uint64, bool, error) { return 0, false, nil }

func (b *telling) Follow(ctx context.Context, stream string, from uint64, handle func([]events.Message) error) error {
	b.followed = append(b.followed, fmt.Sprint(stream, " ", from))
	var batches [][]events.Message
	for _, m := range b.told[stream] {
		switch {
		case m.Sequence < from:
		case b.batched && len(batches) > 0:
			batches[0] = append(batches[0], m)
		default:
			batches = append(batches, []events.Message{m})
		}
	}
	for _, batch := range batches {
		if err := handle(batch); err != nil {
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

// logged makes messages of a log at some sequences: pods, and at sequence 2 a mark.
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

// A follower that has read the state continues with the log, and reads the state again when the
// log cannot be used.
func TestTheLogTakesOver(t *testing.T) {
	torn := logged(1, 2, 3, 4, 5)
	torn[3] = events.Seal(torn[3])
	torn[3].Header[events.HeaderRV] = []string{"99"}
	for name, tc := range map[string]struct {
		log      []events.Message
		batched  bool
		ends     error
		want     error // error of the session; nil: it goes on
		position uint64
	}{
		"whole":             {log: logged(1, 2, 3, 4, 5), position: 5},
		"whole, at once":    {log: logged(1, 2, 3, 4, 5), batched: true, position: 5},
		"with a hole":       {log: logged(1, 2, 3, 5), want: errLogGap, position: 3},
		"a hole in a batch": {log: logged(1, 2, 3, 5), batched: true, want: errLogGap, position: 2},
		"begins later":      {log: logged(4, 5), want: errLogGap, position: 2},
		"with a torn one":   {log: torn, want: events.ErrDamaged, position: 4},
		"is deleted":        {log: logged(1, 2, 3), ends: bus.ErrNoStream, want: bus.ErrOvertaken, position: 3},
		"made anew":         {ends: bus.ErrOvertaken, want: bus.ErrOvertaken, position: 2},
		"cannot be read":    {ends: events.ErrDamaged, position: 2},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := &telling{state: bus.State{First: 1, Last: 2, Messages: 9}, told: map[string][]events.Message{podState: logged(1, 2), podLog: tc.log},
					ends: map[string]error{podLog: tc.ends}, batched: tc.batched}
				f := Follower{Bus: b, Memory: NewMemory(), Kind: kinds.Pods.Kind}
				ctx, cancel := context.WithCancel(t.Context())
				ended := make(chan error, 1)
				go func() { ended <- f.session(ctx) }()
				synctest.Wait()
				if byItself := len(ended) > 0; byItself != (tc.want != nil || tc.ends != nil) {
					t.Errorf("ended by itself: %t", byItself)
				}
				cancel()
				err := <-ended
				if tc.want != nil && !errors.Is(err, tc.want) {
					t.Errorf("ended with %v, want %v", err, tc.want)
				}
				if tc.want == nil && errors.Is(err, bus.ErrOvertaken) {
					t.Errorf("%v has everything forgotten that was folded", err)
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

// A follower of the log detects that the state stream was emptied.
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
				ctx, cancel := context.WithTimeout(t.Context(), idleStateCheckEvery+2*stateCheckEvery)
				defer cancel()
				if err := f.followLog(ctx); errors.Is(err, events.ErrDamaged) != tc.want {
					t.Errorf("reading the log ended with %v; damage: %v", err, tc.want)
				}
			})
		})
	}
}

// stateChecked is a bus that records when the state stream is checked.
type stateChecked struct {
	telling
	began time.Time
	err   error
	at    []time.Duration
}

func (b *stateChecked) StreamState(context.Context, string) (bus.State, error) {
	b.at = append(b.at, time.Since(b.began))
	return b.state, b.err
}

// stateChecks runs the follower of the pods' log, and its checks of the state, until the context
// ends.
func stateChecks(t *testing.T, during time.Duration, b *stateChecked, meanwhile func(*Memory)) (ended time.Duration, err error) {
	t.Helper()
	b.began = time.Now()
	f := Follower{Bus: b, Memory: NewMemory(), Kind: kinds.Pods.Kind}
	f.Memory.Follow(f.Kind)
	f.Memory.Fold(f.Kind.Name, logged(1, 2, 3))
	ctx, cancel := context.WithTimeout(t.Context(), during)
	defer cancel()
	go meanwhile(f.Memory)
	err = f.followLog(ctx)
	ended = time.Since(b.began)
	synctest.Wait()
	return ended, err
}

// The follower checks a state at rest every two minutes, and one that is written to four times
// a minute.
func TestHowOftenTheStateIsLookedAt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := &stateChecked{telling: telling{state: bus.State{First: 1, Last: 9, Messages: 9}}}
		_, err := stateChecks(t, 6*time.Minute, b, func(m *Memory) {
			time.Sleep(4*time.Minute + time.Second)
			m.Fold("pods", logged(4))
			time.Sleep(15 * time.Second)
			m.Fold("pods", logged(5))
		})
		want := []time.Duration{2 * time.Minute, 4 * time.Minute, 4*time.Minute + 15*time.Second, 4*time.Minute + 30*time.Second}
		if err != nil || !slices.Equal(b.at, want) {
			t.Errorf("it was looked at after %v (%v), want %v", b.at, err, want)
		}
	})
}

// The deletion of the state stream ends the reading of its log, although the log goes on: a
// follower that starts from the beginning would find nothing.
func TestAStateThatIsNoMoreEndsTheLog(t *testing.T) {
	for err, want := range map[error]time.Duration{bus.ErrNoStream: 2 * time.Minute, errors.New("away"): 5 * time.Minute} {
		synctest.Test(t, func(t *testing.T) {
			b := &stateChecked{err: err}
			if ended, err := stateChecks(t, 5*time.Minute, b, func(*Memory) {}); err != nil || ended != want {
				t.Errorf("where the state is %v it ended after %v (%v), want %v", b.err, ended, err, want)
			}
		})
	}
}

// Objects are created and deleted between two checks. The state lacks something only where it
// has fewer messages than the objects at both checks.
func TestAStateIsHeldAgainstBothLooks(t *testing.T) {
	for name, tc := range map[string]struct {
		changes  []events.Message
		messages uint64
		want     bool
	}{
		"one has come, and is not mirrored yet": {logged(4), 2, false},
		"one has come, and one is missing":      {logged(4), 1, true},
		"one has gone, and its end has expired": {[]events.Message{delta(kinds.Pods.Kind, events.Gone, aPod("p3", "", 4), 4)}, 1, false},
		"one has gone, and none is there":       {[]events.Message{delta(kinds.Pods.Kind, events.Gone, aPod("p3", "", 4), 4)}, 0, true},
	} {
		synctest.Test(t, func(t *testing.T) {
			b := &stateChecked{telling: telling{state: bus.State{First: 1, Last: 9, Messages: tc.messages}}}
			_, err := stateChecks(t, 20*time.Second, b, func(m *Memory) {
				time.Sleep(time.Second)
				m.Fold("pods", tc.changes)
			})
			if errors.Is(err, events.ErrDamaged) != tc.want {
				t.Errorf("%s: %v", name, err)
			}
		})
	}
}

// The log takes over when the engines are open and nothing is in doubt.
func TestWhenTheLogTakesOver(t *testing.T) {
	for what, tc := range map[string]struct {
		change func(*Follower)
		want   bool
	}{
		"all is well":                {func(*Follower) {}, true},
		"it is not open":             {func(f *Follower) { f.opened = false }, false},
		"no watcher has spoken":      {func(f *Follower) { f.waiting = true }, false},
		"a census differs":           {func(f *Follower) { differ(t, &f.doubt) }, false},
		"something is damaged":       {func(f *Follower) { f.trouble.begin(events.ErrDamaged, events.Damage{}) }, false},
		"shut, and no watcher spoke": {func(f *Follower) { f.opened, f.waiting = false, true }, false},
	} {
		f := &Follower{opened: true}
		if tc.change(f); f.canFollowLog() != tc.want {
			t.Errorf("%s: it takes over: %t", what, !tc.want)
		}
	}
}

// differ shows a doubt a difference that messages not read yet may explain.
func differ(t *testing.T, d *events.Doubt) {
	t.Helper()
	verdict, err := d.Judge(events.Census{Known: true, Objects: 2}, events.Census{Known: true, Objects: 1}, 1,
		func() (held, last uint64, err error) { return 9, 9, nil })
	if verdict != events.Unsure || err != nil {
		t.Fatalf("the verdict is %v (%v)", verdict, err)
	}
}
