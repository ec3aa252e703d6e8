package past

import (
	"context"
	"fmt"
	"slices"

	"github.com/millrace/millrace/cmd/internal/reader/printer"
	"github.com/millrace/millrace/cmd/internal/reader/session"
	"github.com/millrace/millrace/pkg/events/record"
)

// everything is the number of happenings that a limit of 0 stands for.
const everything = 100_000

// beside is how many happenings are read beyond the limit, because gaps of several kinds that
// begin together are shown as one.
const beside = 200

// timeline writes the newest happenings in the session's namespace, oldest first: deltas of
// namespaced kinds, turns, outcomes and gaps, at most limit; 0 is all.
func timeline(ctx context.Context, s *session.Session, limit int) error {
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
		s.Paper.Line("%s", s.Paper.In(printer.Dim, "nothing is on record of namespace "+s.Namespace+s.NoNamespace(ctx, s.Namespace)))
	} else if !c.Whole {
		s.Paper.Line("%s", s.Paper.In(printer.Dim, "... there is more before "+printer.Time(c.Since)+": --limit=0 shows all"))
	}
	for _, h := range c.Items {
		happening(s.Paper, printer.Time(h.Time), h)
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
func happening(p *printer.Paper, when string, h record.Happening) {
	p.Line("%s  %s  %-28s %s  %s", when, p.In(nounColours[h.Noun], fmt.Sprintf("%-7s", h.Noun)), h.Who, p.In(printer.Bold, h.About), h.What)
}

var nounColours = map[string]printer.Colour{"delta": printer.Green, "turn": printer.Cyan, "outcome": printer.Blue, "gap": printer.Red}
