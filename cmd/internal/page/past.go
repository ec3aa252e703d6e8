package page

import (
	"context"
	"fmt"
	"time"

	"sigs.k8s.io/yaml"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/pkg/events/record"
	"github.com/millrace/millrace/pkg/events/record/diff"
	"github.com/millrace/millrace/pkg/events/record/fields"
)

// The maximum of items in an answer.
const (
	mostHappenings = 5000
	mostVersions   = 2000
)

// chronicle are the happenings in a namespace, or everywhere, in a time range.
func chronicle(ctx context.Context, a *ask) (any, error) {
	span, err := a.span()
	if err != nil {
		return nil, err
	}
	limit, err := a.count("limit", 1000, mostHappenings)
	if err != nil {
		return nil, err
	}
	filter, err := a.filter(ctx)
	if err != nil {
		return nil, err
	}
	return a.record.Chronicle(ctx, filter, span, limit)
}

// life is the history of an object: its versions, and the decisions about it.
type life struct {
	*record.History
	Decided []record.Happening `json:"decided"`
}

func history(ctx context.Context, a *ask) (any, error) {
	kind, ref, err := a.object(ctx)
	if err != nil {
		return nil, err
	}
	limit, err := a.count("limit", 50, mostVersions)
	if err != nil {
		return nil, err
	}
	h, err := a.record.History(ctx, kind, ref, limit)
	if err != nil {
		return nil, err
	}
	l := life{History: h, Decided: []record.Happening{}}
	since := h.Begins
	if h.More && len(h.Versions) > 0 {
		since = h.Versions[0].Time
	}
	decided, err := a.record.Decided(ctx, ref, since)
	l.Decided = append(l.Decided, decided...)
	return l, err
}

// body is an object at a moment.
type body struct {
	Object   events.Ref `json:"object"`
	Kind     kinds.Kind `json:"kind"`
	At       time.Time  `json:"at"`
	Version  string     `json:"version"`
	Form     kinds.Form `json:"form,omitempty"`
	Deleting bool       `json:"deleting,omitempty"`
	Doubts   []string   `json:"doubts,omitempty"`
	YAML     string     `json:"yaml"`
}

func object(ctx context.Context, a *ask) (any, error) {
	kind, ref, err := a.object(ctx)
	if err != nil {
		return nil, err
	}
	when, err := a.moment("at")
	if err != nil {
		return nil, err
	}
	found, err := a.record.One(ctx, kind, ref, when)
	if err != nil {
		return nil, err
	}
	e := found.Entries[0]
	tree, err := fields.Of(kind, e.Delta)
	if err != nil {
		return nil, err
	}
	text, err := yaml.Marshal(tree)
	if err != nil {
		return nil, fmt.Errorf("write %v: %w", ref, err)
	}
	return body{
		Object: ref, Kind: kind, At: e.At, Version: e.ResourceVersion, Form: e.Form, Deleting: e.Deleting, Doubts: found.Doubts, YAML: string(text),
	}, nil
}

func answerDiff(ctx context.Context, a *ask) (any, error) {
	kind, ref, err := a.object(ctx)
	if err != nil {
		return nil, err
	}
	from, err := a.moment("from")
	if err != nil {
		return nil, err
	}
	to, err := a.moment("to")
	if err != nil {
		return nil, err
	}
	return diff.Compare(ctx, a.record, kind, ref, from, to)
}

// reasons are the causes of a change of an object, and which of them came first.
type reasons struct {
	Cause *record.Cause `json:"cause"`
	Began struct {
		Object  events.Ref `json:"object"`
		Version string     `json:"version"`
	} `json:"began"`
}

func why(ctx context.Context, a *ask) (any, error) {
	kind, ref, err := a.object(ctx)
	if err != nil {
		return nil, err
	}
	when, err := a.moment("at")
	if err != nil {
		return nil, err
	}
	cause, err := a.record.Why(ctx, kind, ref, record.Question{
		At: when, Field: a.word("field"), Last: a.word("last") == "true", Reports: a.word("reports") == "true",
	})
	if err != nil {
		return nil, err
	}
	r := reasons{Cause: cause}
	began := cause.Began().Version
	r.Began.Object, r.Began.Version = began.Object, began.ResourceVersion
	return r, nil
}

func answerStanding(ctx context.Context, a *ask) (any, error) {
	kind, ref, err := a.object(ctx)
	if err != nil {
		return nil, err
	}
	return a.standing.Standing(ctx, kind, ref, a.word("controller"))
}
