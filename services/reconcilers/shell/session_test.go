package shell

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"sync"
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

// telling is a bus whose log of pods delivers the given messages, and then ends with an error, or
// never.
type telling struct {
	bus.Bus
	state    bus.State
	told     []events.Message
	ends     error
	batched  bool // deliver the messages as one batch
	followed []string
}

func (b *telling) StreamState(context.Context, string) (bus.State, error) { return b.state, nil }

func (b *telling) At(_ context.Context, _ string, at uint64) (events.Message, bool, error) {
	return events.Message{Sequence: at, Time: epoch}, true, nil
}

func (b *telling) Last(_ context.Context, _, on string) (last events.Message, there bool, err error) {
	for _, m := range b.told {
		if m.Subject == on {
			last, there = m, true
		}
	}
	return last, there, nil
}

func (*telling) Acknowledged(context.Context, string) (uint64, bool, error) { return 0, false, nil }

func (b *telling) Consume(ctx context.Context, stream string, from uint64, _ func() uint64, handle func([]events.Message) error) error {
	b.followed = append(b.followed, fmt.Sprint(stream, " ", from))
	var batches [][]events.Message
	for _, m := range b.told {
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
	if b.ends != nil {
		return b.ends
	}
	<-ctx.Done()
	return nil
}

var podLog = subject.LogStream("pods")

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

// without is a log that lacks some messages, or has others in their place.
func without(log []events.Message, places ...any) []events.Message {
	log = slices.Clone(log)
	for _, p := range places {
		switch p := p.(type) {
		case int:
			log = slices.DeleteFunc(log, func(m events.Message) bool { return m.Sequence == uint64(p) })
		case events.Message:
			log[slices.IndexFunc(log, func(m events.Message) bool { return m.Sequence == p.Sequence })] = p
		}
	}
	return log
}

// A session folds the log. Up to the message that was the last one when it began, nothing is judged; from
// there on, nothing that is damaged or missing is believed.
func TestWhatEndsASession(t *testing.T) {
	log := counted(t, logged(1, 2, 3, 4, 5)...)
	retold := said(again(log[0], 3), log[0])
	unsaid := delta(kinds.Pods.Kind, events.Is, aPod("p3", "", 3), 3)
	for name, tc := range map[string]struct {
		log      []events.Message
		batched  bool
		ends     error
		want     error // error of the session; nil: it goes on
		position uint64
		opened   bool
	}{
		"whole":                         {log: log, position: 5, opened: true},
		"whole, at once":                {log: log, batched: true, position: 5, opened: true},
		"without a census":              {log: logged(1, 2, 3, 4, 5), position: 5, opened: true},
		"a census, and no mark":         {log: without(log, 2), position: 5, opened: true},
		"neither mark nor census":       {log: without(logged(1, 2, 3, 4, 5), 2), position: 5},
		"one is missing":                {log: without(log, 4), want: events.ErrDamaged, position: 5, opened: true},
		"one is missing, at once":       {log: without(log, 4), batched: true, want: events.ErrDamaged, position: 5},
		"missing before the goal":       {log: without(log, 1), want: events.ErrDamaged, position: 3},
		"missing, and recorded again":   {log: without(log, 1, retold, 4, 5), position: 3, opened: true},
		"a damaged one":                 {log: without(log, ruined(log[3])), want: events.ErrDamaged, position: 4, opened: true},
		"damaged at the goal":           {log: without(log, ruined(log[2])), want: events.ErrDamaged, position: 3},
		"damaged before the goal":       {log: without(log, ruined(log[0])), want: events.ErrDamaged, position: 3},
		"damaged, and no census since":  {log: without(logged(1, 2, 3, 4, 5), ruined(log[0]), unsaid), want: events.ErrDamaged, position: 3},
		"damaged, and recorded again":   {log: without(log, ruined(log[0]), retold, 4, 5), position: 3, opened: true},
		"a damaged mark before the end": {log: without(log, ruined(log[1])), position: 5, opened: true},
		"is deleted":                    {log: log, ends: bus.ErrNoStream, want: bus.ErrNoStream, position: 5, opened: true},
		"made anew":                     {log: log, ends: bus.ErrOvertaken, want: bus.ErrOvertaken, position: 5, opened: true},
		"cannot be read":                {log: log, ends: events.ErrDamaged, want: events.ErrDamaged, position: 5, opened: true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := &telling{state: bus.State{First: 1, Last: 3, Messages: 3}, told: tc.log, ends: tc.ends, batched: tc.batched}
				f := Follower{Bus: b, Cache: cache.New(), Kind: kinds.Pods.Kind}
				ctx, cancel := context.WithCancel(t.Context())
				ended := make(chan error, 1)
				go func() { ended <- f.session(ctx) }()
				synctest.Wait()
				if byItself := len(ended) > 0; byItself != (tc.want != nil) {
					t.Errorf("the session ended by itself: %t, want the opposite", byItself)
				}
				cancel()
				if err := <-ended; !errors.Is(err, tc.want) || (err != nil) != (tc.want != nil) {
					t.Errorf("the session ended with %v, want %v", err, tc.want)
				}
				if got := f.Cache.Position("pods"); got != tc.position || f.opened != tc.opened || !slices.Equal(b.followed, []string{podLog + " 1"}) {
					t.Errorf("the session followed %v and folded up to %d, want %d; opened: %t", b.followed, got, tc.position, f.opened)
				}
			})
		})
	}
}

