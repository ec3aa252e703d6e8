package storageepoch_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/bus"
	"github.com/millrace/millrace/pkg/events/storageepoch"
	"github.com/millrace/millrace/pkg/events/stream/memory"
)

// witness is what a process can see itself, and the verdicts on claims that it heard.
type witness struct {
	mu       sync.Mutex
	sees     uint64
	checks   int
	verdicts map[storageepoch.Verdict]int
	by       string
}

func (w *witness) share(c *storageepoch.Config) {
	w.verdicts = map[storageepoch.Verdict]int{}
	c.ID = "self"
	c.Check = func(context.Context, bool) (uint64, error) {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.checks++
		return w.sees, nil
	}
	c.Judged = func(c storageepoch.Claim, v storageepoch.Verdict) {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.verdicts[v]++
		w.by = c.By
	}
}

func (w *witness) see(epoch uint64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.sees = epoch
}

func (w *witness) counts() (checks, confirmed, refuted, impossible int) {
	synctest.Wait()
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.checks, w.verdicts[storageepoch.Confirmed], w.verdicts[storageepoch.Refuted], w.verdicts[storageepoch.Impossible]
}

// held is how long work that depends on an epoch has to wait from now on.
func held(e *storageepoch.Tracker) time.Duration {
	synctest.Wait()
	began := time.Now()
	if _, decided := e.Pending(); decided != nil {
		<-decided
	}
	return time.Since(began)
}

// A refuted claim does not count, whatever its number; work waits for it once, for less than ten
// seconds, and the process checks a few times.
func TestAForgedEpochIsNotTaken(t *testing.T) {
	for _, forged := range []uint64{1, 2, events.MaxEpoch} {
		t.Run(fmt.Sprint(forged), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b, w := memory.New(memory.Options{}), &witness{}
				e := shared(t, b, none(t), w.share)
				if err := storageepoch.Say(b, storageepoch.Claim{Epoch: forged, By: "mallory"}); err != nil {
					t.Fatal(err)
				}
				if waited := held(e); waited != 7750*time.Millisecond { // the sum of the pauses
					t.Errorf("work waited for %v", waited)
				}
				checks, confirmed, refuted, _ := w.counts()
				if got := now(e); got != 0 || confirmed != 0 || refuted != 1 || checks > 6 || w.by != "mallory" {
					t.Errorf("epoch %d after %d looks; %d confirmed, %d refuted, of %q", got, checks, confirmed, refuted, w.by)
				}
			})
		})
	}
}

// A process that keeps claiming makes work wait once, and causes only occasional checks.
func TestAFloodOfForgedEpochs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, w := memory.New(memory.Options{}), &witness{}
		e := shared(t, b, none(t), w.share)
		began, waited := time.Now(), time.Duration(0)
		var waiting time.Time
		for claim := uint64(1); time.Since(began) < 5*time.Minute; claim++ {
			if err := storageepoch.Say(b, storageepoch.Claim{Epoch: 1 + claim%1000}); err != nil {
				t.Fatal(err)
			}
			synctest.Wait()
			switch _, decided := e.Pending(); {
			case decided != nil && waiting.IsZero():
				waiting = time.Now()
			case decided == nil && !waiting.IsZero():
				waited += time.Since(waiting)
				waiting = time.Time{}
			}
			time.Sleep(50 * time.Millisecond)
		}
		checks, confirmed, refuted, _ := w.counts()
		if got := now(e); got != 0 || confirmed != 0 || refuted == 0 || checks > 70 || waited == 0 || waited > 10*time.Second {
			t.Errorf("epoch %d after %d looks; %d confirmed, %d refuted; work waited for %v in all", got, checks, confirmed, refuted, waited)
		}
		w.see(1) // now there has been a restore
		time.Sleep(11 * time.Second)
		if err := storageepoch.Say(b, storageepoch.Claim{Epoch: 1}); err != nil {
			t.Fatal(err)
		}
		if got := now(e); got != 1 {
			t.Errorf("after a restore that is seen the epoch is %d, want 1", got)
		}
	})
}

// Work waits only while a claim is on trial, and then for the claimed epoch.
func TestWhatWorkWaitsFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, w := memory.New(memory.Options{}), &witness{}
		e := shared(t, b, none(t), w.share)
		pending := func(when string, want uint64) {
			t.Helper()
			synctest.Wait()
			if epoch, decided := e.Pending(); epoch != want || (decided != nil) != (want > 0) {
				t.Errorf("%s work waits for epoch %d, want %d", when, epoch, want)
			}
		}
		say := func() {
			t.Helper()
			if err := storageepoch.Say(b, storageepoch.Claim{Epoch: 7}); err != nil {
				t.Fatal(err)
			}
		}
		pending("before any claim", 0)
		say()
		pending("while one is on trial", 7)
		held(e)
		pending("after it was refuted", 0)
		time.Sleep(10*time.Minute - 1)
		say()
		pending("while the refusal counts", 0)
		synctest.Wait()
		time.Sleep(10 * time.Minute)
		say()
		pending("when the refusal counts no more", 7)
	})
}

