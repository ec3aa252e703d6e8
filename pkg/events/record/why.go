package record

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/pkg/events/record/fields"
	"github.com/millrace/millrace/pkg/events/record/internal/parallel"
	"github.com/millrace/millrace/pkg/events/subject"
)

// Cause is a version of an object, who made it, and its own causes.
type Cause struct {
	// Role is the relation of the version to the decision that it led to: it triggered the
	// decision, or it set the desired state. Empty for the version that is explained.
	Role    Role    `json:"role,omitempty"`
	Version Version `json:"version"`
	// Decision is the turn that made the version, if a controller of ours did.
	Decision *Decision `json:"decision,omitempty"`
	// Wish is true when the version changes the desired state: a create, a delete, or a new
	// generation.
	Wish bool `json:"wish,omitempty"`
	// Note says why no further causes are known, or adds a remark.
	Note string `json:"note,omitempty"`
	// Last is the newest version, if an earlier one is explained because the newest one changes
	// only the observed state.
	Last *Version `json:"last,omitempty"`
	// Like is how many more versions triggered the same decision in the same way.
	Like int `json:"like,omitempty"`
	// Fight is the fight that the explained version is part of, if any.
	Fight  *Fight   `json:"fight,omitempty"`
	Causes []*Cause `json:"causes,omitempty"`
}

// Role is the relation of a version to a decision.
type Role string

const (
	// Asked: the version triggered the decision.
	Asked Role = "asked by"
	// Wanted: the version set the desired state that the decision went by.
	Wanted Role = "wanted since"
	// Ordered: the version is the delete that led to the object's end.
	Ordered Role = "ordered by"
)

// Decision is a turn, in an explanation.
type Decision struct {
	Controller string     `json:"controller"`
	Key        events.Key `json:"key"`
	Lane       string     `json:"lane"`
	Turn       uint64     `json:"turn"`
	Because    string     `json:"because"`
	At         time.Time  `json:"at"`
	// Command is the request, and AuditID its id in the API server's audit log.
	Command string `json:"command"`
	AuditID string `json:"auditID,omitempty"`
	// ResourceVersion and Generation are those of the key's own object as the decision saw it,
	// and Seen is how far each log had been read.
	ResourceVersion string          `json:"resourceVersion,omitempty"`
	Generation      int64           `json:"generation,omitempty"`
	Seen            events.Position `json:"seen,omitempty"`
	Code            string          `json:"code,omitempty"`
}

// Again is the note of a version that is explained further up.
const Again = "explained above"

const (
	// deepest limits the length of a chain of decisions in an explanation.
	deepest = 20
	// askers limits how many triggers of different objects are explained for one decision;
	// further ones are only counted.
	askers = 4
)

// Question selects the version to explain.
type Question struct {
	// At is the moment of the version; the zero Moment is now. A resourceVersion selects exactly
	// that version.
	At Moment
	// Field selects the newest version in which that field changed.
	Field string
	// Last selects the newest version, whatever it changes. Otherwise Why explains the newest
	// that changes the desired state: a create, a delete, a new generation, labels or
	// annotations.
	Last bool
	// Reports also explains the causes of status changes. Without it they are named but not
	// explained, because every rollout depends on its pods having become ready.
	Reports bool
}

// Why explains a version of an object.
//
// Errors: [ErrNotThere], *[BeforeRecord]; the field never changed, or was never set.
func (r *Record) Why(ctx context.Context, kind kinds.Kind, ref events.Ref, q Question) (*Cause, error) {
	sequence, err := r.position(ctx, kind.Name, q.At)
	if err != nil {
		return nil, err
	}
	e, ok, err := r.asOf(ctx, ref, sequence)
	if err != nil {
		return nil, err
	}
	if !ok {
		return nil, missing(ref)
	}
	all, err := r.bus.Kinds(ctx)
	if err != nil {
		return nil, err
	}
	s, err := r.begin(ctx)
	if err != nil {
		return nil, err
	}
	x := &explanation{search: s, kinds: map[kinds.Name]kinds.Kind{}, seen: map[string]Hand{}, reports: q.Reports}
	for _, k := range all {
		x.kinds[k.Name] = k
	}
	newest, e, err := x.chosen(ctx, e, q)
	if err != nil {
		return nil, err
	}
	cause, err := x.explain(ctx, e, "", 0)
	if err != nil {
		return nil, err
	}
	if newest.Sequence != e.Sequence {
		last, err := x.made(ctx, kind, newest, true)
		if err != nil {
			return nil, err
		}
		cause.Last = &last
	}
	cause.Fight, err = x.fight(ctx, e)
	return cause, err
}

// explanation is an explanation in progress.
type explanation struct {
	*search
	kinds map[kinds.Name]kinds.Kind
	seen  map[string]Hand // by delta ID: who made the versions explained so far
	// reports is [Question].Reports.
	reports bool
}

