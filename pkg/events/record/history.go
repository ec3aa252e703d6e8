package record

import (
	"context"
	"errors"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/pkg/events/record/fields"
	"github.com/millrace/millrace/pkg/events/record/internal/parallel"
)

// Event is what happened to an object in one of its versions.
type Event string

const (
	// Created: the object was created.
	Created Event = "created"
	// Changed: the object has a new version.
	Changed Event = "changed"
	// Leaving: the object was deleted, and waits for a finalizer or a grace period.
	Leaving Event = "deleting"
	// Ended: the object no longer exists.
	Ended Event = "gone"
	// Found: a list has this version, and the watcher did not see the changes that led to it.
	Found Event = "found"
	// Kept: the watcher repeated the version, to keep it on record.
	Kept Event = "kept"
)

// Version is one version of an object, and how it came about.
type Version struct {
	Object          events.Ref `json:"object"`
	UID             types.UID  `json:"uid"`
	ResourceVersion string     `json:"resourceVersion"`
	Generation      int64      `json:"generation,omitempty"`
	Epoch           uint64     `json:"epoch,omitempty"`
	// Sequence is the delta's position in the log of the kind, and Time when the watcher
	// received it.
	Sequence uint64          `json:"sequence"`
	Time     time.Time       `json:"time"`
	Event    Event           `json:"event"`
	By       Hand            `json:"by"`
	Changes  []fields.Change `json:"changes,omitempty"`
	// Form is metadata if only the metadata is on record.
	Form kinds.Form `json:"form,omitempty"`
	// Left counts the versions omitted between this one and the previous one, because the object
	// was written faster than the watcher records it. nil: none.
	Left *events.Left `json:"left,omitempty"`
	// Trace is the id of the version's trace, if it was traced.
	Trace string `json:"trace,omitempty"`

	origin *Origin
	entry  Entry
	tree   fields.Tree
	author author
	wish   bool // it changes the desired state, not only the observed one
}

// Hand is who made a version.
type Hand struct {
	// Manager is the field manager, with the operation and subresource of its write.
	Manager     string `json:"manager,omitempty"`
	Operation   string `json:"operation,omitempty"`
	Subresource string `json:"subresource,omitempty"`
	// Controller is a controller of ours, with the key, the reason and the sequence of its turn.
	Controller string `json:"controller,omitempty"`
	Key        string `json:"key,omitempty"`
	Because    string `json:"because,omitempty"`
	Turn       uint64 `json:"turn,omitempty"`
	// Unknown says why the author is not known, and what is known instead.
	Unknown string `json:"unknown,omitempty"`
	// User is the user that sent the request, if the API server's audit log was given.
	User string `json:"user,omitempty"`
	// Note is a remark about the author.
	Note string `json:"note,omitempty"`
}

// String is the author's name.
func (h Hand) String() string {
	switch {
	case h.Controller != "":
		return h.Controller
	case h.Manager != "" && h.Subresource != "":
		return h.Manager + " (" + h.Subresource + ")"
	case h.Manager != "":
		return h.Manager
	case h.User != "":
		return h.User
	default:
		return "unknown"
	}
}

// History is the past of the objects of one name.
type History struct {
	Object events.Ref `json:"object"`
	// Versions are the newest versions, oldest first. Versions of the same object have the same
	// uid.
	Versions []Version `json:"versions"`
	// Gaps are the periods in which versions may be missing.
	Gaps []Gap `json:"gaps,omitempty"`
	// More is true when there are more versions than the limit.
	More bool `json:"more,omitempty"`
	// Doubts say what could not be read: the history ends there.
	Doubts []string `json:"doubts,omitempty"`
	// Begins is when the record of the kind begins: earlier messages are no longer stored.
	Begins time.Time `json:"begins"`
}

