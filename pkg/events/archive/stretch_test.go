package archive_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cespare/xxhash/v2"
	"k8s.io/apimachinery/pkg/types"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/archive"
	"github.com/millrace/millrace/pkg/events/bus"
	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/pkg/events/record"
	"github.com/millrace/millrace/pkg/events/stream/memory"
	"github.com/millrace/millrace/pkg/events/subject"
)

const controller = "replicaset-controller"

// live fills a bus with pods that are created, changed and deleted, one step a second, and
// turns.
func live(t *testing.T, b *memory.Bus, seed uint64, steps int) {
	t.Helper()
	ctx, r := t.Context(), rand.New(rand.NewPCG(seed, 0))
	if err := errors.Join(b.EnsureKind(ctx, kinds.Pods.Kind), b.EnsureController(ctx, controller)); err != nil {
		t.Fatal(err)
	}
	a, err := b.Append(ctx, kinds.Pods.Name)
	if err != nil {
		t.Fatal(err)
	}
	var tally events.Tally
	before, there := map[events.Ref]uint64{}, []events.Ref{}
	for n := range steps {
		time.Sleep(time.Second) // of virtual time
		d := events.Delta{Kind: "pods", Op: events.Is, ResourceVersion: strconv.Itoa(n + 100), Form: kinds.Full, ContentType: kinds.JSON, Body: []byte(`{}`), At: time.Now()}
		switch at := r.IntN(10); {
		case at < 3 || len(there) == 0:
			d.Ref = events.Ref{Kind: "pods", Namespace: fmt.Sprint("space-", n%3), Name: fmt.Sprint("pod-", n)}
			there = append(there, d.Ref)
		case at < 8:
			d.Ref = there[r.IntN(len(there))]
		case at < 9:
			i := r.IntN(len(there))
			d.Op, d.Ref, there = events.Gone, there[i], slices.Delete(there, i, i+1)
		default:
			d.Op = events.Mark
		}
		if d.Ref.Name != "" {
			d.UID = types.UID("uid-" + d.Ref.Name)
		}
		d.Before = events.Place{Known: true, Sequence: before[d.Ref]}
		tally.Fold(d)
		d.Census = tally.Census()
		turn := events.Message{Subject: subject.Turn(controller, events.LaneWrite, events.Key{Name: fmt.Sprint("key-", n%7)}), Data: []byte(`{}`)}
		_, failed := b.Put(ctx, turn, fmt.Sprint(n))
		if err := errors.Join(a.Append(ctx, subject.Message(d)), failed); err != nil {
			t.Fatal(err)
		}
		before[d.Ref] = a.Last()
		if d.Op == events.Gone {
			before[d.Ref] = 0
		}
	}
}

// TestAStretchTellsTheTruth: at every moment of a stretch it has exactly the objects of the bus,
// and knows that it is complete; about earlier moments it says that it does not know. The same
// holds for stretches of stretches.
func TestAStretchTellsTheTruth(t *testing.T) {
	for seed := range uint64(6) {
		synctest.Test(t, func(t *testing.T) {
			b := memory.New(memory.Options{LogAge: []time.Duration{0, 3 * time.Minute}[seed%2]})
			defer b.Close()
			begin := time.Now()
			const steps = 240
			live(t, b, seed, steps)
			since, until := begin.Add(100*time.Second+time.Millisecond), begin.Add(200*time.Second)
			whole := exported(t, b, archive.Selection{})
			for name, stretch := range map[string]*archive.File{
				"of the bus":    exported(t, b, archive.Selection{Since: since, Until: until}),
				"of a file":     exported(t, whole, archive.Selection{Since: since, Until: until}),
				"of a stretch":  exported(t, exported(t, b, archive.Selection{Since: since.Add(-20 * time.Second)}), archive.Selection{Since: since, Until: until}),
				"without bound": exported(t, b, archive.Selection{Since: since}),
			} {
				for second := 90; second <= 200; second += 5 {
					moment := record.Moment{Time: begin.Add(time.Duration(second)*time.Second + 2*time.Millisecond)}
					if moment.Time.After(until) && name != "without bound" {
						continue
					}
					got, err := record.New(stretch).At(t.Context(), kinds.Pods.Kind, "", moment)
					if before := new(record.BeforeRecord); second < 100 {
						if !errors.As(err, &before) || !before.Begins.Equal(since) {
							t.Errorf("%s, before it begins: %+v, %v", name, got, err)
						}
						continue
					}
					want, failed := record.New(b).At(t.Context(), kinds.Pods.Kind, "", moment)
					if err := errors.Join(err, failed); err != nil {
						t.Fatal(err)
					}
					if !same(got.Entries, want.Entries) || got.Whole != want.Whole || got.Sequence != want.Sequence {
						t.Errorf("%s, second %d: %d objects at %d (whole %v %v), want %d at %d", name, second, len(got.Entries), got.Sequence, got.Whole, got.Doubts, len(want.Entries), want.Sequence)
					}
				}
				turns(t, name, b, stretch)
			}
		})
	}
}

