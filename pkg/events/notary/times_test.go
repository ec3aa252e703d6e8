package notary_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/bus"
	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/pkg/events/notary"
	"github.com/millrace/millrace/pkg/events/stream/memory"
	"github.com/millrace/millrace/pkg/events/subject"
)

// rounds is a bus that records the start of each round, and answers as told.
type rounds struct {
	bus.NotaryBus
	hangs bool

	mu    sync.Mutex
	at    []time.Time
	fails error
}

func (r *rounds) Kinds(ctx context.Context) ([]kinds.Kind, error) {
	r.mu.Lock()
	r.at = append(r.at, time.Now())
	err := r.fails
	r.mu.Unlock()
	if r.hangs {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	if err != nil {
		return nil, err
	}
	return r.NotaryBus.Kinds(ctx)
}

func (r *rounds) fail(err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.fails = err
}

// TestANotaryMakesItsRounds every ten seconds or as configured, and once more when it is
// stopped, within three seconds.
func TestANotaryMakesItsRounds(t *testing.T) {
	for name, c := range map[string]struct {
		every time.Duration
		hangs bool
		want  []time.Duration
		ends  time.Duration
	}{
		"by itself":             {want: []time.Duration{0, 10 * time.Second, 20 * time.Second, 25 * time.Second}, ends: 25 * time.Second},
		"as often as told":      {every: 20 * time.Second, want: []time.Duration{0, 20 * time.Second, 25 * time.Second}, ends: 25 * time.Second},
		"on a bus that is away": {hangs: true, want: []time.Duration{0, 25 * time.Second}, ends: 28 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			live(t, 31, memory.Options{}, func(w *world) {
				w.turn()
				began, on := time.Now(), &rounds{NotaryBus: w.bus, hangs: c.hangs}
				n := notary.New(on, notary.Options{Signer: w.signer, Known: w.known, Every: c.every})
				if n.Healthy() == nil {
					t.Error("the notary is healthy before any round")
				}
				ctx, stop := context.WithCancel(w.Context())
				ended := make(chan error, 1)
				go func() { ended <- n.Run(ctx) }()
				time.Sleep(25 * time.Second) // of virtual time
				if healthy := n.Healthy() == nil; healthy == c.hangs {
					t.Errorf("the notary is healthy: %t, want the opposite", healthy)
				}
				w.turn()
				stop()
				w.must(<-ended)
				var got []time.Duration
				for _, at := range on.at {
					got = append(got, at.Sub(began))
				}
				if !slices.Equal(got, c.want) || time.Since(began) != c.ends {
					t.Errorf("rounds at %v and the end after %v, want %v and %v", got, time.Since(began), c.want, c.ends)
				}
				if c.hangs {
					return
				}
				r, err := notary.Verify(w.Context(), w.bus, notary.Trust{Known: w.known})
				w.must(err)
				whole(t, r, true) // including the messages from just before the end
			})
		})
	}
}

// TestAFailureIsLoggedOnce for as long as it is the same.
func TestAFailureIsLoggedOnce(t *testing.T) {
	live(t, 32, memory.Options{}, func(w *world) {
		var out bytes.Buffer
		on := &rounds{NotaryBus: w.bus, fails: errors.New("it is away")}
		n := notary.New(on, notary.Options{Signer: w.signer, Known: w.known, Log: slog.New(slog.NewTextHandler(&out, nil))})
		ctx, stop := context.WithCancel(w.Context())
		ended := make(chan error, 1)
		go func() { ended <- n.Run(ctx) }()
		logged := func(after time.Duration, when string, want int, healthy bool) {
			t.Helper()
			time.Sleep(after) // of virtual time
			synctest.Wait()
			if got := strings.Count(out.String(), "signing is incomplete"); got != want || (n.Healthy() == nil) != healthy {
				t.Errorf("%s %d lines are logged, want %d; healthy: %v", when, got, want, n.Healthy())
			}
		}
		logged(25*time.Second, "of one failure", 1, false)
		on.fail(errors.New("it is still away"))
		logged(20*time.Second, "of another one", 2, false)
		on.fail(nil)
		logged(10*time.Second, "when nothing fails", 2, true)
		on.fail(errors.New("it is still away"))
		logged(10*time.Second, "when it fails again", 3, false)
		stop()
		w.must(<-ended)
	})
}

