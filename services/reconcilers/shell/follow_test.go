package shell

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/bus"
	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/pkg/events/subject"
)

// edges is a bus of which only the ends of a kind's log and state stream can be looked up.
type edges struct {
	markless
	log, state shape
}

// shape of a stream: the last sequence that it assigned, and the last message that it still
// holds.
type shape struct{ last, held uint64 }

func (b edges) of(stream string) shape {
	if stream == subject.LogStream(kinds.Pods.Name) {
		return b.log
	}
	return b.state
}

func (b edges) StreamState(_ context.Context, stream string) (bus.State, error) {
	s := b.of(stream)
	first := uint64(1)
	if s.held == 0 {
		first = s.last + 1
	}
	return bus.State{First: first, Last: s.last, Messages: s.held}, nil
}

func (b edges) At(_ context.Context, stream string, at uint64) (events.Message, bool, error) {
	if at > b.of(stream).held {
		return events.Message{}, false, nil
	}
	return events.Message{Sequence: at, Time: epoch}, true, nil
}

func TestEndIsThatOfLogAndState(t *testing.T) {
	for name, tc := range map[string]struct {
		log, state shape
		want       streamEnd
	}{
		"both whole":                    {shape{5, 5}, shape{5, 5}, streamEnd{sequence: 5, stored: epoch}},
		"state lags":                    {shape{5, 5}, shape{2, 2}, streamEnd{sequence: 5, stored: epoch}},
		"state has nothing yet":         {shape{5, 5}, shape{0, 0}, streamEnd{sequence: 5, stored: epoch}},
		"log has expired":               {shape{5, 0}, shape{5, 5}, streamEnd{sequence: 5, stored: epoch}},
		"the log's end has expired":     {shape{5, 3}, shape{5, 5}, streamEnd{sequence: 5, stored: epoch}},
		"the end of both has expired":   {shape{5, 3}, shape{5, 4}, streamEnd{sequence: 4, stored: epoch}},
		"the log's end is not in state": {shape{5, 4}, shape{1, 1}, streamEnd{sequence: 4, stored: epoch}},
		"everything has expired":        {shape{5, 0}, shape{5, 0}, streamEnd{spent: true}},
		"nothing was ever told":         {shape{0, 0}, shape{0, 0}, streamEnd{}},
	} {
		t.Run(name, func(t *testing.T) {
			if got, err := kindEnd(t.Context(), edges{log: tc.log, state: tc.state}, kinds.Pods.Name); err != nil || got != tc.want {
				t.Errorf("the end is %+v (%v), want %+v", got, err, tc.want)
			}
		})
	}
}

