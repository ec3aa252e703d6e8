package past

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/millrace/millrace/cmd/internal/reader/printer"
	"github.com/millrace/millrace/cmd/internal/reader/session"
	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/pkg/events/record"
	"github.com/millrace/millrace/pkg/events/record/diff"
)

// differing are the flags of diff.
type differing struct {
	from, to string
	every    bool
}

// objectsDiffer is the answer to diff of several objects.
type objectsDiffer struct {
	Objects []diff.Object `json:"objects"`
	Doubts  []string      `json:"doubts,omitempty"`
}

// moments reads --from and --to.
func (d *differing) moments(s *session.Session) (moments [2]record.Moment, err error) {
	for i, text := range []string{d.from, d.to} {
		if moments[i], err = record.ParseMoment(text, s.Now()); err != nil {
			return moments, fmt.Errorf("read --from and --to: %w", err)
		}
	}
	return moments, nil
}

// many compares all objects of some kinds; of all kinds with namespaces where none is
// named.
func (d *differing) many(ctx context.Context, s *session.Session, args []string) error {
	moments, err := d.moments(s)
	if err != nil {
		return err
	}
	of, err := d.kinds(ctx, s, args)
	if err != nil {
		return err
	}
	namespace := s.Namespace
	if d.every {
		namespace = ""
	}
	answer, compared := objectsDiffer{Objects: []diff.Object{}}, 0
	var notes []string
	for _, kind := range of {
		within := namespace
		if !kind.Namespaced {
			within = ""
		}
		some, doubts, err := diff.CompareAll(ctx, record.New(s.Bus), kind, within, moments)
		switch early := new(record.BeforeRecord); {
		case len(of) > 1 && errors.As(err, &early):
			notes = append(notes, fmt.Sprintf("left out %s: %v", kind.Name, err))
			continue
		case len(of) > 1 && errors.Is(err, record.ErrNotThere): // the kind's log is empty
		case err != nil:
			return err
		}
		compared++
		answer.Objects, answer.Doubts = append(answer.Objects, some...), append(answer.Doubts, doubts...)
	}
	if compared == 0 {
		return fmt.Errorf("no kind is on record at %v: name a later --from (%s)", moments[0], strings.Join(notes[:min(1, len(notes))], ""))
	}
	for _, note := range notes {
		s.Note("%s", note)
	}
	if err := s.Print(answer, func(p *printer.Paper) { drawMany(p, answer, compared) }); err != nil {
		return err
	}
	if len(answer.Doubts) > 0 {
		return fmt.Errorf("%w: %s", ErrDoubt, strings.Join(answer.Doubts, "; "))
	}
	return nil
}

// kinds are the kinds that the arguments name, or all namespaced ones.
func (d *differing) kinds(ctx context.Context, s *session.Session, args []string) (of []kinds.Kind, err error) {
	if len(args) > 0 {
		return kindsIn(ctx, s, strings.Split(args[0], ","))
	}
	have, err := s.Kinds(ctx)
	if err != nil {
		return nil, err
	}
	for _, kind := range have {
		if kind.Namespaced {
			of = append(of, kind)
		}
	}
	return of, nil
}

var whatColours = map[string]printer.Colour{"created": printer.Green, "deleted": printer.Red, "replaced": printer.Red, "changed": printer.Yellow}

func drawMany(p *printer.Paper, answer objectsDiffer, compared int) {
	if len(answer.Objects) == 0 {
		p.Line("%s", p.In(printer.Dim, fmt.Sprintf("nothing differs in the kinds that were compared: %d", compared)))
	}
	for _, o := range answer.Objects {
		p.Line("%s  %s  %s", p.In(whatColours[o.What], fmt.Sprintf("%-8s", o.What)), p.In(printer.Bold, o.Object.String()), p.In(printer.Dim, versions(o)))
		p.Changes("    ", o.Changes)
	}
}

func versions(o diff.Object) string {
	switch {
	case o.From == "":
		return "@" + o.To
	case o.To == "":
		return "@" + o.From
	default:
		return "@" + o.From + " -> @" + o.To
	}
}
