package archive_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/archive"
	"github.com/millrace/millrace/pkg/events/bus"
	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/pkg/events/stream/memory"
	"github.com/millrace/millrace/pkg/events/subject"
)

// inTime runs a test with a bus of its own, in virtual time.
func inTime(t *testing.T, test func(t *testing.T, b *memory.Bus)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		b := memory.New(memory.Options{})
		test(t, b)
		must(t, b.Close())
	})
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// put stores a message, one second after the previous one.
func put(t *testing.T, b *memory.Bus, on string, header map[string][]string) {
	t.Helper()
	time.Sleep(time.Second) // of virtual time
	_, err := b.Put(t.Context(), events.Message{Subject: on, Header: header, Data: []byte("{}")}, fmt.Sprint(on, time.Now().UnixNano()))
	must(t, err)
}

// sequences are the sequences of a stream in a file.
func sequences(t *testing.T, f bus.Archive, stream string) (all []uint64) {
	t.Helper()
	must(t, f.Read(t.Context(), bus.Passage{Stream: stream}, func(batch []events.Message) error {
		for _, m := range batch {
			all = append(all, m.Sequence)
		}
		return nil
	}))
	return all
}

// refusing is a disk on which one write fails.
type refusing struct{ at, pieces int }

var errDisk = errors.New("no space")

func (r *refusing) Write(text []byte) (int, error) {
	if r.pieces++; r.pieces == r.at {
		return 0, errDisk
	}
	return len(text), nil
}

// TestHalfAnExportIsNone: if a part of the record cannot be read, or a part of the file not
// written, the export fails.
func TestHalfAnExportIsNone(t *testing.T) {
	inTime(t, func(t *testing.T, b *memory.Bus) {
		begin := time.Now()
		must(t, b.EnsureNotary(t.Context(), 0))
		must(t, b.EnsureShadow(t.Context(), controller))
		live(t, b, 3, 60)
		put(t, b, subject.Notary(subject.TurnStream(controller)), map[string][]string{events.HeaderCovers: {events.Covers(1, 60)}})
		put(t, b, subject.Notary(subject.NotaryStream), nil)
		for name, s := range map[string]archive.Selection{
			"all": {}, "from a moment on": {Since: begin.Add(30 * time.Second)}, "a stretch": {Since: begin.Add(30 * time.Second), Until: begin.Add(50 * time.Second)},
		} {
			export := func(on bus.Archive, to io.Writer) error {
				_, err := archive.Export(t.Context(), on, to, s)
				return err
			}
			whole, all := &memory.Cut{NotaryBus: b}, &refusing{}
			must(t, export(whole, all))
			for call := 1; call <= whole.Calls(); call++ {
				on := &memory.Cut{NotaryBus: b, Call: call}
				if err := export(on, io.Discard); on.Calls() >= call && !errors.Is(err, memory.ErrCut) {
					t.Errorf("%s: call %d of %d is cut, and the export says %v", name, call, whole.Calls(), err)
				}
			}
			for piece := 1; piece <= all.pieces; piece++ {
				if err := export(b, &refusing{at: piece}); !errors.Is(err, errDisk) {
					t.Errorf("%s: piece %d of %d is refused, and the export says %v", name, piece, all.pieces, err)
				}
			}
		}
	})
}

