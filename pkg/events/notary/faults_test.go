package notary_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/bus"
	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/pkg/events/notary"
	"github.com/millrace/millrace/pkg/events/stream/memory"
	"github.com/millrace/millrace/pkg/events/subject"
)

// happens stores a message in each stream.
func (w *world) happens() {
	w.Helper()
	time.Sleep(time.Second) // of virtual time
	w.turn()
	for _, name := range []kinds.Name{kinds.Pods.Name, kinds.Deployments.Name} {
		w.say(w.logs[name], events.Mark, events.Ref{})
	}
}

// TestARoundThatIsCutIsMadeUpFor: a round that loses its connection at any point returns an
// error, and the next rounds sign everything in one tree.
func TestARoundThatIsCutIsMadeUpFor(t *testing.T) {
	for _, answered := range []bool{false, true} {
		calls := 0
		for at := 0; at <= calls; at++ {
			live(t, 21, memory.Options{}, func(w *world) {
				w.happens()
				on := &memory.Cut{NotaryBus: w.bus, Call: at, Answered: answered}
				n := notary.New(on, notary.Options{Signer: w.signer, Known: w.known, Memory: &disk{}})
				switch err := n.Round(w.Context()); {
				case at == 0:
					w.must(err)
					calls = on.Calls()
				case !errors.Is(err, memory.ErrCut):
					t.Errorf("call %d is cut (carried out: %t), and the round says %v", at, answered, err)
				}
				w.must(n.Round(w.Context()))
				w.happens()
				w.must(n.Round(w.Context()))
				r, err := notary.Verify(w.Context(), w.bus, notary.Trust{Known: w.known})
				w.must(err)
				whole(t, r, true)
				if r.List == nil || len(r.List.Streams) != len(r.Streams) {
					t.Errorf("call %d is cut (carried out: %t), and the list is %+v", at, answered, r.List)
				}
			})
		}
	}
}

// TestHalfAVerificationIsNone: if a part of the record cannot be read, there is no report.
func TestHalfAVerificationIsNone(t *testing.T) {
	live(t, 22, memory.Options{}, func(w *world) {
		for range 3 {
			w.happens()
			w.sign()
		}
		short := &shortened{NotaryBus: w.bus, from: 3} // so that Verify reads the state again for the missing front
		verify := func(at int) (*memory.Cut, error) {
			on := &memory.Cut{NotaryBus: short, Call: at}
			_, err := notary.Verify(w.Context(), on, notary.Trust{Known: w.known})
			return on, err
		}
		asked, err := verify(0)
		w.must(err)
		for at := 1; at <= asked.Calls(); at++ {
			if _, err := verify(at); !errors.Is(err, memory.ErrCut) {
				t.Errorf("call %d of %d is cut, and verifying says %v", at, asked.Calls(), err)
			}
		}
	})
}

// torn is a bus that cannot read a stream beyond that many messages.
type torn struct {
	bus.NotaryBus
	stream string
	after  int
	as     error
}

func (d *torn) Read(ctx context.Context, p bus.Passage, handle func([]events.Message) error) error {
	if p.Stream != d.stream {
		return d.NotaryBus.Read(ctx, p, handle)
	}
	left := d.after
	err := d.NotaryBus.Read(ctx, p, func(batch []events.Message) error {
		batch = batch[:min(left, len(batch))]
		left -= len(batch)
		return handle(batch)
	})
	return errors.Join(err, d.as)
}

