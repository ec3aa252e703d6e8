package shadow

import (
	"cmp"
	"fmt"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/record/fields"
	"github.com/millrace/millrace/pkg/events/report"
	"github.com/millrace/millrace/services/reconcilers/reconcile"
)

// Happened compares an operation with what the controller wants, while that can still be
// asked on the view before the operation. It finds nothing about operations that the
// controller may not do, or that another client may have done.
func (m *Matcher) Happened(d Operation, ask Asker) []Found {
	if !m.described.Writes.Allows(d.command()) && !(d.Verb == events.VerbUpdate && m.described.Writes.Allows(d.patch())) {
		return nil
	}
	key, ok := m.keyOf(d)
	if !ok {
		return nil
	}
	var f report.Finding
	switch d.Verb {
	case events.VerbDelete:
		f, ok = m.died(m.book(key), d, ask)
	case events.VerbCreate:
		f, ok = m.created(m.book(key), d, ask)
	default:
		f, ok = m.changed(m.book(key), d, ask)
	}
	m.tidy(m.book(key))
	if !ok {
		return nil
	}
	f.Key, f.Controller, f.What, f.Ref, f.UID = key, m.described.Name, what(d.Verb, d.Status, d.Ref), d.Ref, d.UID
	f.Version, f.Delta, f.At = d.Version, &d.Delta, d.At
	return []Found{{f, fmt.Sprintf("%s/%d", d.Delta.Stream, d.Delta.Sequence)}}
}

func (d *Operation) command() events.Command {
	c := events.Command{Verb: d.Verb, Kind: d.Ref.Kind}
	if d.Status {
		c.Subresource = "status"
	}
	return c
}

func (d *Operation) patch() events.Command {
	c := d.command()
	c.Verb = events.VerbPatch
	return c
}

// as is a finding about a want, or about none.
func (o *open) as(is report.Agreement, note string) (report.Finding, bool) {
	f := report.Finding{Agreement: is, Note: note}
	if o != nil {
		f.Turn, f.Because = o.turn, o.because
	}
	return f, true
}

// take removes a want from the list.
func (b *book) take(o *open) *open {
	o.touched = true
	b.standing = slices.DeleteFunc(slices.Clone(b.standing), func(other *open) bool { return other == o })
	return o
}

// find returns the first want, of now or of an earlier answer, that accepts is true for;
// now tells which.
func (b *book) find(accepts func(*open) bool) (o *open, now bool) {
	if at := slices.IndexFunc(b.standing, accepts); at >= 0 {
		return b.standing[at], true
	}
	for _, p := range slices.Backward(b.past) {
		if at := slices.IndexFunc(p.wants, accepts); at >= 0 {
			return p.wants[at], false
		}
	}
	return nil, false
}

// died judges a delete. The record does not tell which client deleted the object, so a
// delete that was not wanted is taken for another client's.
func (m *Matcher) died(b *book, d Operation, ask Asker) (report.Finding, bool) {
	deletion := func(o *open) bool { return o.Verb == events.VerbDelete && o.Ref.Kind == d.Ref.Kind }
	wanted, now := b.find(func(o *open) bool { return deletion(o) && o.UID == d.UID })
	if now {
		return b.take(wanted).as(report.Agreed, "")
	}
	at := slices.IndexFunc(b.standing, deletion)
	switch {
	case wanted != nil:
		return b.instead(wanted, deletion).as(report.Late, "it was wanted on an earlier view")
	case at < 0:
		return report.Finding{}, false
	}
	for _, o := range b.standing {
		if deletion(o) && ask.AsGood(b.key, View{}, o.Ref, d.Ref) {
			return b.take(o).as(report.Agreed, "it is as good as "+o.Ref.Name+", which was to go: which of them goes is chance")
		}
	}
	o := b.take(b.standing[at])
	// which of equally good objects goes is chance on an earlier view, too
	note, explained := m.elsewhere(b, d, ask, func(view View, wants []Want) bool {
		return slices.ContainsFunc(wants, func(w Want) bool {
			return w.Verb == events.VerbDelete && w.Ref.Kind == d.Ref.Kind && (w.UID == d.UID || ask.AsGood(b.key, view, w.Ref, d.Ref))
		})
	})
	if explained {
		return o.as(report.Late, note)
	}
	return o.as(report.Differs, o.Ref.Name+" was to go")
}