// History gives the newest versions of an object, at most limit of them; 0: all.
//
// Errors: [ErrNotThere].
func (r *Record) History(ctx context.Context, kind kinds.Kind, ref events.Ref, limit int) (*History, error) {
	h := &History{Object: ref}
	state, err := r.bus.StreamState(ctx, logOf(kind))
	if err != nil {
		return nil, err
	}
	if _, h.Begins, err = r.beginOf(ctx, logOf(kind), state); err != nil {
		return nil, err
	}
	newest, ok, err := r.newest(ctx, ref)
	if err != nil {
		return nil, err
	}
	if !ok {
		return nil, missing(ref)
	}
	entries, err := r.past(ctx, newest, limit)
	if errors.Is(err, events.ErrDamaged) {
		h.Doubts = append(h.Doubts, err.Error())
	} else if err != nil {
		return nil, err
	}
	if h.Versions, err = r.versions(ctx, kind, entries); err != nil {
		return nil, err
	}
	if oldest := &h.Versions[0]; len(h.Doubts) > 0 && oldest.Event == Created {
		oldest.Event = Changed
	}
	if h.More = limit > 0 && len(entries) > limit; h.More {
		h.Versions = h.Versions[1:] // it was read only for the comparison
	}
	h.Gaps, err = r.Gaps(ctx, kind.Name, h.Versions[0].entry.Stored)
	return h, err
}

// past gives an entry and the entries before it, oldest first: one more than limit, so that the
// oldest can be compared with its predecessor. With an error it also gives the entries after the
// one that could not be read.
func (r *Record) past(ctx context.Context, newest Entry, limit int) (entries []Entry, err error) {
	e, ok := newest, true
	for ok && err == nil && (limit <= 0 || len(entries) <= limit) {
		entries = append(entries, e)
		e, ok, err = r.before(ctx, e)
	}
	slices.Reverse(entries)
	return entries, err
}

// versions makes a version of each entry, compared with the one before it.
func (r *Record) versions(ctx context.Context, kind kinds.Kind, entries []Entry) ([]Version, error) {
	s, err := r.begin(ctx)
	if err != nil {
		return nil, err
	}
	trees := make([]fields.Tree, len(entries))
	for i, e := range entries {
		if trees[i], err = fields.Of(kind, e.Delta); err != nil {
			return nil, err
		}
	}
	out := make([]Version, len(entries))
	return out, parallel.Each(ctx, len(entries), func(ctx context.Context, i int) (err error) {
		if i == 0 {
			out[i] = versionOf(entries[i], nil, trees[i], nil)
		} else {
			out[i] = versionOf(entries[i], &entries[i-1], trees[i], trees[i-1])
		}
		if out[i].Event != Kept {
			out[i].origin, err = s.origin(ctx, entries[i], trees[i])
		}
		out[i].By = handOf(out[i], out[i].origin)
		return err
	})
}

// versionOf interprets an entry, given the previous one of its name.
func versionOf(e Entry, was *Entry, tree, before fields.Tree) Version {
	v := Version{
		Object: e.Ref, UID: e.UID, ResourceVersion: e.ResourceVersion, Generation: e.Generation, Epoch: e.Epoch,
		Sequence: e.Sequence, Time: e.At, Event: Changed, Form: e.Form, Trace: e.Trace.ID(), entry: e, tree: tree,
	}
	if e.Left != (events.Left{}) {
		v.Left = &e.Left
	}
	same := was != nil && was.UID == e.UID && was.Op == events.Is
	switch {
	case e.Op == events.Gone:
		v.Event = Ended
	case same && e.Sync && was.ResourceVersion == e.ResourceVersion && was.Epoch == e.Epoch:
		v.Event = Kept
	case e.Sync:
		v.Event = Found
	case same && e.Deleting && !was.Deleting:
		v.Event = Leaving
	case was == nil && e.Before.Sequence > 0:
		// The object existed before, in a version that is no longer stored.
	case !same:
		v.Event = Created
	}
	if same {
		v.Changes = fields.Diff(before, tree)
	}
	v.author = authorOf(v, was)
	switch v.Event {
	case Created, Leaving, Ended:
		v.wish = true
	case Changed:
		_, bound := v.boundTo()
		v.wish = same && !bound && (e.Generation != was.Generation || e.Generation == 0 && len(v.Changes) > 0 && !seen(v.Changes) || v.noted())
	case Found, Kept:
	}
	return v
}

// noted reports whether labels or annotations have changed, other than by a controller of ours.
func (v Version) noted() bool {
	return v.author.Name != events.FieldManager && slices.ContainsFunc(v.Changes, func(c fields.Change) bool {
		return c.Within("metadata.labels") || c.Within("metadata.annotations")
	})
}

// seen reports whether the changes are all in the status.
func seen(changes []fields.Change) bool {
	return len(changes) > 0 && !slices.ContainsFunc(changes, func(c fields.Change) bool { return !c.Within("status") })
}
