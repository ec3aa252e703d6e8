package audit

import (
	"context"
	"fmt"
	"maps"
	"runtime/debug"
	"slices"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"sigs.k8s.io/yaml"

	"github.com/millrace/millrace/cmd/internal/reader/printer"
	"github.com/millrace/millrace/cmd/internal/reader/session"
	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/record/fields"
	"github.com/millrace/millrace/services/reconcilers/controllers"
	"github.com/millrace/millrace/services/reconcilers/replay"
	"github.com/millrace/millrace/services/reconcilers/story"
)

// replaying are the flags of replay.
type replaying struct {
	since, until string
	controllers  []string
	key          string
	limit        int
	strict       bool
}

// replayed is the answer to replay.
type replayed struct {
	replay.Summary
	// Differences are the turns whose replay decides differently, and Unsure those that cannot be
	// judged; at most --limit of each.
	Differences []difference  `json:"differences,omitempty"`
	Unsure      []replay.Case `json:"unsure,omitempty"`
	Took        time.Duration `json:"took"`
}

// difference is a turn that this code decides differently, with the changed fields.
type difference struct {
	replay.Case
	Changes []fields.Change `json:"changes,omitempty"`
}

func newReplay() *cobra.Command {
	x := replaying{limit: 20}
	return session.Program{
		Use: "replay", Short: "Decide the recorded turns again with this program, and show which decisions differ",
		Long: `Replays the recorded changes and outcomes through the controllers of this program, and
compares their decisions with the recorded turns, byte for byte. The version that recorded
the turns decides the same; another version shows where its decisions differ. Nothing is
written.

A turn cannot be judged if the record lacks some of what it saw; such turns are counted
and named. The command exits with an error if a turn differs, and with --strict also if a
turn cannot be judged, or if there are no turns.`,
		Example: "  millrace replay\n  millrace replay --record=incident.millrace --since=15:04 --until=15:10\n" +
			"  millrace replay --controller=replicaset-controller --key=default/web-6d5f7c9b4",
		Args: cobra.NoArgs, Lasting: true,
		Complete: func(*session.Session, []string, string) []string { return nil },
		Flags: func(f *pflag.FlagSet) {
			f.StringVar(&x.since, "since", x.since, "`moment` of the first turn: a duration ago, or a time (default: all that are kept)")
			f.StringVar(&x.until, "until", x.until, "`moment` of the last turn (default now)")
			f.StringSliceVar(&x.controllers, "controller", x.controllers, "`controllers` whose turns are replayed (default all on record)")
			f.StringVar(&x.key, "key", x.key, "`key` whose turns are replayed, such as default/web (default all; with --namespace those in it)")
			f.IntVar(&x.limit, "limit", x.limit, "number of turns to show that differ, and that cannot be judged; 0 for all")
			f.BoolVar(&x.strict, "strict", x.strict, "also fail if a turn cannot be judged, or if there are no turns")
		},
		Run: func(ctx context.Context, s *session.Session, _ []string) error { return x.run(ctx, s) },
	}.Command()
}

func (x *replaying) options(ctx context.Context, s *session.Session) (o replay.Options, err error) {
	if o.Since, err = s.Bound("--since", x.since); err != nil {
		return o, err
	}
	if o.Until, err = s.Bound("--until", x.until); err != nil {
		return o, err
	}
	if !o.Until.IsZero() && o.Until.Before(o.Since) {
		return o, fmt.Errorf("--until=%s is before --since=%s: nothing lies between", x.until, x.since)
	}
	o.Wanted, o.Make = x.wanted(s.Given()), controllers.Again
	o.Controllers, err = s.Controllers(ctx, x.controllers)
	return o, err
}

// wanted is a filter for keys, as users write them.
func (x *replaying) wanted(namespace string) func(events.Key) bool {
	if x.key == "" && namespace == "" {
		return nil
	}
	return func(k events.Key) bool {
		plain := events.Key{Namespace: k.Namespace, Name: k.Name}
		return (namespace == "" || k.Namespace == namespace) &&
			(x.key == "" || x.key == k.String() || x.key == plain.String() || x.key == k.Name && namespace != "")
	}
}

func (x *replaying) run(ctx context.Context, s *session.Session) error {
	o, err := x.options(ctx, s)
	if err != nil {
		return err
	}
	var answer replayed
	defer debug.SetGCPercent(debug.SetGCPercent(400)) // decoded messages are short-lived, and so is the program
	began := time.Now()
	answer.Summary, err = replay.Run(ctx, s.Bus, o, func(c replay.Case) error {
		switch {
		case c.Verdict == replay.Differs && (x.limit == 0 || len(answer.Differences) < x.limit):
			answer.Differences = append(answer.Differences, difference{c, differences(c)})
		case c.Verdict == replay.Unjudged && (x.limit == 0 || len(answer.Unsure) < x.limit):
			answer.Unsure = append(answer.Unsure, c)
		}
		return nil
	})
	if err != nil {
		return err
	}
	answer.Took = time.Since(began)
	if err := s.Print(answer, func(p *printer.Paper) { drawReplay(p, answer) }); err != nil {
		return err
	}
	return x.verdict(answer.Summary)
}