// since is a mark, with a census, that says since when every object is recorded.
func since(sequence, at uint64, there ...events.Message) events.Message {
	m := markAt(kinds.Pods.Kind, "9", at)
	m.Header[events.HeaderSince] = []string{strconv.FormatUint(sequence, 10)}
	return said(m, there...)
}

// Reading begins where every existing object has been recorded since. What a misleading mark hides is
// missing, and nothing opens.
func TestReadingBeginsWhereEverythingIsRecordedSince(t *testing.T) {
	pod := func(at uint64) events.Message {
		return delta(kinds.Pods.Kind, events.Is, aPod(fmt.Sprint("p", at), "", int(at)), at)
	}
	end := delta(kinds.Pods.Kind, events.Gone, aPod("p1", "", 4), 4)
	for name, tc := range map[string]struct {
		log     []events.Message
		trouble error
		from    uint64
		objects int
		opened  bool
		want    error
	}{
		"a mark that says since when":    {[]events.Message{end, pod(7), pod(8), since(7, 9, pod(7), pod(8))}, nil, 7, 2, true, nil},
		"a mark that does not":           {[]events.Message{end, pod(7), since(0, 9, pod(7))}, nil, 1, 1, true, nil},
		"a mark of a kind without any":   {[]events.Message{pod(1), end, since(9, 9)}, nil, 9, 0, true, nil},
		"an earlier mark says when":      {[]events.Message{pod(1), since(1, 2, pod(1)), pod(7), since(7, 9, pod(7))}, nil, 7, 1, true, nil},
		"no mark":                        {[]events.Message{pod(7), pod(9)}, nil, 1, 2, false, nil},
		"no message":                     {nil, nil, 1, 0, false, nil},
		"a gap behind the mark":          {[]events.Message{pod(7), since(7, 8, pod(7)), gapAt(kinds.Pods.Kind, 9)}, nil, 1, 1, false, nil},
		"a damaged mark":                 {[]events.Message{pod(7), ruined(since(7, 9, pod(7)))}, nil, 1, 1, false, events.ErrDamaged},
		"trouble":                        {[]events.Message{end, pod(7), since(7, 9, pod(7))}, errors.New("trouble"), 7, 1, true, nil},
		"something is only there before": {[]events.Message{pod(3), pod(7), since(7, 9, pod(3), pod(7))}, nil, 7, 1, false, events.ErrDamaged},
		"something is missing anywhere":  {[]events.Message{pod(7), since(7, 9, pod(3), pod(7))}, nil, 7, 1, false, events.ErrDamaged},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := &telling{state: bus.State{First: 1, Last: 9, Messages: 9}, told: tc.log}
				f := Follower{Bus: b, Cache: cache.New(), Kind: kinds.Pods.Kind}
				if tc.trouble != nil {
					f.trouble.begin(tc.trouble, report.Damage{Kind: "pods", End: 8})
				}
				ctx, cancel := context.WithTimeout(t.Context(), time.Second)
				defer cancel()
				if err := f.session(ctx); !errors.Is(err, tc.want) || (err != nil) != (tc.want != nil) {
					t.Errorf("the session ended with %v", err)
				}
				if got := f.Cache.Count("pods"); !slices.Equal(b.followed, []string{fmt.Sprint(podLog, " ", tc.from)}) || got != tc.objects || f.opened != tc.opened {
					t.Errorf("the session followed %v and has %d objects, want from %d and %d; opened: %t", b.followed, got, tc.from, tc.objects, f.opened)
				}
				if f.trouble.current() != nil {
					t.Errorf("the trouble %v goes on, want it ended", f.trouble.current())
				}
			})
		})
	}
}

