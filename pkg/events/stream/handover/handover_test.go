package handover_test

import (
	"errors"
	"fmt"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/stream/handover"
)

func message(sequence uint64) events.Message {
	return events.Message{Stream: "S", Sequence: sequence, Data: []byte("x")}
}

func store(h *handover.Hub, sequences ...uint64) {
	for _, n := range sequences {
		h.Store(message(n))
	}
}

// expect fails unless a reader gets messages with these sequences.
func expect(t *testing.T, r *handover.Reader, want ...uint64) {
	t.Helper()
	batch, err := r.Take()
	var got []uint64
	for _, m := range batch {
		got = append(got, m.Sequence)
	}
	if err != nil || !slices.Equal(got, want) {
		t.Fatalf("took %v, %v; want %v", got, err, want)
	}
}

func expectDetached(t *testing.T, r *handover.Reader) {
	t.Helper()
	select {
	case <-r.Ready():
	default:
		t.Error("a detached reader is not woken")
	}
	if batch, err := r.Take(); !errors.Is(err, handover.ErrDetached) || len(batch) > 0 {
		t.Errorf("took %v, %v; want ErrDetached", batch, err)
	}
}

func TestAReaderGetsWhatIsStored(t *testing.T) {
	h := handover.New()
	store(h, 1, 2) // before there is a reader
	r := h.Attach("S", 3)
	select {
	case <-r.Ready():
		t.Error("a reader is woken for nothing")
	default:
	}
	store(h, 3)
	h.Store(events.Message{Stream: "other", Sequence: 4})
	store(h, 4)
	<-r.Ready()
	expect(t, r, 3, 4)
	expect(t, r)
}

// Answers of the server to requests that are in flight together come in any order.
func TestMessagesComeInOrder(t *testing.T) {
	h := handover.New()
	r := h.Attach("S", 1)
	store(h, 3, 2)
	expect(t, r)
	store(h, 1, 1, 3)
	expect(t, r, 1, 2, 3)
	store(h, 5)
	expect(t, r)
	store(h, 4)
	expect(t, r, 4, 5)
}

// Readers that come while messages are stored attach where they stand.
func TestALateReader(t *testing.T) {
	h := handover.New()
	first := h.Attach("S", 1)
	for n := range uint64(2000) {
		store(h, n+1)
	}
	if r := h.Attach("S", 901); r != nil {
		t.Error("a reader attached that lacks messages which are forgotten")
	}
	second, ahead := h.Attach("S", 1901), h.Attach("S", 2003)
	store(h, 2001, 2002, 2003)
	for r, from := range map[*handover.Reader]uint64{first: 1, second: 1901, ahead: 2003} {
		batch, err := r.Take()
		if err != nil || len(batch) != int(2003-from+1) || batch[0].Sequence != from {
			t.Errorf("the reader from %d took %d messages: %v", from, len(batch), err)
		}
	}
}

func TestWhenReadersAreDetached(t *testing.T) {
	for name, do := range map[string]func(*handover.Hub){
		"a publisher does not know what is stored": func(h *handover.Hub) { h.Lose("S") },
		"another process may publish":              func(h *handover.Hub) { h.Suspend() },
		"too much waits": func(h *handover.Hub) {
			for n := range uint64(4001) {
				store(h, n+1)
			}
		},
		"a message does not come": func(h *handover.Hub) {
			for n := range uint64(1100) {
				store(h, n+2)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			h := handover.New()
			r := h.Attach("S", 1)
			do(h)
			expectDetached(t, r)
			r.Detach()
			r.Detach()
		})
	}
}

func TestASuspension(t *testing.T) {
	h := handover.New()
	first, second := h.Suspend(), h.Suspend()
	h.Resume(first)
	if h.Attach("S", 1) != nil {
		t.Error("a reader attached although a later suspension lasts")
	}
	h.Resume(second)
	r := h.Attach("S", 1)
	if r == nil {
		t.Fatal("no reader attaches after the suspension")
	}
	store(h, 1)
	expect(t, r, 1)
}

