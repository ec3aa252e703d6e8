package jaeger

import (
	"cmp"
	"errors"
	"iter"
	"slices"
	"time"
)

// Trace is a trace as a tree of the spans that have arrived so far.
type Trace struct {
	ID string `json:"traceID"`
	// Roots are the spans without a parent, and those whose parent is missing, earliest
	// first. A complete trace has one.
	Roots []*Span `json:"roots"`
}

// Span is one step of a trace.
type Span struct {
	ID     string `json:"spanID"`
	Parent string `json:"parentSpanID,omitempty"`
	// Orphan is true if the parent is not in the trace, because it was lost or has not
	// arrived yet.
	Orphan  bool   `json:"orphan,omitempty"`
	Name    string `json:"name"`
	Service string `json:"service"`
	// Kind is internal, server, client, producer or consumer.
	Kind     string        `json:"kind,omitempty"`
	Start    time.Time     `json:"start"`
	Duration time.Duration `json:"durationNanoseconds"`
	// Failed is true for a span that ended with an error; Message has the error.
	Failed     bool              `json:"failed,omitempty"`
	Message    string            `json:"message,omitempty"`
	Attributes map[string]string `json:"attributes,omitempty"`
	// Links are further causes, or the spans that this one continues.
	Links []Link `json:"links,omitempty"`
	// Children are the spans that this one caused, earliest first.
	Children []*Span `json:"children,omitempty"`

	trace string
}

// Link refers to a span, of this trace or of another one.
type Link struct {
	Trace      string            `json:"traceID"`
	Span       string            `json:"spanID"`
	Attributes map[string]string `json:"attributes,omitempty"`
}

// grow puts every span below its parent.
func grow(id string, spans []*Span) (*Trace, error) {
	if len(spans) == 0 {
		return nil, ErrNoTrace
	}
	t, known := &Trace{ID: id}, make(map[string]*Span, len(spans))
	for _, s := range spans {
		if s.trace != id {
			return nil, errors.New("the answer holds a span of trace " + s.trace)
		}
		known[s.ID] = s // one that was sent twice counts once
	}
	for _, s := range known {
		parent, there := known[s.Parent]
		if there && parent != s {
			parent.Children = append(parent.Children, s)
			continue
		}
		s.Orphan = s.Parent != ""
		t.Roots = append(t.Roots, s)
	}
	inOrder(t.Roots)
	for _, s := range known {
		inOrder(s.Children)
	}
	return t, nil
}

func inOrder(spans []*Span) {
	slices.SortFunc(spans, func(a, b *Span) int {
		return cmp.Or(a.Start.Compare(b.Start), cmp.Compare(a.ID, b.ID))
	})
}

// All are the spans of the trace, each before its children.
func (t *Trace) All() iter.Seq[*Span] {
	return func(yield func(*Span) bool) {
		for _, root := range t.Roots {
			if !root.walk(yield) {
				return
			}
		}
	}
}

// Below are the span and all its descendants.
func (s *Span) Below() iter.Seq[*Span] {
	return func(yield func(*Span) bool) { s.walk(yield) }
}

func (s *Span) walk(yield func(*Span) bool) bool {
	if !yield(s) {
		return false
	}
	for _, child := range s.Children {
		if !child.walk(yield) {
			return false
		}
	}
	return true
}

// Find is the first span at or below this one for which holds is true; nil if there is
// none.
func (s *Span) Find(holds func(*Span) bool) *Span {
	for below := range s.Below() {
		if holds(below) {
			return below
		}
	}
	return nil
}

// Length is the time from the start of the first span to the end of the last.
func (t *Trace) Length() time.Duration {
	var from, to time.Time
	for s := range t.All() {
		if from.IsZero() || s.Start.Before(from) {
			from = s.Start
		}
		if end := s.Start.Add(s.Duration); end.After(to) {
			to = end
		}
	}
	return to.Sub(from)
}

// Orphans are the spans whose parent is not in the trace. A complete trace has no orphans,
// and one root.
func (t *Trace) Orphans() []*Span {
	var lost []*Span
	for _, root := range t.Roots {
		if root.Orphan {
			lost = append(lost, root)
		}
	}
	return lost
}

// Place finds a span at or below this one by its id, with its parent; both are nil if there
// is none.
func (s *Span) Place(id string) (span, parent *Span) {
	if s.ID == id {
		return s, nil
	}
	for above := range s.Below() {
		for _, child := range above.Children {
			if child.ID == id {
				return child, above
			}
		}
	}
	return nil, nil
}
