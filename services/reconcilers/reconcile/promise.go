package reconcile

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/pkg/events/redact"
)

// conditions are paths that every body may hold, because they identify the object.
var conditions = []string{".apiVersion", ".kind", ".metadata.name", ".metadata.namespace", ".metadata.uid", ".metadata.resourceVersion"}

// untold are fields that an update of the key's object may differ in, because the API server
// sets them.
var untold = []string{".apiVersion", ".kind", ".metadata.resourceVersion", ".metadata.generation", ".metadata.managedFields", ".status"}

// promise is a [Write] with its paths parsed.
type promise struct {
	Write
	fields, changes     []redact.Path
	where, namedBy      redact.Path
	values              []value
	copies              []copied
	lists               []listed
	absentBy, absentUID redact.Path
	whole               []string // the fields that are not decoded
}

type value struct {
	path redact.Path
	one  []string
}

// copied is a [Copy] with its paths parsed.
type copied struct {
	to, from redact.Path
	but      []redact.Path
	plus     []string
	revision bool
	claims   redact.Path
	of       kinds.Name // empty: the key's object
	namedBy  redact.Path
}

func (w Writes) read() []promise {
	all := make([]promise, 0, len(w))
	for _, one := range w {
		p := promise{Write: one, where: path(one.Where), namedBy: path(one.NamedBy)}
		for _, field := range []string{"spec", "status", "data"} {
			if undecoded(one, "."+field) {
				p.whole = append(p.whole, field)
			}
		}
		if one.Fields != nil {
			p.fields = paths(slices.Concat(conditions, one.Fields))
		}
		if one.Changes != nil || p.keeps() {
			p.changes = paths(slices.Concat(untold, one.Changes))
		}
		for _, v := range one.Values {
			p.values = append(p.values, value{path(v.Path), v.One})
		}
		for _, c := range one.Copies {
			p.copies = append(p.copies, c.read())
		}
		for _, l := range one.Elements {
			p.lists = append(p.lists, listed{l, path(l.Path)})
		}
		if one.Absent != nil {
			p.absentBy, p.absentUID = path(one.Absent.NamedBy), path(one.Absent.UIDBy)
		}
		all = append(all, p)
	}
	return all
}

// undecoded reports whether the promise bounds a field of the body only as a whole.
func undecoded(w Write, field string) bool {
	return slices.Contains(w.Fields, field) &&
		!slices.ContainsFunc(w.Values, func(v Value) bool { return strings.HasPrefix(v.Path, field) })
}

func (c Copy) read() copied {
	read := copied{to: path(c.To), from: path(c.From), but: paths(c.But), plus: c.Plus, revision: c.Revision, claims: path(c.Claims)}
	if c.Of != nil {
		read.of, read.namedBy = c.Of.Kind, path(c.Of.By)
	}
	return read
}

func path(text string) redact.Path {
	if text == "" {
		return nil
	}
	return redact.MustParsePath(text)
}

func paths(texts []string) []redact.Path {
	all := make([]redact.Path, 0, len(texts))
	for _, text := range texts {
		all = append(all, path(text))
	}
	return all
}

// Fits returns the check of a turn's commands, each with its body, against the promise: the
// object of a command, its conditions, the content of its body, and its Events. own returns the
// key's own object as it is known, read any other object of a command; either may return nil.
// Each is read once. The check is not safe for concurrent use.
//
// Errors: the check says why a command is not within the promise. The error is
// [events.ErrSuperseded] where the reason may only be that an object is not known as the turn
// saw it.
func (d Description) Fits(t events.Turn, own func() metav1.Object, read func(events.Ref) metav1.Object) func(events.Command) error {
	f := &facts{turn: t, owns: d.Owns, own: &known{read: own, saw: t.ResourceVersion}, read: read}
	return func(c events.Command) error { return d.fits(t, c, f) }
}

func (d *Description) fits(t events.Turn, c events.Command, f *facts) error {
	if err := d.Events.fit(d.Owns, t, c); err != nil || c.Verb == events.VerbRecord {
		return err
	}
	var err error
	for i := range d.promises {
		if p := &d.promises[i]; p.allows(c) {
			beyond := p.fits(d.Owns, t, c, f)
			if beyond == nil {
				return nil
			}
			if !errors.Is(err, events.ErrSuperseded) { // one promise that may have been kept is enough
				err = beyond
			}
		}
	}
	if err == nil {
		err = fmt.Errorf("the controller never promised to %s %s", c.Verb, c.Kind)
	}
	return err
}

