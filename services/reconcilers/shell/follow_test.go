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
	"github.com/millrace/millrace/pkg/events/report"
	"github.com/millrace/millrace/pkg/events/subject"
	"github.com/millrace/millrace/services/reconcilers/cache"
)

// edges is a bus of which only the end of the pods' log can be looked up.
type edges struct {
	markless
	log shape
}

// markless is a bus whose kinds have no mark, so that followers begin with the first message.
type markless struct{ bus.Bus }

// shape of a log: the last sequence that it assigned, and the last message that it still holds.
type shape struct{ last, held uint64 }

func (markless) Last(context.Context, string, string) (events.Message, bool, error) {
	return events.Message{}, false, nil
}

func (b edges) StreamState(context.Context, string) (bus.State, error) {
	first := uint64(1)
	if b.log.held == 0 {
		first = b.log.last + 1
	}
	return bus.State{First: first, Last: b.log.last, Messages: b.log.held}, nil
}

func (b edges) At(_ context.Context, _ string, at uint64) (events.Message, bool, error) {
	if at > b.log.held {
		return events.Message{}, false, nil
	}
	return events.Message{Sequence: at, Time: epoch}, true, nil
}

// gapAt is a gap on the subject of a kind's marks.
func gapAt(kind kinds.Kind, sequence uint64) events.Message {
	m := subject.Message(events.Delta{Kind: kind.Name, Op: events.Gap, At: epoch})
	m.Sequence = sequence
	return m
}

// ruined is a message whose checksums are wrong.
func ruined(m events.Message) events.Message {
	m = events.Seal(m)
	m.Header[events.HeaderRV] = []string{"99"}
	return m
}

// Engines open when the whole kind has been reported, and not before. However long ago that was, a
// mark has to say so.
func TestOpensWhenToldWhole(t *testing.T) {
	pod := func(at uint64) events.Message {
		return delta(kinds.Pods.Kind, events.Is, aPod(fmt.Sprint("p", at), "", int(at)), at)
	}
	anew := func(at uint64, there ...events.Message) events.Message {
		m := pod(at)
		m.Header[events.HeaderSync] = []string{"true"}
		if len(there) > 0 {
			m = said(m, there...)
		}
		return m
	}
	mark := func(at uint64) events.Message { return markAt(kinds.Pods.Kind, "1", at) }
	old := pod(2)
	old.Time = epoch.AddDate(-1, 0, 0)
	for name, tc := range map[string]struct {
		goal    uint64
		told    []events.Message
		trouble error
		want    bool
	}{
		"never listed":                  {0, nil, nil, false},
		"everything has expired":        {9, nil, nil, false},
		"listed, nothing there":         {1, []events.Message{mark(1)}, nil, true},
		"being listed":                  {2, []events.Message{pod(1), pod(2)}, nil, false},
		"listed":                        {2, []events.Message{pod(1), pod(2), mark(3)}, nil, true},
		"listed, half folded":           {9, []events.Message{pod(1), mark(3)}, nil, false},
		"no mark of what is a year old": {2, []events.Message{pod(1), old}, nil, false},
		"being listed anew":             {2, []events.Message{mark(1), anew(2)}, nil, false},
		"about to be listed anew":       {2, []events.Message{mark(1), gapAt(kinds.Pods.Kind, 2)}, nil, false},
		"listed anew, all there":        {2, []events.Message{mark(1), anew(2, pod(2))}, nil, true},
		"listed anew, one is missing":   {2, []events.Message{mark(1), anew(2, pod(1), pod(2))}, nil, false},
		"its last message is damaged":   {2, []events.Message{mark(1), ruined(pod(2))}, nil, false},
		"it was damaged":                {2, []events.Message{mark(1), pod(2)}, errors.New("torn"), false},
	} {
		t.Run(name, func(t *testing.T) {
			f := Follower{Cache: cache.New(), Kind: kinds.Pods.Kind, goal: tc.goal}
			f.trouble.err = tc.trouble
			f.Cache.Follow(f.Kind)
			f.Cache.Fold(f.Kind.Name, tc.told)
			if f.open(); f.opened != tc.want {
				t.Errorf("the follower has opened the kind: %v, want %v", f.opened, tc.want)
			}
		})
	}
}

