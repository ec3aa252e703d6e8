package past

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/millrace/millrace/cmd/internal/reader/printer"
	"github.com/millrace/millrace/cmd/internal/reader/session"
	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/pkg/events/record"
	"github.com/millrace/millrace/pkg/events/record/fields"
)

// differing are the flags of diff.
type differing struct {
	from, to string
	every    bool
}

// objectsDiffer is the answer to diff of several objects.
type objectsDiffer struct {
	Objects []objectDiffers `json:"objects"`
	Doubts  []string        `json:"doubts,omitempty"`
}

// objectDiffers is an object that is not the same at two moments.
type objectDiffers struct {
	Object  events.Ref      `json:"object"`
	What    string          `json:"what"`           // created, deleted, replaced or changed
	From    string          `json:"from,omitempty"` // resourceVersions
	To      string          `json:"to,omitempty"`
	Changes []fields.Change `json:"changes,omitempty"`
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
	answer, compared := objectsDiffer{Objects: []objectDiffers{}}, 0
	var notes []string
	for _, kind := range of {
		within := namespace
		if !kind.Namespaced {
			within = ""
		}
		some, doubts, err := compareAll(ctx, record.New(s.Bus), kind, within, moments)
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

// compareAll compares the objects of a kind at two moments, by namespace and name.
func compareAll(ctx context.Context, r *record.Record, kind kinds.Kind, namespace string, moments [2]record.Moment) (all []objectDiffers, doubts []string, err error) {
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
			all = append(all, objectDiffers{Object: was[0].Ref, What: "deleted", From: was[0].ResourceVersion})
			was = was[1:]
		case len(was) == 0 || before(is[0].Ref, was[0].Ref):
			all = append(all, objectDiffers{Object: is[0].Ref, What: "created", To: is[0].ResourceVersion})
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
func compareOne(kind kinds.Kind, was, is record.Entry) (d objectDiffers, differs bool, err error) {
	d = objectDiffers{Object: is.Ref, What: "changed", From: was.ResourceVersion, To: is.ResourceVersion}
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

func versions(o objectDiffers) string {
	switch {
	case o.From == "":
		return "@" + o.To
	case o.To == "":
		return "@" + o.From
	default:
		return "@" + o.From + " -> @" + o.To
	}
}
