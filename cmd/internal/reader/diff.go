package reader

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/pkg/events/record"
	"github.com/millrace/millrace/pkg/events/record/fields"
)

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