// A kind without errors is followed until the context ends, and each session begins with
// nothing that the previous one knew.
func TestASessionGoesOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := &telling{state: bus.State{First: 1, Last: 1, Messages: 9}, told: logged(1)}
		f := Follower{Bus: b, Cache: cache.New(), Kind: kinds.Pods.Kind, opened: true, waiting: true}
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		began := time.Now()
		if err := f.session(ctx); err != nil || time.Since(began) != time.Hour || f.opened || f.waiting {
			t.Errorf("the session ended after %v with %v (opened: %t, waiting: %t), want after an hour, neither open nor waiting", time.Since(began), err, f.opened, f.waiting)
		}
		if want := []string{podLog + " 1"}; !slices.Equal(b.followed, want) {
			t.Errorf("the session followed %v, want %v", b.followed, want)
		}
	})
}

// A session behind another one that ended without damage continues behind what has been folded, and opens
// at once if that is all there is.
func TestASessionContinuesBehindWhatIsFolded(t *testing.T) {
	for last, opened := range map[uint64]bool{3: true, 4: false} {
		synctest.Test(t, func(t *testing.T) {
			b := &telling{state: bus.State{First: 1, Last: last, Messages: last}}
			f := Follower{Bus: b, Cache: cache.New(), Kind: kinds.Pods.Kind}
			f.Cache.Follow(f.Kind)
			f.Cache.Fold("pods", counted(t, logged(1, 2, 3)...))
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			if err := f.session(ctx); err != nil || f.opened != opened || !slices.Equal(b.followed, []string{podLog + " 4"}) {
				t.Errorf("a log of %d messages is followed from %v (%v), opened: %t; want from 4", last, b.followed, err, f.opened)
			}
		})
	}
}

// growing is a log of pods to which messages are added while it is followed.
type growing struct {
	bus.Bus
	mu       sync.Mutex
	log      []events.Message
	grown    chan struct{} // closed when the log has grown
	begun    []uint64
	reported []report.Damage
}

func (b *growing) add(messages ...events.Message) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.log = append(b.log, messages...)
	close(b.grown)
	b.grown = make(chan struct{})
}

func (b *growing) held() ([]events.Message, chan struct{}) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.Clone(b.log), b.grown
}

func (b *growing) StreamState(context.Context, string) (bus.State, error) {
	log, _ := b.held()
	if len(log) == 0 {
		return bus.State{First: 1}, nil
	}
	return bus.State{First: log[0].Sequence, Last: log[len(log)-1].Sequence, Messages: uint64(len(log))}, nil
}

func (b *growing) At(_ context.Context, _ string, at uint64) (events.Message, bool, error) {
	log, _ := b.held()
	i := slices.IndexFunc(log, func(m events.Message) bool { return m.Sequence == at })
	return events.Message{Sequence: at}, i >= 0, nil
}

func (b *growing) Last(_ context.Context, _, on string) (last events.Message, there bool, err error) {
	log, _ := b.held()
	for _, m := range log {
		if m.Subject == on {
			last, there = m, true
		}
	}
	return last, there, nil
}

func (*growing) Acknowledged(context.Context, string) (uint64, bool, error) { return 0, false, nil }

func (b *growing) Broadcast(topic string, data []byte) error {
	if d, ok := report.DecodeDamage(data); ok && topic == report.DamageTopic {
		b.mu.Lock()
		defer b.mu.Unlock()
		b.reported = append(b.reported, d)
	}
	return nil
}

func (b *growing) lastReport() (last report.Damage, reports int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if reports = len(b.reported); reports > 0 {
		last = b.reported[reports-1]
	}
	return last, reports
}

