package notary_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/archive"
	"github.com/millrace/millrace/pkg/events/bus"
	"github.com/millrace/millrace/pkg/events/notary"
	"github.com/millrace/millrace/pkg/events/stream/memory"
	"github.com/millrace/millrace/pkg/events/subject"
)

const mib = 1 << 20

var turns = subject.TurnStream(controller)

// large stores that many turns of 1 MiB.
func (w *world) large(n int) {
	w.Helper()
	for range n {
		w.version++
		body, err := json.Marshal(strings.Repeat("x", mib-200))
		w.must(err)
		_, err = w.bus.Put(w.Context(), events.Message{Subject: subject.Turn(controller, events.LaneWrite, events.Key{Name: fmt.Sprint(w.version)}), Data: body}, fmt.Sprint("id-", w.version))
		w.must(err)
	}
}

// shortened is a bus on which the front of the turns is gone, with the given retention.
type shortened struct {
	bus.NotaryBus
	from    uint64
	keeps   bus.Retention
	bounded bus.Bound
}

func (s *shortened) StreamState(ctx context.Context, name string) (bus.State, error) {
	state, err := s.NotaryBus.StreamState(ctx, name)
	if name == turns {
		state.Keeps, state.Bounded, state.First = s.keeps, s.bounded, max(state.First, s.from)
	}
	return state, err
}

func (s *shortened) Read(ctx context.Context, p bus.Passage, handle func([]events.Message) error) error {
	if p.Stream == turns {
		p.From = max(p.From, s.from)
	}
	return s.NotaryBus.Read(ctx, p, handle)
}

// TestACutByHandIsTold from one that a limit in bytes makes: the bus leaves as much as the limit
// allows, less one message.
func TestACutByHandIsTold(t *testing.T) {
	live(t, 14, memory.Options{}, func(w *world) {
		on := &shortened{NotaryBus: w.bus, keeps: bus.Retention{Bytes: 32 * mib}}
		signing := notary.New(on, notary.Options{Signer: w.signer, Known: w.known})
		for range 4 {
			w.large(10)
			w.must(signing.Round(w.Context()))
		}
		for left, found := range map[uint64]int{31: 0, 25: 0, 23: 1, 2: 1, 0: 1} {
			on.from = 41 - left
			r, err := notary.Verify(w.Context(), on, notary.Trust{Known: w.known})
			w.must(err)
			if len(r.Findings) != found || found > 0 && !strings.Contains(r.Findings[0].What, "not for the sake of room") {
				t.Errorf("with %d MiB left on the bus verify finds %v, want %d findings", left, r.Findings, found)
			}
			var out bytes.Buffer
			_, err = archive.Export(w.Context(), on, &out, archive.Selection{})
			w.must(err)
			if r := readFile(w, out.Bytes()).verify(t, w.known); len(r.Findings) != found {
				t.Errorf("with %d MiB left in a file verify finds %v, want %d findings", left, r.Findings, found)
			}
		}
	})
}

