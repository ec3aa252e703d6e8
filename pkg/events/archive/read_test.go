package archive_test

import (
	"bytes"
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/archive"
	"github.com/millrace/millrace/pkg/events/bus"
	"github.com/millrace/millrace/pkg/events/subject"
)

// timed is a file with turns that were stored at these seconds after 1970.
func timed(t *testing.T, seconds ...int64) (f *archive.File, stream string) {
	t.Helper()
	stream = subject.TurnStream(controller)
	var out bytes.Buffer
	w, err := archive.NewWriter(&out, archive.About{Exported: time.Unix(9000, 0), Streams: []string{stream}})
	if err != nil {
		t.Fatal(err)
	}
	last := uint64(len(seconds))
	failed := w.Begin(archive.Stream{Name: stream, State: bus.State{Last: last, Now: time.Unix(9000, 0)}})
	for i, second := range seconds {
		failed = errors.Join(failed, w.Add(events.Message{
			Stream: stream, Subject: subject.Turn(controller, events.LaneWrite, events.Key{Name: "web"}), Sequence: uint64(i + 1), Time: time.Unix(second, 0), Data: []byte(`{}`),
		}))
	}
	if err := errors.Join(failed, w.Close()); err != nil {
		t.Fatal(err)
	}
	return reopened(t, out.Bytes()), stream
}

// TestSinceIsTheFirstOfItsTime: a passage begins with the first message that is not older than
// Since. All later messages belong to it, even if the clock went back.
func TestSinceIsTheFirstOfItsTime(t *testing.T) {
	f, stream := timed(t, 10, 30, 20, 40, 5, 50)
	for since, want := range map[int64][]uint64{
		5: {1, 2, 3, 4, 5, 6}, 11: {2, 3, 4, 5, 6}, 30: {2, 3, 4, 5, 6}, 31: {4, 5, 6}, 41: {6}, 51: nil,
	} {
		var got []uint64
		err := f.Read(t.Context(), bus.Passage{Stream: stream, Since: time.Unix(since, 0)}, func(batch []events.Message) error {
			for _, m := range batch {
				got = append(got, m.Sequence)
			}
			return nil
		})
		if err != nil || !slices.Equal(got, want) {
			t.Errorf("since second %d: %v, %v, want %v", since, got, err, want)
		}
	}
}

// TestAFileIsNotFollowedBeyondItsEnd: a reader that has seen more than the file contains has
// another record, and gets an error instead of waiting.
func TestAFileIsNotFollowedBeyondItsEnd(t *testing.T) {
	f, stream := timed(t, 10, 20, 30)
	for from, want := range map[uint64]int{0: 3, 1: 3, 3: 1, 4: 0, 5: -1, 99: -1} {
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		if want <= 0 {
			cancel() // no message arrives
		}
		seen := 0
		err := f.Follow(ctx, stream, from, func(batch []events.Message) error {
			if seen += len(batch); seen >= want {
				cancel()
			}
			return nil
		})
		cancel()
		if beyond := errors.Is(err, bus.ErrOvertaken); beyond != (want < 0) || !beyond && (err != nil || seen != want) {
			t.Errorf("from %d it sees %d, %v, want %d", from, seen, err, want)
		}
	}
}
