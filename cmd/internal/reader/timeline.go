package reader

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"

	"github.com/millrace/millrace/cmd/internal/reader/printer"
	"github.com/millrace/millrace/pkg/events/record"
)

// everything is the number of happenings that a limit of 0 stands for.
const everything = 100_000

// beside is how many happenings are read beyond the limit, because gaps of several kinds that
// begin together are shown as one.
const beside = 200

// timeline writes the newest happenings in the session's namespace, oldest first: deltas of
// namespaced kinds, turns, outcomes and gaps, at most limit; 0 is all.
func (s *Session) timeline(ctx context.Context, limit int) error {
	have, err := s.Kinds(ctx)
	if err != nil {
		return err
	}
	f := record.Filter{Namespace: s.Namespace}
	for _, kind := range have {
		if kind.Namespaced {
			f.Kinds = append(f.Kinds, kind.Name)
		}
	}
	if f.Controllers, err = s.Bus.Controllers(ctx); err != nil {
		return fmt.Errorf("look which controllers are on record: %w", err)
	}
	if limit == 0 {
		limit = everything
	}
	c, err := record.New(s.Bus).Chronicle(ctx, f, record.Span{}, limit+beside)
	if err != nil {
		return err
	}
	slices.Reverse(c.Items)
	if s.Output == "table" {
		c.Items = together(c.Items)
	}
	if more := len(c.Items) - limit; more > 0 {
		c.Items, c.Whole, c.Since = c.Items[more:], false, c.Items[more].Time
	}
	if s.Output != "table" {
		return s.Print(c, nil)
	}
	if !slices.ContainsFunc(c.Items, func(h record.Happening) bool { return h.Gap == nil }) {
		s.Paper.Line("%s", s.Paper.In(printer.Dim, "nothing is on record of namespace "+s.Namespace+s.noNamespace(ctx, s.Namespace)))
	} else if !c.Whole {
		s.Paper.Line("%s", s.Paper.In(printer.Dim, "... there is more before "+printer.Time(c.Since)+": --limit=0 shows all"))
	}
	for _, h := range c.Items {
		s.happening(printer.Time(h.Time), h)
	}
	return nil
}

// together merges consecutive gaps into one: after an outage of the watcher, each kind has one.
func together(items []record.Happening) (out []record.Happening) {
	for len(items) > 0 {
		gaps := 0
		for gaps < len(items) && items[gaps].Gap != nil {
			gaps++
		}
		first := items[0]
		if gaps > 1 {
			first.About = fmt.Sprintf("%s and %d more", first.About, gaps-1)
		}
		out, items = append(out, first), items[max(1, gaps):]
	}
	return out
}

// happening writes a happening as one line.
func (s *Session) happening(when string, h record.Happening) {
	p := s.Paper
	p.Line("%s  %s  %-28s %s  %s", when, p.In(nounColours[h.Noun], fmt.Sprintf("%-7s", h.Noun)), h.Who, p.In(printer.Bold, h.About), h.What)
}

// tail writes happenings since a moment, if one is given, and then new ones as they are stored.
func (s *Session) tail(ctx context.Context, f record.Filter, since string) error {
	from, err := bound(s, "--since", since)
	if err != nil {
		return err
	}
	r := record.New(s.Bus)
	told := map[string]uint64{} // by stream, the last sequence that was written
	begun := func() error {
		if !from.IsZero() {
			c, err := r.Chronicle(ctx, f, record.Span{From: from}, everything)
			if err != nil {
				return err
			}
			if !c.Whole {
				s.Note("the first %d are left out: what is shown begins at %s", everything, printer.Time(c.Since))
			}
			for _, h := range slices.Backward(c.Items) {
				if err := s.happened(h); err != nil {
					return err
				}
				told[h.Stream] = max(told[h.Stream], h.Sequence)
			}
		}
		s.Note("waiting for %s; Ctrl-C ends it", awaited(f))
		return nil
	}
	return r.TailFrom(ctx, f, begun, func(h record.Happening) error {
		if h.Sequence <= told[h.Stream] {
			return nil
		}
		return s.happened(h)
	})
}

// awaited describes a filter.
func awaited(f record.Filter) string {
	text := "deltas, turns and outcomes"
	switch {
	case len(f.Kinds) > 0 && len(f.Controllers) > 0:
		text = fmt.Sprintf("changes of %s, and turns and outcomes of %s", listed(f.Kinds), listed(f.Controllers))
	case len(f.Kinds) > 0:
		text = "changes of " + listed(f.Kinds)
	case len(f.Controllers) > 0:
		text = "turns and outcomes of " + listed(f.Controllers)
	}
	if f.Name != "" {
		text += " named " + f.Name
	}
	if f.Namespace != "" {
		return text + " in namespace " + f.Namespace
	}
	return text + " in all namespaces"
}

func (s *Session) happened(h record.Happening) error {
	if s.Output != "json" {
		s.happening(h.Time.Local().Format("15:04:05.000"), h)
		return nil
	}
	text, err := json.Marshal(h)
	if err != nil {
		return fmt.Errorf("write what happened: %w", err)
	}
	s.Paper.Line("%s", text)
	return nil
}

var nounColours = map[string]printer.Colour{"delta": printer.Green, "turn": printer.Cyan, "outcome": printer.Blue, "gap": printer.Red}

// listed writes names with commas.
func listed[N ~string](names []N) (text string) {
	for i, n := range names {
		if i > 0 {
			text += ", "
		}
		text += string(n)
	}
	return text
}
