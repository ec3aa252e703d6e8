package plan

import (
	"encoding/json"
	"errors"
	"net/netip"
	"slices"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/query"
)

// subScale is a subresource that is an object of its own. A controller that may write it may not
// be allowed to read the parent object, whose metadata would not show the write anyway.
const subScale = "scale"

// look is a read that several commands of a turn share: whether the object that they rely on
// exists, or which ranges the objects of a kind have. One of them makes it.
//
// Upstream: RecheckDeletionTimestamp, once in a sync.
type look struct {
	asker  int // the command that asks; negative while none does
	answer *Response

	read   bool
	ranged []rangedObject
	err    error
}

// rangedObject is a parsed [query.Ranged].
type rangedObject struct {
	name   string
	ranges []netip.Prefix
}

// sharedLook returns the look that a command's step shares with others of the turn; shared is
// false if the step has none.
func (p *Plan) sharedLook(d *operation) (l *look, shared bool) {
	var key any
	switch d.step {
	case alive:
		key = *d.command.If.Alive
	case unshared:
		key = d.command.Kind
	default:
		return nil, false
	}
	if p.looks[key] == nil {
		p.looks[key] = &look{asker: -1}
	}
	d.look = p.looks[key]
	return d.look, true
}

// claim records the ranges that a command's object must not share. It refuses a command whose
// ranges overlap those of an earlier command of the turn, before anything is read.
func (p *Plan) claim(d *operation) {
	c := d.command
	if d.step == finished || c.If == nil || !c.If.Unshared {
		return
	}
	ranges, err := query.RangesIn(d.body)
	if err != nil {
		d.refuse("Malformed", err.Error())
		return
	}
	for _, r := range ranges {
		if slices.ContainsFunc(p.given[c.Kind], r.Overlaps) {
			d.refuse(ReasonShared, "an earlier command of the turn gives addresses of "+r.String()+" to another object")
			return
		}
	}
	d.ranges, p.given[c.Kind] = ranges, append(p.given[c.Kind], ranges...)
}

// ReasonShared is the reason for refusing a command whose ranges overlap those of another object.
const ReasonShared = "Shared"

// others returns the ranges of the objects in the answer.
func (l *look) others(body json.RawMessage) ([]rangedObject, error) {
	if l.read {
		return l.ranged, l.err
	}
	l.read = true
	var said []query.Ranged
	if l.err = json.Unmarshal(body, &said); l.err == nil && said == nil { // null is not an empty list
		l.err = errors.New("there is no list")
	}
	for _, s := range said {
		o := rangedObject{name: s.Name}
		for _, text := range s.Ranges {
			if r, err := query.ParseRange(text); err == nil { // an invalid range has no addresses
				o.ranges = append(o.ranges, r)
			}
		}
		l.ranged = append(l.ranged, o)
	}
	return l.ranged, l.err
}

// afterUnshared refuses to give an object addresses that another one has. An answer that cannot be
// parsed proves nothing, so it refuses then, too. The API server judges the ranges that the object
// itself has.
func (d *operation) afterUnshared(r Response) {
	if !r.ok() {
		d.end(r, events.Refused)
		return
	}
	others, err := d.look.others(r.Body)
	if err != nil {
		d.refuse(ReasonShared, "it is not known which ranges other objects have")
		return
	}
	for _, o := range others {
		if o.name == d.command.Name {
			continue
		}
		for _, has := range o.ranges {
			if slices.ContainsFunc(d.ranges, has.Overlaps) {
				d.refuse(ReasonShared, o.name+" has "+has.String())
				return
			}
		}
	}
	d.step = d.ready()
}
