package plan

import (
	"errors"
	"net/netip"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/pkg/events/query"
	"github.com/millrace/millrace/pkg/events/redact"
)

// Options are the inputs of a plan besides the turn.
type Options struct {
	// Again is true for a turn that was delivered before: its effects may exist already.
	Again bool
	// DryRun is true when the API server is asked to store nothing.
	DryRun bool
	// Refused is why no command may be carried out. If the turn was delivered before, some
	// commands may have been carried out; the plan reads the objects to find those.
	Refused Refusal
	// Held is why some commands may not be carried out, by position: they exceed a write limit. As
	// with Refused, the plan looks for the effects of an earlier delivery.
	Held map[int]Refusal
	// Off refuses every command without a request.
	Off bool
	// Promised reports whether the turn's controller may issue a command; nil means every command.
	Promised func(events.Command) bool
	// Fits returns an error if the object or the content that a command writes is not within the
	// controller's promise; nil accepts everything.
	Fits func(c events.Command, body []byte) error
}

// Wave sizes: creates start at one; all others start at a size at which a failing wave is still
// cheap.
const (
	firstCreates = 1
	firstOthers  = 32
)

// NotPromised is the reason of a command that its controller never promised to issue: no honest
// reconciler stores one.
const NotPromised = "NotPromised"

// Redacted is the reason of a command that would write the marker of hidden values. No controller
// may decide on an object with hidden values: it has seen less than it believes.
const Redacted = "Redacted"

// Plan carries one turn from commands to results. It is not safe for concurrent use.
type Plan struct {
	operations []*operation
	asked      []bool  // a request of the operation is in flight
	after      [][]int // the earlier commands on the same object
	groups     []*group
	looks      map[any]*look
	given      map[kinds.Name][]netip.Prefix // ranges that earlier commands give, not to be shared
	open       int                           // commands without a result
}

// group is the commands of one verb on one kind, in waves.
type group struct {
	creates    bool
	operations []int
	from       int // the wave is operations[from:to]
	to         int
	size       int
	over       bool
}

// groupName identifies a group.
type groupName struct {
	verb        events.Verb
	kind        kinds.Name
	subresource string
}

// New plans a turn.
func New(t events.Turn, o Options) *Plan {
	p := &Plan{
		asked: make([]bool, len(t.Commands)), after: make([][]int, len(t.Commands)),
		looks: map[any]*look{}, given: map[kinds.Name][]netip.Prefix{}, open: len(t.Commands),
	}
	groups, earlier, templates := map[groupName]*group{}, map[events.Ref][]int{}, map[int]template{}
	for i, c := range t.Commands {
		d := p.admit(i, c, t, o, templates)
		p.operations = append(p.operations, d)
		if c.Verb == events.VerbRecord {
			continue // it has its result
		}
		p.after[i] = earlier[c.Ref()]
		earlier[c.Ref()] = append(earlier[c.Ref()][:len(p.after[i]):len(p.after[i])], i)
		if closes(c) {
			p.after[i] = upTo(i)
		}
		name := groupName{c.Verb, c.Kind, c.Subresource}
		g, ok := groups[name]
		if !ok {
			g = &group{creates: c.Verb == events.VerbCreate, size: firstOthers}
			if g.creates {
				g.size = firstCreates
			}
			groups[name] = g
			p.groups = append(p.groups, g)
		}
		g.operations = append(g.operations, i)
	}
	for _, g := range p.groups {
		g.to = min(g.size, len(g.operations))
	}
	p.settle()
	return p
}

