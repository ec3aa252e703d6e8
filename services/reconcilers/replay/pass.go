package replay

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/bus"
	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/pkg/events/record"
	"github.com/millrace/millrace/pkg/events/subject"
	"github.com/millrace/millrace/services/reconcilers/cache"
	"github.com/millrace/millrace/services/reconcilers/reconcile"
)

// pass reads the logs once and judges the turns that it can reach.
type pass struct {
	*run
	past  *cache.History
	logs  map[kinds.Name]*log
	books map[string]*book
	// lows are where the logs begin. Any other kind begins shortly before the first
	// position that a turn saw, or at the beginning of its log if everything is
	// replayed.
	lows  events.Position
	last  bool // turns that cannot be reached now never can
	late  []*recorded
	under []*pending
	asked []*pending // the newest of under, not handed to a judge yet
}

// log is a kind's log as far as it has been read.
type log struct {
	feed  *feed[cache.Fact] // nil: there is no log
	floor uint64            // nothing before it is stored; 0: not known
}

// pending is a case in comparison.
type pending struct {
	Case
	recorded *recorded
	decide   func(now time.Time) reconcile.Decision
	earlier  bool          // see [cache.TurnView]
	done     chan struct{} // nil: not handed to a judge
}

const (
	// slack is how far another turn's position may be behind the first turn's, in
	// messages of a log, when only a part of the record is replayed.
	slack = 4096
	// skew is how far the clocks of the bus's servers may be apart.
	skew = 2 * time.Second
	// underWay bounds the cases in comparison.
	underWay = 256
	// together is how many cases one judge decides.
	together = 16
)

// pass judges turns. It leaves those that it could not reach for another pass, if
// remembered is not 0.
func (r *run) pass(ctx context.Context, next source, remembered int) (late []*recorded, err error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	p := &pass{run: r, past: cache.NewHistory(remembered), logs: map[kinds.Name]*log{}, books: map[string]*book{}, last: remembered == 0}
	if p.last {
		next, p.lows = lowest(next)
	}
	r.summary.Passes++
	for {
		t, err := next()
		if err != nil || t == nil {
			return p.late, errors.Join(err, p.deliver(0))
		}
		switch {
		case !t.wanted:
		case t.lane == events.LanePark:
			r.summary.Parks++
		default:
			if err := p.judge(ctx, t); err != nil {
				return nil, err
			}
		}
		if err := p.deliver(underWay); err != nil {
			return nil, err
		}
	}
}

// lowest looks through turns for the positions at which the logs have to begin.
func lowest(next source) (source, events.Position) {
	var all []*recorded
	lows := events.Position{}
	for t, _ := next(); t != nil; t, _ = next() {
		all = append(all, t)
		for kind, at := range t.turn.Seen {
			if low, known := lows[kind]; !known || at < low {
				lows[kind] = at
			}
		}
	}
	return listed(all), lows
}

// deliver hands over compared cases, in order, until left are left.
func (p *pass) deliver(left int) error {
	for len(p.under) > left {
		first := p.under[0]
		p.under = p.under[1:]
		if first.done == nil {
			p.hand()
		}
		<-first.done
		p.summary.count(first.Case)
		if err := p.each(first.Case); err != nil {
			return err
		}
	}
	return nil
}

// judge asks the controller again about a turn.
func (p *pass) judge(ctx context.Context, t *recorded) error {
	c := &pending{Case: Case{Controller: t.controller, Sequence: t.sequence, Stored: t.stored, Turn: t.turn}, recorded: t}
	if t.err != nil {
		return p.unjudged(c, Unread, t.err.Error())
	}
	controller, err := p.make(t.turn)
	if err != nil {
		return p.unjudged(c, Foreign, err.Error())
	}
	var last map[events.Lane]events.Outcome
	sight, why, detail, err := p.see(ctx, t, func(k events.Key, of events.Lane) (events.Outcome, bool) {
		o, ok := last[of]
		return o, ok && k == t.turn.Key
	})
	switch {
	case err != nil:
		return err
	case why == Expired && detail == "":
		p.late = append(p.late, t)
		return nil
	case why != "":
		return p.unjudged(c, why, detail)
	}
	if last, why, detail, err = p.heard(ctx, t); err != nil {
		return err
	}
	if why != "" {
		return p.unjudged(c, why, detail)
	}
	p.ask(c, controller, sight)
	return nil
}