// Of a stream that is not read any more, nothing is kept.
func TestAReaderThatEnds(t *testing.T) {
	h := handover.New()
	one, two := h.Attach("S", 1), h.Attach("S", 1)
	one.Detach()
	store(h, 1)
	expect(t, two, 1)
	two.Detach()
	store(h, 2, 3)
	if again := h.Attach("S", 2); again == nil {
		t.Error("a reader cannot attach where nothing is known")
	} else if store(h, 4); again != nil {
		expect(t, again) // 2 and 3 are not known
	}
}

func TestTheNewestOfASubject(t *testing.T) {
	h := handover.New()
	subject := func(n uint64) string { return fmt.Sprint("s.", n%3) }
	for n := range uint64(9) {
		h.Store(events.Message{Stream: "S", Sequence: n + 1, Subject: subject(n + 1)})
	}
	if _, ok := h.Last("S", "s.1"); ok {
		t.Error("messages of a stream without readers are kept")
	}
	r := h.Attach("S", 10)
	for n := uint64(10); n < 100; n++ {
		h.Store(events.Message{Stream: "S", Sequence: n, Subject: subject(n)})
		if m, ok := h.Last("S", subject(n)); !ok || m.Sequence != n {
			t.Errorf("the newest is message %d, %t; want %d", m.Sequence, ok, n)
		}
	}
	h.Store(events.Message{Stream: "S", Sequence: 101, Subject: "s.1"}) // before 100 is known
	if m, ok := h.Last("S", "s.1"); ok {
		t.Errorf("message %d is told as the newest, and a later one is stored", m.Sequence)
	}
	h.Store(events.Message{Stream: "S", Sequence: 100, Subject: "s.2"})
	if m, ok := h.Last("S", "s.1"); !ok || m.Sequence != 101 {
		t.Errorf("the newest is message %d, %t; want 101", m.Sequence, ok)
	}
	if _, ok := h.Last("S", "other"); ok {
		t.Error("a subject without messages has one")
	}
	h.Lose("S")
	if _, ok := h.Last("S", "s.1"); ok {
		t.Error("Last has a message after the hub has lost some, which may not be the newest")
	}
	r.Detach()
}

func TestNoHub(t *testing.T) {
	var h *handover.Hub
	h.Store(message(1))
	h.Lose("S")
	h.Resume(h.Suspend())
	r := h.Attach("S", 1)
	if r != nil || r.Ready() != nil {
		t.Error("a reader attaches without a hub")
	}
	r.Detach()
	if _, ok := h.Last("S", "s"); ok {
		t.Error("Last has a message without a hub")
	}
}

// Whatever happens, a reader gets every message from its start on, once and in order, or is told that
// it does not.
func TestNothingIsMissing(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		h, stored, handed := handover.New(), uint64(0), []uint64{}
		type reader struct {
			*handover.Reader
			next uint64
		}
		var readers []*reader
		for range rapid.IntRange(1, 200).Draw(t, "steps") {
			switch rapid.IntRange(0, 9).Draw(t, "step") {
			case 0, 1, 2, 3:
				stored++
				handed = append(handed, stored) // its publisher will hear of it
			case 4, 5, 6:
				if len(handed) > 0 {
					i := rapid.IntRange(0, len(handed)-1).Draw(t, "which")
					store(h, handed[i])
					handed = slices.Delete(handed, i, i+1)
				}
			case 7:
				if len(handed) > 0 && rapid.Bool().Draw(t, "lost") {
					handed = handed[1:]
					h.Lose("S")
				}
			case 8:
				// A reader that is not told of a message attaches behind it.
				if len(handed) == 0 {
					if r := h.Attach("S", stored+1); r != nil {
						readers = append(readers, &reader{r, stored + 1})
					}
				}
			case 9:
				if len(readers) > 0 && rapid.Bool().Draw(t, "ends") {
					readers[0].Detach()
					readers = readers[1:]
				}
			}
			for _, r := range readers {
				batch, err := r.Take()
				for _, m := range batch {
					if m.Sequence != r.next {
						t.Fatalf("message %d came where %d was next", m.Sequence, r.next)
					}
					r.next++
				}
				if err == nil && len(handed) == 0 && r.next != stored+1 {
					t.Fatalf("everything was handed over up to %d, and the reader stands at %d", stored, r.next)
				}
			}
		}
	})
}