// TestWhatASelectionTakes: the selected streams; a part that ends in the past has no scheduled
// wakes; and the file says what was left out.
func TestWhatASelectionTakes(t *testing.T) {
	inTime(t, func(t *testing.T, b *memory.Bus) {
		ctx := t.Context()
		must(t, errors.Join(b.EnsureKind(ctx, kinds.Pods.Kind), b.EnsureKind(ctx, kinds.Deployments.Kind), b.EnsureController(ctx, "a"), b.EnsureController(ctx, "b"), b.EnsureShadow(ctx, "b")))
		put(t, b, subject.Turn("a", events.LaneWrite, events.Key{Name: "web"}), nil)
		put(t, b, subject.Turn("a", events.LaneWrite, events.Key{Name: "web"}), nil)
		all := "EV_deployments_apps EV_pods TURN_a OUTCOME_a TURN_b OUTCOME_b SHADOW_b"
		for name, c := range map[string]struct {
			archive.Selection
			want, partial string
		}{
			"all":            {archive.Selection{}, all + " WAKE", ""},
			"until a moment": {archive.Selection{Until: time.Now()}, all, ""},
			"one kind":       {archive.Selection{Kinds: []kinds.Name{"pods"}}, "EV_pods TURN_a OUTCOME_a TURN_b OUTCOME_b SHADOW_b WAKE", "kinds=pods"},
			"one controller": {archive.Selection{Controllers: []string{"b"}}, "EV_deployments_apps EV_pods TURN_b OUTCOME_b SHADOW_b WAKE", "controllers=b"},
			"kinds alone":    {archive.Selection{Kinds: []kinds.Name{"pods", "deployments.apps"}, Controllers: []string{}}, "EV_deployments_apps EV_pods WAKE", "kinds=pods,deployments.apps controllers="},
		} {
			c.Program = "v1"
			about := exported(t, b, c.Selection).About()
			if got := strings.Join(about.Streams, " "); got != c.want || strings.Join(about.Partial, " ") != c.partial {
				t.Errorf("%s: the file has %s, in part %v; want %s, in part %s", name, got, about.Partial, c.want, c.partial)
			}
			if about.Program != "v1" || !about.Until.Equal(c.Until) || !about.Since.Equal(c.Since) || !about.Exported.Equal(time.Now()) {
				t.Errorf("%s: the file describes itself as %+v", name, about)
			}
		}
		if _, err := archive.Export(ctx, b, io.Discard, archive.Selection{Kinds: []kinds.Name{}, Controllers: []string{"c"}}); err == nil || !strings.Contains(err.Error(), "the kinds [deployments.apps pods], the controllers [a b], and in shadow [b]") {
			t.Errorf("nothing: %v", err)
		}
		for range 20 { // in any order
			found, err := exported(t, b, archive.Selection{}).Kinds(ctx)
			if must(t, err); len(found) != 2 || found[0].Name != "deployments.apps" || found[1].Name != "pods" {
				t.Fatalf("the file has the kinds %v, want deployments.apps and pods", found)
			}
		}
		f := exported(t, b, archive.Selection{Until: time.Now().Add(-time.Second)})
		state, err := f.StreamState(ctx, subject.TurnStream("a"))
		if err != nil || state.Last != 1 || !state.Now.Equal(time.Now().Add(-time.Second)) {
			t.Errorf("until before the last turn it stands at %+v (%v)", state, err)
		}
		f = exported(t, b, archive.Selection{Until: time.Now().Add(time.Hour)})
		if state, err = f.StreamState(ctx, subject.TurnStream("a")); err != nil || state.Last != 2 || !state.Now.Equal(time.Now()) {
			t.Errorf("until later than now it stands at %+v (%v)", state, err)
		}
	})
	inTime(t, func(t *testing.T, b *memory.Bus) {
		must(t, b.EnsureKind(t.Context(), kinds.Pods.Kind))
		if about := exported(t, b, archive.Selection{}).About(); !slices.Equal(about.Streams, []string{"EV_pods"}) {
			t.Errorf("the file of a record without controllers has %v, want EV_pods", about.Streams)
		}
	})
}

// TestWhoWorksOnIt: the consumers are in a record that goes up to now, and in no other.
func TestWhoWorksOnIt(t *testing.T) {
	inTime(t, func(t *testing.T, b *memory.Bus) {
		ctx, stop := context.WithCancel(t.Context())
		must(t, errors.Join(b.EnsureKind(ctx, kinds.Pods.Kind), b.EnsureController(ctx, controller)))
		for stream, name := range map[string]string{"EV_pods": "log", subject.TurnStream(controller): "writer"} {
			go func() { _ = b.Work(ctx, bus.Work{Stream: stream, Durable: name}, func(bus.Delivery) {}) }()
		}
		synctest.Wait()
		now, then := exported(t, b, archive.Selection{}), exported(t, b, archive.Selection{Until: time.Now()})
		for stream, name := range map[string]string{"EV_pods": "log", subject.TurnStream(controller): "writer"} {
			got, err := now.Consumers(ctx, stream)
			if err != nil || len(got) != 1 || got[0].Name != name {
				t.Errorf("on %s works %+v (%v), want %s", stream, got, err, name)
			}
			if got, err = then.Consumers(ctx, stream); err != nil || len(got) != 0 {
				t.Errorf("on %s of a record that was cut off works %+v (%v)", stream, got, err)
			}
		}
		for _, stream := range []string{"EV_nodes", "STATE_pods"} {
			if _, err := now.Consumers(ctx, stream); !errors.Is(err, bus.ErrNoStream) {
				t.Errorf("on %s, which is not there: %v", stream, err)
			}
		}
		stop()
		synctest.Wait()
	})
}