func (p *pass) unjudged(c *pending, why Why, detail string) error {
	c.Verdict, c.Why, c.Detail = Unjudged, why, detail
	if err := c.complete(); err != nil {
		c.Why, c.Detail = Unread, err.Error()
	}
	c.done = make(chan struct{})
	close(c.done)
	p.under = append(p.under, c)
	return nil
}

// ask lets the controller observe. Its view does not change, so it decides, and is
// compared, while the memory moves on.
func (p *pass) ask(c *pending, controller reconcile.Any, s cache.TurnView) {
	c.guard(func() { c.decide, _ = controller.Look(s, c.Turn.Key) })
	c.earlier = *s.AskedUnheard
	if p.options.Views && c.Broken == "" {
		c.guard(func() { c.view(controller, s) })
	}
	p.under = append(p.under, c)
	if p.asked = append(p.asked, c); len(p.asked) == together {
		p.hand()
	}
}

// hand lets a judge decide the cases that have been asked.
func (p *pass) hand() {
	asked := p.asked
	p.asked = nil
	done := p.crew.do(func() {
		for _, c := range asked {
			c.settle(p.options.Views)
		}
	})
	for _, c := range asked {
		c.done = done
	}
}

// settle decides and compares.
func (c *pending) settle(views bool) {
	var d reconcile.Decision
	if c.decide != nil && c.Broken == "" {
		c.guard(func() { d = c.decide(c.Turn.Now) })
	}
	if c.Broken != "" {
		c.differs()
		return
	}
	if views {
		c.Decision = d
	}
	c.compare(d)
}

// guard runs code of a controller that may panic. A panic is an answer, too.
func (c *Case) guard(do func()) {
	defer func() {
		if broken := recover(); broken != nil {
			c.Broken = fmt.Sprintf("panic: %v", broken)
		}
	}()
	do()
}

func (c *Case) view(controller reconcile.Any, s reconcile.Snapshot) {
	view, _, err := controller.View(s, c.Turn.Key)
	if err != nil {
		c.Broken = err.Error()
	}
	c.View = view
}

// see moves the memory to what a turn saw. why is the reason if that is impossible;
// another pass may reach a turn that is Expired without a detail.
func (p *pass) see(ctx context.Context, t *recorded, heard func(events.Key, events.Lane) (events.Outcome, bool)) (s cache.TurnView, why Why, detail string, err error) {
	ends := ""
	for kind, position := range t.turn.Seen {
		l, err := p.reach(ctx, kind, position)
		if err != nil {
			return s, "", "", err
		}
		from, head, _ := p.past.Known(kind)
		switch {
		case position < l.floor:
			return s, Expired, fmt.Sprintf("it had read the log of %s up to message %d, and that is kept from %d on", kind, position, l.floor+1), nil
		case position < from && p.last:
			return s, Expired, fmt.Sprintf("the log of %s cannot be followed back to message %d", kind, position), nil
		case position < from:
			return s, Expired, "", nil
		case l.feed == nil && position > 0:
			ends = fmt.Sprintf("the record has no log of %s", kind)
		case head < position:
			ends = fmt.Sprintf("it had read the log of %s up to message %d, and the last one that is kept is %d", kind, position, head)
		}
	}
	if s, err = p.past.ViewAt(t.turn.Seen, heard); err != nil {
		return s, "", "", err
	}
	switch {
	case t.turn.Digest != 0 && s.Digest == t.turn.Digest:
		return s, "", "", nil // the digest proves that nothing is missing that the turn saw
	case len(s.Incomplete) > 0:
		return s, Expired, "not all is on record that was there of " + names(s.Incomplete), nil
	case t.turn.Digest == 0:
		return s, "", "", nil
	case ends != "":
		return s, Expired, ends, nil
	default:
		return s, Apart, "a reader that had fallen behind had not yet seen all of it; or the end of a log was lost and written anew", nil
	}
}

