package plan

import (
	"bytes"
	"encoding/json"
	"net/netip"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/pkg/events/query"
)

// step is what an operation does next.
type step int

const (
	alive    step = iota // read the object that the command relies on
	absent               // read the owners that must be gone
	unused               // find out what needs the object
	unshared             // find out which ranges other objects have
	before               // redelivered delete: look whether it was done before
	write                // make the request
	ask                  // read what is asked for
	compare              // after a 409: read the live object
	recheck              // given up, may have been done: look whether it was
	finished             // there is a result
)

// mostChases is how often one turn retries a delete of an object whose changes leave its owners as
// they were. If the object changes faster, the next turn has to delete it.
const mostChases = 5

// operation is one command in progress: its reads and its write.
type operation struct {
	at      int
	command events.Command
	again   bool   // the turn was delivered before
	version string // the resourceVersion that a delete, or an ask, requires
	seen    uint64 // the sequence up to which the turn had read the log of the kind
	refused Refusal
	dryRun  bool

	step   step
	owner  int            // position in owners
	look   *look          // shared with other commands
	ranges []netip.Prefix // the ranges that its object must share with no other
	tries  int
	// A write's answer was lost; the object is as the command makes it, perhaps by another client.
	lost, guessed bool
	chases        int // how often the delete was retried on a changed object
	asked         bool
	last          Response  // the previous answer, if asked
	failed        *Response // the answer that ended a write which may have happened
	body          []byte
	result        events.Result
}

func newOperation(at int, c events.Command, body []byte, o Options) *operation {
	d := &operation{at: at, command: c, body: body, again: o.Again, dryRun: o.DryRun}
	if c.If != nil {
		d.version = c.If.ResourceVersion
	}
	d.step = d.first()
	return d
}

// first returns the first step of a command.
func (d *operation) first() step {
	switch cond := d.command.If; {
	case d.command.Verb == events.VerbAsk:
		return ask
	case cond != nil && cond.Alive != nil:
		return alive
	case d.seek(0):
		return absent
	default:
		return d.checked()
	}
}

// checked returns the step after the reads of the objects and owners that the command relies on.
func (d *operation) checked() step {
	if d.command.If != nil && d.command.If.Unused && d.step != unused {
		return unused
	}
	if d.command.If != nil && d.command.If.Unshared {
		return unshared
	}
	return d.ready()
}

// ready returns the step after all reads.
func (d *operation) ready() step {
	if d.again && d.command.Verb == events.VerbDelete && d.tries == 0 {
		return before
	}
	return write
}

// request returns the request of the step.
func (d *operation) request() Request {
	c := d.command
	r := Request{
		Command: d.at, Verb: Look, Kind: c.Kind, Version: c.Version, Namespace: c.Namespace, Name: c.Name,
	}
	switch d.step {
	case alive:
		a := c.If.Alive
		r.Kind, r.Version, r.Namespace, r.Name = a.Kind, a.Version, a.Namespace, a.Name
	case absent:
		r.Owner = &owners(c.If)[d.owner]
	case unused:
		r.Verb, r.Subresource = Search, query.SubUsers
	case unshared:
		r.Verb, r.Subresource = Search, query.SubRanges
	case write:
		d.write(&r)
	case ask:
		r.Verb, r.Owner, r.Subresource = Read, c.Of, c.Subresource
		if c.Searches() {
			r.Verb, r.Body = Search, d.body
		}
	case compare:
		if c.Verb == events.VerbCreate || c.Verb != events.VerbDelete && d.doubled() {
			r.Verb = Read
		}
	case recheck:
		if c.Verb != events.VerbDelete {
			r.Verb = Read
		}
	case before, finished:
	}
	if c.Subresource == subScale && (d.step == compare || d.step == recheck) {
		r.Subresource = subScale
	}
	if r.Verb == Read && (c.Kind == kinds.Secrets.Name || c.Certifies()) {
		// No message may have the content of a Secret, and no command has a certificate, so there
		// is nothing to compare: an effect in doubt counts as none.
		r.Verb = Look
	}
	if d.asked && d.repeats(d.last) {
		r.Wait, r.After = true, d.last.RetryAfter
	}
	return r
}