// pagesAbout is the number of pages about a stream.
func (w *world) pagesAbout(stream string) (n int) {
	w.Helper()
	w.must(w.bus.Read(w.Context(), bus.Passage{Stream: subject.NotaryStream, Subject: subject.Notary(stream)}, func(batch []events.Message) error {
		n += len(batch)
		return nil
	}))
	return n
}

// TestAQuietStreamIsSignedEachHour, and a stream with new messages at once.
func TestAQuietStreamIsSignedEachHour(t *testing.T) {
	live(t, 33, memory.Options{}, func(w *world) {
		pages := func(after time.Duration, when string, want int) {
			t.Helper()
			time.Sleep(after) // of virtual time
			w.sign()
			if got := w.pagesAbout(turns); got != want {
				t.Errorf("%s there are %d pages, want %d", when, got, want)
			}
		}
		w.turn()
		pages(0, "at first", 1)
		pages(time.Hour-1, "just before an hour", 1)
		pages(1, "after an hour", 2)
		w.turn()
		pages(1, "of another turn", 3)
	})
}

// TestAPageIsBounded: many messages of a stream are signed in pages of two thousand messages.
func TestAPageIsBounded(t *testing.T) {
	for n, want := range map[int]int{1999: 1, 2000: 1, 2001: 2} {
		live(t, 34, memory.Options{}, func(w *world) {
			for i := range n {
				_, err := w.bus.Put(w.Context(), events.Message{Subject: subject.Turn(controller, events.LaneWrite, events.Key{Name: "web"}), Data: []byte("{}")}, string(rune(i+0x4000)))
				w.must(err)
			}
			w.sign()
			if got := w.pagesAbout(turns); got != want {
				t.Errorf("%d messages are signed in %d pages, want %d", n, got, want)
			}
			r, err := notary.Verify(w.Context(), w.bus, notary.Trust{Known: w.known})
			w.must(err)
			whole(t, r, true)
		})
	}
}

// asked is a bus that records the retention requested for pages, and whose streams have the
// given retention.
type asked struct {
	bus.NotaryBus
	keeps map[string]bus.Retention
	keep  []time.Duration
}

func (a *asked) EnsureNotary(ctx context.Context, keep time.Duration) error {
	a.keep = append(a.keep, keep)
	return a.NotaryBus.EnsureNotary(ctx, keep)
}

func (a *asked) StreamState(ctx context.Context, name string) (bus.State, error) {
	state, err := a.NotaryBus.StreamState(ctx, name)
	if keeps, told := a.keeps[name]; told {
		state.Keeps = keeps
	}
	return state, err
}

// TestPagesAreKeptADayLonger than the messages that they cover, and for ever if those are; an
// empty stream does not count. The notary asks the bus once.
func TestPagesAreKeptADayLonger(t *testing.T) {
	other := subject.ShadowStream(controller)
	for name, c := range map[string]struct {
		keeps map[string]bus.Retention
		want  time.Duration
	}{
		"a day":                 {nil, 48 * time.Hour},
		"one for a week":        {map[string]bus.Retention{turns: {Age: 7 * 24 * time.Hour}}, 8 * 24 * time.Hour},
		"one for ever":          {map[string]bus.Retention{turns: {}}, 0},
		"an empty one for ever": {map[string]bus.Retention{subject.LogStream(kinds.Pods.Name): {}}, 48 * time.Hour},
	} {
		live(t, 35, memory.Options{}, func(w *world) {
			w.turn()
			on := &asked{NotaryBus: w.bus, keeps: c.keeps}
			n := notary.New(on, notary.Options{Signer: w.signer, Known: w.known})
			w.must(n.Round(w.Context()))
			w.turn()
			w.must(n.Round(w.Context()))
			if !slices.Equal(on.keep, []time.Duration{c.want}) {
				t.Errorf("%s: pages are to be kept for %v, want %v once", name, on.keep, c.want)
			}
			on.keeps = map[string]bus.Retention{other: {Age: 30 * 24 * time.Hour}}
			w.must(n.Round(w.Context()))
			if want := 31 * 24 * time.Hour; on.keep[len(on.keep)-1] != want {
				t.Errorf("%s, and then a month: pages are to be kept for %v, want %v", name, on.keep, want)
			}
		})
	}
}

