package sim

import (
	"maps"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/services/writer/plan"
)

// writer is one process of the writers: the turns that it has in hand, each in
// the middle of its plan.
type writer struct {
	process
	hands []*carrying
	since time.Time // since when it has listened to the others without a break
}

// carrying is a turn that is being carried out.
type carrying struct {
	turn     events.Turn
	book     *book
	sequence uint64
	plan     *plan.Plan
	requests []plan.Request
	tries    map[int]int
	delivery *delivery
	place    place     // of the turn
	again    bool      // somebody else may have had it before
	until    time.Time // when the turn may be somebody else's
	// contested: it has been somebody else's since.
	contested bool
}

const (
	// spent is the try after which a command has no time left.
	spent = 6
	// maxAge is how old a turn may be to be carried out.
	maxAge = 2 * time.Minute
	// doubt is for how long a turn may have been anybody's before it is let go.
	doubt = 8 * time.Second
	// beat is how often writers tell each other what they have in hand.
	beat = 200 * time.Millisecond
)

// The steps of a writer.
type (
	taking struct { // takes the next turn of a controller in hand
		*writer
		book *book
	}
	carryOn struct{ *writer } // makes a request of a turn in hand
)

func (x *writer) actors() []actor {
	var all []actor
	for _, c := range x.world.controllers {
		all = append(all, taking{x, x.world.bus.books[c.Describe().Name]})
	}
	return append(all, carryOn{x})
}

func (x taking) ready() bool { return x.book.work.some() && !x.stalled() }

func (x taking) act() { x.take(x.world.pick(x.book.work), x.book) }

func (x carryOn) ready() bool {
	if len(x.hands) == 0 || x.stalled() {
		return false
	}
	x.letGo()
	return len(x.hands) > 0
}

func (x carryOn) act() {
	c := x.hands[x.world.roll(len(x.hands))]
	x.step(c, x.world.roll(len(c.requests)), x.world.fate())
}

// take takes a turn in hand.
func (x *writer) take(p *delivery, b *book) {
	t := b.turns[p.sequence-1]
	for _, c := range x.hands {
		if c.book == b && c.sequence == p.sequence {
			p.take()
			return
		}
	}
	stored := b.stored[p.sequence-1]
	fresh := p.attempts == 0 && !b.work.before(stored) && x.world.now.Sub(stored) <= ackWait
	begun := !fresh && (p.attempts > 0 || b.work.before(stored) || !x.watched(stored))
	p.take()
	switch {
	case !fresh && x.elsewhere(b, p.sequence), t.Repeats > 0 && x.elsewhere(b, t.Repeats):
		p.Later(beat)
		return
	case !fresh && (b.lasts[lane{t.Key, t.Lane}] > p.sequence || b.settled(t, b.place(p.sequence))):
		p.Done()
		return
	}
	again, refused := begun || t.Repeats > 0, x.refusal(t, stored)
	if refused != (plan.Refusal{}) {
		x.world.note("writer: turn %d of %s is refused: %s, %s", p.sequence, t.Controller, refused.Reason, refused.Message)
	}
	fits := x.fits(t)
	if x.world.options.Cheat == Heedless {
		t.Commands, refused, fits = heedless(t.Commands), plan.Refusal{}, nil
	}
	for _, o := range x.world.writers {
		for _, c := range o.hands {
			c.contested = c.contested || c.book == b && c.sequence == p.sequence
		}
	}
	c := &carrying{turn: t, book: b, sequence: p.sequence, place: b.place(p.sequence), tries: map[int]int{}, delivery: p, again: again, until: p.at}
	c.plan = plan.New(t, plan.Options{Again: again, Promised: x.world.promises[t.Controller], Refused: refused, Fits: fits})
	x.hands = append(x.hands, c)
	x.ask(c)
}

// fits is the check of what the commands of a turn write, and where.
func (x *writer) fits(t events.Turn) func(events.Command, []byte) error {
	read := func(ref events.Ref) metav1.Object {
		kind, known := kinds.Lookup(ref.Kind)
		delta, there := x.world.bus.kinds[ref.Kind].live(ref)
		if !known || !there || delta.Op != events.Is {
			return nil
		}
		obj, err := kinds.Decode(kind, delta.ContentType, delta.Body)
		if err != nil {
			panic(err) // the world wrote it
		}
		return obj
	}
	fits := x.world.bounds[t.Controller](t, func() metav1.Object {
		return read(events.Ref{Kind: t.Kind, Namespace: t.Key.Namespace, Name: t.Key.Name})
	}, read)
	return func(c events.Command, body []byte) error {
		c.Body = body
		return fits(c)
	}
}

// watched tells whether nobody can have begun a turn since a moment without this
// writer knowing. One that has stood still hears late what the others said meanwhile.
func (x *writer) watched(stored time.Time) bool {
	return x.since.Before(stored) && x.world.bereaved.Before(stored) && !slices.ContainsFunc(x.world.writers, func(o *writer) bool { return o.stalled() })
}

// elsewhere tells whether another writer that lives has a turn in hand.
func (x *writer) elsewhere(b *book, sequence uint64) bool {
	return slices.ContainsFunc(x.world.writers, func(o *writer) bool {
		return o != x && !o.stalled() && slices.ContainsFunc(o.hands, func(c *carrying) bool {
			return c.book == b && c.sequence == sequence && c.until.After(x.world.now)
		})
	})
}