// TestWhichPagesAreTaken: those that cover any message in the file, also the messages that were
// current when a stretch begins, and the lists of the streams since that moment.
func TestWhichPagesAreTaken(t *testing.T) {
	inTime(t, func(t *testing.T, b *memory.Bus) {
		begin, turns := time.Now(), subject.TurnStream(controller)
		must(t, errors.Join(b.EnsureController(t.Context(), controller), b.EnsureNotary(t.Context(), 0)))
		page := func(about string, covers ...uint64) {
			put(t, b, subject.Notary(about), map[string][]string{events.HeaderCovers: {events.Covers(covers[0], covers[1])}})
		}
		list := func() { put(t, b, subject.Notary(subject.NotaryStream), nil) }
		for n := range uint64(3) { // turns in the seconds 1 to 3, 6 to 8 and 11 to 13, a page and a list after each three
			for range 3 {
				put(t, b, subject.Turn(controller, events.LaneWrite, events.Key{Name: "web"}), nil)
			}
			page(turns, 3*n+1, 3*n+3) // 1, 3, 5
			list()                    // 2, 4, 6
		}
		page(turns, 10, 9)                          // 7: without new messages
		page(subject.OutcomeStream("other"), 1, 99) // 8
		put(t, b, subject.Notary(turns), nil)       // 9: without HeaderCovers
		for name, c := range map[string]struct {
			since, until time.Duration
			turns, pages []uint64
		}{
			"all":                       {0, 0, []uint64{1, 2, 3, 4, 5, 6, 7, 8, 9}, []uint64{1, 2, 3, 4, 5, 6, 7, 9}},
			"from the middle of three":  {7 * time.Second, 0, []uint64{4, 5, 6, 7, 8, 9}, []uint64{2, 3, 4, 5, 6, 7, 9}},
			"from the first of three":   {6 * time.Second, 0, []uint64{3, 4, 5, 6, 7, 8, 9}, []uint64{1, 2, 3, 4, 5, 6, 7, 9}},
			"from the moment of a list": {10 * time.Second, 0, []uint64{6, 7, 8, 9}, []uint64{3, 4, 5, 6, 7, 9}},
			"just before a list":        {10*time.Second - 1, 0, []uint64{6, 7, 8, 9}, []uint64{2, 3, 4, 5, 6, 7, 9}},
			"a stretch":                 {7 * time.Second, 8 * time.Second, []uint64{4, 5, 6}, []uint64{2, 3, 4, 6, 7, 9}},
			"until the first":           {0, time.Second, []uint64{1}, []uint64{1, 2, 4, 6, 7, 9}},
			"until just before another": {0, 2*time.Second - 1, []uint64{1}, []uint64{1, 2, 4, 6, 7, 9}},
			"later than all":            {30 * time.Second, 0, []uint64{9}, []uint64{5, 6, 7, 9}},
		} {
			s := archive.Selection{}
			if c.since > 0 {
				s.Since = begin.Add(c.since)
			}
			if c.until > 0 {
				s.Until = begin.Add(c.until)
			}
			f := exported(t, b, s)
			if got := sequences(t, f, turns); !slices.Equal(got, c.turns) {
				t.Errorf("%s: the file has the turns %v, want %v", name, got, c.turns)
			}
			if got := sequences(t, f, subject.NotaryStream); !slices.Equal(got, c.pages) {
				t.Errorf("%s: the file has the pages %v, want %v", name, got, c.pages)
			}
		}
	})
}

// counted is a bus that counts requests for single messages and for passages of a stream.
type counted struct {
	bus.Archive
	stream    string
	at, reads int
}

func (c *counted) At(ctx context.Context, stream string, sequence uint64) (events.Message, bool, error) {
	if stream == c.stream {
		c.at++
	}
	return c.Archive.At(ctx, stream, sequence)
}

func (c *counted) Read(ctx context.Context, p bus.Passage, handle func([]events.Message) error) error {
	if p.Stream == c.stream {
		c.reads++
	}
	return c.Archive.Read(ctx, p, handle)
}