// TestWhatCannotBeReadIsAFinding: a damaged stream is proven up to the damage, and the messages
// after it are not reported as missing. Damaged pages prove nothing.
func TestWhatCannotBeReadIsAFinding(t *testing.T) {
	live(t, 23, memory.Options{}, func(w *world) {
		for range 4 {
			w.happens()
			w.sign()
		}
		verify := func(on *torn) (*notary.Report, error) {
			on.NotaryBus, on.as = w.bus, cmp.Or(on.as, fmt.Errorf("%w: a block is torn", events.ErrDamaged))
			return notary.Verify(w.Context(), on, notary.Trust{Known: w.known})
		}
		r, err := verify(&torn{stream: turns, after: 2})
		w.must(err)
		if len(r.Findings) != 1 || r.Findings[0].Stream != turns || r.Findings[0].Sequence != 3 || !strings.Contains(r.Findings[0].What, "cannot be read from here on") {
			t.Errorf("of a damaged stream verify finds %v, want that it cannot be read from 3 on", r.Findings)
		}
		if at := slices.IndexFunc(r.Streams, func(s notary.Standing) bool { return s.Stream == turns }); r.Streams[at].Proven != 2 {
			t.Errorf("of a damaged stream is proven %+v, want up to 2", r.Streams[at])
		}
		r, err = verify(&torn{stream: turns})
		w.must(err)
		if len(r.Findings) != 1 || r.Findings[0].Stream != turns || r.Findings[0].Sequence != 1 {
			t.Errorf("of a stream that cannot be read verify finds %v, want one finding at 1", r.Findings)
		}
		r, err = verify(&torn{stream: subject.NotaryStream})
		w.must(err)
		unread := slices.DeleteFunc(slices.Clone(r.Findings), func(f notary.Finding) bool { return !strings.Contains(f.What, "pages cannot be read") })
		if len(unread) != 1 || unread[0].Stream != subject.NotaryStream {
			t.Errorf("of damaged pages verify finds %v, want that they cannot be read", r.Findings)
		}
		for _, s := range r.Streams {
			if s.Proven > 0 {
				t.Errorf("without pages is proven %+v, want nothing", s)
			}
		}
		other := errors.New("away")
		if _, err := verify(&torn{stream: turns, as: other}); !errors.Is(err, other) {
			t.Errorf("verify of a stream that is away: %v, want the error of the bus", err)
		}
	})
}

// vanishing is a bus on which the turns are deleted while they are read.
type vanishing struct {
	bus.NotaryBus
	read, back bool
}

func (v *vanishing) Read(ctx context.Context, p bus.Passage, handle func([]events.Message) error) error {
	if p.Stream == turns {
		v.read = true
		return fmt.Errorf("%w: %s", bus.ErrNoStream, turns)
	}
	return v.NotaryBus.Read(ctx, p, handle)
}

func (v *vanishing) StreamState(ctx context.Context, name string) (bus.State, error) {
	if name == turns && v.read && !v.back {
		return bus.State{}, fmt.Errorf("%w: %s", bus.ErrNoStream, turns)
	}
	return v.NotaryBus.StreamState(ctx, name)
}

// TestAStreamThatIsRemovedMeanwhile does not fail a round; a stream that exists but cannot be
// read does.
func TestAStreamThatIsRemovedMeanwhile(t *testing.T) {
	live(t, 24, memory.Options{}, func(w *world) {
		w.happens()
		n := notary.New(&vanishing{NotaryBus: w.bus}, notary.Options{Signer: w.signer, Known: w.known})
		w.must(n.Round(w.Context()))
		n = notary.New(&vanishing{NotaryBus: w.bus, back: true}, notary.Options{Signer: w.signer, Known: w.known})
		if err := n.Round(w.Context()); !errors.Is(err, bus.ErrNoStream) || !strings.Contains(err.Error(), turns) {
			t.Errorf("a round with a stream that is listed and cannot be read: %v, want ErrNoStream", err)
		}
		w.happens()
		w.sign()
		r, err := notary.Verify(w.Context(), &vanishing{NotaryBus: w.bus}, notary.Trust{Known: w.known})
		w.must(err)
		if len(r.Findings) == 0 || slices.ContainsFunc(r.Findings, func(f notary.Finding) bool { return f.Stream != turns }) {
			t.Errorf("of a stream that is removed meanwhile verify finds %v, want findings about it alone", r.Findings)
		}
	})
}

// contested is a bus on which other publishers are always faster on one subject.
type contested struct {
	bus.NotaryBus
	subject string
	tries   int
}

func (c *contested) Store(ctx context.Context, m events.Message, expect uint64) (uint64, error) {
	if m.Subject == c.subject {
		c.tries++
		return 0, fmt.Errorf("%w: it was another notary", bus.ErrOvertaken)
	}
	return c.NotaryBus.Store(ctx, m, expect)
}