// admit makes the operation of a command. The operation is finished at once if the command needs
// no request or may not have one.
func (p *Plan) admit(i int, c events.Command, t events.Turn, o Options, templates map[int]template) *operation {
	d := &operation{at: i, command: c}
	unfit, refused := o.unfit(c, t), o.Refused
	if errors.Is(unfit, events.ErrSuperseded) {
		unfit, refused = nil, Refusal{Reason: "Stale", Message: unfit.Error()}
	}
	switch {
	case o.Off:
		d.refuse("Off", "the writer is switched off")
	case o.Promised != nil && !o.Promised(c):
		d.refuse(NotPromised, "the controller never promised to "+VerbOf(c.Verb)+" "+string(c.Kind))
	case c.Verb != events.VerbRecord && fault(c) != "":
		d.refuse("Malformed", fault(c))
	case unfit != nil:
		d.refuse(NotPromised, unfit.Error())
	case c.Verb == events.VerbRecord && refused != o.Refused:
		d.refuse(refused.Reason, refused.Message)
	case c.Verb == events.VerbRecord:
		d.end(Response{}, events.Applied)
		if o.DryRun {
			d.end(Response{}, events.DryRun)
		}
	default:
		body, err := bodyOf(t, c, templates)
		if err != nil {
			d.refuse("Malformed", err.Error())
			break
		}
		if redact.Marked(body) {
			d.refuse(Redacted, "it would write "+redact.Marker+" into the object: a value was hidden that the controller decides on (--redact)")
			break
		}
		d = newOperation(i, c, body, o)
		d.seen = t.Seen[c.Kind]
		p.claim(d)
		if refused == (Refusal{}) {
			refused = o.Held[i]
		}
		if d.refused = refused; refused != (Refusal{}) {
			d.skip()
		} else if c.Of != nil && !Nameable(c.Of.Name) {
			d.end(Response{Code: 404, Reason: string(metav1.StatusReasonNotFound), Message: "no object can have the name"}, events.Absent)
		}
	}
	return d
}

// unfit returns why a command is not within the controller's promise.
func (o Options) unfit(c events.Command, t events.Turn) error {
	if o.Fits == nil || o.Off || o.Refused != (Refusal{}) {
		return nil // a refused command is at most looked for
	}
	return o.Fits(c, t.BodyOf(c))
}

// fault returns why a command cannot be addressed or is unsafe; "" if it is neither.
func fault(c events.Command) string {
	switch c.Verb {
	case events.VerbCreate, events.VerbUpdate, events.VerbPatch, events.VerbDelete:
		if c.Of != nil {
			return "the command names its object as an ask does"
		}
	case events.VerbAsk:
		if fault := questionFault(c); fault != "" {
			return fault
		}
	default:
		return "the verb " + VerbOf(c.Verb) + " is none"
	}
	switch {
	case c.Of == nil && (c.Kind == "" || c.Version == "" || c.Name == ""):
		return "the command names no object"
	case unaddressable(c) != "":
		return unaddressable(c)
	case c.If != nil && c.If.Unused && (c.Of != nil || c.Verb == events.VerbCreate || query.UserKinds(c.Kind) == nil):
		return "what needs such an object cannot be found out"
	case c.If != nil && c.If.Unshared && (c.Of != nil || !query.HasRanges(c.Kind)):
		return "which ranges such objects have cannot be found out"
	case c.Subresource == query.SubSignatures && (!c.Signs() || c.Ref() != clusterInfo || uidOf(c) == "" || c.If.ResourceVersion == ""):
		return "only the ConfigMap cluster-info has signatures, in the version that was seen"
	case c.Verb == events.VerbDelete && uidOf(c) == "":
		return "a delete must say which uid it means"
	case c.Verb == events.VerbDelete && !propagations[c.Propagation]:
		return "the propagation of the delete is unknown"
	case c.Verb == events.VerbPatch && c.PatchType == "":
		return "the patch has no type"
	case c.Verb == events.VerbPatch && !patchTypes[c.PatchType]:
		return "the type of the patch is unknown"
	default:
		return ""
	}
}

// Next returns every request that may run now, at most one for each command. It returns each
// request once.
func (p *Plan) Next() []Request {
	var requests []Request
	for _, g := range p.groups {
		for _, i := range g.operations[g.from:g.to] {
			if p.ready(i) {
				p.asked[i] = true
				requests = append(requests, p.operations[i].request())
			}
		}
	}
	return requests
}