// wishLook limits how many versions are read in search of one that changes the desired state.
const wishLook = 1000

// chosen is the version that a question selects, going back from an entry; newest is the last
// version that changed anything, which may be another one.
func (x *explanation) chosen(ctx context.Context, from Entry, q Question) (newest, e Entry, err error) {
	if q.Field != "" {
		e, err = x.setting(ctx, from, q.Field)
		return e, e, err
	}
	exactly := q.Last || q.At.Version != ""
	e = from
	for range wishLook {
		v, was, err := x.version(ctx, e)
		if err != nil {
			return newest, e, err
		}
		if newest.Sequence == 0 && v.Event != Kept {
			newest = e
		}
		if v.Event != Kept && (exactly || v.wish || v.Event == Found) {
			return newest, e, nil
		}
		if was == nil {
			break
		}
		e = *was
	}
	if newest.Sequence == 0 {
		newest = e
	}
	return newest, newest, nil // no stored version changes the desired state
}

// setting is the version in which a field changed last, going back from an entry.
func (x *explanation) setting(ctx context.Context, e Entry, field string) (Entry, error) {
	for {
		v, was, err := x.version(ctx, e)
		changed := v.Event != Kept && slices.ContainsFunc(v.Changes, func(c fields.Change) bool { return c.Within(field) })
		switch {
		case err != nil, changed:
			return e, err
		case was != nil && was.UID == e.UID:
			e = *was
			continue
		case !v.has(field):
			return e, fmt.Errorf("%s of %v is %w: no version that is kept has that field; is it written as in the API, such as spec.nodeName?", field, e.Ref, ErrNotThere)
		case v.Event != Created:
			return e, fmt.Errorf("%s of %v has not changed in any version on record: %w", field, e.Ref, ErrNotThere)
		default:
			return e, nil // the field has this value since the create
		}
	}
}

// has reports whether a version has a field, or parts of it.
func (v Version) has(field string) bool {
	return slices.ContainsFunc(fields.Apart(nil, v.tree), func(c fields.Change) bool { return c.Within(field) })
}

// version is the version of an entry, and the entry before it.
func (x *explanation) version(ctx context.Context, e Entry) (v Version, was *Entry, err error) {
	kind, known := x.kinds[e.Kind]
	if !known {
		return v, nil, fmt.Errorf("the kind %s is %w any more", e.Kind, ErrNotThere)
	}
	return x.compared(ctx, kind, e)
}

// explain finds the causes of an entry.
func (x *explanation) explain(ctx context.Context, e Entry, role Role, depth int) (*Cause, error) {
	v, was, err := x.version(ctx, e)
	if err != nil {
		return nil, err
	}
	c := &Cause{Role: role, Version: v}
	if by, explained := x.seen[e.ID()]; explained {
		c.Version.By, c.Note = by, Again
		return c, nil
	}
	if v.origin, err = x.origin(ctx, e, v.tree); err != nil {
		return nil, err
	}
	v.By = handOf(v, v.origin)
	x.seen[e.ID()] = v.By
	c.Version, c.Wish = v, v.wish
	switch {
	case v.origin == nil && v.Event == Ended && was != nil && was.Deleting:
		err = x.order(ctx, c, *was, depth)
	case v.origin == nil && v.Event == Found:
		c.Note = "how it came to be so was not seen: a list found it, behind a gap or at the begin of the record"
	case v.origin == nil:
	case v.origin.Turn == nil:
		c.Note = fmt.Sprintf("the turn %d of %s is not kept any more", v.origin.Sequence, v.origin.Controller)
	case depth == deepest:
		c.Note = "what is behind this is not followed any further"
	case role == Asked && seen(v.Changes) && !x.reports:
		c.Decision = decisionOf(v.origin)
	default:
		c.Decision = decisionOf(v.origin)
		c.Causes, err = x.behind(ctx, v.origin, depth+1)
	}
	return c, err
}

// order explains the end of an object by the version in which it was deleted.
func (x *explanation) order(ctx context.Context, c *Cause, e Entry, depth int) error {
	for {
		before, ok, err := x.before(ctx, e)
		if err != nil {
			return err
		}
		if !ok || before.UID != e.UID || !before.Deleting {
			break
		}
		e = before
	}
	ordered, err := x.explain(ctx, e, Ordered, depth)
	if err != nil {
		return err
	}
	c.Version.By = Hand{Unknown: "the end of what was deleted before"}
	x.seen[c.Version.entry.ID()] = c.Version.By
	c.Causes = []*Cause{ordered}
	return nil
}