func (d *operation) write(r *Request) {
	c := d.command
	d.tries++
	r.Verb, r.Try, r.Subresource, r.Body = Verb(c.Verb), d.tries, c.Subresource, d.body
	switch c.Verb {
	case events.VerbCreate:
		r.Doubtful, r.Seen = d.doubled(), d.seen
	case events.VerbPatch:
		r.PatchType = c.PatchType
	case events.VerbDelete:
		r.Body, r.Delete = nil, d.options()
	}
}

func (d *operation) options() *metav1.DeleteOptions {
	c, o := d.command, &metav1.DeleteOptions{GracePeriodSeconds: d.command.GraceSeconds}
	if c.Propagation != "" {
		o.PropagationPolicy = &c.Propagation
	}
	o.Preconditions = &metav1.Preconditions{UID: &c.If.UID}
	if d.version != "" {
		o.Preconditions.ResourceVersion = &d.version
	}
	return o
}

// unsure is true while a create may have happened unseen (its answer was lost, the turn was
// delivered before, or an object has its name), and in the step recheck. The plan does not give
// such a command up, however long it takes: otherwise the next decision would rest on a view
// without its effect.
func (d *operation) unsure() bool {
	return d.step == recheck || d.command.Verb == events.VerbCreate && (d.doubled() || d.step == compare)
}

// doubled reports whether an existing effect may be the command's own: its answer was lost, or the
// turn was delivered before.
func (d *operation) doubled() bool { return d.lost || d.again }

// answer processes the answer to request.
func (d *operation) answer(r Response) {
	d.asked, d.last = true, r
	if r.Reason == ReasonPanicked {
		d.lost = d.lost || d.step == write
		d.end(r, events.Failed)
		return
	}
	if d.repeats(r) {
		d.lost = d.lost || (d.step == write && r.lost())
		if r.Spent && !d.unsure() {
			d.exhaust(r)
		}
		return // the same step again
	}
	switch d.step {
	case alive:
		d.afterAlive(r)
	case absent:
		d.afterAbsent(r)
	case unused:
		d.afterUnused(r)
	case unshared:
		d.afterUnshared(r)
	case before:
		d.afterBefore(r)
	case write:
		d.afterWrite(r)
	case ask:
		d.afterAsk(r)
	case compare:
		d.afterCompare(r)
	case recheck:
		d.afterRecheck(r)
	case finished:
	}
}

// repeats reports whether a request is repeated after an answer. An API server that has just started
// may not know the writer's roles yet: it refuses a command that it may have carried out before,
// and the read that would show whether it did.
func (d *operation) repeats(r Response) bool {
	return r.again() || r.Reason == ReasonNotImpersonated && d.unsure()
}

// exhaust gives up a command that has no time left. It first looks whether the command has been
// carried out, if that is possible.
func (d *operation) exhaust(r Response) {
	if d.doubled() && d.command.Verb != events.VerbAsk {
		d.failed, d.step = &r, recheck
		return
	}
	d.end(r, events.Failed)
}

func (d *operation) afterAlive(r Response) {
	a := d.command.If.Alive
	switch {
	case r.ok() && r.Object.UID == a.UID && !r.Object.Deleting:
		d.step = d.checked()
		if d.seek(0) {
			d.step = absent
		}
	case r.ok() || r.notFound():
		d.refuse("OwnerGone", "the "+string(a.Kind)+" "+a.Name+" is gone or on its way out")
	default:
		d.end(r, events.Refused)
	}
}

// owners returns the owners that must not be alive: those that must be absent, and then those that
// may also be leaving.
func owners(cond *events.If) []metav1.OwnerReference {
	if cond == nil {
		return nil
	}
	return slices.Concat(cond.Absent, cond.Leaving)
}