func same(a, b []record.Entry) bool {
	return slices.EqualFunc(a, b, func(a, b record.Entry) bool { return a.Ref == b.Ref && a.Sequence == b.Sequence })
}

// turns checks that a stretch has the last turn of each key before it, and all turns since, up
// to its end.
func turns(t *testing.T, name string, b *memory.Bus, stretch *archive.File) {
	t.Helper()
	stream := subject.TurnStream(controller)
	state, err := stretch.StreamState(t.Context(), stream)
	if err != nil {
		t.Fatal(err)
	}
	var got []uint64
	err = stretch.Read(t.Context(), bus.Passage{Stream: stream}, func(batch []events.Message) error {
		for _, m := range batch {
			got = append(got, m.Sequence)
			if at, _, err := b.At(t.Context(), stream, m.Sequence); err != nil || at.Subject != m.Subject || !at.Time.Equal(m.Time) {
				t.Errorf("%s: turn %d is %+v, and was %+v, %v", name, m.Sequence, m, at, err)
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	last, until := uint64(0), stretch.About().Until
	err = b.Read(t.Context(), bus.Passage{Stream: stream}, func(batch []events.Message) error {
		for _, m := range batch {
			if until.IsZero() || !m.Time.After(until) {
				last = m.Sequence
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	var want []uint64
	for n := state.Whole - 7; n <= last; n++ { // the last turn of each of the seven keys
		want = append(want, n)
	}
	if !slices.Equal(got, want) {
		t.Errorf("%s: the file has the turns %v, want %v", name, got, want)
	}
}

// TestDamageIsNeverPassedOver: if any byte of a file is changed, a read gives the original data
// or an error, and wherever the file is cut off, the error says what is left.
func TestDamageIsNeverPassedOver(t *testing.T) {
	var out bytes.Buffer
	synctest.Test(t, func(t *testing.T) {
		b := memory.New(memory.Options{})
		defer b.Close()
		live(t, b, 1, 200)
		if _, err := archive.Export(t.Context(), b, &out, archive.Selection{}); err != nil {
			t.Fatal(err)
		}
	})
	text := out.Bytes()
	want, err := digest(text)
	if err != nil {
		t.Fatal(err)
	}
	r := rand.New(rand.NewPCG(1, 1))
	for range 400 {
		damaged := bytes.Clone(text)
		at := r.IntN(len(damaged))
		damaged[at] ^= byte(1 + r.IntN(255))
		var cut *archive.Cut
		switch got, err := digest(damaged); {
		case err == nil && got == want: // in a byte that no reader needs
		case errors.As(err, &cut), errors.Is(err, events.ErrDamaged), errors.Is(err, archive.ErrNoRecord):
		default:
			t.Errorf("byte %d is another, and it is read otherwise: %v", at, err)
		}
	}
	for range 100 {
		var cut *archive.Cut
		size := r.IntN(len(text))
		_, err := digest(text[:size])
		if !errors.As(err, &cut) && !errors.Is(err, archive.ErrNoRecord) {
			t.Fatalf("cut off behind %d bytes: %v", size, err)
		}
		if cut == nil {
			continue
		}
		for i, s := range cut.Readable {
			if s.First != 1 || s.Messages == 0 || s.Last != uint64(s.Messages) || i == len(cut.Readable)-1 && !strings.Contains(err.Error(), s.Stream) {
				t.Errorf("cut off behind %d bytes: %+v", size, s)
			}
		}
	}
	if _, err := digest(text[:len(text)-1]); err == nil || !strings.Contains(err.Error(), "200 messages of 1 streams, and of TURN_replicaset-controller 1 to 200") {
		t.Errorf("the digest of a file without its last byte: %v, want an error that says what is left", err)
	}
	if _, err := digest([]byte("something else")); !errors.Is(err, archive.ErrNoRecord) {
		t.Errorf("another file: %v", err)
	}
}

// digest reads everything in a file, in every way.
func digest(text []byte) (sum uint64, err error) {
	f, err := archive.New("test", bytes.NewReader(text), int64(len(text)))
	if err != nil {
		return 0, err
	}
	defer f.Close()
	d := xxhash.New()
	for _, s := range f.Streams() {
		fmt.Fprintf(d, "%+v\n", s.State)
		err := f.Read(context.Background(), bus.Passage{Stream: s.Name}, func(batch []events.Message) error {
			for _, m := range batch {
				last, _, err := f.Last(context.Background(), s.Name, m.Subject)
				if err != nil {
					return err
				}
				fmt.Fprintf(d, "%+v %d\n", m, last.Sequence)
			}
			return nil
		})
		if err != nil {
			return 0, err
		}
	}
	return d.Sum64(), nil
}