// instead removes one of the wants that were to be done in place of the operation.
func (b *book) instead(did *open, of func(*open) bool) *open {
	if at := slices.IndexFunc(b.standing, of); at >= 0 {
		b.take(b.standing[at])
	}
	return did
}

// created judges a create.
func (m *Matcher) created(b *book, d Operation, ask Asker) (report.Finding, bool) {
	if !d.KCM {
		return report.Finding{}, false
	}
	defer func() { b.created[d.Ref.Kind]++ }()
	body := asCreated(treeOf(d.object()))
	fits := func(w Want) bool {
		return w.Verb == events.VerbCreate && w.Ref.Kind == d.Ref.Kind && len(unlike(w.Body, body)) == 0
	}
	if at := slices.IndexFunc(b.standing, func(o *open) bool { return fits(o.Want) }); at >= 0 {
		return b.take(b.standing[at]).as(report.Agreed, "")
	}
	if o := b.wasToBeCreated(d, fits); o != nil {
		return o.as(report.Late, "it was wanted on an earlier view")
	}
	note, explained := m.elsewhere(b, d, ask, func(_ View, wants []Want) bool { return slices.ContainsFunc(wants, fits) })
	if explained {
		return (*open)(nil).as(report.Late, note)
	}
	if o, now := b.find(func(o *open) bool { return o.Verb == events.VerbCreate && o.Ref.Kind == d.Ref.Kind && !fits(o.Want) }); now {
		f, _ := b.take(o).as(report.Differs, "another one was to be created")
		f.Differences = unlike(o.Body, body)
		return f, true
	}
	if d.Doubtful || !m.lives(b.key, "", ask) {
		return report.Finding{}, false
	}
	return (*open)(nil).as(report.KCMOnly, "no create was wanted")
}

// wasToBeCreated is a create that an earlier answer wanted, in addition to those that have
// happened since.
func (b *book) wasToBeCreated(d Operation, fits func(Want) bool) *open {
	for _, p := range slices.Backward(b.past) {
		var wanted []*open
		for _, o := range p.wants {
			if fits(o.Want) {
				wanted = append(wanted, o)
			}
		}
		if since := b.created[d.Ref.Kind] - p.created[d.Ref.Kind]; len(wanted) > since {
			return wanted[since]
		}
	}
	return nil
}

// unlike lists the differences between a wanted and a created object: the metadata must be
// the same, and of the rest nothing may be missing.
func unlike(ours, theirs fields.Tree) []report.Difference {
	var found []report.Difference
	metadata := func(t fields.Tree) fields.Tree { return fields.Tree{"metadata": t["metadata"]} }
	if meta, _ := theirs["metadata"].(map[string]any); meta["name"] == nil {
		ours = unnamed(ours) // the API server generated the name
	}
	for _, c := range fields.Apart(metadata(theirs), metadata(ours)) {
		found = append(found, report.Difference{Path: c.Path, Ours: c.Is, Theirs: c.Was})
	}
	for name, value := range ours {
		if name == "metadata" {
			continue
		}
		for _, c := range lacks(name, value, theirs[name], nil) {
			found = append(found, report.Difference{Path: c.Path, Ours: c.Was, Theirs: c.Is})
		}
	}
	slices.SortFunc(found, func(a, b report.Difference) int { return cmp.Compare(a.Path, b.Path) })
	return found
}

