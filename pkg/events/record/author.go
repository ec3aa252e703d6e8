package record

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/pkg/events/record/fields"
)

// author is the manager whose managedFields entry a version has changed; the zero one where
// that is not certain.
type author struct{ events.Manager }

// authorOf finds who made a version behind the one before it of its name. Either the watcher
// has compared the entries, or the times tell: a version is one request's, which dates the
// entry of its manager, so an entry that is newer than all of the version before, and alone
// in its second, is the author's. Of a second, and of what a list has found, nothing is
// certain but who has set the number of replicas last, since the API server takes that
// entry away when another manager sets it.
//
// Upstream: apimachinery/pkg/util/managedfields/scalehandler.go, ToParent.
func authorOf(v Version, was *Entry) author {
	e := v.entry
	alone := !slices.ContainsFunc(e.Beside, func(m events.Manager) bool { return !m.Scales() })
	switch {
	case e.Proven && v.Event == Found: // by the watcher, which was late with it
		return author{e.By}
	case v.Event != Created && v.Event != Changed:
		return author{}
	case e.Proven:
		return author{e.By}
	case v.Event == Created:
		// Of the first that is kept nothing else says that it was not there before.
		if (e.Before.Known || was != nil) && len(e.Beside) == 0 {
			return author{e.By}
		}
	case was != nil && alone && !e.By.Scales() && newest(e.Delta).After(newest(was.Delta)):
		return author{e.By}
	case scaled(v.Changes):
		return scaler(e)
	}
	return author{}
}

// newest is the time of the newest dated entry.
func newest(d events.Delta) time.Time {
	at := d.By.Time
	for _, m := range d.Beside {
		if m.Time.After(at) {
			at = m.Time
		}
	}
	return at
}

// scaler is the only manager that has written through the scale subresource.
func scaler(e Entry) author {
	var found []events.Manager
	for _, m := range append([]events.Manager{e.By}, e.Beside...) {
		if m.Scales() {
			found = append(found, m)
		}
	}
	if len(found) != 1 {
		return author{}
	}
	return author{found[0]}
}

// scaled tells whether nothing has changed but the number of replicas that is wanted.
func scaled(changes []fields.Change) bool {
	return len(changes) == 1 && changes[0].Path == "spec.replicas"
}

// handOf names who made a version: the one answer of all that show it.
func handOf(v Version, o *Origin) Hand {
	switch {
	case o != nil:
		h := Hand{Manager: v.author.Name, Operation: v.author.Operation, Subresource: v.author.Subresource}
		h.Controller, h.Key, h.Turn = o.Controller, o.Outcome.Key.String(), o.Sequence
		if o.Turn != nil {
			h.Because = o.Turn.Because
		}
		return h
	case v.author.Name != "":
		h := Hand{Manager: v.author.Name, Operation: v.author.Operation, Subresource: v.author.Subresource}
		if h.Manager == events.FieldManager {
			h.Note = "no turn on record made it: it was another " + events.FieldManager + ", or its turn is not kept any more"
		}
		return h
	default:
		return Hand{Unknown: v.unknown()}
	}
}

// unknown says why the author of a version is not known, and what is.
func (v Version) unknown() string {
	node, bound := v.boundTo()
	switch {
	case v.Event == Leaving || v.Event == Ended:
		return "a deletion does not say whose it is; no turn on record made it. The API server's audit log knows: --audit-log=FILE of millrace why"
	case v.Event == Kept:
		return "unchanged: it was said again to stay on record"
	case v.Event == Found:
		return "a list found it so, and how it came to be so was not seen; " + v.newest()
	case bound:
		return fmt.Sprintf("bound to %s: a binding leaves no field manager; its schedulerName is %s", node, v.scheduler())
	case v.changes("status.conditions[DisruptionTarget]"):
		return "marked for disruption: an eviction leaves no field manager. The API server's audit log knows: --audit-log=FILE of millrace why"
	default:
		return "its field managers do not tell: " + v.newest()
	}
}