// Repeated claims cause one check in five seconds, and claims of an impossible epoch are
// reported as seldom.
func TestHowOftenClaimsCount(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, w := memory.New(memory.Options{}), &witness{}
		e := shared(t, b, none(t), w.share)
		say := func(epoch uint64) {
			t.Helper()
			if err := storageepoch.Say(b, storageepoch.Claim{Epoch: epoch}); err != nil {
				t.Fatal(err)
			}
		}
		say(7)
		say(math.MaxUint64)
		held(e)
		looked, _, _, _ := w.counts()
		time.Sleep(5*time.Second - 1)
		say(7)
		if checks, _, _, _ := w.counts(); checks != looked {
			t.Errorf("%d looks within five seconds of a refusal, want %d", checks, looked)
		}
		time.Sleep(1)
		say(7)
		if checks, _, _, _ := w.counts(); checks != looked+1 {
			t.Errorf("%d looks five seconds after a refusal, want %d", checks, looked+1)
		}
		say(math.MaxUint64)
		time.Sleep(5*time.Second - 1)
		say(math.MaxUint64)
		if _, _, _, impossible := w.counts(); impossible != 2 {
			t.Errorf("impossible claims are told of %d times within five seconds, want twice", impossible)
		}
		if checks, _, _, _ := w.counts(); checks != looked+1 {
			t.Errorf("%d looks at a claim for which no work waits, want one", checks-looked)
		}
		time.Sleep(1)
		say(math.MaxUint64)
		if _, _, _, impossible := w.counts(); impossible != 3 {
			t.Errorf("impossible claims are told of %d times, want a third time after five seconds", impossible)
		}
	})
}

// An epoch that is claimed before it can be seen is found within seconds, and work waits until
// then; the epoch that is seen counts.
func TestAnEpochThatIsSeenLater(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, w := memory.New(memory.Options{}), &witness{}
		e := shared(t, b, none(t), w.share)
		if err := storageepoch.Say(b, storageepoch.Claim{Epoch: 5}); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		time.Sleep(3 * time.Second)
		w.see(5)
		if waited := held(e); waited == 0 || waited > 2*time.Second {
			t.Errorf("work waited for %v more", waited)
		}
		if _, confirmed, _, _ := w.counts(); now(e) != 5 || confirmed != 1 {
			t.Errorf("epoch %d, %d confirmed", now(e), confirmed)
		}
	})
}

// No claimed number exhausts the range of epochs.
func TestThereIsAlwaysANextEpoch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, w := memory.New(memory.Options{}), &witness{}
		w.sees = math.MaxUint64
		e := shared(t, b, none(t), w.share)
		for range 100 {
			if err := storageepoch.Say(b, storageepoch.Claim{Epoch: math.MaxUint64, By: "mallory"}); err != nil {
				t.Fatal(err)
			}
		}
		if checks, _, _, impossible := w.counts(); checks != 0 || impossible != 1 || now(e) != 0 {
			t.Errorf("%d looks, told of %d times, epoch %d", checks, impossible, now(e))
		}
		e.Begin(math.MaxUint64)
		if e.Begin(1); now(e) != 1 {
			t.Errorf("epoch %d, want 1", now(e))
		}
	})
}

// A text that is too long or malformed is no claim; a long name is cut.
func TestWhatIsAClaim(t *testing.T) {
	padded := func(to int) string {
		text := `{"epoch":1,"by":"w"}`
		return text + strings.Repeat(" ", to-len(text))
	}
	for data, want := range map[string]storageepoch.Claim{
		padded(1024): {Epoch: 1, By: "w"},
		padded(1025): {},
		`{"epoch":1,"by":"` + strings.Repeat("w", 256) + `"}`: {Epoch: 1, By: strings.Repeat("w", 256)},
		`{"epoch":1,"by":"` + strings.Repeat("w", 300) + `"}`: {Epoch: 1, By: strings.Repeat("w", 256)},
		`{"epoch":1,"by":3}`: {},
		`{"by":"w"}`:         {},
	} {
		if got, ok := storageepoch.Decode([]byte(data)); got != want || ok != (want != storageepoch.Claim{}) {
			t.Errorf("%.40q of %d bytes is %+v, %t", data, len(data), got, ok)
		}
	}
}

