package quota

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/millrace/millrace/pkg/events/stream/natserr"
	"github.com/millrace/millrace/pkg/events/stream/settings"
)

// TestReadersOfAUserAreBounded: over all streams, too. Deleted readers make room, whether the
// provisioner was told or not, and other users have their own bound.
func TestReadersOfAUserAreBounded(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		there := map[Key][]string{}
		r := NewReaders(func(_ context.Context, user, stream string) ([]string, error) {
			return slices.Clone(there[Key{user, stream}]), nil
		})
		made := 0
		order := func(user, stream string) error {
			at := Key{user, stream}
			counts, err := r.Admit(t.Context(), at)
			if err != nil {
				if !errors.Is(err, natserr.ErrNotYet) {
					t.Fatal(err)
				}
				return err
			}
			made++
			name := fmt.Sprint(user, "-", made)
			there[at] = append(there[at], name)
			counts(name)
			return nil
		}
		refused := 0
		for i := range 10_000 {
			if order("watcher", fmt.Sprint("EV_", i%1000)) != nil {
				refused++
			}
		}
		if made != maxPerUser || refused != 10_000-maxPerUser {
			t.Fatalf("%d are made and %d refused, want %d made", made, refused, maxPerUser)
		}
		if err := order("writer", "EV_0"); err != nil {
			t.Errorf("another user: %v", err)
		}
		at := Key{"watcher", "EV_7"}
		r.Left(at, there[at][0])
		there[at] = there[at][1:]
		if err := order("watcher", "EV_8"); err != nil {
			t.Errorf("order after one reader has left: %v, want room", err)
		}
		clear(there) // the server has removed them, without a word
		time.Sleep(2 * recountAfter)
		if err := order("watcher", "EV_9"); err != nil {
			t.Errorf("order after the server has removed all readers: %v, want room", err)
		}
		for i := range 1000 {
			_, _ = r.Admit(t.Context(), Key{"watcher", fmt.Sprint("EV_none-", i)})
		}
		if len(r.of) > 2100 {
			t.Errorf("%d streams are remembered", len(r.of))
		}
	})
}

// TestReadersThatCannotBeListed: with the accounts of an earlier version a provisioner may not
// list consumers. What it has made itself lately counts, and what is old does not.
func TestReadersThatCannotBeListed(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := NewReaders(func(context.Context, string, string) ([]string, error) {
			return nil, &natserr.Refusal{Err: errors.New("denied")}
		})
		at := Key{"watcher", "EV_pods"}
		order := func() (n int) {
			for i := range 2 * MaxPerStream {
				if counts, err := r.Admit(t.Context(), at); err == nil {
					counts(fmt.Sprint(time.Now().UnixNano(), "-", i))
					n++
				}
			}
			return n
		}
		if got := order(); got != MaxPerStream {
			t.Errorf("%d are made, want %d", got, MaxPerStream)
		}
		time.Sleep(2*settings.ReaderIdle + time.Second)
		if got := order(); got != MaxPerStream {
			t.Errorf("later %d are made, want %d", got, MaxPerStream)
		}
	})
}

// TestAReaderIsCountedOnce: also if the server lists it before its creator reports it; failed ones, and
// second deletes, do not count.
func TestAReaderIsCountedOnce(t *testing.T) {
	t.Parallel()
	at := Key{"watcher", "EV_pods"}
	var there []string
	r := NewReaders(func(context.Context, string, string) ([]string, error) { return there, nil })
	admit := func() func(string) {
		t.Helper()
		made, err := r.Admit(t.Context(), at)
		if err != nil {
			t.Fatal(err)
		}
		return made
	}
	expect := func(when string, want int) {
		t.Helper()
		if c := r.of[at]; r.total["watcher"] != want || (c == nil) != (want == 0) || c != nil && len(c.made)+c.making != want {
			t.Errorf("%s there are %d readers, want %d: %+v", when, r.total["watcher"], want, c)
		}
	}
	made := admit()
	expect("while one is made", 1)
	there = []string{"watcher-1"}
	r.mu.Lock()
	err := r.recount(t.Context(), at) // as another order does meanwhile
	r.mu.Unlock()
	if made("watcher-1"); err != nil {
		t.Error(err)
	}
	expect("when it was made", 1)
	admit()("")
	expect("when nothing came of another", 1)
	r.Left(at, "watcher-2")
	r.Left(Key{"watcher", "EV_nodes"}, "watcher-1")
	expect("when strangers have left", 1)
	r.Left(at, "watcher-1")
	expect("when it has left", 0)
	r.Left(at, "watcher-1")
	expect("when it has left twice", 0)
}

// TestWhichReadersAreCountedAgain: those of the user that were counted longest ago, where it has any.
func TestWhichReadersAreCountedAgain(t *testing.T) {
	t.Parallel()
	now := time.Now()
	some := map[string]time.Time{"x": now}
	r := NewReaders(nil)
	r.of = map[Key]*count{
		{"watcher", "a"}: {made: some, at: now.Add(-time.Minute)}, {"watcher", "b"}: {made: some, at: now.Add(-time.Hour)},
		{"watcher", "c"}: {made: map[string]time.Time{}, at: now.Add(-24 * time.Hour)}, {"writer", "d"}: {made: some, at: now.Add(-24 * time.Hour)},
	}
	if got := r.longestUncounted("watcher"); got.Stream != "b" {
		t.Errorf("the stream to count next is %q, want b", got.Stream)
	}
	if got := r.longestUncounted("notary"); got != (Key{}) {
		t.Errorf("for a user without readers the stream to count next is %+v, want none", got)
	}
}

// TestARefusalIsLoggedSeldom: a flood of orders must not be one of lines.
func TestARefusalIsLoggedSeldom(t *testing.T) {
	t.Parallel()
	r, now := NewReaders(nil), time.Now()
	for _, step := range []struct {
		after time.Duration
		want  bool
	}{{0, true}, {0, false}, {10*time.Second - 1, false}, {1, true}, {time.Second, false}, {time.Hour, true}} {
		now = now.Add(step.after)
		if got := r.MayLog(now); got != step.want {
			t.Errorf("%v later it is logged: %t", step.after, got)
		}
	}
}