// Engines open when the whole kind has been reported, and not before.
func TestOpensWhenToldWhole(t *testing.T) {
	pod := func(at uint64) events.Message {
		return delta(kinds.Pods.Kind, events.Is, aPod(fmt.Sprint("p", at), "", int(at)), at)
	}
	again := func(at uint64, census string) events.Message {
		m := pod(at)
		m.Header[events.HeaderSync] = []string{"true"}
		if census != "" {
			m.Header[events.HeaderCensus] = []string{census}
		}
		return m
	}
	whole := func(pods ...uint64) string {
		var tally events.Tally
		for _, at := range pods {
			d, err := events.DecodeDelta(events.Ref{Kind: "pods", Namespace: aPod("", "", 0).GetNamespace(), Name: fmt.Sprint("p", at)}, pod(at))
			if err != nil {
				t.Fatal(err)
			}
			tally.Fold(d)
		}
		return tally.Census().String()
	}
	long := time.Now().Add(-2 * listedBefore)
	for name, tc := range map[string]struct {
		goal  streamEnd
		told  []events.Message
		want  bool
		state shape
	}{
		"never listed":                        {streamEnd{}, nil, false, shape{}},
		"listed, nothing there":               {streamEnd{sequence: 1, stored: time.Now()}, []events.Message{markAt(kinds.Pods.Kind, "1", 1)}, true, shape{}},
		"being listed":                        {streamEnd{sequence: 2, stored: time.Now()}, []events.Message{pod(1), pod(2)}, false, shape{}},
		"listed":                              {streamEnd{sequence: 2, stored: time.Now()}, []events.Message{pod(1), pod(2), markAt(kinds.Pods.Kind, "2", 3)}, true, shape{}},
		"listed, half folded":                 {streamEnd{sequence: 9, stored: time.Now()}, []events.Message{pod(1), markAt(kinds.Pods.Kind, "2", 3)}, false, shape{}},
		"its mark has expired":                {streamEnd{sequence: 2, stored: long}, []events.Message{pod(1), pod(2)}, true, shape{}},
		"its mark has expired, half folded":   {streamEnd{sequence: 2, stored: long}, []events.Message{pod(1)}, false, shape{}},
		"being listed anew":                   {streamEnd{sequence: 2, stored: time.Now()}, []events.Message{markAt(kinds.Pods.Kind, "1", 1), again(2, "")}, false, shape{}},
		"said again, all there":               {streamEnd{sequence: 2, stored: time.Now()}, []events.Message{markAt(kinds.Pods.Kind, "1", 1), again(2, whole(2))}, true, shape{}},
		"nothing there, its mark has expired": {streamEnd{spent: true}, nil, true, shape{}},
		"its end has expired":                 {streamEnd{sequence: 2, stored: long}, []events.Message{pod(1), pod(2)}, false, shape{9, 2}},
		"its end has expired, all counted":    {streamEnd{sequence: 2, stored: long}, []events.Message{pod(1), again(2, whole(1, 2))}, false, shape{9, 2}},
		"more is to come":                     {streamEnd{sequence: 2, stored: long}, []events.Message{pod(1), again(2, whole(1, 2))}, true, shape{9, 3}},
	} {
		t.Run(name, func(t *testing.T) {
			f := Follower{Bus: edges{state: tc.state}, Memory: NewMemory(), Kind: kinds.Pods.Kind, goal: tc.goal}
			f.Memory.Follow(f.Kind)
			f.Memory.Fold(f.Kind.Name, tc.told)
			if err := f.open(t.Context()); f.opened != tc.want || err != nil {
				t.Errorf("opened: %v, want %v (%v)", f.opened, tc.want, err)
			}
		})
	}
}

// flawed is a bus that answers some requests with an error, and counts them.
type flawed struct {
	telling
	errs  map[string]error
	from  int // the first question that is answered so
	asked map[string]int
}

func (b *flawed) says(what string) error {
	if b.asked == nil {
		b.asked = map[string]int{}
	}
	if b.asked[what]++; b.asked[what] < b.from {
		return nil
	}
	return b.errs[what]
}

func (b *flawed) StreamState(ctx context.Context, stream string) (bus.State, error) {
	state, err := b.telling.StreamState(ctx, stream)
	return state, cmp.Or(b.says("state"), err)
}

func (b *flawed) Acknowledged(context.Context, string) (uint64, bool, error) {
	return 0, true, b.says("left")
}

func (b *flawed) Last(ctx context.Context, stream, subject string) (events.Message, bool, error) {
	m, there, err := b.telling.Last(ctx, stream, subject)
	return m, there, cmp.Or(b.says("last"), err)
}

// A session ends with the error of the bus, before anything is folded.
func TestASessionEndsWithWhatTheBusRefuses(t *testing.T) {
	away := errors.New("away")
	for what, want := range map[string]string{
		"state": "away", "left": "look how far pods was dealt with: away", "last": "look where to begin with pods: away",
	} {
		b := &flawed{errs: map[string]error{what: away}, telling: telling{state: bus.State{First: 1, Last: 2, Messages: 2}, told: map[string][]events.Message{podState: logged(1, 2)}}}
		f := Follower{Bus: b, Memory: NewMemory(), Kind: kinds.Pods.Kind}
		if err := f.session(t.Context()); !errors.Is(err, away) || !strings.HasSuffix(err.Error(), want) || len(b.followed) > 0 || f.Memory.Position("pods") != 0 {
			t.Errorf("%s: it ended with %v, and followed %v", what, err, b.followed)
		}
	}
}

