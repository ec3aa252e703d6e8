package stream

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"
)

// TestReadersOfAUserAreBounded: over all streams, too. Those that are gone make room, whether
// that was said or not, and other users have their own.
func TestReadersOfAUserAreBounded(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		there := map[readerKey][]string{}
		r := newReaders(func(_ context.Context, user, stream string) ([]string, error) {
			return slices.Clone(there[readerKey{user, stream}]), nil
		})
		made := 0
		order := func(user, stream string) error {
			at := readerKey{user, stream}
			counts, err := r.admit(t.Context(), at)
			if err != nil {
				if !errors.Is(err, errNotYet) {
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
			if order("watcher", fmt.Sprint("STATE_", i%1000)) != nil {
				refused++
			}
		}
		if made != mostOfUser || refused != 10_000-mostOfUser {
			t.Fatalf("%d are made and %d refused, want %d made", made, refused, mostOfUser)
		}
		if err := order("writer", "STATE_0"); err != nil {
			t.Errorf("another user: %v", err)
		}
		at := readerKey{"watcher", "STATE_7"}
		r.left(at, there[at][0])
		there[at] = there[at][1:]
		if err := order("watcher", "STATE_8"); err != nil {
			t.Errorf("after one has left: %v", err)
		}
		clear(there) // the server has removed them, without a word
		time.Sleep(2 * countAgain)
		if err := order("watcher", "STATE_9"); err != nil {
			t.Errorf("after all are gone: %v", err)
		}
		for i := range 1000 {
			_, _ = r.admit(t.Context(), readerKey{"watcher", fmt.Sprint("STATE_none-", i)})
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
		r := newReaders(func(context.Context, string, string) ([]string, error) { return nil, &Refusal{errors.New("denied")} })
		at := readerKey{"watcher", "STATE_pods"}
		order := func() (n int) {
			for i := range 2 * mostReaders {
				if counts, err := r.admit(t.Context(), at); err == nil {
					counts(fmt.Sprint(time.Now().UnixNano(), "-", i))
					n++
				}
			}
			return n
		}
		if got := order(); got != mostReaders {
			t.Errorf("%d are made, want %d", got, mostReaders)
		}
		time.Sleep(2*readerIdle + time.Second)
		if got := order(); got != mostReaders {
			t.Errorf("later %d are made, want %d", got, mostReaders)
		}
	})
}