// seek moves to the first owner, from a position on, whose name is valid; ok is false if there is
// none. An owner with an invalid name is absent without a request: a tenant may write any name
// into an owner reference.
func (d *operation) seek(from int) (ok bool) {
	all := owners(d.command.If)
	for d.owner = from; d.owner < len(all); d.owner++ {
		if Nameable(all[d.owner].Name) {
			return true
		}
	}
	return false
}

// Upstream: pkg/controller/garbagecollector looks at each owner live before it
// deletes, by kind, name and uid.
func (d *operation) afterAbsent(r Response) {
	all := owners(d.command.If)
	owner, mayLeave := all[d.owner], d.owner >= len(d.command.If.Absent)
	switch {
	case r.ok() && (owner.UID == "" || r.Object.UID == owner.UID) && !(mayLeave && r.Object.Waiting):
		d.refuse("OwnerAlive", "the owner "+owner.Kind+" "+owner.Name+" exists")
	case r.ok() || r.notFound():
		if !d.seek(d.owner + 1) {
			d.step = d.checked()
		}
	default:
		d.end(r, events.Refused)
	}
}

// afterUnused refuses a command on an object that something uses. It also refuses after an answer
// that cannot be parsed, which proves nothing.
func (d *operation) afterUnused(r Response) {
	var found query.Users
	switch {
	case r.ok() && uidOf(d.command) != "" && r.Object.UID != uidOf(d.command), r.notFound():
		d.end(r, events.Absent)
	case !r.ok():
		d.end(r, events.Refused)
	case !object(r.Body) || json.Unmarshal(r.Body, &found) != nil:
		d.refuse("InUse", "it is unknown whether anything needs the object")
	case found.Count > 0:
		d.refuse("InUse", found.String())
	default:
		d.step = d.checked()
	}
}

// object reports whether a text is a JSON object; json.Unmarshal would accept null as an empty one.
func object(text json.RawMessage) bool {
	text = bytes.TrimSpace(text)
	return len(text) > 0 && text[0] == '{'
}

// afterBefore ends a redelivered delete without another request if the object is already being
// deleted as the command wants it.
func (d *operation) afterBefore(r Response) {
	c, live := d.command, r.Object
	switch {
	case r.notFound() || (r.ok() && live.UID != c.If.UID):
		d.removed(r)
	case r.ok() && live.Deleting && c.Propagation == "" &&
		(c.GraceSeconds == nil || (live.Grace != nil && *live.Grace <= *c.GraceSeconds)):
		d.end(r, events.Unchanged)
	default:
		d.step = write // also where the read is forbidden: the preconditions hold anyway
	}
}

func (d *operation) afterWrite(r Response) {
	c := d.command
	switch {
	case r.ok() && d.dryRun:
		d.end(r, events.DryRun)
	case r.ok():
		d.end(r, d.effect(r))
		d.result.Removed = c.Verb == events.VerbDelete && gone(c, r.Object) || d.released(r.Object)
		if c.Signs() {
			d.result.Answer = &events.Answer{Body: r.Body, Note: c.Note}
		}
	case r.Code == 409 && (c.Verb != events.VerbCreate || r.Reason == string(metav1.StatusReasonAlreadyExists)):
		d.step = compare
	case r.Code == 409:
		d.end(r, events.Conflict)
	case r.notFound() && c.Verb == events.VerbDelete:
		d.removed(r)
	case r.notFound() && c.Verb != events.VerbCreate,
		r.Code == 422 && r.Field == "metadata.uid" && uidOf(c) != "":
		// Upstream: a patch that carries another object's uid is "invalid", which
		// the adopting controllers read as "gone".
		d.end(r, events.Absent)
	case c.Verb == events.VerbCreate && d.doubled():
		d.failed, d.step = &r, recheck // a refused create may have been carried out before
	default:
		d.end(r, events.Refused)
	}
}