// TestOthersMayBeQuicker: the notary retries a page once, and tries a list three times; if the
// others stay faster, they sign, and nothing fails.
func TestOthersMayBeQuicker(t *testing.T) {
	for on, tries := range map[string]int{subject.Notary(turns): 2, listSubject: 3} {
		live(t, 25, memory.Options{}, func(w *world) {
			w.happens()
			b := &contested{NotaryBus: w.bus, subject: on}
			w.must(notary.New(b, notary.Options{Signer: w.signer, Known: w.known}).Round(w.Context()))
			if b.tries != tries {
				t.Errorf("under %s it was tried %d times, want %d", on, b.tries, tries)
			}
		})
	}
}

// TestTwoNotariesInOneRound: a notary that another one overtakes in each step continues from the
// other's pages, in the same tree.
func TestTwoNotariesInOneRound(t *testing.T) {
	live(t, 26, memory.Options{}, func(w *world) {
		w.happens()
		other := w.notary()
		on := &before{NotaryBus: w.bus, other: func() { w.must(other.Round(w.Context())) }}
		w.must(notary.New(on, notary.Options{Signer: w.signer, Known: w.known}).Round(w.Context()))
		w.happens()
		w.must(notary.New(on, notary.Options{Signer: w.signer, Known: w.known}).Round(w.Context()))
		r, err := notary.Verify(w.Context(), w.bus, notary.Trust{Known: w.known})
		w.must(err)
		whole(t, r, true)
	})
}

// before is a bus that calls a function before it stores anything.
type before struct {
	bus.NotaryBus
	other func()
}

func (b *before) Store(ctx context.Context, m events.Message, expect uint64) (uint64, error) {
	b.other()
	return b.NotaryBus.Store(ctx, m, expect)
}

// faulty is a Memory that fails to load or to save.
type faulty struct {
	disk
	load, save error
	saves      int
}

func (f *faulty) Load() ([]byte, error) { return f.text, f.load }

func (f *faulty) Save(text []byte) error {
	f.saves++
	if f.save != nil {
		return f.save
	}
	return f.disk.Save(text)
}

// TestWhatANotaryKnowsIsReadAndSaved: the notary signs nothing before it has loaded its Memory;
// it repeats a failed save in the next round, and saves nothing if nothing has changed.
func TestWhatANotaryKnowsIsReadAndSaved(t *testing.T) {
	live(t, 27, memory.Options{}, func(w *world) {
		w.happens()
		own := &faulty{load: errors.New("no disk")}
		n := notary.New(w.bus, notary.Options{Signer: w.signer, Known: w.known, Memory: own})
		if err := n.Round(w.Context()); !errors.Is(err, own.load) {
			t.Errorf("a round with a memory that cannot be read: %v, want its error", err)
		}
		own.load, own.text = nil, []byte("{")
		if err := n.Round(w.Context()); err == nil {
			t.Error("a round with a memory that is no JSON is no error")
		}
		if _, err := w.bus.StreamState(w.Context(), subject.NotaryStream); !errors.Is(err, bus.ErrNoStream) {
			t.Errorf("without a memory pages were signed: %v", err)
		}
		own.text, own.save = nil, errors.New("disk full")
		if err := n.Round(w.Context()); !errors.Is(err, own.save) {
			t.Errorf("a round with a memory that cannot be written: %v, want its error", err)
		}
		own.save = nil
		w.must(n.Round(w.Context()))
		if own.saves != 2 || !strings.Contains(string(own.text), turns) {
			t.Errorf("after %d attempts the memory has %s, want the stream after 2", own.saves, own.text)
		}
		w.must(n.Round(w.Context()))
		if own.saves != 2 {
			t.Error("the memory is saved again though nothing has changed")
		}
		// A notary that is restarted from it continues, and saves if there is something new.
		n = notary.New(w.bus, notary.Options{Signer: w.signer, Known: w.known, Memory: own})
		w.happens()
		w.must(n.Round(w.Context()))
		if own.saves != 3 || !strings.Contains(string(own.text), `"number": 2`) {
			t.Errorf("after %d saves the memory has %s, want page 2 after 3", own.saves, own.text)
		}
	})
}
