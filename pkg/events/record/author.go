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
	"github.com/millrace/millrace/pkg/events/record/internal/parallel"
)

// author is the manager whose managedFields entry a version has changed; the zero value when
// that is not certain.
type author struct{ events.Manager }

// authorOf finds who made a version, by comparison with the previous one of its name. Either the
// watcher has compared the entries, or the times tell: each version comes from one request,
// which dates the entry of its manager, so an entry that is newer than all of the previous
// version, and alone in its second, is the author's. When entries share a second, or a list
// found the version, only one thing is certain: who set the number of replicas last, because the
// API server removes that entry when another manager sets the number.
//
// Upstream: apimachinery/pkg/util/managedfields/scalehandler.go, ToParent.
func authorOf(v Version, was *Entry) author {
	e := v.entry
	alone := !slices.ContainsFunc(e.Beside, func(m events.Manager) bool { return !m.Scales() })
	switch {
	case e.Proven && v.Event == Found: // proven by the watcher, which received the change late
		return author{e.By}
	case v.Event != Created && v.Event != Changed:
		return author{}
	case e.Proven:
		return author{e.By}
	case v.Event == Created:
		// Nothing else shows that the first stored version is the first of the object.
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

// scaler is the manager that has written through the scale subresource, if there is only one.
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

// scaled reports whether only the wanted number of replicas has changed.
func scaled(changes []fields.Change) bool {
	return len(changes) == 1 && changes[0].Path == "spec.replicas"
}

// handOf names who made a version. All views of a version use it, so that they agree.
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

// unknown says why the author of a version is not known, and what is known.
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

// newest names the newest entries, any of which may be the author's.
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

// boundTo is the node that a scheduler assigned to a pod with this version.
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

// scheduler is the name of the scheduler that the pod requests.
func (v Version) scheduler() string {
	if name, ok := v.tree.Get("spec", "schedulerName").(string); ok && name != "" {
		return name
	}
	return "default-scheduler"
}

// Author is the manager that the entry alone proves to have made its version. For a controller
// of ours it is our common field manager.
func (e Entry) Author() (h Hand, ok bool) {
	return Hand{Manager: e.By.Name, Operation: e.By.Operation, Subresource: e.By.Subresource}, e.Proven
}

// mostSought limits, for one question, the entries by our controllers' field manager whose turn
// is looked for, because each search reads some hundred messages. The other entries name only
// that manager.
const mostSought = 20

// Authors names who made the versions in entries of a kind.
//
// Errors: the log cannot be read.
func (r *Record) Authors(ctx context.Context, kind kinds.Kind, entries []Entry) ([]Hand, error) {
	s, err := r.begin(ctx)
	if err != nil {
		return nil, err
	}
	hands := make([]Hand, len(entries))
	var open []int // the entry alone does not name the author
	for i, e := range entries {
		proven := false
		if hands[i], proven = e.Author(); !proven || e.By.Name == events.FieldManager && len(open) < mostSought {
			open = append(open, i)
		}
	}
	return hands, parallel.Each(ctx, len(open), func(ctx context.Context, i int) error {
		v, err := s.made(ctx, kind, entries[open[i]], i < mostSought)
		hands[open[i]] = v.By
		return err
	})
}

// Newest gives the newest version of an object, with who made it; nil when no delta of the
// object is stored. Sequence is that of the newest delta, which may only repeat the version; 0
// when there is none.
//
// Errors: the log cannot be read.
func (r *Record) Newest(ctx context.Context, kind kinds.Kind, ref events.Ref) (v *Version, sequence uint64, err error) {
	e, ok, err := r.newest(ctx, ref)
	if err != nil || !ok {
		return nil, 0, err
	}
	s, err := r.begin(ctx)
	if err != nil {
		return nil, 0, err
	}
	made, err := s.made(ctx, kind, e, true)
	if err != nil {
		return nil, 0, err
	}
	return &made, e.Sequence, nil
}

// made is the version of an entry, and who made it. If the entry only repeats a version, made
// uses the entry that had it first. Without seek it does not look for the turn of a controller
// of ours.
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

// compared is the version of an entry, compared with the previous entry, which is nil if none is
// stored.
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