// A kind is not opened if the bus does not say how far it reaches, and the session ends with
// that error.
func TestASessionEndsWhereAKindCannotBeOpened(t *testing.T) {
	away := errors.New("away")
	for what, before := range map[string][]events.Message{"at the start": logged(1, 2), "behind what is told": nil} {
		synctest.Test(t, func(t *testing.T) {
			b := &flawed{errs: map[string]error{"state": away}, from: 3, telling: telling{state: bus.State{First: 1, Last: 2, Messages: 2}, told: map[string][]events.Message{podState: logged(1, 2)}}}
			f := Follower{Bus: b, Memory: NewMemory(), Kind: kinds.Pods.Kind}
			f.Memory.Follow(f.Kind)
			if len(before) > 0 {
				f.Memory.Fold("pods", before)
			}
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			if err := f.session(ctx); !errors.Is(err, away) || !strings.HasPrefix(err.Error(), "look how far pods reaches: ") || f.opened || len(b.followed) > 0 != (before == nil) {
				t.Errorf("%s: it ended with %v, and followed %v", what, err, b.followed)
			}
		})
	}
}

// The follower asks once how far an earlier process got, also if that process's consumer is
// gone, and again if the bus returns an error. A kind that has been folded needs no answer.
func TestHowFarWasDealtWithIsAskedOnce(t *testing.T) {
	b := &flawed{}
	f := Follower{Bus: b, Memory: NewMemory(), Kind: kinds.Pods.Kind, goal: streamEnd{sequence: 5}}
	f.Memory.Follow(f.Kind)
	adopt := func(what string, left error, asked int, floor uint64, fails bool) {
		t.Helper()
		b.errs = map[string]error{"left": left}
		if err := f.findFloor(t.Context()); (err != nil) != fails || b.asked["left"] != asked || f.floor != floor || f.Memory.kinds["pods"].dealt != floor && !fails {
			t.Errorf("%s: asked %d times, it goes on behind %d (%v)", what, b.asked["left"], f.floor, err)
		}
	}
	adopt("a bus that is away", errors.New("away"), 1, 5, true)
	adopt("a bus that answers", nil, 2, 0, false)
	f.goal.sequence = 7
	adopt("a second time", nil, 2, 7, false)
	f.adopted = false
	adopt("a stream that is gone", bus.ErrNoStream, 3, 0, false)
	f.Memory.Fold("pods", logged(1))
	f.adopted, f.goal.sequence = false, 9
	adopt("when something was folded", nil, 3, 0, false)
}

// The follower reports the age of the newest message of each batch once the kind is open.
func TestHowOldWhatIsFoldedIs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var ages []time.Duration
		f := Follower{Bus: edges{log: shape{2, 2}, state: shape{2, 2}}, Memory: NewMemory(), Kind: kinds.Pods.Kind, goal: streamEnd{sequence: 2}, Folded: func(age time.Duration) { ages = append(ages, age) }}
		f.Memory.Follow(f.Kind)
		take := func(messages []events.Message) {
			for i := range messages {
				messages[i].Time = time.Now().Add(-time.Duration(10-i) * time.Second)
			}
			if err := f.take(t.Context(), messages); err != nil {
				t.Fatal(err)
			}
		}
		take(logged(1))
		if len(ages) > 0 || f.opened {
			t.Errorf("before it is open it is told: %v", ages)
		}
		take(logged(2))
		take(logged(3, 4, 5))
		if want := []time.Duration{10 * time.Second, 8 * time.Second}; !slices.Equal(ages, want) {
			t.Errorf("the ages are %v, want %v", ages, want)
		}
		f.Folded = nil
		take(logged(6)) // without a receiver
	})
}