func (p *promise) fits(owns *kinds.Kind, t events.Turn, c events.Command, f *facts) error {
	if kind, known := kinds.Lookup(p.Kind); known && !p.Any && c.Version != kind.Version {
		return fmt.Errorf("%s are written in version %s, not %.40q", p.Kind, kind.Version, c.Version)
	}
	if err := p.about(owns, t, c); err != nil {
		return err
	}
	if err := p.conditional(c); err != nil {
		return err
	}
	if err := p.against(c, f.own); err != nil {
		return err
	}
	if p.keeps() {
		return p.kept(c, f.own)
	}
	if !p.reads() || f.held(p, c.Body) {
		return nil
	}
	body, err := p.decode(c.Body)
	if err != nil {
		return fmt.Errorf("the body is no object: %w", err)
	}
	if p.Child {
		if err := child(owns, t, c, body); err != nil {
			return err
		}
	}
	if err := p.holds(c, body, f); err != nil {
		return err
	}
	if c.Verb == events.VerbCreate && !p.named() {
		f.holds, f.body = p, c.Body
	}
	return nil
}

// named reports whether the allowed body depends on the name of the object.
func (p *promise) named() bool {
	return slices.ContainsFunc(p.copies, func(c copied) bool { return c.claims != nil })
}

// reads reports whether the promise bounds the body.
func (p *promise) reads() bool {
	return p.Child || p.fields != nil || len(p.values)+len(p.copies)+len(p.lists) > 0 || p.changes != nil || p.Removes || p.Adds
}

// about checks that the promise covers the object of a command.
func (p *promise) about(owns *kinds.Kind, t events.Turn, c events.Command) error {
	if !p.On.holds(kindOf(owns, t), t.Key, c.Ref()) || p.On == Itself && t.UID != "" && c.If != nil && c.If.UID != "" && c.If.UID != t.UID {
		return fmt.Errorf("%v is not %s, %v", c.Ref(), p.On, t.Key)
	}
	if !p.Name.holds(c.Name, t.Key.Name) {
		return fmt.Errorf("%v is not %s, %v", c.Ref(), p.Name, t.Key)
	}
	if len(p.Named) > 0 && !slices.Contains(p.Named, c.Name) {
		return fmt.Errorf("of %s only %s may be written", p.Kind, strings.Join(p.Named, ", "))
	}
	return nil
}

// kindOf returns the kind of the key's object.
func kindOf(owns *kinds.Kind, t events.Turn) kinds.Name {
	if t.Key.Kind == "" && owns != nil {
		return owns.Name
	}
	return t.Key.Kind
}

func (s Stand) holds(kind kinds.Name, key events.Key, ref events.Ref) bool {
	switch s {
	case Itself:
		return ref.Kind == kind && ref.Namespace == key.Namespace && ref.Name == key.Name
	case Namesake:
		return ref.Namespace == key.Namespace && ref.Name == key.Name
	case Beside:
		return ref.Namespace == key.Namespace
	case Within:
		return ref.Namespace == key.Name && ref.Namespace != ""
	default:
		return true
	}
}

// conditional checks that a command has the conditions and options that the promise requires.
func (p *promise) conditional(c events.Command) error {
	when := events.If{}
	if c.If != nil {
		when = *c.If
	}
	changes := c.Verb == events.VerbUpdate || c.Verb == events.VerbPatch || c.Verb == events.VerbDelete
	switch {
	case changes && when.UID == "":
		return fmt.Errorf("it does not say which uid it means")
	case (p.Unchanged || c.Verb == events.VerbUpdate) && when.ResourceVersion == "":
		return fmt.Errorf("it does not say which version it means")
	case p.Unused && !when.Unused:
		return fmt.Errorf("it does not say that nothing may need its object")
	case p.Unshared && !when.Unshared:
		return fmt.Errorf("it does not say that no other object may have its ranges")
	case c.Verb == events.VerbPatch && !slices.Contains(orStrategic(p.How), c.PatchType):
		return fmt.Errorf("a patch of type %.40q is not promised", c.PatchType)
	case c.GraceSeconds != nil && (!p.AtOnce || *c.GraceSeconds != 0):
		return fmt.Errorf("it gives %d s to end, which is not promised", *c.GraceSeconds)
	case c.Propagation != "" && !slices.Contains(p.Propagation, c.Propagation):
		return fmt.Errorf("the propagation %.40q is not promised", c.Propagation)
	default:
		return nil
	}
}

