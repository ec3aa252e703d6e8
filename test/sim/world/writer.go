package world

import (
	"maps"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/pkg/events/report"
	"github.com/millrace/millrace/services/writer/claim"
	"github.com/millrace/millrace/services/writer/plan"
	"github.com/millrace/millrace/test/sim/apiserver"
	"github.com/millrace/millrace/test/sim/cluster"
	"github.com/millrace/millrace/test/sim/storage"
	"github.com/millrace/millrace/test/sim/streams"
	"github.com/millrace/millrace/test/sim/workloads"
)

// writer is one process of the writers. It has its turns in flight, each in the middle of its
// plan, and its claims on them, which are those of the product.
type writer struct {
	process
	id     string
	hands  []*carrying
	claims *claim.Claims
	last   report.Heartbeat        // its last heartbeat
	late   []report.Heartbeat      // heartbeats that it received while it stood still
	limits map[string]*writeWindow // by controller
}

// carrying is a turn in flight.
type carrying struct {
	cluster.Taken
	writer   *writer
	book     *streams.Book
	plan     *plan.Plan // nil until the writer begins the turn
	requests []plan.Request
	tries    map[int]int
	delivery *streams.Delivery
	place    streams.Place // of the turn
	begun    bool          // another writer may have begun it
	after    uint64        // the heartbeat after which the claim on the turn is known; the writer begins it then
	room     int           // how many pods the turn may delete, in a world with limits
}

// turnAt is the place of a turn of a controller.
type turnAt struct {
	book  *streams.Book
	place streams.Place
}

const (
	// spent is the attempt after which a command has no time left.
	spent = 6
)

// The steps of a writer.
type (
	taking struct { // takes the next turn of a controller
		*writer
		book *streams.Book
	}
	carryOn struct{ *writer } // makes a request of a turn in flight
)

func (x *writer) actors() []actor {
	var all []actor
	for _, c := range x.world.controllers {
		all = append(all, taking{x, x.world.Bus.Books[c.Describe().Name]})
	}
	return append(all, carryOn{x})
}

func (x taking) Ready() bool { return x.book.Work.Some() && !x.stalled() }

func (x taking) act() { x.take(x.world.pick(x.book.Work), x.book) }

func (x carryOn) Ready() bool {
	return !x.stalled() && slices.ContainsFunc(x.hands, (*carrying).moves)
}

func (x carryOn) act() {
	var some []*carrying
	for _, c := range x.hands {
		if c.moves() {
			some = append(some, c)
		}
	}
	c := some[x.world.Roll(len(some))]
	switch {
	case c.plan == nil:
		x.announced(c)
	case x.holds(c):
		x.step(c, x.world.Roll(len(c.requests)), x.world.fate())
	}
}

// moves reports whether a turn has something to do now.
func (c *carrying) moves() bool {
	x, now := c.writer, c.writer.world.Now
	if c.plan == nil {
		return x.claims.Announced(c.after) || x.claims.Elsewhere(c.At(), now)
	}
	return x.claims.Status(c.At(), now) != claim.Uncertain
}

// take takes a delivered turn.
func (x *writer) take(p *streams.Delivery, b *streams.Book) {
	if x.world.atRest() {
		x.world.listened()
	}
	now, t, stored := x.world.Now, b.Turns[p.Sequence-1], b.Stored[p.Sequence-1]
	c := &carrying{Taken: cluster.Taken{Turn: t, Sequence: p.Sequence}, writer: x, book: b, place: b.Place(p.Sequence), tries: map[int]int{}, delivery: p}
	attempts := p.Attempts
	p.Take()
	if slices.ContainsFunc(x.hands, func(known *carrying) bool { return known.At() == c.At() && known.place != c.place }) {
		p.NakWithDelay(claim.Interval) // the turn that had its place is lost, and still in flight
		return
	}
	anew := attempts > 0 || b.Work.Before(stored)
	fresh := !anew && now.Sub(stored) <= claim.AckWait
	if x.claims.Take(c.At(), fresh, now) {
		for _, known := range x.hands {
			if known.At() == c.At() {
				known.delivery = p
			}
		}
		return
	}
	x.hands = append(x.hands, c)
	untouched := fresh
	if !fresh {
		c.begun = anew || !x.claims.NoneBegunSince(stored, now)
		untouched = !c.begun && x.claims.NeverDelivered(c.At(), stored, now)
	}
	switch {
	case untouched:
		x.begin(c)
	case !x.claims.Claim(c.At(), now):
		x.release(c, func() { p.NakWithDelay(claim.Interval) })
	case c.begun:
		c.after = x.claims.Sent()
	case c.over():
		x.release(c, p.Ack)
	default:
		x.begin(c)
	}
}

