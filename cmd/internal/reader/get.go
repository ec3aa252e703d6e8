package reader

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/pkg/events/record"
	"github.com/millrace/millrace/pkg/events/record/fields"
)

// ErrDoubt: an answer was given that the record does not vouch for.
var ErrDoubt = errors.New("the answer may not be whole")

// past is what the answers to get say beside the objects.
type past struct {
	Kind     kinds.Name    `json:"kind"`
	At       time.Time     `json:"at"`
	Sequence uint64        `json:"sequence"`
	Whole    bool          `json:"whole"`
	Doubts   []string      `json:"doubts,omitempty"`
	Items    []fields.Tree `json:"items"`
}

func newGet() *cobra.Command {
	at, every := "", false
	return Program{
		Use: "get KIND [NAME]", Short: "Show objects as they were at a moment",
		Long: `Shows an object, or all of a kind in a namespace or everywhere, as the record has them
at a moment: how long ago (10m), a time (15:04:05, 2026-01-02T15:04:05Z), or a
resourceVersion. Without --at that is now. What is shown of a kind is counted against
the census of that moment; when something is missing, or the moment lies within a gap,
that is said, and the command ends with an error after the answer.`,
		Example: "  millrace get pods --at=10m\n  millrace get deploy web --at=15:04:05 -o yaml\n  millrace get rs -A --at=81723",
		Args:    cobra.RangeArgs(1, 2),
		Flags: func(f *pflag.FlagSet) {
			f.StringVar(&at, "at", at, "`moment`: so long ago, a time, or a resourceVersion (default now)")
			f.BoolVarP(&every, "all-namespaces", "A", every, "objects of all namespaces")
		},
		Run: func(ctx context.Context, s *Session, args []string) error {
			when, err := record.ParseMoment(at, s.Now())
			if err != nil {
				return fmt.Errorf("read --at: %w", err)
			}
			state, err := s.state(ctx, args, when, every)
			if err != nil {
				return err
			}
			return s.printState(state, when)
		},
	}.Command()
}

// state is the object, or the objects, that arguments name.
func (s *Session) state(ctx context.Context, args []string, when record.Moment, every bool) (*record.State, error) {
	if len(args) == 2 || strings.Contains(args[0], "/") {
		kind, ref, err := s.Object(ctx, args)
		if err != nil {
			return nil, err
		}
		return record.New(s.Bus).One(ctx, kind, ref, when)
	}
	kind, err := s.Kind(ctx, args[0])
	if err != nil {
		return nil, err
	}
	namespace := s.Namespace
	if every || !kind.Namespaced {
		namespace = ""
	}
	return record.New(s.Bus).At(ctx, kind, namespace, when)
}

func (s *Session) printState(state *record.State, when record.Moment) error {
	answer := past{Kind: state.Kind.Name, At: state.Time, Sequence: state.Sequence, Whole: state.Whole, Doubts: state.Doubts, Items: []fields.Tree{}}
	if s.Output != "table" {
		for _, e := range state.Entries {
			tree, err := fields.Of(state.Kind, e.Delta)
			if err != nil {
				return err
			}
			answer.Items = append(answer.Items, tree)
		}
	}
	if err := s.Print(answer, func(p *Paper) { drawState(p, state, when) }); err != nil {
		return err
	}
	if state.Whole {
		return nil
	}
	return fmt.Errorf("%w: %s", ErrDoubt, strings.Join(state.Doubts, "; "))
}

func drawState(p *Paper, state *record.State, when record.Moment) {
	if len(state.Entries) == 0 {
		p.Line("%s", p.In(Dim, fmt.Sprintf("no %s there at %v", state.Kind.Name, when)))
		return
	}
	rows := make([][]Cell, len(state.Entries))
	for i, e := range state.Entries {
		status := Cell{Text: "there", Colour: Green}
		if e.Deleting {
			status = Cell{Text: "deleting", Colour: Red}
		}
		row := Cells(e.Ref.Namespace, e.Ref.Name, "", e.ResourceVersion, fmt.Sprint(e.Generation), moment(e.At), hand(e))
		row[2] = status
		rows[i] = row
	}
	p.Table([]string{"NAMESPACE", "NAME", "STATE", "VERSION", "GENERATION", "SINCE", "BY"}, rows)
}

func hand(e record.Entry) string {
	if e.By.Subresource != "" {
		return e.By.Name + " (" + e.By.Subresource + ")"
	}
	return e.By.Name
}

func newDiff() *cobra.Command {
	from, to := "", ""
	return Program{
		Use: "diff KIND/NAME --from=MOMENT", Short: "Show what changed of an object between two moments",
		Long: `Shows the fields of an object that differ between two moments: how long ago (10m), a
time, or a resourceVersion each.`,
		Example: "  millrace diff deploy/web --from=1h\n  millrace diff deploy/web --from=81723 --to=81911",
		Args:    cobra.RangeArgs(1, 2),
		Flags: func(f *pflag.FlagSet) {
			f.StringVar(&from, "from", from, "`moment` before: so long ago, a time, or a resourceVersion")
			f.StringVar(&to, "to", to, "`moment` after (default now)")
		},
		Run: func(ctx context.Context, s *Session, args []string) error {
			if from == "" {
				return errors.New("--from is missing: name the moment to compare with, such as --from=10m")
			}
			kind, ref, err := s.Object(ctx, args)
			if err != nil {
				return err
			}
			return s.diff(ctx, kind, ref, from, to)
		},
	}.Command()
}

// Difference is the answer to diff.
type Difference struct {
	Object   events.Ref      `json:"object"`
	From     string          `json:"from"` // resourceVersions
	To       string          `json:"to"`
	Replaced bool            `json:"replaced,omitempty"` // another object has the name
	Changes  []fields.Change `json:"changes"`
	Doubts   []string        `json:"doubts,omitempty"`
}

// Compare says in which fields an object differs between two moments.
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

func (s *Session) diff(ctx context.Context, kind kinds.Kind, ref events.Ref, from, to string) error {
	var moments [2]record.Moment
	for i, text := range []string{from, to} {
		var err error
		if moments[i], err = record.ParseMoment(text, s.Now()); err != nil {
			return fmt.Errorf("read --from and --to: %w", err)
		}
	}
	answer, err := Compare(ctx, record.New(s.Bus), kind, ref, moments[0], moments[1])
	if err != nil {
		return err
	}
	err = s.Print(answer, func(p *Paper) {
		p.Line("%s  %s", p.In(Bold, ref.String()), p.In(Dim, "@"+answer.From+" -> @"+answer.To))
		if answer.Replaced {
			p.Line("%s", p.In(Red, "another object has the name: the uid is not the same"))
		}
		if len(answer.Changes) == 0 {
			p.Line("%s", p.In(Dim, "nothing differs"))
		}
		drawChanges(p, "", answer.Changes)
	})
	if err == nil && len(answer.Doubts) > 0 {
		err = fmt.Errorf("%w: %s", ErrDoubt, strings.Join(answer.Doubts, "; "))
	}
	return err
}