// ready reports whether a command's next request may run.
func (p *Plan) ready(i int) bool {
	d := p.operations[i]
	if p.asked[i] || d.step == finished {
		return false
	}
	for _, e := range p.after[i] {
		if p.operations[e].step != finished {
			return false
		}
	}
	o, shared := p.sharedLook(d)
	if !shared {
		return true
	}
	if o.asker < 0 {
		o.asker = i
	}
	return o.asker == i
}

// Answer processes the answer to a command's request. It ignores an answer that no command waits
// for.
func (p *Plan) Answer(command int, r Response) {
	if command < 0 || command >= len(p.operations) || !p.asked[command] {
		return
	}
	p.asked[command] = false
	d := p.operations[command]
	if o, shared := p.sharedLook(d); shared && (!r.again() || r.Spent) {
		o.answer = &r
	}
	d.answer(r)
	p.settle()
}

// closes reports whether a command waits for all earlier commands of its turn, whether they succeed
// or not: it asks what exists after them.
func closes(c events.Command) bool {
	return c.Searches()
}

func upTo(n int) []int {
	all := make([]int, n)
	for i := range all {
		all[i] = i
	}
	return all
}

// settle draws every conclusion that needs no request: shared answers, skipped commands, finished
// waves.
func (p *Plan) settle() {
	for moved := true; moved; {
		moved = false
		for _, g := range p.groups {
			for _, i := range g.operations[g.from:g.to] {
				moved = p.conclude(i) || moved
			}
			moved = p.advance(g) || moved
		}
	}
	p.open = 0
	for _, d := range p.operations {
		if d.step != finished {
			p.open++
		}
	}
}

// conclude ends or advances a command that needs no request for it, and reports whether it did.
func (p *Plan) conclude(i int) bool {
	d := p.operations[i]
	if d.step == finished || p.asked[i] {
		return false
	}
	for _, e := range p.after[i] {
		if earlier := p.operations[e]; earlier.step == finished && !earlier.result.OK() && !closes(d.command) {
			d.end(Response{Reason: "Skipped", Message: "an earlier command on the object did not succeed"}, events.Skipped)
			return true
		}
	}
	if o, shared := p.sharedLook(d); shared && o.answer != nil {
		d.answer(*o.answer)
		return true
	}
	return false
}

// advance starts a group's next wave when the last one is finished, or skips the remaining
// commands.
func (p *Plan) advance(g *group) bool {
	if g.over {
		return false
	}
	stop := false
	for _, i := range g.operations[g.from:g.to] {
		d := p.operations[i]
		if d.step != finished {
			return false
		}
		stop = stop || g.stops(d.result)
	}
	if stop && g.to < len(g.operations) {
		for _, i := range g.operations[g.to:] {
			p.operations[i].skip()
		}
		g.to = len(g.operations) // some may need a read first
		return true
	}
	g.from = g.to
	g.size *= 2
	g.to = min(g.from+g.size, len(g.operations))
	g.over = g.from == g.to
	return true
}

// stops reports whether a result ends its group.
// Upstream: pkg/controller slowStartBatch ends creates at the first error.
func (g *group) stops(r events.Result) bool {
	switch {
	case r.OK():
		return false
	case g.creates:
		return true
	default:
		return r.Status == events.Failed || (r.Status == events.Refused && r.Code == 403)
	}
}

// Results returns one result for every command; done is false while some have none.
func (p *Plan) Results() (results []events.Result, done bool) {
	if p.open > 0 {
		return nil, false
	}
	results = make([]events.Result, 0, len(p.operations))
	for _, d := range p.operations {
		results = append(results, d.told())
	}
	return results, true
}

// told returns an operation's result, marked as unsure if its effect is not certain.
func (d *operation) told() events.Result {
	r := d.result
	// If the answer to a delete was lost and the object is gone, another client may have deleted
	// it. No other applied command has an object that is not there.
	guessed := d.guessed || r.Status == events.Applied && d.last.notFound()
	r.Unsure = guessed || !r.OK() && (d.lost || d.again) && d.command.Verb != events.VerbRecord && d.command.Verb != events.VerbAsk
	return r
}