// newest says which entries are the newest ones, any of which may be the author's.
func (v Version) newest() string {
	names := []string{}
	for _, m := range append([]events.Manager{v.entry.By}, v.entry.Beside...) {
		if m.Name != "" {
			names = append(names, Hand{Manager: m.Name, Subresource: m.Subresource}.String())
		}
	}
	switch at := newest(v.entry.Delta); {
	case len(names) == 0:
		return "it has none"
	case at.IsZero():
		return "the newest is of " + strings.Join(names, ", ")
	default:
		return fmt.Sprintf("the newest is of %s, at %s", strings.Join(names, ", "), at.UTC().Format(time.RFC3339))
	}
}

func (v Version) changes(path string) bool {
	return slices.ContainsFunc(v.Changes, func(c fields.Change) bool { return c.Within(path) })
}

// boundTo is the node that a scheduler has given a pod with this version.
func (v Version) boundTo() (node string, ok bool) {
	if v.Object.Kind != kinds.Pods.Name || v.Event != Changed {
		return "", false
	}
	for _, c := range v.Changes {
		if c.Path == "spec.nodeName" && c.Was == nil {
			return fields.Text(c.Is), true
		}
	}
	return "", false
}

// scheduler is the one that a pod asks for.
func (v Version) scheduler() string {
	if name, ok := v.tree.Get("spec", "schedulerName").(string); ok && name != "" {
		return name
	}
	return "default-scheduler"
}

// Author is the manager that an entry alone proves to have made its version; a controller of
// ours goes by its field manager.
func (e Entry) Author() (h Hand, ok bool) {
	return Hand{Manager: e.By.Name, Operation: e.By.Operation, Subresource: e.By.Subresource}, e.Proven
}

// mostSought bounds for how many entries of one question the turn is looked for behind the
// field manager of our controllers: that asks for some hundred messages each. The others
// are of that manager.
const mostSought = 20

// Authors names who made the versions that entries of a kind are about.
//
// Errors: the log cannot be read.
func (r *Record) Authors(ctx context.Context, kind kinds.Kind, entries []Entry) ([]Hand, error) {
	s, err := r.begin(ctx)
	if err != nil {
		return nil, err
	}
	hands := make([]Hand, len(entries))
	var open []int // not told by the entry alone
	for i, e := range entries {
		proven := false
		if hands[i], proven = e.Author(); !proven || e.By.Name == events.FieldManager && len(open) < mostSought {
			open = append(open, i)
		}
	}
	return hands, each(ctx, len(open), func(ctx context.Context, i int) error {
		v, err := s.made(ctx, kind, entries[open[i]], i < mostSought)
		hands[open[i]] = v.By
		return err
	})
}

// made is the version that an entry is about, and who made it. Where the entry only says
// it again, that is the entry by which it was said first. Without seek the turn of a
// controller of ours is not looked for.
func (s *search) made(ctx context.Context, kind kinds.Kind, e Entry, seek bool) (Version, error) {
	v, was, err := s.compared(ctx, kind, e)
	for err == nil && v.Event == Kept {
		v, was, err = s.compared(ctx, kind, *was)
	}
	if err != nil {
		return v, err
	}
	if seek {
		if v.origin, err = s.origin(ctx, v.entry, v.tree); err != nil {
			return v, err
		}
	}
	v.By = handOf(v, v.origin)
	return v, nil
}

// compared is what an entry says, compared with the one before it, which is nil where none
// is kept.
func (r *Record) compared(ctx context.Context, kind kinds.Kind, e Entry) (v Version, was *Entry, err error) {
	tree, err := fields.Of(kind, e.Delta)
	if err != nil {
		return v, nil, err
	}
	before, ok, err := r.before(ctx, e)
	if err != nil {
		return v, nil, err
	}
	var past fields.Tree
	if ok {
		was = &before
		if past, err = fields.Of(kind, before.Delta); err != nil {
			return v, nil, err
		}
	}
	return versionOf(e, was, tree, past), was, nil
}