// TestRoomThatWasMadeIsNoCut: if the server has freed space, Verify reports nothing, whether a
// page records that already or not, even if the limit of the stream was raised by then.
func TestRoomThatWasMadeIsNoCut(t *testing.T) {
	live(t, 15, memory.Options{}, func(w *world) {
		on := &shortened{NotaryBus: w.bus}
		signing := notary.New(on, notary.Options{Signer: w.signer, Known: w.known})
		w.large(40)
		w.must(signing.Round(w.Context()))
		time.Sleep(3 * time.Second) // of virtual time
		on.from, on.bounded = 41-19, bus.Bound{Bytes: 20 * mib, At: time.Now()}
		verify := func() *notary.Report {
			r, err := notary.Verify(w.Context(), on, notary.Trust{Known: w.known})
			w.must(err)
			return r
		}
		r := verify()
		whole(t, r, false)
		if len(r.Remarks) != 1 || !strings.Contains(r.Remarks[0].What, "not signed yet") {
			t.Errorf("before it is signed verify remarks %v, want that it is not signed yet", r.Remarks)
		}
		exported := func() *notary.Report {
			var out bytes.Buffer
			_, err := archive.Export(w.Context(), on, &out, archive.Selection{})
			w.must(err)
			return readFile(w, out.Bytes()).verify(t, w.known)
		}
		if r := exported(); len(r.Findings) != 1 || r.Findings[0].To != 21 {
			t.Errorf("in a file, which anybody may have written, before it is signed: %v", r.Findings)
		}
		// More is gone than was freed.
		on.from = 41 - 5
		if r := verify(); len(r.Findings) != 1 || !strings.Contains(r.Findings[0].What, "gone before their time") {
			t.Errorf("with less left than room was made for verify finds %v, want messages gone before their time", r.Findings)
		}
		on.from = 41 - 19
		time.Sleep(7 * time.Second) // of virtual time
		w.must(signing.Round(w.Context()))
		r = verify()
		whole(t, r, true)
		if len(r.Remarks) != 1 || !strings.Contains(r.Remarks[0].What, "less is kept than was at first") {
			t.Errorf("once it is signed: %v", r.Remarks)
		}
		whole(t, exported(), true)
		// Space freed long ago does not explain missing messages that were signed later.
		time.Sleep(time.Hour) // of virtual time
		w.large(10)
		w.must(signing.Round(w.Context()))
		on.from = 45
		if r := verify(); len(r.Findings) == 0 {
			t.Error("messages that were stored since are gone, and nothing is found")
		}
	})
}

// TestLessIsKeptThanWasSigned: messages signed under a longer retention may go as soon as a page
// records a shorter one, by bytes and by age, but no more than that. If the retention is
// extended again later, messages that went meanwhile are no cut.
func TestLessIsKeptThanWasSigned(t *testing.T) {
	bytes, age := func(n int64) bus.Retention { return bus.Retention{Bytes: n * mib} }, func(d time.Duration) bus.Retention { return bus.Retention{Age: d} }
	both := bus.Retention{Age: time.Hour, Bytes: 32 * mib}
	for name, c := range map[string]struct {
		keeps []bus.Retention // one page for each, with ten messages in ten minutes
		left  map[uint64]bool // number of messages left, and whether that is a cut
	}{
		"all is kept":            {[]bus.Retention{{}, {}, {}, {}}, map[uint64]bool{40: false, 39: true, 1: true}},
		"less than before":       {[]bus.Retention{bytes(32), bytes(32), bytes(32), bytes(16)}, map[uint64]bool{31: false, 15: false, 5: true}},
		"a shorter age":          {[]bus.Retention{age(time.Hour), age(time.Hour), age(time.Hour), age(15 * time.Minute)}, map[uint64]bool{40: false, 16: false, 10: true}},
		"an age, and none yet":   {[]bus.Retention{{}, {}, {}, age(15 * time.Minute)}, map[uint64]bool{40: false, 16: false, 10: true}},
		"a longer age":           {[]bus.Retention{age(15 * time.Minute), age(15 * time.Minute), age(time.Hour), age(time.Hour)}, map[uint64]bool{40: false, 20: false, 10: true}},
		"both, and one was less": {[]bus.Retention{age(time.Hour), bytes(16), both, both}, map[uint64]bool{31: false, 22: false}},
	} {
		t.Run(name, func(t *testing.T) {
			live(t, 16, memory.Options{}, func(w *world) {
				on := &shortened{NotaryBus: w.bus}
				signing := notary.New(on, notary.Options{Signer: w.signer, Known: w.known})
				for _, keeps := range c.keeps {
					on.keeps = keeps
					for range 10 {
						time.Sleep(time.Minute) // of virtual time
						if c.keeps[3].Bytes > 0 {
							w.large(1)
						} else {
							w.turn()
						}
					}
					w.must(signing.Round(w.Context()))
				}
				for left, cut := range c.left {
					on.from = 41 - left
					r, err := notary.Verify(w.Context(), on, notary.Trust{Known: w.known})
					w.must(err)
					if found := len(r.Findings) > 0; found != cut {
						t.Errorf("with %d of 40 left: %v, want a finding: %t", left, r.Findings, cut)
					}
				}
			})
		})
	}
}