// TestWhatCountedBeforeAStretch is the last message of each subject, wherever it is. More than a
// few messages that are close together are read in one go.
func TestWhatCountedBeforeAStretch(t *testing.T) {
	turns := subject.TurnStream(controller)
	for name, c := range map[string]struct {
		keys, apart int // number of keys, and of another key's turns between them
		at, reads   int // how the earlier messages are requested
	}{
		"a few":                         {20, 1, 20, 0},
		"more than a few":               {21, 1, 0, 1},
		"many that are not close":       {22, 51, 22, 0},
		"many that are as close as may": {22, 50, 0, 1},
	} {
		inTime(t, func(t *testing.T, b *memory.Bus) {
			must(t, b.EnsureController(t.Context(), controller))
			store := func(key string, n int) {
				_, err := b.Put(t.Context(), events.Message{Subject: subject.Turn(controller, events.LaneWrite, events.Key{Name: key}), Data: []byte("{}")}, fmt.Sprint(key, n))
				must(t, err)
			}
			var want []uint64
			for n := range c.keys {
				for i := 1; i < c.apart; i++ {
					store("key-0", n*c.apart+i)
				}
				store(fmt.Sprint("key-", c.keys-n-1), -1)
				want = append(want, uint64((n+1)*c.apart))
			}
			time.Sleep(time.Second) // of virtual time
			since := time.Now()
			store("later", 1)
			want = append(want, uint64(c.keys*c.apart+1))
			on := &counted{Archive: b, stream: turns}
			var out bytes.Buffer
			_, err := archive.Export(t.Context(), on, &out, archive.Selection{Since: since})
			must(t, err)
			if got := sequences(t, reopened(t, out.Bytes()), turns); !slices.Equal(got, want) {
				t.Errorf("%s: the file has the turns %v, want %v", name, got, want)
			}
			// Further reads find the beginning of the stretch, the base, and the stretch itself.
			if on.at != c.at || on.reads-3 != c.reads {
				t.Errorf("%s: %d single messages and %d passages are read, want %d and %d", name, on.at, on.reads-3, c.at, c.reads)
			}
		})
	}
}

// TestALogThatNothingCounts: without a census, the base is the last message of each object that
// existed before the stretch.
func TestALogThatNothingCounts(t *testing.T) {
	inTime(t, func(t *testing.T, b *memory.Bus) {
		must(t, b.EnsureKind(t.Context(), kinds.Pods.Kind))
		a, err := b.Append(t.Context(), kinds.Pods.Name)
		must(t, err)
		var since time.Time
		for n, name := range []string{"a", "b", "a", "c", "a"} {
			time.Sleep(time.Second) // of virtual time
			if n == 4 {
				since = time.Now()
			}
			ref := events.Ref{Kind: kinds.Pods.Name, Namespace: "shop", Name: name}
			m := subject.Message(events.Delta{Kind: ref.Kind, Ref: ref, Op: events.Is, UID: "u", ResourceVersion: fmt.Sprint(n + 1), Form: kinds.Full, ContentType: kinds.JSON, Body: []byte("{}")})
			must(t, errors.Join(a.Append(t.Context(), m), a.Flush(t.Context())))
		}
		if got := sequences(t, exported(t, b, archive.Selection{Since: since}), "EV_pods"); !slices.Equal(got, []uint64{2, 3, 4, 5}) {
			t.Errorf("the file has the messages %v, want 2 to 5", got)
		}
	})
}

// TestWhatIsNotThereIsNotFound: between the messages of a block, before and after them.
func TestWhatIsNotThereIsNotFound(t *testing.T) {
	var out bytes.Buffer
	w, err := archive.NewWriter(&out, archive.About{Streams: []string{"TURN_c"}})
	must(t, err)
	must(t, w.Begin(archive.Stream{Name: "TURN_c", State: bus.State{Last: 12}}))
	for _, n := range []uint64{3, 4, 9} {
		must(t, w.Add(events.Message{Subject: fmt.Sprint("turn.c.", n), Sequence: n, Time: time.Unix(int64(n), 0), Header: map[string][]string{"A": {"b"}}, Data: []byte("{}")}))
	}
	must(t, w.Close())
	f := reopened(t, out.Bytes())
	for n, there := range map[uint64]bool{0: false, 2: false, 3: true, 4: true, 5: false, 8: false, 9: true, 10: false, 12: false, 13: false} {
		if m, ok, err := f.At(t.Context(), "TURN_c", n); err != nil || ok != there || there && m.Sequence != n {
			t.Errorf("at %d there is %d, %t, %v", n, m.Sequence, ok, err)
		}
	}
	if _, ok, err := f.At(t.Context(), "TURN_d", 3); ok || !errors.Is(err, bus.ErrNoStream) {
		t.Errorf("At of a missing stream: %t, %v; want ErrNoStream", ok, err)
	}
	if m, ok, err := f.Last(t.Context(), "TURN_c", "turn.c.4"); err != nil || !ok || m.Sequence != 4 {
		t.Errorf("Last is message %d, %t, %v; want 4", m.Sequence, ok, err)
	}
	if _, ok, err := f.Last(t.Context(), "TURN_c", "turn.c.5"); err != nil || ok {
		t.Errorf("Last of a subject without messages: %t, %v; want none", ok, err)
	}
	for from, want := range map[uint64]uint64{0: 3, 3: 3, 4: 4, 5: 9, 9: 9, 10: 0} {
		if m, ok, err := f.Next(t.Context(), "TURN_c", "turn.>", from); err != nil || ok != (want > 0) || m.Sequence != want {
			t.Errorf("from %d on the next is %d, %t, %v", from, m.Sequence, ok, err)
		}
	}
}
