package replay

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/bus"
	"github.com/millrace/millrace/pkg/events/subject"
)

// remembered is how many outcomes of a key and lane are kept. A turn knows the
// outcome of the last turn, or of one before it while the last one is in flight.
const remembered = 4

// book holds the outcomes of a controller, as far as they have been read.
type book struct {
	feed *feed[verdict]
	last map[lane][]events.Outcome
}

type lane struct {
	key events.Key
	of  events.Lane
}

// verdict is an outcome as it was stored.
type verdict struct {
	outcome events.Outcome
	stored  time.Time
	err     error
}

func readVerdict(m events.Message) verdict {
	v := verdict{stored: m.Time}
	v.err = events.DecodeJSON(m, &v.outcome)
	return v
}

// hear reads the outcomes that were stored up to a moment.
func (b *book) hear(until time.Time) (heard int, err error) {
	for b.feed != nil {
		ahead, err := b.feed.more()
		if err != nil || len(ahead) == 0 {
			return heard, err
		}
		for i, v := range ahead {
			if v.stored.After(until) {
				b.feed.take(i)
				return heard, nil
			}
			if heard++; v.err == nil { // one that cannot be read is missing later if a turn knew it
				b.put(v.outcome)
			}
		}
		b.feed.take(len(ahead))
	}
	return 0, nil
}

func (b *book) put(o events.Outcome) {
	at := lane{o.Key, o.Lane}
	all := append(b.last[at], o)
	if len(all) > remembered {
		all = append(all[:0], all[1:]...)
	}
	b.last[at] = all
}

// known finds the outcomes that a turn knew; missing is a lane of which the known
// outcome is not kept.
func (b *book) known(t events.Turn) (last map[events.Lane]events.Outcome, missing events.Lane) {
	last = map[events.Lane]events.Outcome{}
	for of, heard := range t.Heard {
		all := b.last[lane{t.Key, of}]
		o, found := among(all, heard)
		if !found || len(all) == remembered && all[0].Turn > heard.Turn { // several outcomes may match, and the right one may have been dropped
			missing = of
			continue
		}
		last[of] = o.KnownBy(heard.By)
	}
	return last, missing
}

// guess is what a turn of an older version may have known: the newest outcomes of
// earlier turns.
func (b *book) guess(t events.Turn, sequence uint64) map[events.Lane]events.Outcome {
	last := map[events.Lane]events.Outcome{}
	for _, of := range []events.Lane{events.LaneWrite, events.LaneStatus} {
		for _, o := range b.last[lane{t.Key, of}] {
			if o.Turn < sequence {
				last[of] = o
			}
		}
	}
	return last
}

// heard returns the outcomes that a turn knew.
func (p *pass) heard(ctx context.Context, t *recorded) (last map[events.Lane]events.Outcome, why Why, detail string, err error) {
	b := p.book(ctx, t.controller)
	for _, until := range []time.Time{t.stored, t.stored.Add(skew)} {
		heard, err := b.hear(until)
		if err != nil && !errors.Is(err, bus.ErrNoStream) {
			return nil, "", "", fmt.Errorf("read the outcomes of %s: %w", t.controller, err)
		}
		p.summary.Outcomes += heard
		if t.turn.Digest == 0 && len(t.turn.Heard) == 0 {
			return b.guess(t.turn, t.sequence), "", "", nil
		}
		known, missing := b.known(t.turn)
		if missing == "" {
			return known, "", "", nil
		}
		last = known
	}
	for of, heard := range t.turn.Heard {
		if _, known := last[of]; known {
			continue
		}
		o, ok, err := p.search(ctx, t, of, heard)
		if err != nil {
			return nil, "", "", fmt.Errorf("look for an outcome of %s: %w", t.controller, err)
		}
		if !ok {
			return nil, Unheard, fmt.Sprintf("that of %s turn %d, of %s", of, heard.Turn, heard.At.Format(time.RFC3339Nano)), nil
		}
		last[of] = o.KnownBy(heard.By)
	}
	return last, "", "", nil
}

// book returns that of a controller. When single turns are replayed it reads
// nothing: search finds what they knew.
func (p *pass) book(ctx context.Context, controller string) *book {
	b, ok := p.books[controller]
	if ok {
		return b
	}
	b = &book{last: map[lane][]events.Outcome{}}
	if p.books[controller] = b; len(p.options.Turns) == 0 && !p.last {
		passage := bus.Passage{Stream: subject.OutcomeStream(controller)}
		if since := p.options.Since; !since.IsZero() {
			passage.Since = since.Add(-time.Minute)
		}
		b.feed = open(ctx, p.archive, passage, p.crew, readVerdict)
	}
	return b
}

// search looks through all outcomes of a key for one that is not kept.
func (p *pass) search(ctx context.Context, t *recorded, of events.Lane, heard events.Heard) (o events.Outcome, ok bool, err error) {
	stream, at := subject.OutcomeStream(t.controller), subject.Outcome(t.controller, of, t.turn.Key)
	var all []events.Outcome
	for from := uint64(1); ; {
		m, there, err := p.archive.Next(ctx, stream, at, from)
		if err != nil {
			return o, false, err
		}
		if !there {
			o, ok = among(all, heard)
			return o, ok, nil
		}
		from = m.Sequence + 1
		var o events.Outcome
		if events.DecodeJSON(m, &o) == nil && o.At.Equal(heard.At) {
			all = append(all, o)
		}
	}
}

// among finds the outcome that a turn knew. Its turn is the recorded one, or a later
// one that was lost, because the bus's clock may have stood still in between.
func among(all []events.Outcome, heard events.Heard) (found events.Outcome, ok bool) {
	for _, o := range all {
		if heard.Answers == o.Answers() && o.At.Equal(heard.At) && o.Turn >= heard.Turn && (!ok || o.Turn < found.Turn) {
			found, ok = o, true
		}
	}
	found.Turn = heard.Turn
	return found, ok
}