// findings are the current findings on a bus.
func (w *world) findings(on bus.Archive, trust notary.Trust) []notary.Finding {
	w.Helper()
	trust.Known = w.known
	r, err := notary.Verify(w.Context(), on, trust)
	w.must(err)
	return r.Findings
}

// TestHowLongASignatureMayTake: messages unsigned for more than five minutes are reported,
// unless the record was cut off at its end on purpose.
func TestHowLongASignatureMayTake(t *testing.T) {
	live(t, 36, memory.Options{}, func(w *world) {
		w.turn()
		w.sign()
		w.turn()
		at := time.Now()
		w.turn()
		time.Sleep(5 * time.Minute) // of virtual time
		if found := w.findings(w.bus, notary.Trust{}); len(found) > 0 {
			t.Errorf("verify finds %v five minutes after an unsigned turn, want nothing", found)
		}
		time.Sleep(1)
		found := w.findings(w.bus, notary.Trust{})
		if len(found) != 3 || !strings.Contains(found[0].What, "stored from here on, 5m0s ago") || found[0].Sequence != 2 {
			t.Errorf("verify finds %v more than five minutes after an unsigned turn, want three findings", found)
		}
		if found := w.findings(w.bus, notary.Trust{Until: true}); len(found) > 0 {
			t.Errorf("verify of a record that was cut off finds %v, want nothing", found)
		}
		if found := w.findings(w.bus, notary.Trust{Now: at.Add(5 * time.Minute)}); len(found) > 0 {
			t.Errorf("verify as of five minutes finds %v, want nothing", found)
		}
	})
}

// without is a bus without one message.
type without struct {
	bus.NotaryBus
	stream   string
	sequence uint64
}

func (o *without) Read(ctx context.Context, p bus.Passage, handle func([]events.Message) error) error {
	return o.NotaryBus.Read(ctx, p, func(batch []events.Message) error {
		return handle(slices.DeleteFunc(batch, func(m events.Message) bool { return m.Stream == o.stream && m.Sequence == o.sequence }))
	})
}

// expiredOne expects no finding on a bus on which one message of a stream has expired, by
// another clock, and that it is counted as expired.
func (w *world) expiredOne(on bus.Archive, stream string) {
	w.Helper()
	r, err := notary.Verify(w.Context(), on, notary.Trust{Known: w.known})
	w.must(err)
	if len(r.Findings) > 0 {
		w.Errorf("at its time, by another clock: %v", r.Findings)
	}
	for _, s := range r.Streams {
		if expired := map[bool]int{true: 1}[s.Stream == stream]; s.Expired != expired {
			w.Errorf("of %s %d messages have expired, want %d", s.Stream, s.Expired, expired)
		}
	}
}

// TestAMarkMayGoWhenItsTimeHasCome, by clocks that differ by five seconds, and not earlier.
func TestAMarkMayGoWhenItsTimeHasCome(t *testing.T) {
	live(t, 37, memory.Options{}, func(w *world) {
		pods := subject.LogStream(kinds.Pods.Name)
		ref := events.Ref{Kind: kinds.Pods.Name, Namespace: "shop", Name: "a"}
		w.logs[kinds.Pods.Name].uids[ref] = "uid"
		w.say(w.logs[kinds.Pods.Name], events.Is, ref)
		w.say(w.logs[kinds.Pods.Name], events.Mark, events.Ref{})
		at := time.Now()
		w.say(w.logs[kinds.Pods.Name], events.Is, ref)
		w.sign()
		on := &without{w.bus, pods, 2}
		time.Sleep(time.Until(at.Add(time.Hour - 6*time.Second))) // of virtual time
		if found := w.findings(on, notary.Trust{}); len(found) != 1 || found[0].Sequence != 2 || !strings.Contains(found[0].What, "signed is missing") {
			t.Errorf("verify finds %v when a message is missing before its time, want that", found)
		}
		time.Sleep(time.Second)
		w.expiredOne(on, pods)
	})
}

