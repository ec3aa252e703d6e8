package notary_test

import (
	"bytes"
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/archive"
	"github.com/millrace/millrace/pkg/events/bus"
	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/pkg/events/notary"
	"github.com/millrace/millrace/pkg/events/stream/memory"
	"github.com/millrace/millrace/pkg/events/subject"
)

// keeping is a bus whose streams have the given retention.
type keeping struct {
	bus.NotaryBus
	keeps bus.Retention
}

func (k *keeping) StreamState(ctx context.Context, name string) (bus.State, error) {
	state, err := k.NotaryBus.StreamState(ctx, name)
	state.Keeps = k.keeps
	return state, err
}

// TestALimitOfAQuietStreamCounts: a stream that gets a limit while it is idle may lose its
// front; the page that records the limit covers no message.
func TestALimitOfAQuietStreamCounts(t *testing.T) {
	live(t, 12, memory.Options{}, func(w *world) {
		w.steps(60)
		on := &keeping{w.bus, bus.Retention{Bytes: 1 << 20}}
		w.must(notary.New(on, notary.Options{Signer: w.signer, Known: w.known}).Round(w.Context()))
		var out bytes.Buffer
		_, err := archive.Export(w.Context(), on, &out, archive.Selection{})
		w.must(err)
		f := readFile(w, out.Bytes())
		f.messages["TURN_"+controller] = f.messages["TURN_"+controller][3:]
		whole(t, f.verify(t, w.known), false)
	})
}

// TestAFrontIsMissedWithItsPages: if a log keeps everything, its front cannot be removed
// together with the pages about it.
func TestAFrontIsMissedWithItsPages(t *testing.T) {
	live(t, 13, memory.Options{}, func(w *world) {
		forever := &keeping{w.bus, bus.Retention{}}
		signing := notary.New(forever, notary.Options{Signer: w.signer, Known: w.known})
		for range 3 {
			time.Sleep(time.Second) // of virtual time
			w.turn()
			w.must(signing.Round(w.Context()))
		}
		var out bytes.Buffer
		_, err := archive.Export(w.Context(), forever, &out, archive.Selection{})
		w.must(err)
		f, name := readFile(w, out.Bytes()), "TURN_"+controller
		whole(t, f.verify(t, w.known), true)
		f.messages[name] = f.messages[name][1:]
		pages := f.messages[subject.NotaryStream]
		at := slices.IndexFunc(pages, func(m events.Message) bool { return m.Subject == subject.Notary(name) })
		f.messages[subject.NotaryStream] = slices.Delete(pages, at, at+1)
		r := f.verify(t, w.known)
		if len(r.Findings) != 1 || r.Findings[0].Stream != name || !strings.Contains(r.Findings[0].What, "front is cut off") {
			t.Errorf("found: %v", r.Findings)
		}
	})
}

// discarding is a bus that loses messages of a stream while they are read: the reader gets the first message,
// and then those from `from` on. After that the stream begins with `first`.
type discarding struct {
	keeping
	stream      string
	from, first uint64
	read        bool
}

func (v *discarding) Read(ctx context.Context, p bus.Passage, each func([]events.Message) error) error {
	if p.Stream != v.stream {
		return v.keeping.Read(ctx, p, each)
	}
	return v.keeping.Read(ctx, p, func(batch []events.Message) error {
		v.read = true
		return each(slices.DeleteFunc(batch, func(m events.Message) bool { return m.Sequence > 1 && m.Sequence < v.from }))
	})
}

func (v *discarding) StreamState(ctx context.Context, name string) (bus.State, error) {
	state, err := v.keeping.StreamState(ctx, name)
	if v.read && name == v.stream {
		state.First = v.first
	}
	return state, err
}

// TestRoomThatIsMadeWhileItIsRead: the bus discards old messages while verify reads them. That is no problem
// of the record if the stream has lost its front, and one if a message is missing among others.
func TestRoomThatIsMadeWhileItIsRead(t *testing.T) {
	live(t, 14, memory.Options{}, func(w *world) {
		w.steps(60)
		log := subject.LogStream(kinds.Pods.Name)
		keeps := keeping{w.bus, bus.Retention{Bytes: 1 << 20}}
		w.must(notary.New(&keeps, notary.Options{Signer: w.signer, Known: w.known}).Round(w.Context()))
		for first, want := range map[uint64]bool{5: true, 6: true, 4: false, 1: false} {
			r, err := notary.Verify(w.Context(), &discarding{keeping: keeps, stream: log, from: 5, first: first}, notary.Trust{Known: w.known})
			w.must(err)
			if whole := len(r.Findings) == 0; whole != want {
				t.Errorf("2 to 4 were not read, and the log begins with %d then: found %v", first, r.Findings)
			}
		}
	})
}