// Claims of known epochs, and the process's own claims, cause no check. Only the first check of
// a claim is marked as first.
func TestWhatIsLookedInto(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := memory.New(memory.Options{})
		var looks []bool
		e := shared(t, b, none(t), func(c *storageepoch.Config) {
			c.ID = "self"
			c.Check = func(_ context.Context, first bool) (uint64, error) { looks = append(looks, first); return 0, nil }
		})
		e.Begin(3)
		_, over := e.Now()
		if e.Begin(3); isClosed(over) {
			t.Error("an epoch is over that began once more")
		}
		for _, claim := range []storageepoch.Claim{{Epoch: 2}, {Epoch: 3}, {Epoch: 9, By: "self"}, {By: "other"}} {
			if err := storageepoch.Say(b, claim); err != nil {
				t.Fatal(err)
			}
			if held(e); len(looks) > 0 {
				t.Errorf("%+v is looked into", claim)
			}
		}
		if err := storageepoch.Say(b, storageepoch.Claim{Epoch: 4}); err != nil {
			t.Fatal(err)
		}
		if held(e); !slices.Equal(looks, []bool{true, false, false, false, false, false}) {
			t.Errorf("the looks are the first ones: %v", looks)
		}
		if e.Begin(events.MaxEpoch); now(e) != events.MaxEpoch {
			t.Errorf("the last epoch that there is does not begin: %d", now(e))
		}
	})
}

func isClosed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// A claim that cannot be checked is neither confirmed nor refuted; the error is reported, and
// work waits for the next claim as well.
func TestAClaimThatCannotBeLookedInto(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, away := memory.New(memory.Options{}), errors.New("away")
		var troubles []error
		judged := 0
		e := shared(t, b, func(err error) { troubles = append(troubles, err) }, func(c *storageepoch.Config) {
			c.Check = func(context.Context, bool) (uint64, error) { return 0, away }
			c.Judged = func(storageepoch.Claim, storageepoch.Verdict) { judged++ }
		})
		for range 2 {
			if err := storageepoch.Say(b, storageepoch.Claim{Epoch: 4}); err != nil {
				t.Fatal(err)
			}
			if waited := held(e); waited == 0 {
				t.Error("work does not wait")
			}
			synctest.Wait()
			if len(troubles) != 6 || !errors.Is(troubles[0], away) || judged != 0 {
				t.Errorf("after six looks there are %d verdicts, and the troubles %v; want none, and six", judged, troubles)
			}
			troubles = nil
			time.Sleep(5 * time.Second)
		}
	})
}

// deaf is a bus on which Listen fails for some time.
type deaf struct {
	bus.Peers
	until time.Time
	err   error
}

func (d *deaf) Listen(ctx context.Context, topic string, hear func([]byte)) error {
	if time.Now().Before(d.until) {
		return d.err
	}
	return d.Peers.Listen(ctx, topic, hear)
}

// While Listen fails, it is retried every second, and the error is reported.
func TestABusThatCannotBeHeard(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := memory.New(memory.Options{})
		d := &deaf{b, time.Now().Add(3 * time.Second), errors.New("deaf")}
		var troubles []error
		e := shared(t, d, func(err error) { troubles = append(troubles, err) }, func(c *storageepoch.Config) {
			c.Check = func(context.Context, bool) (uint64, error) { return 5, nil }
		})
		time.Sleep(2500 * time.Millisecond)
		synctest.Wait()
		if len(troubles) != 3 || !errors.Is(troubles[0], d.err) {
			t.Errorf("in 2.5 s the troubles are %v", troubles)
		}
		time.Sleep(500 * time.Millisecond)
		synctest.Wait()
		if err := storageepoch.Say(b, storageepoch.Claim{Epoch: 5}); err != nil {
			t.Fatal(err)
		}
		if got := now(e); got != 5 || len(troubles) != 3 {
			t.Errorf("when it can be heard again it is epoch %d, want 5; troubles: %v", got, troubles)
		}
	})
}

func FuzzClaim(f *testing.F) {
	for _, seed := range []string{`{"epoch":1,"by":"w"}`, `{"epoch":18446744073709551615}`, `{"epoch":-1}`, `[]`, `{"Epoch":1,"epoch":2}`} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		c, ok := storageepoch.Decode(data)
		if !ok {
			return
		}
		if c.Epoch == 0 || len(c.By) > 256 {
			t.Errorf("%q is taken for %+v", data, c)
		}
		if _, err := json.Marshal(c); err != nil {
			t.Error(err)
		}
	})
}