// The follower judges the folded state when it has reached the kind's end at the start. It
// tells the engines as soon as no message is to come that would make the state consistent.
func TestWhenWhatIsFoldedIsJudged(t *testing.T) {
	two := said(markAt(kinds.Pods.Kind, "9", 2), logged(1)[0], logged(3)[0])
	for what, c := range map[string]struct {
		goal         uint64
		state        shape
		trouble      bool
		skipping     bool
		want         error
		inconsistent bool
		tells        int
	}{
		"before that":                   {9, shape{2, 2}, false, false, nil, true, 0},
		"more is to come":               {2, shape{9, 9}, false, false, nil, true, 0},
		"its end has expired":           {2, shape{9, 2}, false, false, nil, false, 1},
		"something is missing":          {2, shape{2, 2}, false, false, events.ErrDamaged, false, 1},
		"something still is":            {2, shape{2, 2}, true, false, nil, false, 1},
		"it did not begin at the start": {2, shape{2, 2}, false, true, errSkippedObjects, false, 1},
	} {
		o := open(t, Settings{})
		l := NewLoop(&shrunk{}, toy(), o.memory, Settings{}, nil)
		f := Follower{Bus: edges{log: c.state, state: c.state}, Memory: o.memory, Kind: kinds.Pods.Kind, Loops: []*Loop{l}, goal: streamEnd{sequence: c.goal}, skipping: c.skipping}
		torn := errors.New("torn")
		if c.trouble {
			f.trouble.begin(torn, events.Damage{})
		}
		f.Memory.Fold("pods", []events.Message{logged(1)[0], two})
		err := f.checkCensus(t.Context())
		if !errors.Is(err, c.want) || (err != nil) != (c.want != nil) || f.Memory.kinds["pods"].inconsistent != c.inconsistent || len(l.inbox) != c.tells {
			t.Errorf("%s: %v, it is of one moment: %t, and %d things are told", what, err, !f.Memory.kinds["pods"].inconsistent, len(l.inbox))
		}
		if damage := f.trouble.current(); c.trouble && (damage == nil || errors.Is(damage, torn) || f.trouble.damage.End != c.state.last || f.trouble.damage.Kind != "pods") {
			t.Errorf("%s: the trouble is %v, %+v", what, damage, f.trouble.damage)
		}
	}
	f := Follower{Bus: &flawed{errs: map[string]error{"state": errors.New("away")}}, Memory: NewMemory(), Kind: kinds.Pods.Kind, goal: streamEnd{sequence: 2}}
	f.Memory.Follow(f.Kind)
	f.Memory.Fold("pods", []events.Message{logged(1)[0], two})
	if err := f.checkCensus(t.Context()); err == nil || err.Error() != "look whether pods is whole: away" || f.isConsistent(t.Context()) {
		t.Errorf("where the bus does not say it is judged %v", err)
	}
}

// reach returns the last message that a kind's state holds, and its last sequence, as the bus
// says.
func TestHowFarAStateReaches(t *testing.T) {
	f := Follower{Bus: edges{state: shape{9, 4}, log: shape{20, 20}}, Kind: kinds.Pods.Kind}
	if held, last, err := f.reach(t.Context())(); held != 4 || last != 9 || err != nil {
		t.Errorf("it holds message %d of %d (%v)", held, last, err)
	}
	f.Bus = half{stocked(t, 1), podState}
	if held, last, err := f.reach(t.Context())(); held != 0 || last != 0 || err == nil {
		t.Errorf("where the bus does not say it holds message %d of %d", held, last)
	}
}

// A kind without a mark counts as listed two hours after its last change.
func TestWhenAKindWithoutAMarkIsListed(t *testing.T) {
	if now := epoch; (streamEnd{sequence: 1, stored: now.Add(-2 * time.Hour)}).listed(now) || !(streamEnd{sequence: 1, stored: now.Add(-2*time.Hour - 1)}).listed(now) {
		t.Error("it is listed at another time")
	}
}