func names(of []kinds.Name) string {
	text := make([]string, len(of))
	for i, kind := range of {
		text[i] = string(kind)
	}
	slices.Sort(text)
	return strings.Join(text, ", ")
}

// reach folds a kind's log up to a message, or its end.
func (p *pass) reach(ctx context.Context, kind kinds.Name, position uint64) (*log, error) {
	l, ok := p.logs[kind]
	if !ok {
		var err error
		if l, err = p.begin(ctx, kind, position); err != nil {
			return nil, fmt.Errorf("begin with the log of %s: %w", kind, err)
		}
		p.logs[kind] = l
	}
	for l.feed != nil {
		if _, head, _ := p.past.Known(kind); head >= position {
			break
		}
		ahead, err := l.feed.more()
		if err != nil {
			return nil, fmt.Errorf("read the log of %s: %w", kind, err)
		}
		n := 0
		for n < len(ahead) && ahead[n].Sequence() <= position {
			n++
		}
		if n == 0 {
			break
		}
		p.past.Fold(kind, ahead[:n])
		p.summary.Deltas += n
		l.feed.take(n)
	}
	return l, nil
}

// begin opens a kind's log: at its beginning, or with the state shortly before the
// first position that has to be seen.
func (p *pass) begin(ctx context.Context, kind kinds.Name, position uint64) (*log, error) {
	described, ok := p.kinds[kind]
	if !ok {
		p.past.Begin(kinds.Kind{Name: kind}, 0, nil, position == 0)
		return &log{}, nil
	}
	stream := subject.LogStream(kind)
	state, err := p.archive.StreamState(ctx, stream)
	if errors.Is(err, bus.ErrNoStream) {
		p.past.Begin(described, 0, nil, position == 0)
		return &log{}, nil
	}
	if err != nil {
		return nil, err
	}
	read := func(m events.Message) cache.Fact { return cache.Read(described, m) }
	if low := p.low(kind, position); low > state.First {
		there, err := record.New(p.archive).Behind(ctx, described, "", low)
		if err != nil {
			return nil, err
		}
		if there.Whole {
			p.past.Begin(described, low, p.facts(there), true)
			return &log{feed: open(ctx, p.archive, bus.Passage{Stream: stream, From: low + 1}, p.crew, read)}, nil
		}
	}
	before := max(state.First, 1) - 1
	p.past.Begin(described, before, nil, before == 0)
	floor := before
	if state.Whole > 0 { // the messages before it hold the state of that time
		floor = state.Whole - 1
	}
	return &log{floor: floor, feed: open(ctx, p.archive, bus.Passage{Stream: stream}, p.crew, read)}, nil
}

// low is the position at which a kind's log begins; 0: at its beginning.
func (p *pass) low(kind kinds.Name, position uint64) uint64 {
	switch low, known := p.lows[kind]; {
	case known:
		return low
	case p.options.Since.IsZero() && len(p.options.Turns) == 0, position < slack:
		return 0
	case len(p.options.Turns) == 1:
		return position
	}
	return position - slack
}

// facts decodes a state on all processors, in the order of the log.
func (p *pass) facts(there *record.State) []cache.Fact {
	facts := make([]cache.Fact, len(there.Entries))
	var parts []chan struct{}
	for from := 0; from < len(facts); from += portionSize {
		to := min(from+portionSize, len(facts))
		parts = append(parts, p.crew.do(func() {
			for i := from; i < to; i++ {
				facts[i] = cache.ReadDelta(there.Kind, there.Entries[i].Sequence, there.Entries[i].Delta)
			}
		}))
	}
	for _, done := range parts {
		<-done
	}
	return facts
}