func (b *growing) Consume(ctx context.Context, _ string, from uint64, _ func() uint64, handle func([]events.Message) error) error {
	b.begun = append(b.begun, from)
	for next := from; ; {
		log, grown := b.held()
		for _, m := range log {
			if m.Sequence < next {
				continue
			}
			if next = m.Sequence + 1; ctx.Err() != nil {
				return nil
			}
			if err := handle([]events.Message{m}); err != nil {
				return err
			}
		}
		select {
		case <-ctx.Done():
			return nil
		case <-grown:
		}
	}
}

// followed runs a follower of the pods until the test's function returns. It returns what the follower
// told of its trouble.
func followed(t *testing.T, b bus.Bus, memory *cache.Cache, during func(f *Follower, l *Loop)) (trouble []error) {
	t.Helper()
	memory.Register(toy().Describe())
	l := NewLoop(b, toy(), memory, Settings{}, nil)
	l.Shut(kinds.Pods.Name)
	f := &Follower{Bus: b, Cache: memory, Kind: kinds.Pods.Kind, Loops: []*Loop{l}, Troubled: func(err error) { trouble = append(trouble, err) }}
	ctx, cancel := context.WithCancel(t.Context())
	done, stop := make(chan error, 1), hear(l)
	go func() { done <- f.Follow(ctx) }()
	synctest.Wait()
	during(f, l)
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
	stop()
	return trouble
}

// Damage behind the goal shuts the engines, and is reported until a census agrees. While it lasts, the
// report says how far the log reached when it was last found.
func TestDamageIsReportedUntilACensusAgrees(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log := counted(t, logged(1, 2, 3, 4)...)
		b := &growing{grown: make(chan struct{}), log: slices.Clone(log[:2])}
		trouble := followed(t, b, cache.New(), func(f *Follower, l *Loop) {
			is := func(what string, shut bool, objects int, end uint64) {
				t.Helper()
				_, before := b.lastReport()
				time.Sleep(3 * reportEvery) // virtual
				synctest.Wait()
				last, reports := b.lastReport()
				if isShut(l, "pods") != shut || f.Cache.Count("pods") != objects || last.End != end || (reports > before) != (f.trouble.current() != nil) {
					t.Errorf("%s: the kind is shut: %t, with %d objects, and was reported %d times more, last with the end %d", what, isShut(l, "pods"), f.Cache.Count("pods"), reports-before, last.End)
				}
			}
			is("whole", false, 1, 0)
			b.add(log[3]) // without the third
			is("one is missing", true, 2, 4)
			later := said(markAt(kinds.Pods.Kind, "5", 5), log[0], log[2], log[3])
			b.add(later)
			is("it still is", true, 2, 5)
			b.add(again(logged(3)[0], 6))
			is("it is recorded again", true, 3, 5)
			b.add(since(1, 7, log[0], log[2], log[3]))
			is("a census agrees", false, 3, 5)
		})
		if len(trouble) < 3 || !errors.Is(trouble[0], events.ErrDamaged) || trouble[len(trouble)-1] != nil || slices.Contains(trouble[:len(trouble)-1], nil) {
			t.Errorf("the troubles were %v, want damage, and none in the end", trouble)
		}
		if !slices.Equal(b.begun, []uint64{1, 1}) {
			t.Errorf("the log was followed from %v, want twice from 1", b.begun)
		}
	})
}

// Trouble that lasts has the log read again: the objects that were folded may be wrong, and not the log.
func TestLastingTroubleReadsTheLogAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log := counted(t, logged(1, 2, 3)...)
		b := &growing{grown: make(chan struct{}), log: without(log, 1)}
		followed(t, b, cache.New(), func(f *Follower, l *Loop) {
			time.Sleep(2*damageLasts + 5*time.Second) // virtual
			if b.add(again(logged(1)[0], 4), since(3, 5, log[0], log[2])); f.trouble.current() == nil || !isShut(l, "pods") {
				t.Error("an object is missing, and the follower has no trouble, or the kind is open")
			}
			synctest.Wait()
			if f.trouble.current() != nil || isShut(l, "pods") {
				t.Errorf("everything is there, and the trouble is %v, or the kind is shut", f.trouble.current())
			}
		})
		if !slices.Equal(b.begun, []uint64{1, 1, 1, 1}) {
			t.Errorf("the log was followed from %v, want four times from 1", b.begun)
		}
	})
}
