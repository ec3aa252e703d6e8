package plan

import (
	"encoding/json"
	"errors"
	"net/netip"
	"slices"

	"github.com/millrace/millrace/pkg/events"
)

// look is what several commands of a turn want to know: whether the object lives that they
// rely on, or which ranges the objects of a kind have. It is looked for once.
//
// Upstream: RecheckDeletionTimestamp, once in a sync.
type look struct {
	asker  int // the command that asks; less than 0 while none does
	answer *Response

	read   bool
	ranged []rangedObject
	err    error
}

// rangedObject is an [events.Ranged], read.
type rangedObject struct {
	name   string
	ranges []netip.Prefix
}

// sharedLook is the look of a command's step that others of the turn have in common with it.
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

// claim notes the ranges of a command that must not be shared. Another command of the
// turn that gives one of them to a second object is refused before anything is looked for.
func (p *Plan) claim(d *operation) {
	c := d.command
	if d.step == finished || c.If == nil || !c.If.Unshared {
		return
	}
	ranges, err := events.RangesIn(d.body)
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

// ReasonShared is the reason of a refusal because another object has an address of the ranges.
const ReasonShared = "Shared"

// others are the ranges that objects have, as the answer tells.
func (l *look) others(body json.RawMessage) ([]rangedObject, error) {
	if l.read {
		return l.ranged, l.err
	}
	l.read = true
	var said []events.Ranged
	if l.err = json.Unmarshal(body, &said); l.err == nil && said == nil { // null is no empty list
		l.err = errors.New("there is no list")
	}
	for _, s := range said {
		o := rangedObject{name: s.Name}
		for _, text := range s.Ranges {
			if r, err := events.ParseRange(text); err == nil { // what is none has no addresses
				o.ranges = append(o.ranges, r)
			}
		}
		l.ranged = append(l.ranged, o)
	}
	return l.ranged, l.err
}

// afterUnshared refuses to give an object addresses that another one has. What cannot be read
// as an answer proves nothing. What the object itself has the API server judges.
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