// settled tells whether the turn, or a later one of its key and lane, has an
// outcome.
func (b *book) settled(t events.Turn, at place) bool {
	i := b.newest[lane{t.Key, t.Lane}]
	return i > 0 && b.outcomes[i-1].Turn >= at.sequence && !b.settledAt[i-1].Add(skew).Before(at.at)
}

// heedless is commands without their conditions, but for the uid without which
// the plan would not delete at all.
func heedless(commands []events.Command) []events.Command {
	out := slices.Clone(commands)
	for i, c := range out {
		if c.If != nil {
			out[i].If = &events.If{UID: c.If.UID}
		}
	}
	return out
}

// refusal is why the whole turn may not be carried out. Its age is told by the
// clock of the bus, but for a repetition, which has been stored just now.
func (x *writer) refusal(t events.Turn, stored time.Time) plan.Refusal {
	dated, now := t, x.clock()
	if t.Repeats == 0 {
		dated.Now, now = stored, x.world.now
	}
	if old := plan.Aged(dated, now, maxAge); old != (plan.Refusal{}) {
		return old
	}
	if over := plan.Over(t, x.world.bus.epochs(maps.Keys(t.Seen)), x.world.bus.epochs(maps.Keys(x.world.bus.kinds)).Newest()); over != (plan.Refusal{}) {
		return over
	}
	if t.Kind == "" {
		return plan.Refusal{}
	}
	ref := events.Ref{Kind: t.Kind, Namespace: t.Key.Namespace, Name: t.Key.Name}
	delta, known := x.world.bus.kinds[t.Kind].live(ref)
	return plan.Stale(t, delta, known)
}

// ask takes what the plan wants next; a plan that wants nothing more is done.
func (x *writer) ask(c *carrying) {
	c.requests = append(c.requests, c.plan.Next()...)
	if results, done := c.plan.Results(); done {
		x.finish(c, results)
	}
}

// letGo drops the turns that have been delivered to somebody else, as the writer does
// when it was stopped for too long, and those that somebody else had and has settled.
// What nobody else has had meanwhile is gone on with.
func (x *writer) letGo() {
	before := len(x.hands)
	x.hands = slices.DeleteFunc(x.hands, func(c *carrying) bool {
		over := c.book.settled(c.turn, c.place)
		if c.until.After(x.world.now) {
			return c.again && over
		}
		followed := c.book.lasts[lane{c.turn.Key, c.turn.Lane}] > c.sequence
		return over || followed || c.contested || x.world.now.Sub(c.until) > doubt
	})
	if len(x.hands) < before {
		x.world.bereaved = x.world.now
	}
}

// says is the next beat of a writer: what it has in hand.
func (x *writer) says() events.Beat {
	b := events.Beat{Writer: "writer", Turns: map[string][]uint64{}}
	for _, c := range x.hands {
		b.Turns[c.turn.Controller] = append(b.Turns[c.turn.Controller], c.sequence)
	}
	return b
}

// step makes one of the requests that may run now. The answer may get lost,
// before or after the request has had its effect.
func (x *writer) step(c *carrying, which int, f fate) {
	r := c.requests[which]
	c.requests = slices.Delete(c.requests, which, which+1)
	c.delivery.Working()
	c.until = c.delivery.at
	c.tries[r.Command]++
	var answer plan.Response
	if f == works || f == losesAnswer || f == breaksAfter {
		answer = x.world.request(c, r)
	}
	switch f {
	case fails, losesAnswer:
		answer = plan.Response{}
	case breaksAfter, breaks:
		answer = refusal(500, "InternalError", "etcdserver: leader changed")
	case throttled:
		answer = refusal(429, "TooManyRequests", "too many requests")
		answer.RetryAfter = time.Second
	}
	if x.world.crash == x {
		x.world.crash = nil
		x.world.killWriter(x)
		return
	}
	answer.Spent = c.tries[r.Command] >= spent
	c.plan.Answer(r.Command, answer)
	x.ask(c)
}

func (x *writer) finish(c *carrying, results []events.Result) {
	o := events.Outcome{
		Controller: c.turn.Controller, Key: c.turn.Key, Lane: c.turn.Lane, Turn: c.sequence,
		Results: results, Epochs: x.world.bus.epochs(slices.Values(about(c.turn, results))), At: x.clock(),
	}
	if o.Epochs[c.turn.Kind] == c.turn.Epochs[c.turn.Kind] {
		o.UID, o.ResourceVersion = c.turn.UID, c.turn.ResourceVersion
	}
	c.book.settle(o, c.place)
	c.delivery.Done()
	if i := slices.Index(x.hands, c); i >= 0 {
		x.hands = slices.Delete(x.hands, i, i+1)
	}
}

// about is the kinds that a turn and its results are about.
func about(t events.Turn, results []events.Result) []kinds.Name {
	some := []kinds.Name{t.Kind}
	for _, r := range results {
		if r.Version != "" {
			some = append(some, r.Ref.Kind)
		}
	}
	return some
}

// fate is what becomes of a request.
type fate int

const (
	works       fate = iota
	fails            // before it had an effect, without an answer
	losesAnswer      // has its effect, and its answer is lost
	breaks           // a 500 before it had an effect
	breaksAfter      // a 500 although it had its effect
	throttled        // 429 with Retry-After
	fates
)