// TestAFrontMayGoWhenItsTimeHasCome, likewise.
func TestAFrontMayGoWhenItsTimeHasCome(t *testing.T) {
	live(t, 38, memory.Options{}, func(w *world) {
		on := &shortened{NotaryBus: w.bus, keeps: bus.Retention{Age: time.Hour}}
		w.turn()
		at := time.Now()
		w.turn()
		w.must(notary.New(on, notary.Options{Signer: w.signer, Known: w.known}).Round(w.Context()))
		on.from = 2
		time.Sleep(time.Until(at.Add(time.Hour - 6*time.Second))) // of virtual time
		if found := w.findings(on, notary.Trust{}); len(found) != 1 || found[0].Sequence != 1 || !strings.Contains(found[0].What, "gone before their time: they are kept for 1h0m0s") {
			t.Errorf("verify finds %v when messages are gone before their time, want that", found)
		}
		time.Sleep(time.Second)
		w.expiredOne(on, turns)
	})
}

// TestAListIsWrittenEachTenMinutes, with the last page of each stream.
func TestAListIsWrittenEachTenMinutes(t *testing.T) {
	live(t, 39, memory.Options{}, func(w *world) {
		lists := func(after time.Duration, when string, want int) {
			t.Helper()
			time.Sleep(after) // of virtual time
			w.turn()
			w.sign()
			if got := len(w.lists(w.bus)); got != want {
				t.Errorf("%s there are %d lists, want %d", when, got, want)
			}
		}
		lists(0, "at first", 1)
		lists(10*time.Minute-1, "just before ten minutes", 1)
		lists(1, "after ten minutes", 2)
		last := w.lists(w.bus)[1]
		at := slices.IndexFunc(last.Streams, func(l notary.Listed) bool { return l.Stream == turns })
		if l := last.Streams[at]; l.Page != 3 || l.Last != 3 || !l.Gone.IsZero() {
			t.Errorf("of three turns in three pages the list has %+v", l)
		}
	})
}

// TestAStreamThatWentBeforeTheFirstList was signed, according to the notary's Memory, and is
// listed as missing for as long as its pages are kept.
func TestAStreamThatWentBeforeTheFirstList(t *testing.T) {
	for waited, listed := range map[time.Duration]bool{time.Minute: true, 49 * time.Hour: false} {
		live(t, 40, memory.Options{}, func(w *world) {
			w.happens()
			own := &disk{}
			round := func(on bus.NotaryBus) error {
				return notary.New(on, notary.Options{Signer: w.signer, Known: w.known, Memory: own}).Round(w.Context())
			}
			w.must(round(&contested{NotaryBus: w.bus, subject: listSubject})) // the bus stores no list
			w.must(w.bus.DeleteKind(w.Context(), kinds.Pods.Name))
			time.Sleep(waited) // of virtual time
			w.turn()
			w.must(round(w.bus))
			streams := w.lists(w.bus)[0].Streams
			at := slices.IndexFunc(streams, func(l notary.Listed) bool { return l.Stream == subject.LogStream(kinds.Pods.Name) })
			if (at >= 0) != listed || listed && streams[at].Gone.IsZero() {
				t.Errorf("after %v the stream is listed as %+v, want it listed: %t", waited, streams, listed)
			}
		})
	}
}

// TestWhereAStreamStands: from its first existing message, or after its end.
func TestWhereAStreamStands(t *testing.T) {
	live(t, 54, memory.Options{}, func(w *world) {
		on := &shortened{NotaryBus: w.bus, keeps: bus.Retention{Age: time.Hour}}
		for range 3 {
			w.turn()
		}
		w.must(notary.New(on, notary.Options{Signer: w.signer, Known: w.known}).Round(w.Context()))
		time.Sleep(2 * time.Hour) // of virtual time
		for from, messages := range map[uint64]int{1: 3, 3: 1, 4: 0} {
			on.from = from
			r, err := notary.Verify(w.Context(), on, notary.Trust{Known: w.known})
			w.must(err)
			at := slices.IndexFunc(r.Streams, func(s notary.Standing) bool { return s.Stream == turns })
			if s := r.Streams[at]; s.First != from || s.Last != 3 || s.Messages != messages || s.Proven != messages || s.Expired != 3-messages {
				t.Errorf("from message %d on it stands at %+v", from, s)
			}
		}
	})
}