func orStrategic(how []types.PatchType) []types.PatchType {
	if how == nil {
		return strategic
	}
	return how
}

var strategic = []types.PatchType{types.StrategicMergePatchType}

// child checks that the controller reference in a body names the key's object. A create or
// update must have one; a patch may leave the owners alone or remove them.
func child(owns *kinds.Kind, t events.Turn, c events.Command, body map[string]any) error {
	if kind, known := kinds.Lookup(t.Key.Kind); known {
		owns = &kind // this controller has keys of several kinds
	}
	meta, _ := body["metadata"].(map[string]any)
	owners, _ := meta["ownerReferences"].([]any)
	named := 0
	for _, one := range owners {
		o, _ := one.(map[string]any)
		if o["controller"] != true || o["$patch"] == "delete" {
			continue
		}
		named++
		if owns == nil || o["kind"] != owns.Kind || o["apiVersion"] != owns.APIVersion() || o["name"] != t.Key.Name || t.UID == "" || o["uid"] != string(t.UID) {
			return fmt.Errorf("the body names the controller %.60v %.60v, which is not the key's object", o["kind"], o["name"])
		}
	}
	if named == 0 && c.Verb != events.VerbPatch {
		return fmt.Errorf("the body does not name the key's object as the controller")
	}
	return nil
}

// fit checks that the promise covers the Events of a command: their objects and their
// reasons.
func (w EventPromises) fit(owns *kinds.Kind, t events.Turn, c events.Command) error {
	for _, n := range []*events.Notice{t.NoticeAt(c.Applied), t.NoticeAt(c.Failed), c.OnApplied, c.OnFailed} {
		if n == nil {
			continue
		}
		if err := w.holds(owns, t, *n); err != nil {
			return err
		}
	}
	return nil
}

func (w EventPromises) holds(owns *kinds.Kind, t events.Turn, n events.Notice) error {
	var err error
	for _, p := range w {
		if !p.Any && (n.About.Kind != p.Kind.Kind || n.About.APIVersion != p.Kind.APIVersion()) {
			continue
		}
		if err = p.holds(owns, t, n); err == nil {
			return nil
		}
	}
	if err == nil {
		err = fmt.Errorf("the controller never promised an Event about a %.60q", n.About.Kind)
	}
	return err
}

func (p EventPromise) holds(owns *kinds.Kind, t events.Turn, n events.Notice) error {
	kind := p.Kind.Name
	if p.Any {
		kind = kindOf(owns, t) // the object reference has no resource name to compare
	}
	ref := events.Ref{Kind: kind, Namespace: n.About.Namespace, Name: n.About.Name}
	switch {
	case !p.On.holds(kindOf(owns, t), t.Key, ref), p.On == Itself && t.UID != "" && n.About.UID != t.UID:
		return fmt.Errorf("an Event is about %v, which is not %s, %v", ref, p.On, t.Key)
	case p.Any && !called(kind, n.About.Kind):
		return fmt.Errorf("an Event is about a %.60q, and the turn about one of %s", n.About.Kind, kind)
	case !reason(n.Reason) || p.Reasons != nil && !slices.Contains(p.Reasons, n.Reason):
		return fmt.Errorf("an Event has the reason %.60q, which is not promised", n.Reason)
	default:
		return nil
	}
}

// called reports whether name is the kind's name in the API, as far as the kind is known.
func called(kind kinds.Name, name string) bool {
	k, known := kinds.Lookup(kind)
	return !known || k.Kind == name
}

// reason reports whether a text can be an Event's reason: letters and digits, beginning
// with a capital.
func reason(text string) bool {
	for i, r := range text {
		capital, small, digit := 'A' <= r && r <= 'Z', 'a' <= r && r <= 'z', '0' <= r && r <= '9'
		if !capital && (i == 0 || !small && !digit) {
			return false
		}
	}
	return text != ""
}