// afterAsk ends an ask with what was read, or with why it could not be read.
func (d *operation) afterAsk(r Response) {
	switch {
	case r.ok() && uidOf(d.command) != "" && r.Object.UID != uidOf(d.command):
		d.end(r, events.Absent)
	case r.ok() && d.version != "" && r.Object.ResourceVersion != d.version:
		d.conflict(r, "Conflict", "the object has changed")
	case r.ok():
		d.end(r, events.Answered)
		d.result.Answer = &events.Answer{Body: r.Body, Note: d.command.Note}
	case r.notFound():
		d.end(r, events.Absent)
	default:
		d.end(r, events.Refused)
	}
}

// effect distinguishes a write from a no-op, which leaves the object's version as it was.
func (d *operation) effect(r Response) events.Status {
	c := d.command
	if c.Verb != events.VerbCreate && c.If != nil && c.If.ResourceVersion != "" &&
		r.Object.ResourceVersion == c.If.ResourceVersion {
		return events.Unchanged
	}
	return events.Applied
}

// gone reports whether a delete removed the object at once. The answer then has no object, one that
// is not being deleted, or one without finalizers and with a grace period of 0. A namespace always
// waits for its contents.
func gone(c events.Command, o Object) bool {
	if o.UID == "" || !o.Deleting {
		return true
	}
	return !o.Finalizers && o.Grace != nil && *o.Grace == 0 && c.Kind != "namespaces"
}

// released reports whether an update removed a namespace's last finalizer, so that the namespace is
// gone.
func (d *operation) released(o Object) bool {
	return d.command.Subresource == "finalize" && o.Deleting && !o.Finalizers && zero(at(read(d.body), "spec", "finalizers"))
}

// afterCompare judges a 409 by the live object.
func (d *operation) afterCompare(r Response) {
	createOrDeletion := d.command.Verb == events.VerbCreate || d.command.Verb == events.VerbDelete
	switch {
	case !r.ok() && !r.notFound() && createOrDeletion:
		d.end(r, events.Refused)
	case d.command.Verb == events.VerbCreate:
		d.compareCreate(r)
	case d.command.Verb == events.VerbDelete:
		d.compareDeletion(r)
	case r.notFound():
		d.end(r, events.Absent)
	case d.doubled() && d.changed(r):
		d.found(r)
	default:
		// The result has the version that caused the conflict. The next decision waits until its
		// view has that version: on the old one it would be the same again.
		d.conflict(r, "Conflict", "the object has changed")
	}
}

// changed reports whether a live object already is what an update or a patch makes of it.
func (d *operation) changed(r Response) bool {
	c := d.command
	if !r.ok() || r.Object.UID != uidOf(c) {
		return false
	}
	switch {
	case c.Signs():
		return false // its body does not have the signatures
	case c.Verb == events.VerbUpdate:
		return updated(d.body, r.Body, c.Subresource)
	case c.Verb == events.VerbPatch && c.PatchType == types.MergePatchType:
		return merged(d.body, r.Body)
	default:
		return false
	}
}

func (d *operation) compareCreate(r Response) {
	switch {
	case r.notFound(): // it was deleted between the two requests: the name is free again
		d.conflict(r, string(metav1.StatusReasonAlreadyExists), "the name was taken a moment ago")
	case r.Object.Deleting:
		d.conflict(r, string(metav1.StatusReasonAlreadyExists), "an object of that name is on its way out")
	case created(d.body, r.Body):
		d.found(r)
	default:
		d.conflict(r, string(metav1.StatusReasonAlreadyExists), "another object has that name")
	}
}

func (d *operation) compareDeletion(r Response) {
	cond := d.command.If
	switch {
	case r.notFound() || r.Object.UID != cond.UID:
		d.removed(r)
	case d.chases < mostChases && cond.ResourceVersion != "" && len(cond.SameOwners) > 0 && sameOwners(cond.SameOwners, r.Object.Owners):
		// Upstream: the garbage collector deletes again without the version when the
		// change left the owner references as they were. Between that look and the
		// delete the object may get an owner that lives, so we insist on what was seen.
		d.chases++
		d.version, d.step = r.Object.ResourceVersion, write
	case r.Object.Deleting && cond.ResourceVersion == "":
		d.end(r, events.Unchanged)
	default:
		d.conflict(r, "Conflict", "the object has changed")
	}
}