// announced continues a turn once the other writers know this writer's claim, or drops it.
func (x *writer) announced(c *carrying) {
	switch {
	case x.claims.Elsewhere(c.At(), x.world.Now):
		x.release(c, func() { c.delivery.NakWithDelay(claim.Interval) })
	case c.over():
		x.release(c, c.delivery.Ack)
	default:
		x.begin(c)
	}
}

// over reports whether a turn needs nothing more: it, or a later turn of its key and lane, has an
// outcome, or a later turn exists.
func (c *carrying) over() bool {
	return c.book.Lasts[streams.Lane{Key: c.Turn.Key, Lane: c.Turn.Lane}] > c.Sequence || c.book.Settled(c.Turn, c.place)
}

// holds reports whether this writer may continue the turn; otherwise it drops the turn without an
// answer.
func (x *writer) holds(c *carrying) bool {
	now := x.world.Now
	if x.claims.Status(c.At(), now) == claim.Free && !c.over() && c.book.Holds(c.place) {
		x.claims.HoldAgain(c.At(), now)
	}
	if x.claims.Status(c.At(), now) != claim.Held || c.begun && c.book.Settled(c.Turn, c.place) {
		x.claims.GiveUp(now)
		x.release(c, func() {})
		return false
	}
	return true
}

// release drops a turn, with an answer.
func (x *writer) release(c *carrying, answer func()) {
	x.claims.Release(c.At())
	answer()
	if i := slices.Index(x.hands, c); i >= 0 {
		x.hands = slices.Delete(x.hands, i, i+1)
	}
}

// begin begins to carry out a turn.
func (x *writer) begin(c *carrying) {
	t, stored := c.Turn, c.place.At
	if repeats := (claim.Place{Controller: t.Controller, Sequence: t.Repeats}); t.Repeats > 0 && x.claims.Elsewhere(repeats, x.world.Now) {
		x.release(c, func() { c.delivery.NakWithDelay(claim.Interval) })
		return
	}
	c.begun = c.begun || t.Repeats > 0
	refused := x.refusal(t, stored)
	if refused != (plan.Refusal{}) {
		x.world.Note("writer: turn %d of %s is refused: %s, %s", c.Sequence, t.Controller, refused.Reason, refused.Message)
	}
	fits := x.fits(t)
	if x.world.options.Cheat == Heedless {
		t.Commands, refused, fits = heedless(t.Commands), plan.Refusal{}, nil
		c.Turn = t
	}
	c.writer.world.carriers[turnAt{c.book, c.place}] = c
	c.plan = plan.New(t, plan.Options{Again: c.begun, Promised: x.world.Promises[t.Controller], Refused: refused, Held: x.held(c, refused), Fits: fits})
	x.ask(c)
}

