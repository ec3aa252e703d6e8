package diff

import (
	"context"
	"fmt"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/pkg/events/record"
	"github.com/millrace/millrace/pkg/events/record/fields"
)

// Object is an object that is not the same at two moments.
type Object struct {
	Object  events.Ref      `json:"object"`
	What    string          `json:"what"`           // created, deleted, replaced or changed
	From    string          `json:"from,omitempty"` // resourceVersions
	To      string          `json:"to,omitempty"`
	Changes []fields.Change `json:"changes,omitempty"`
}

// CompareAll finds the objects of a kind that are not the same at two moments, in one namespace
// or, with "", in all, sorted by namespace and name. The doubts are those about both states.
//
// Errors: those of [record.Record.At]; a version cannot be read.
func CompareAll(ctx context.Context, r *record.Record, kind kinds.Kind, namespace string, moments [2]record.Moment) (all []Object, doubts []string, err error) {
	var states [2]*record.State
	for i, when := range moments {
		if states[i], err = r.At(ctx, kind, namespace, when); err != nil {
			return nil, nil, err
		}
		for _, doubt := range states[i].Doubts {
			doubts = append(doubts, fmt.Sprintf("%s at %v: %s", kind.Name, when, doubt))
		}
	}
	was, is := states[0].Entries, states[1].Entries
	for len(was) > 0 || len(is) > 0 {
		switch {
		case len(is) == 0 || len(was) > 0 && before(was[0].Ref, is[0].Ref):
			all = append(all, Object{Object: was[0].Ref, What: "deleted", From: was[0].ResourceVersion})
			was = was[1:]
		case len(was) == 0 || before(is[0].Ref, was[0].Ref):
			all = append(all, Object{Object: is[0].Ref, What: "created", To: is[0].ResourceVersion})
			is = is[1:]
		default:
			one, differs, err := compareOne(kind, was[0], is[0])
			if err != nil {
				return nil, nil, err
			}
			if differs {
				all = append(all, one)
			}
			was, is = was[1:], is[1:]
		}
	}
	return all, doubts, nil
}

func before(a, b events.Ref) bool {
	return a.Namespace < b.Namespace || a.Namespace == b.Namespace && a.Name < b.Name
}

// compareOne compares two entries with the same name.
func compareOne(kind kinds.Kind, was, is record.Entry) (d Object, differs bool, err error) {
	d = Object{Object: is.Ref, What: "changed", From: was.ResourceVersion, To: is.ResourceVersion}
	if was.Sequence == is.Sequence {
		return d, false, nil
	}
	if was.UID != is.UID {
		d.What = "replaced"
	}
	before, err := fields.Of(kind, was.Delta)
	if err != nil {
		return d, false, err
	}
	after, err := fields.Of(kind, is.Delta)
	if err != nil {
		return d, false, err
	}
	d.Changes = fields.Diff(before, after)
	return d, len(d.Changes) > 0 || was.UID != is.UID, nil
}