// skip gives up a command before its first request: its batch has failed, or the turn is refused.
// If the turn was delivered before, the command may have been carried out then. The next decision
// must know of the effect, so skip has the plan look for it.
func (d *operation) skip() {
	switch {
	case d.step == finished:
	case d.again && d.command.Verb != events.VerbAsk: // an ask has no effect
		d.step = recheck
	default:
		d.giveUp()
	}
}

func (d *operation) giveUp() {
	switch {
	case d.failed != nil && d.failed.again():
		d.end(*d.failed, events.Failed)
		return
	case d.failed != nil:
		d.end(*d.failed, events.Refused)
		return
	}
	if d.refused != (Refusal{}) {
		r := d.refused
		d.end(Response{Code: r.Code, Reason: r.Reason, Cause: r.Cause, Message: r.Message}, events.Refused)
		return
	}
	d.end(Response{Reason: "Skipped", Message: "an earlier command of the batch failed"}, events.Skipped)
}

func (d *operation) afterRecheck(r Response) {
	c := d.command
	switch {
	case c.Verb == events.VerbDelete && (r.notFound() || r.ok() && r.Object.UID != c.If.UID):
		d.removed(r)
	case c.Verb == events.VerbDelete && r.ok() && r.Object.Deleting,
		c.Verb == events.VerbCreate && r.ok() && created(d.body, r.Body),
		d.changed(r):
		d.found(r)
	case d.failed != nil && r.ok():
		// The next decision waits until its view has this version, which the command may have
		// made.
		d.failed.Object = r.Object
		d.giveUp()
	default:
		d.giveUp()
	}
}

// found ends an operation whose effect exists. The operation made it itself if one of its answers
// was lost; otherwise an earlier delivery of the turn did.
func (d *operation) found(r Response) {
	status := events.Unchanged
	if d.guessed = d.lost && d.command.Verb != events.VerbCreate; d.lost {
		status = events.Applied
	}
	d.end(r, status)
}

// removed ends a delete whose object is gone.
func (d *operation) removed(r Response) {
	status := events.Unchanged
	if d.lost {
		status = events.Applied
	}
	r.Object = Object{UID: d.command.If.UID}
	d.end(r, status)
	d.result.Removed = true
}

func (d *operation) conflict(r Response, reason, message string) {
	r.Code, r.Reason, r.Message = 409, reason, message
	d.end(r, events.Conflict)
}

func (d *operation) refuse(reason, message string) {
	d.end(Response{Reason: reason, Message: message}, events.Refused)
}

func (d *operation) end(r Response, status events.Status) {
	d.result, d.step = r.result(d.at, d.command, status), finished
	if d.command.Note != nil {
		d.result.Answer = &events.Answer{Note: d.command.Note}
	}
}

// uidOf returns the uid that a command requires.
func uidOf(c events.Command) types.UID {
	if c.If == nil {
		return ""
	}
	return c.If.UID
}

// bodyOf returns a command's body as it is sent. known caches the templates of the turn's shapes.
func bodyOf(t events.Turn, c events.Command, known map[int]template) ([]byte, error) {
	body := t.BodyOf(c)
	switch c.Verb {
	case events.VerbCreate:
		m, ok := known[c.Shape]
		if !ok { // never cached for 0, which is a body of its own
			var err error
			if m, err = newTemplate(body); err != nil {
				return nil, err
			}
			if c.Shape != 0 {
				known[c.Shape] = m
			}
		}
		return m.cast(c.Namespace, c.Name), nil
	case events.VerbUpdate, events.VerbPatch:
		return conditional(c, json.RawMessage(body))
	case events.VerbAsk:
		return body, nil
	default:
		return nil, nil
	}
}