func (x *replaying) verdict(s replay.Summary) error {
	switch unjudged := s.Turns - s.Judged(); {
	case s.Differ > 0:
		return fmt.Errorf("%d of %d turns are decided otherwise by this program", s.Differ, s.Judged())
	case x.strict && unjudged > 0:
		return fmt.Errorf("%d of %d turns cannot be judged", unjudged, s.Turns)
	case x.strict && s.Turns == 0:
		return fmt.Errorf("there is no turn on record to be replayed; is the stretch right, and the key?")
	}
	return nil
}

// differences are the parts of a decision that differ, in the format of stories.
func differences(c replay.Case) []fields.Change {
	if c.Now == nil {
		return nil
	}
	return fields.Diff(asStory(c.Turn), asStory(*c.Now))
}

// asStory is a turn's decision in the format of stories, with its commands named by their effect.
func asStory(t events.Turn) fields.Tree {
	text, err := story.Render(replay.Decision(t))
	var told struct {
		Because  string
		Commands []map[string]any
		WakeAt   string
	}
	if err == nil {
		err = yaml.Unmarshal(text, &told)
	}
	if err != nil {
		return fields.Tree{"because": t.Because, "unreadable": err.Error()}
	}
	commands := map[string]any{}
	for i, c := range told.Commands {
		name := fmt.Sprint(c["do"])
		if delete(c, "do"); commands[name] != nil {
			name = fmt.Sprintf("%s (%d)", name, i+1) // such as the Events of one turn
		}
		commands[name] = c
	}
	return fields.Tree{"because": told.Because, "wakeAt": told.WakeAt, "do": commands}
}

func drawReplay(p *printer.Paper, r replayed) {
	for _, d := range r.Differences {
		drawDifference(p, d)
	}
	for _, c := range r.Unsure {
		p.Line("%s  %s", turnName(p, c), p.In(printer.Yellow, string(c.Verdict)+": "+string(c.Why)))
		if c.Detail != "" {
			p.Line("    %s", p.In(printer.Dim, c.Detail))
		}
	}
	if len(r.Differences)+len(r.Unsure) > 0 {
		p.Line("")
	}
	if r.Turns == 0 {
		p.Line("no turn is on record in this stretch")
		return
	}
	p.Line("%d turns from %s to %s, on %d changes and %d outcomes, in %v", r.Turns, printer.Time(r.From), printer.Time(r.To), r.Deltas, r.Outcomes, r.Took.Round(time.Millisecond))
	p.Line("%s decided the same, byte for byte", p.In(printer.Green, fmt.Sprintf("%7d", r.Same)))
	colour := printer.Dim
	if r.Differ > 0 {
		colour = printer.Red
	}
	p.Line("%s decided otherwise%s", p.In(colour, fmt.Sprintf("%7d", r.Differ)), shown(len(r.Differences), r.Differ))
	for _, why := range slices.Sorted(maps.Keys(r.Unjudged)) {
		p.Line("%s cannot be judged: %s", p.In(printer.Yellow, fmt.Sprintf("%7d", r.Unjudged[why])), why)
	}
}

func shown(some, all int) string {
	if some == all {
		return ""
	}
	return fmt.Sprintf("; %d of them are shown, --limit=0 shows all", some)
}

func turnName(p *printer.Paper, c replay.Case) string {
	return fmt.Sprintf("%s  %s %s", printer.Time(c.Stored), p.In(printer.Bold, fmt.Sprintf("%s/%d", c.Controller, c.Sequence)), c.Turn.Key)
}

func drawDifference(p *printer.Paper, d difference) {
	t := d.Turn
	p.Line("%s  %s", turnName(p, d.Case), p.In(printer.Red, "differs"))
	p.Line("    %s", p.In(printer.Dim, fmt.Sprintf("decided at %s by %s; saw its object @%s%s", printer.Time(t.Now), d.Code(), t.ResourceVersion, printer.Generation(t.Generation))))
	p.Line("    then: %s (commands: %d)", p.In(printer.Cyan, t.Because), len(t.Commands))
	if d.Broken != "" {
		p.Line("    now:  %s", p.In(printer.Red, d.Broken))
		return
	}
	p.Line("    now:  %s (commands: %d)", p.In(printer.Cyan, d.Now.Because), len(d.Now.Commands))
	if len(d.Changes) == 0 {
		p.Line("    %s", p.In(printer.Yellow, "the same commands, in another order or written in other bytes"))
	}
	p.Changes("    ", d.Changes)
}