func decisionOf(o *Origin) *Decision {
	t := o.Turn
	d := &Decision{
		Controller: o.Controller, Key: t.Key, Lane: t.Lane.String(), Turn: o.Sequence, Because: t.Because, At: t.Now,
		AuditID: o.Result.AuditID, ResourceVersion: t.ResourceVersion, Generation: t.Generation, Seen: t.Seen, Code: t.Code,
	}
	if command, ok := o.Command(); ok {
		d.Command = strings.TrimSpace(fmt.Sprintf("%s %v %s", command.Verb, command.Ref(), command.Subresource))
	}
	return d
}

// behind explains the inputs of a turn: its triggers, and the version that set the desired state
// of its own object.
func (x *explanation) behind(ctx context.Context, o *Origin, depth int) ([]*Cause, error) {
	asking, err := x.asking(ctx, o)
	if err != nil {
		return nil, err
	}
	wanted, err := x.wanted(ctx, o.Turn)
	if err != nil {
		return nil, err
	}
	if wanted == nil {
		return x.askers(ctx, asking, depth)
	}
	own := func(e Entry) bool { return e.UID == wanted.UID }
	anew := func(e Entry) bool { return own(e) && e.ResourceVersion == wanted.ResourceVersion }
	if slices.ContainsFunc(asking, anew) { // the wish itself is a trigger, and explains the most
		wish, err := x.explain(ctx, *wanted, Asked, depth)
		if err != nil {
			return nil, err
		}
		causes, err := x.askers(ctx, slices.DeleteFunc(asking, own), depth)
		return append([]*Cause{wish}, causes...), err
	}
	causes, err := x.askers(ctx, slices.DeleteFunc(asking, own), depth)
	if err != nil {
		return nil, err
	}
	wish, err := x.explain(ctx, *wanted, Wanted, depth)
	return append(causes, wish), err
}

// askers explains the triggers of a turn. Similar triggers are only counted.
func (x *explanation) askers(ctx context.Context, asking []Entry, depth int) (causes []*Cause, err error) {
	shown := map[string]*Cause{} // by kind, manager and operation
	for _, e := range asking {
		alike := fmt.Sprint(e.Kind, e.By.Name, e.By.Subresource, e.Op, e.Deleting)
		if c := shown[alike]; c != nil || len(causes) == askers {
			if c == nil {
				c = causes[askers-1]
			}
			c.Like++
			continue
		}
		c, err := x.explain(ctx, e, Asked, depth)
		if err != nil {
			return nil, err
		}
		shown[alike] = c
		causes = append(causes, c)
	}
	return causes, nil
}

// asking are the deltas that triggered a turn, the newest of each object, newest first.
func (x *explanation) asking(ctx context.Context, o *Origin) ([]Entry, error) {
	found := make([]Entry, len(o.Turn.Triggers))
	err := parallel.Each(ctx, len(found), func(ctx context.Context, i int) error {
		t := o.Turn.Triggers[i]
		kind, ok := subject.KindOfStream(t.Stream)
		if !ok {
			return nil // an outcome or a wake: it belongs to the past of the same key
		}
		e, ok, err := x.at(ctx, kind, t.Sequence)
		if err == nil && ok && e.Ref.Name != "" {
			found[i] = e
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	slices.Reverse(found)
	told := map[types.UID]bool{"": true}
	return slices.DeleteFunc(found, func(e Entry) bool {
		double := told[e.UID]
		told[e.UID] = true
		return double
	}), nil
}

// wanted is the version in which the key's own object got the generation that a turn went by;
// nil when the key has no object, or the version is no longer stored.
func (x *explanation) wanted(ctx context.Context, t *events.Turn) (*Entry, error) {
	if t.UID == "" || t.Kind == "" {
		return nil, nil
	}
	ref := events.Ref{Kind: t.Kind, Namespace: t.Key.Namespace, Name: t.Key.Name}
	sequence := t.Seen[t.Kind]
	if sequence == 0 {
		return nil, nil
	}
	e, ok, err := x.asOf(ctx, ref, sequence)
	if err != nil || !ok || e.UID != t.UID {
		return nil, err
	}
	for range steps {
		before, ok, err := x.before(ctx, e)
		if err != nil {
			return nil, err
		}
		if !ok || before.UID != e.UID || before.Generation != e.Generation || before.Deleting != e.Deleting {
			break
		}
		e = before
	}
	return &e, nil
}

// Began is the first cause: among the ends of the explanation, the latest version that changes
// the desired state, or else the latest version.
func (c *Cause) Began() *Cause {
	var ends []*Cause
	if c.ends(&ends); len(ends) == 0 {
		return c // all causes lead back to c
	}
	return slices.MaxFunc(ends, func(a, b *Cause) int {
		if a.Wish != b.Wish {
			if a.Wish {
				return 1
			}
			return -1
		}
		return a.Version.Time.Compare(b.Version.Time)
	})
}

func (c *Cause) ends(out *[]*Cause) {
	if len(c.Causes) == 0 && c.Note != Again {
		*out = append(*out, c)
	}
	for _, behind := range c.Causes {
		behind.ends(out)
	}
}
