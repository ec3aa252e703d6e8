package page

import (
	"context"
	"errors"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/pkg/events/record"
)

// scene are the objects of each kind at a moment.
type scene struct {
	Kinds []group `json:"kinds"`
}

// group is one kind of a scene.
type group struct {
	Kind     kinds.Name `json:"kind"`
	Sequence uint64     `json:"sequence,omitempty"`
	Whole    bool       `json:"whole"`
	Doubts   []string   `json:"doubts,omitempty"`
	// Begins is when the record of the kind begins, if that is after the moment.
	Begins time.Time `json:"begins,omitzero"`
	Items  []item    `json:"items"`
}

// item is an object of a scene in a list.
type item struct {
	Namespace  string    `json:"namespace,omitempty"`
	Name       string    `json:"name"`
	Version    string    `json:"version"`
	Generation int64     `json:"generation,omitempty"`
	Since      time.Time `json:"since"`
	By         string    `json:"by,omitempty"`
	Deleting   bool      `json:"deleting,omitempty"`
	health
}

// folds is how many kinds are read concurrently.
const folds = 4

// state are the objects of the named kinds, or of all, at a moment.
func state(ctx context.Context, a *ask) (any, error) {
	when, err := a.moment("at")
	if err != nil {
		return nil, err
	}
	have, err := a.record.Kinds(ctx)
	if err != nil {
		return nil, err
	}
	namespace := a.word("namespace")
	if words := a.values["kind"]; len(words) > 0 {
		have = nil
		for _, word := range words {
			kind, err := a.kind(ctx, word)
			if err != nil {
				return nil, err
			}
			have = append(have, kind)
		}
	} else if namespace != "" {
		have = slices.DeleteFunc(slices.Clone(have), func(k kinds.Kind) bool { return !k.Namespaced })
	}
	s := scene{Kinds: make([]group, len(have))}
	return s, a.groups(ctx, have, namespace, when, s.Kinds)
}

// groups fills the groups of kinds, at most folds concurrently.
func (p *page) groups(ctx context.Context, have []kinds.Kind, namespace string, when record.Moment, into []group) error {
	work, ctx := errgroup.WithContext(ctx)
	work.SetLimit(folds)
	for i, kind := range have {
		work.Go(func() (err error) {
			into[i], err = p.group(ctx, kind, namespace, when)
			return err
		})
	}
	return work.Wait()
}

func (p *page) group(ctx context.Context, kind kinds.Kind, namespace string, when record.Moment) (group, error) {
	g := group{Kind: kind.Name, Items: []item{}}
	found, err := p.record.At(ctx, kind, namespace, when)
	var before *record.BeforeRecord
	switch {
	case errors.As(err, &before):
		g.Begins = before.Begins
		return g, nil
	case errors.Is(err, record.ErrNotThere):
		g.Whole = true // the kind's log is empty
		return g, nil
	case err != nil:
		return g, err
	}
	g.Sequence, g.Whole, g.Doubts = found.Sequence, found.Whole, found.Doubts
	g.Items = make([]item, len(found.Entries))
	for i, e := range found.Entries {
		g.Items[i] = itemOf(kind, e)
	}
	if len(g.Items) == 0 && found.Sequence == 0 {
		g.Whole, g.Doubts = true, nil // nothing has been recorded yet, so nothing is missing
	}
	return g, nil
}

func itemOf(kind kinds.Kind, e record.Entry) item {
	it := item{Namespace: e.Ref.Namespace, Name: e.Ref.Name, Version: e.ResourceVersion, Generation: e.Generation, Since: e.At, Deleting: e.Deleting}
	if by, ok := e.Author(); ok {
		it.By = by.String()
	}
	if kind.Form != kinds.Metadata && e.Form != kinds.Metadata && e.Op == events.Is {
		it.health = healthOf(kind, e.Delta)
	}
	return it
}