// flawed is a bus that answers some requests with an error, and counts them.
type flawed struct {
	telling
	errs  map[string]error
	asked map[string]int
}

func (b *flawed) says(what string) error {
	if b.asked == nil {
		b.asked = map[string]int{}
	}
	b.asked[what]++
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
		"state": "away", "left": "look how far pods was dealt with: away", "last": "look since when everything is recorded of pods: away",
	} {
		b := &flawed{errs: map[string]error{what: away}, telling: telling{state: bus.State{First: 1, Last: 2, Messages: 2}, told: logged(1, 2)}}
		f := Follower{Bus: b, Cache: cache.New(), Kind: kinds.Pods.Kind}
		if err := f.session(t.Context()); !errors.Is(err, away) || !strings.HasSuffix(err.Error(), want) || len(b.followed) > 0 || f.Cache.Position("pods") != 0 {
			t.Errorf("%s: the session ended with %v and followed %v, want the error of the bus, and nothing followed", what, err, b.followed)
		}
	}
}

// The follower asks once how far an earlier process got, also if that process's consumer is
// gone, and again if the bus returns an error. A kind that has been folded needs no answer.
func TestHowFarWasDealtWithIsAskedOnce(t *testing.T) {
	b := &flawed{}
	f := Follower{Bus: b, Cache: cache.New(), Kind: kinds.Pods.Kind, goal: 5}
	f.Cache.Follow(f.Kind)
	adopt := func(what string, left error, asked int, floor uint64, fails bool) {
		t.Helper()
		b.errs = map[string]error{"left": left}
		if err := f.findFloor(t.Context()); (err != nil) != fails || b.asked["left"] != asked || f.floor != floor {
			t.Errorf("%s: the bus was asked %d times, and the floor is %d (%v)", what, b.asked["left"], f.floor, err)
		}
	}
	adopt("a bus that is away", errors.New("away"), 1, 5, true)
	adopt("a bus that answers", nil, 2, 0, false)
	f.goal = 7
	adopt("a second time", nil, 2, 7, false)
	f.adopted = false
	adopt("a stream that is gone", bus.ErrNoStream, 3, 0, false)
	f.Cache.Fold("pods", logged(1))
	f.adopted, f.goal = false, 9
	adopt("when something was folded", nil, 3, 0, false)
}

// The follower reports the age of the newest message of each batch once the kind is open.
func TestHowOldWhatIsFoldedIs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var ages []time.Duration
		f := Follower{Cache: cache.New(), Kind: kinds.Pods.Kind, goal: 2, Folded: func(age time.Duration) { ages = append(ages, age) }}
		f.Cache.Follow(f.Kind)
		take := func(messages []events.Message) {
			for i := range messages {
				messages[i].Time = time.Now().Add(-time.Duration(10-i) * time.Second)
			}
			if err := f.take(messages); err != nil {
				t.Fatal(err)
			}
		}
		take(logged(1))
		if len(ages) > 0 || f.opened {
			t.Errorf("changes before the kind was opened are measured with the ages %v, want none", ages)
		}
		take(logged(2))
		take(logged(3, 4, 5))
		if want := []time.Duration{10 * time.Second, 8 * time.Second}; !slices.Equal(ages, want) {
			t.Errorf("the measured ages are %v, want %v", ages, want)
		}
		f.Folded = nil
		take(logged(6)) // without a receiver
	})
}

