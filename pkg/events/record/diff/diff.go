// Package diff compares the record at two moments: the fields in which one object differs, and
// which objects of a kind were created, deleted, replaced or changed in between.
package diff

import (
	"context"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/pkg/events/record"
	"github.com/millrace/millrace/pkg/events/record/fields"
)

// Difference is how an object differs between two moments.
type Difference struct {
	Object   events.Ref      `json:"object"`
	From     string          `json:"from"` // resourceVersions
	To       string          `json:"to"`
	Replaced bool            `json:"replaced,omitempty"` // another object has the name
	Changes  []fields.Change `json:"changes"`
	Doubts   []string        `json:"doubts,omitempty"`
}

// Compare finds the fields in which an object differs between two moments.
//
// Errors: those of [record.Record.One]; a version cannot be read.
func Compare(ctx context.Context, r *record.Record, kind kinds.Kind, ref events.Ref, from, to record.Moment) (*Difference, error) {
	var trees [2]fields.Tree
	var entries [2]record.Entry
	answer := &Difference{Object: ref, Changes: []fields.Change{}}
	for i, when := range []record.Moment{from, to} {
		state, err := r.One(ctx, kind, ref, when)
		if err != nil {
			return nil, err
		}
		entries[i] = state.Entries[0]
		if trees[i], err = fields.Of(kind, entries[i].Delta); err != nil {
			return nil, err
		}
		answer.Doubts = append(answer.Doubts, state.Doubts...)
	}
	answer.From, answer.To = entries[0].ResourceVersion, entries[1].ResourceVersion
	answer.Replaced = entries[0].UID != entries[1].UID
	answer.Changes = append(answer.Changes, fields.Diff(trees[0], trees[1])...)
	return answer, nil
}