// changed judges an update, field by field.
func (m *Matcher) changed(b *book, d Operation, ask Asker) (report.Finding, bool) {
	done := d.fields(d.Status)
	if !d.KCM || len(done) == 0 {
		return report.Finding{}, false
	}
	meets := func(o *open) bool { return o.about(d) }
	if at := slices.IndexFunc(b.standing, func(o *open) bool { return meets(o) && same(done, o.Fields) }); at >= 0 {
		return b.take(b.standing[at]).as(report.Agreed, "")
	}
	o, now := b.find(meets)
	if o != nil {
		o.touched = true
	}
	if rest := without(done, b.standing, d); len(rest) == 0 {
		return o.as(report.Coalesced, "it was wanted together with more, or in fewer steps")
	} else if rest = b.before(rest, d); len(rest) == 0 {
		return o.as(report.Late, "it was wanted on earlier views")
	}
	covers := func(wants []Want) bool {
		return slices.ContainsFunc(wants, func(w Want) bool { return w.about(d) && len(missing(done, w.Fields)) == 0 })
	}
	if note, explained := m.elsewhere(b, d, ask, func(_ View, wants []Want) bool { return covers(wants) }); explained {
		return o.as(report.Late, note)
	}
	if d.Status && m.reports(b, d, ask, covers) {
		return o.as(report.Unseen, "KCM reports what the API server answered it")
	}
	if m.enquires() {
		return o.as(report.Unseen, "it rests on what KCM asked the API server, and a shadow asks nothing")
	}
	if d.Doubtful || !m.lives(b.key, "", ask) {
		return report.Finding{}, false
	}
	is, note := report.KCMOnly, "nothing was to change there"
	if o != nil && (now || d.At.Sub(o.since) < m.settings.Recall) {
		is, note = report.Differs, ""
	}
	f, _ := o.as(is, note)
	f.Differences = b.differences(o, done, d)
	return f, true
}

// enquires reports whether the controller's decisions depend on searches by the writer: what
// a namespace holds, or which pods may need a claim.
func (m *Matcher) enquires() bool {
	return slices.ContainsFunc(m.described.Writes, func(w reconcile.Write) bool {
		return events.Command{Verb: w.Verb, Subresource: w.Subresource}.Searches()
	})
}

func same(a, b []fields.Change) bool { return len(a) == len(b) && len(missing(a, b)) == 0 }

// missing are the changes of a that b does not make.
func missing(a, b []fields.Change) []fields.Change {
	return slices.DeleteFunc(slices.Clone(a), func(c fields.Change) bool {
		return slices.ContainsFunc(b, func(other fields.Change) bool {
			return c.Path == other.Path && fields.Text(c.Is) == fields.Text(other.Is)
		})
	})
}

// without are the changes that none of some wants makes.
func without(done []fields.Change, wants []*open, d Operation) []fields.Change {
	for _, o := range wants {
		if o.about(d) {
			done = missing(done, o.Fields)
		}
	}
	return done
}

// before are the changes that neither the present nor an earlier answer wanted.
func (b *book) before(done []fields.Change, d Operation) []fields.Change {
	done = without(done, b.standing, d)
	for _, p := range slices.Backward(b.past) {
		done = without(done, p.wants, d)
	}
	return done
}

// differences are the fields that KCM changed otherwise than the controller wanted.
func (b *book) differences(o *open, done []fields.Change, d Operation) []report.Difference {
	var found []report.Difference
	for _, c := range b.before(done, d) {
		ours := c.Was
		if o != nil {
			for _, w := range o.Fields {
				if w.Path == c.Path {
					ours = w.Is
				}
			}
		}
		found = append(found, report.Difference{Path: c.Path, Before: c.Was, Ours: ours, Theirs: c.Is})
	}
	return found
}

func group(ref metav1.OwnerReference) string {
	gv, err := schema.ParseGroupVersion(ref.APIVersion)
	if err != nil {
		return ref.APIVersion
	}
	return gv.Group
}