// The follower judges what it has folded as soon as it has reached the goal. In trouble it goes on, with
// a report of what is wrong now, until a census agrees.
func TestWhenWhatIsFoldedIsJudged(t *testing.T) {
	one, mark := logged(1)[0], markAt(kinds.Pods.Kind, "9", 2)
	missing, whole := said(mark, one, logged(3)[0]), said(mark, one)
	before := errors.New("before")
	for what, c := range map[string]struct {
		goal    uint64
		trouble error
		last    events.Message
		broken  bool // it returns damage
		is      error
		told    int // how often the trouble is told
	}{
		"before the goal":                   {9, nil, missing, false, nil, 0},
		"damaged before the goal":           {9, nil, ruined(mark), false, nil, 0},
		"something is missing":              {2, nil, missing, true, nil, 0},
		"something is damaged":              {2, nil, ruined(mark), true, nil, 0},
		"no census":                         {2, nil, mark, false, nil, 0},
		"all is well":                       {2, nil, whole, false, nil, 0},
		"in trouble, before the goal":       {9, before, missing, false, before, 0},
		"whole before the goal, in trouble": {9, before, whole, false, before, 0},
		"something still is missing":        {2, before, missing, false, events.ErrDamaged, 1},
		"something still is damaged":        {2, before, ruined(mark), false, events.ErrDamaged, 1},
		"in trouble, no census":             {2, before, mark, false, before, 0},
		"made good":                         {2, before, whole, false, nil, 1},
	} {
		var told []error
		f := Follower{Cache: cache.New(), Kind: kinds.Pods.Kind, goal: c.goal, Troubled: func(err error) { told = append(told, err) }}
		if c.trouble != nil {
			f.trouble.begin(c.trouble, report.Damage{Kind: "pods", End: 1})
		}
		f.Cache.Follow(f.Kind)
		f.Cache.Fold("pods", []events.Message{one, c.last})
		if err := f.checkCensus(); errors.Is(err, events.ErrDamaged) != c.broken || (err != nil) != c.broken {
			t.Errorf("%s: the check of the census ends with %v", what, err)
		}
		is := f.trouble.current()
		if !errors.Is(is, c.is) || len(told) != c.told || c.told > 0 && told[0] != is {
			t.Errorf("%s: the trouble is %v, and %v was reported", what, is, told)
		}
		if end := f.trouble.damage.End; c.trouble != nil && end != map[bool]uint64{true: 2, false: 1}[is != before && is != nil] {
			t.Errorf("%s: the report has the end %d of the log", what, end)
		}
	}
}

// A report says how far the log may be damaged: up to what has been read, or up to the log's end when the
// session began. What was stored since may be the repair.
func TestUpToWhereDamageIsReported(t *testing.T) {
	for _, c := range []struct{ goal, position, end uint64 }{{5, 3, 5}, {2, 3, 3}, {4, 0, 4}} {
		f := Follower{Bus: edges{log: shape{9, 9}}, Cache: cache.New(), Kind: kinds.Pods.Kind, goal: c.goal}
		f.Cache.Follow(f.Kind)
		if c.position > 0 {
			f.Cache.Fold("pods", logged(c.position))
		}
		f.reportDamage(events.ErrDamaged)
		if d := f.trouble.damage; d.End != c.end || d.Kind != "pods" || d.Hole.Reason != events.ErrDamaged.Error() {
			t.Errorf("read up to %d, with the goal %d, the follower reports %+v", c.position, c.goal, d)
		}
	}
}