// A kind without errors is followed until the context ends, and each session begins with
// nothing that the previous one knew.
func TestASessionGoesOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := &telling{state: bus.State{First: 1, Last: 2, Messages: 9}, told: map[string][]events.Message{podState: logged(1, 2)}}
		f := Follower{Bus: b, Memory: NewMemory(), Kind: kinds.Pods.Kind, opened: true, waiting: true}
		differ(t, &f.doubt)
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		began := time.Now()
		if err := f.session(ctx); err != nil || time.Since(began) != time.Hour {
			t.Errorf("it ended after %v with %v", time.Since(began), err)
		}
		if want := []string{podState + " 1", podLog + " 3"}; !slices.Equal(b.followed, want) {
			t.Errorf("followed are %v, want %v", b.followed, want)
		}
	})
}

// The error of a session decides whether the folded state is kept. If the stream was deleted,
// recreated or damaged, the state is forgotten, after the engines have been shut.
func TestWhatIsForgottenAfterASession(t *testing.T) {
	for what, c := range map[string]struct {
		ends            error
		forgets, misled bool
	}{
		"no more":                 {bus.ErrNoStream, true, false},
		"made anew":               {fmt.Errorf("follow: %w", bus.ErrOvertaken), true, false},
		"damaged":                 {fmt.Errorf("follow: %w", events.ErrDamaged), true, false},
		"not all behind its mark": {errSkippedObjects, true, true},
		"away":                    {bus.ErrClosed, false, false},
	} {
		synctest.Test(t, func(t *testing.T) {
			memory := NewMemory()
			memory.Register(toy().Describe())
			b := &telling{state: bus.State{First: 1, Last: 2, Messages: 2}, told: map[string][]events.Message{podState: logged(1)}, ends: map[string]error{podState: c.ends}}
			l := NewLoop(&shrunk{}, toy(), memory, Settings{}, nil)
			var trouble []error
			f := &Follower{Bus: hearing{b}, Memory: memory, Kind: kinds.Pods.Kind, Loops: []*Loop{l}, Troubled: func(err error) { trouble = append(trouble, err) }}
			ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
			defer cancel()
			ended := make(chan error, 1)
			go func() { ended <- f.Follow(ctx) }()
			synctest.Wait()
			if memory.Count("pods") != 1 {
				t.Errorf("%s: it is forgotten before the controllers know", what)
			}
			stop := hear(l)
			err := <-ended
			stop()
			if gone := errors.Is(c.ends, bus.ErrNoStream); errors.Is(err, bus.ErrNoStream) != gone || !gone && err != nil || (memory.kinds["pods"] == nil) != gone {
				t.Errorf("%s: it ended with %v, and the kind is known: %t", what, err, memory.kinds["pods"] != nil)
			}
			if forgot := memory.Count("pods") == 0; forgot != c.forgets || l.engine.forgotten["pods"] != c.forgets || l.engine.shut["pods"] != c.forgets {
				t.Errorf("%s: it is forgotten: %t, and it is shut for %v", what, forgot, l.engine.shut)
			}
			if told := len(trouble) == 1 && trouble[0] == c.ends; told != (what == "damaged") || f.mustReadAll != c.misled {
				t.Errorf("%s: told is %v, and it was misled: %t", what, trouble, f.mustReadAll)
			}
		})
	}
}

// hearing is a bus on which one can speak.
type hearing struct{ *telling }

func (hearing) Broadcast(string, []byte) error { return nil }

// A follower that a mark has misled once reads everything from then on.
func TestAFollowerIsMisledOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		pods := logged(3, 7)
		mark := markAt(kinds.Pods.Kind, "9", 9)
		mark.Header[events.HeaderSince] = []string{"7"}
		b := &storedState{edges: edges{log: shape{9, 9}, state: shape{9, 9}}, state: append(pods, said(mark, pods...))}
		f := &Follower{Bus: b, Memory: NewMemory(), Kind: kinds.Pods.Kind}
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		if err := f.Follow(ctx); err != nil || !slices.Equal(b.begun, []uint64{7, 1, 10}) || f.Memory.Count("pods") != 2 || !f.mustReadAll {
			t.Errorf("it began with %v, and has %d pods (%v)", b.begun, f.Memory.Count("pods"), err)
		}
	})
}