// fits is the check of the content and target of a turn's commands.
func (x *writer) fits(t events.Turn) func(events.Command, []byte) error {
	read := func(ref events.Ref) metav1.Object {
		kind, known := kinds.Lookup(ref.Kind)
		delta, there := x.world.Bus.Kinds[ref.Kind].Live(ref)
		if !known || !there || delta.Op != events.Is {
			return nil
		}
		obj, err := kinds.Decode(kind, delta.ContentType, delta.Body)
		if err != nil {
			panic(err) // encoded by the world itself
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

// heedless returns commands without their conditions, except for the uid, without which the
// plan would not delete at all.
func heedless(commands []events.Command) []events.Command {
	out := slices.Clone(commands)
	for i, c := range out {
		if c.If != nil {
			out[i].If = &events.If{UID: c.If.UID}
		}
	}
	return out
}

// refusal is the reason why the whole turn may not be carried out. The bus's clock determines
// its age, except for a repetition, which has been stored just now.
func (x *writer) refusal(t events.Turn, stored time.Time) plan.Refusal {
	dated, now := t, x.clock()
	if t.Repeats == 0 {
		dated.Now, now = stored, x.world.Now
	}
	if old := plan.Aged(dated, now, cluster.MaxAge); old != (plan.Refusal{}) {
		return old
	}
	if over := plan.Over(t, x.world.Bus.Epochs(maps.Keys(t.Seen)), x.world.Bus.Epochs(maps.Keys(x.world.Bus.Kinds)).Newest()); over != (plan.Refusal{}) {
		return over
	}
	if t.Kind == "" {
		return plan.Refusal{}
	}
	ref := events.Ref{Kind: t.Kind, Namespace: t.Key.Namespace, Name: t.Key.Name}
	delta, known := x.world.Bus.Kinds[t.Kind].Live(ref)
	return plan.Stale(t, delta, known)
}

// ask takes the plan's next requests; a plan without further requests is done.
func (x *writer) ask(c *carrying) {
	c.requests = append(c.requests, c.plan.Next()...)
	if results, done := c.plan.Results(); done {
		x.finish(c, results)
	}
}

// step makes one of the requests that may run now. Its answer may be lost, before or after the
// request has taken effect.
func (x *writer) step(c *carrying, which int, f fate) {
	if now := c.writer.world.carriers[turnAt{c.book, c.place}]; now != c {
		x.world.Guard.Breaks("I6", "%s goes on with turn %d of %s, which %s has begun since", x.id, c.Sequence, c.Turn.Controller, now.writer.id)
	}
	r := c.requests[which]
	c.requests = slices.Delete(c.requests, which, which+1)
	c.tries[r.Command]++
	var answer plan.Response
	if f == works || f == LosesAnswer || f == BreaksAfter {
		answer = x.world.request(c, r)
		x.world.counts(c, r, answer)
	}
	switch f {
	case Fails, LosesAnswer:
		answer = plan.Response{}
	case BreaksAfter, breaks:
		answer = apiserver.Refusal(500, "InternalError", "etcdserver: leader changed")
	case throttled:
		answer = apiserver.Refusal(429, "TooManyRequests", "too many requests")
		answer.RetryAfter = time.Second
	}
	workloads.FailsToDelete(x.world.Guard, r, answer)
	if x.world.Crash == x {
		x.world.Crash = nil
		x.world.killWriter(x)
		return
	}
	answer.Spent = c.tries[r.Command] >= spent
	c.plan.Answer(r.Command, answer)
	x.ask(c)
}

func (x *writer) finish(c *carrying, results []events.Result) {
	now := x.world.Bus.Epochs(slices.Values(events.Concerns(c.Turn.Kind, results)))
	o := events.Outcome{
		Controller: c.Turn.Controller, Key: c.Turn.Key, Lane: c.Turn.Lane, Turn: c.Sequence, Decided: c.Turn.Now,
		Results: results, Epochs: c.Turn.Dated(results, now), At: x.clock(), WriteCounts: x.written(c, results),
	}
	if o.Epochs[c.Turn.Kind] == c.Turn.Epochs[c.Turn.Kind] {
		o.UID, o.ResourceVersion = c.Turn.UID, c.Turn.ResourceVersion
	}
	storage.Tells(x.world.Guard, c.Turn, plan.Events(c.Turn, results))
	c.book.Settle(o, c.place)
	x.release(c, c.delivery.Ack)
}

// fate is the result of a request.
type fate int

const (
	works       fate = iota
	Fails            // no effect and no answer
	LosesAnswer      // takes effect, and its answer is lost
	breaks           // a 500 before it took effect
	BreaksAfter      // a 500 although it took effect
	throttled        // 429 with Retry-After
	fates
)