// Damage counts until a census of a later message agrees: then the damaged message said nothing that is
// needed.
func TestDamageThatALaterCensusContradicts(t *testing.T) {
	three := logged(1, 2, 3)
	for what, c := range map[string]struct {
		told   []events.Message
		broken bool
	}{
		"a later census agrees":  {[]events.Message{three[0], ruined(three[1]), said(three[2], three[0], three[2])}, false},
		"a later census differs": {[]events.Message{ruined(three[0]), three[1], said(three[2], three[0], three[2])}, true},
		"no later census":        {[]events.Message{three[0], ruined(three[1]), three[2]}, true},
		"the census before it":   {[]events.Message{three[0], said(three[1], three[0]), ruined(three[2])}, true},
	} {
		f := Follower{Cache: cache.New(), Kind: kinds.Pods.Kind, goal: 3}
		f.Cache.Follow(f.Kind)
		for i, m := range c.told {
			f.Cache.Fold("pods", []events.Message{m})
			if err := f.checkCensus(); errors.Is(err, events.ErrDamaged) != (c.broken && i == 2) {
				t.Errorf("%s: after message %d the check of the census ends with %v", what, i+1, err)
			}
		}
	}
}

// The error of a session decides whether the folded state is kept. If the stream was deleted,
// recreated or damaged, the state is forgotten, after the engines have been shut.
func TestWhatIsForgottenAfterASession(t *testing.T) {
	for what, c := range map[string]struct {
		ends    error
		forgets bool
	}{
		"no more":   {bus.ErrNoStream, true},
		"made anew": {fmt.Errorf("follow: %w", bus.ErrOvertaken), true},
		"damaged":   {fmt.Errorf("follow: %w", events.ErrDamaged), true},
		"away":      {bus.ErrClosed, false},
	} {
		synctest.Test(t, func(t *testing.T) {
			memory := cache.New()
			memory.Register(toy().Describe())
			b := &telling{state: bus.State{First: 1, Last: 2, Messages: 2}, told: logged(1), ends: c.ends}
			l := NewLoop(&shrunk{}, toy(), memory, Settings{}, nil)
			var trouble []error
			f := &Follower{Bus: hearing{b}, Cache: memory, Kind: kinds.Pods.Kind, Loops: []*Loop{l}, Troubled: func(err error) { trouble = append(trouble, err) }}
			ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
			defer cancel()
			ended := make(chan error, 1)
			go func() { ended <- f.Follow(ctx) }()
			synctest.Wait()
			if memory.Count("pods") != 1 {
				t.Errorf("%s: the cache forgets the kind before the engines are shut", what)
			}
			stop := hear(l)
			err := <-ended
			stop()
			if gone := errors.Is(c.ends, bus.ErrNoStream); errors.Is(err, bus.ErrNoStream) != gone || !gone && err != nil || follows(memory, "pods") == gone {
				t.Errorf("%s: the follower ended with %v, and the cache follows the kind: %t", what, err, follows(memory, "pods"))
			}
			if forgot := memory.Count("pods") == 0; forgot != c.forgets || forgotten(l, "pods") != c.forgets || isShut(l, "pods") != c.forgets {
				t.Errorf("%s: the cache has forgotten the kind: %t, and the key's first check is %+v", what, forgot, l.engine.Key(web).Checks[0])
			}
			if told := len(trouble) == 1 && trouble[0] == c.ends; told != (what == "damaged") {
				t.Errorf("%s: the trouble that was reported is %v", what, trouble)
			}
		})
	}
}

// hearing is a bus on which one can speak.
type hearing struct{ *telling }

func (hearing) Broadcast(string, []byte) error { return nil }

// A follower tries again four times a second, and not at once.
func TestAFollowerTakesItsTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := &shrunk{err: errors.New("away")}
		asked := 0
		counting := countingBus{b, &asked}
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second+1)
		defer cancel()
		f := &Follower{Bus: counting, Cache: cache.New(), Kind: kinds.Pods.Kind}
		if err := f.Follow(ctx); err != nil || asked != 41 {
			t.Errorf("the follower asked %d times in ten seconds and ended with %v, want 41 and no error", asked, err)
		}
	})
}

type countingBus struct {
	*shrunk
	asked *int
}

func (c countingBus) StreamState(ctx context.Context, stream string) (bus.State, error) {
	*c.asked++
	return c.shrunk.StreamState(ctx, stream)
}
