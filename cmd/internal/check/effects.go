package check

import (
	"fmt"
	"reflect"
	"slices"
	"strings"

	"github.com/millrace/millrace/pkg/events"
)

// once: at most one request of a command changed something, regardless of how often it was
// carried out.
func once(b *books) []Violation {
	var found []Violation
	for _, c := range sorted(b.stored) {
		effects := map[edition]bool{}
		var evidence []string
		for _, w := range b.stored[c] {
			evidence = append(evidence, fmt.Sprintf("%v: uid %s at revision %d", w, w.UID, w.Revision))
			if w.Verb == "delete" && (w.Revision == 0 || w.UID == "") {
				effects[edition{uid: w.OnlyUID}] = true // an object with that UID can be removed only once
				continue
			}
			if e := (edition{w.UID, w.Revision}); w.Verb != "patch" || b.reowned(e) {
				effects[e] = true
			}
		}
		if len(effects) > 1 && !settling(b.stored[c]) {
			found = append(found, violation(evidence, "%v had %d effects", c, len(effects)))
		}
	}
	return append(found, b.doubled()...)
}

// reowned is whether a revision changed owners or finalizers, which are what Millrace
// patches. The response to a patch that changes nothing has a revision that another client
// made.
func (b *books) reowned(e edition) bool {
	life := b.lives[e.uid]
	i := slices.IndexFunc(life, func(c *Change) bool { return c.Revision == e.revision })
	if i <= 0 {
		return true
	}
	was, is := &life[i-1].Object, &life[i].Object
	return life[i].Gone || !slices.Equal(was.Finalizers, is.Finalizers) || !reflect.DeepEqual(was.Owners, is.Owners)
}

// settling is whether all writes are deletes of one object: an object that is being deleted
// may change for other reasons between two deletes.
func settling(writes []*Write) bool {
	for _, w := range writes {
		if w.Verb != "delete" || w.OnlyUID == "" || w.OnlyUID != writes[0].OnlyUID {
			return false
		}
	}
	return true
}

// doubled: a turn has at most one outcome.
func (b *books) doubled() []Violation {
	told := map[place]int{}
	for i := range b.Outcomes {
		told[b.Outcomes[i].place()]++
	}
	var found []Violation
	for _, t := range b.Turns {
		if n := told[t.place()]; n > 1 {
			found = append(found, violation([]string{t.String()}, "%v has %d outcomes", t.place(), n))
		}
	}
	return found
}

// complete compares the audit log with the record, both ways.
func complete(b *books) []Violation {
	found := b.strangers()
	for _, c := range sorted(b.stored) {
		switch r, told := b.result(c); {
		case !told:
			found = append(found, violation(texts(b.stored[c]), "%v was carried out, and has no outcome", c))
		case r.Unsure:
			b.late++
		case !r.OK():
			found = append(found, violation(texts(b.stored[c]), "%v was carried out, and its outcome is %s: %s", c, r.Status, r.Message))
		}
	}
	for i := range b.Outcomes {
		o := &b.Outcomes[i]
		for _, r := range o.Results {
			c := command{b.origin(o.place()), r.Command}
			if r.Status != events.Applied || r.Unsure || len(b.stored[c]) > 0 || b.proven(c, r) {
				continue
			}
			found = append(found, violation([]string{fmt.Sprintf("outcome: %+v", r)}, "%v is applied, and neither the audit log nor the storage knows of it", c))
		}
	}
	return append(found, b.unwritten()...)
}

// strangers are the writes that no command explains.
func (b *books) strangers() []Violation {
	var found []Violation
	for i := range b.Writes {
		w := &b.Writes[i]
		if w.Foreign || !w.Stored() || w.Ref.Kind == eventsKind {
			continue
		}
		if !strings.HasPrefix(w.As, "system:serviceaccount:kube-system:") {
			found = append(found, violation([]string{w.String()}, "%v was written under the writer's own name", w.Ref))
		}
		c, ok := commandOf(w.ID)
		if turn := b.turns[c.place]; !ok || turn == nil || c.at >= len(turn.Commands) {
			found = append(found, violation([]string{w.String()}, "%v was written for no turn that is in the record", w.Ref))
		}
	}
	return found
}

// result is the recorded result of a command: a successful one, if any outcome of its turn
// has one.
func (b *books) result(c command) (found events.Result, told bool) {
	for _, o := range b.outcomes[c.place] {
		for _, r := range o.Results {
			if r.Command == c.at && (!told || r.OK()) {
				found, told = r, true
			}
		}
	}
	return found, told
}

// proven is whether a command has its effect in the storage although the audit log does not
// have its end, because the API server was killed before it logged it, or the request timed
// out too late. A command that records an Event changes nothing in the storage.
func (b *books) proven(c command, r events.Result) bool {
	if turn := b.turns[c.place]; turn != nil && c.at < len(turn.Commands) && turn.Commands[c.at].Verb == events.VerbRecord {
		return true // it changes nothing in the storage that is read
	}
	if len(b.open[c]) == 0 {
		return false
	}
	for _, change := range b.lives[r.UID] {
		if change.Gone || r.Version == "" || change.Revision == number(r.Version) {
			return true
		}
	}
	return false
}

// unwritten are objects that only Millrace creates, and for which there is no request: neither
// one that was carried out, nor one whose effect the audit log does not show.
func (b *books) unwritten() []Violation {
	asked := map[events.Ref]bool{}
	for c := range b.open {
		if turn := b.turns[c.place]; turn != nil && c.at < len(turn.Commands) && turn.Commands[c.at].Verb == events.VerbCreate {
			asked[turn.Commands[c.at].Ref()] = true
		}
	}
	var found []Violation
	for i := range b.Changes {
		c := &b.Changes[i]
		if !c.Object.Created || c.Gone || !b.judged(c) || controllerOf(&c.Object) == nil || c.Object.Ref.Kind != pods && c.Object.Ref.Kind != replicaSets {
			continue
		}
		if b.by[edition{c.Object.UID, c.Revision}] == nil && !asked[c.Object.Ref] && !b.earlier[c.Object.Ref] {
			found = append(found, violation(b.evidence(nil, c), "%v was created, and no request wrote it", c.Object.Ref))
		}
	}
	return found
}

func texts(writes []*Write) []string {
	var all []string
	for _, w := range writes {
		all = append(all, w.String())
	}
	return all
}
