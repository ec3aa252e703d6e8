package audit

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/millrace/millrace/cmd/internal/reader/printer"
	"github.com/millrace/millrace/cmd/internal/reader/session"
	"github.com/millrace/millrace/pkg/events/bus"
	"github.com/millrace/millrace/pkg/events/record"
	"github.com/millrace/millrace/services/reconcilers/controllers"
	"github.com/millrace/millrace/services/reconcilers/reconcile"
	"github.com/millrace/millrace/services/reconcilers/replay"
	"github.com/millrace/millrace/services/reconcilers/story"
)

// explained is the answer to explain.
type explained struct {
	Controller string          `json:"controller"`
	Turn       uint64          `json:"turn"`
	Key        string          `json:"key"`
	Now        time.Time       `json:"now"`
	Because    string          `json:"because"`
	Verdict    replay.Verdict  `json:"verdict"`
	View       json.RawMessage `json:"view"`
	Decision   json.RawMessage `json:"decision"`
}

func newExplain() *cobra.Command {
	file, overwrite := "", false
	return session.Program{
		Use: "explain CONTROLLER/TURN|KIND/NAME", Short: "Write what a turn saw and decided as a story, which is a test of its controller",
		Long: `Writes one turn: what the controller saw, at what time, and what it decided. The turn is
named as in why and replay, or it is the turn of the last change that Millrace made to an
object. The output is a story: in the testdata directory of its controller it is a test,
which passes with the code that made the decision.

The story contains the recorded objects. Review it before you share it.`,
		Example: "  millrace explain replicaset-controller/1734\n" +
			"  millrace explain deploy/web --save=services/reconcilers/controllers/deployment/testdata/incident.txtar",
		Args: cobra.RangeArgs(1, 2), Outputs: []string{"story", "json", "yaml"},
		Flags: func(f *pflag.FlagSet) {
			f.StringVar(&file, "save", file, "`file` to save the story to (default: it is printed)")
			f.BoolVar(&overwrite, "overwrite", overwrite, "overwrite an existing file")
		},
		Run: func(ctx context.Context, s *session.Session, args []string) error {
			controller, turn, err := turnOf(ctx, s, args)
			if err != nil {
				return err
			}
			c, err := decideAgain(ctx, s.Bus, controller, turn)
			if err != nil {
				return err
			}
			told, err := c.Story()
			if err != nil {
				return err
			}
			if file != "" {
				return save(s.Paper, file, told, overwrite)
			}
			answer := explained{c.Controller, c.Sequence, c.Turn.Key.String(), c.Turn.Now, c.Turn.Because, c.Verdict, c.View, reconcile.Body(c.Turn)}
			return s.Print(answer, func(p *printer.Paper) { p.Line("%s", strings.TrimSuffix(string(told.Format()), "\n")) })
		},
	}.Command()
}

// turnOf finds the turn that the arguments name: CONTROLLER/SEQUENCE, or an object, for the turn
// behind the last change that one of Millrace's controllers made to it.
func turnOf(ctx context.Context, s *session.Session, args []string) (controller string, turn uint64, err error) {
	have, err := s.Bus.Controllers(ctx)
	if err != nil {
		return "", 0, fmt.Errorf("look which controllers are on record: %w", err)
	}
	name, number, _ := strings.Cut(strings.Join(args, "/"), "/")
	if turn, err = strconv.ParseUint(number, 10, 64); err == nil && slices.Contains(have, name) {
		return name, turn, nil
	}
	kind, ref, err := s.Object(ctx, args)
	if err != nil {
		return "", 0, fmt.Errorf("%w; or name a turn as CONTROLLER/TURN, such as %s", err, exampleTurn(have))
	}
	const far = 50
	h, err := record.New(s.Bus).History(ctx, kind, ref, far)
	if err != nil {
		return "", 0, err
	}
	for _, v := range slices.Backward(h.Versions) {
		if v.By.Turn > 0 {
			return v.By.Controller, v.By.Turn, nil
		}
	}
	return "", 0, fmt.Errorf("%v: none of its last %d versions was made by a turn of ours: name a turn as CONTROLLER/TURN; why-not shows the last ones", ref, len(h.Versions))
}

// exampleTurn is an example of a turn as an argument.
func exampleTurn(have []string) string {
	if len(have) == 0 {
		return "replicaset-controller/1734"
	}
	return have[0] + "/1"
}

// decideAgain replays one turn.
func decideAgain(ctx context.Context, b bus.Archive, controller string, turn uint64) (found replay.Case, err error) {
	o := replay.Options{Controllers: []string{controller}, Turns: []uint64{turn}, Make: controllers.Again, Views: true}
	summary, err := replay.Run(ctx, b, o, func(c replay.Case) error { found = c; return nil })
	switch {
	case err != nil:
		return found, err
	case summary.Parks > 0:
		return found, fmt.Errorf("turn %d of %s set its key aside and decided nothing; millrace parked shows the reason", turn, controller)
	case summary.Turns == 0:
		return found, fmt.Errorf("turn %d of %s is not on record", turn, controller)
	}
	return found, nil
}

func save(p *printer.Paper, file string, told story.Story, overwrite bool) error {
	flag := os.O_WRONLY | os.O_CREATE | os.O_EXCL
	if overwrite {
		flag = os.O_WRONLY | os.O_CREATE | os.O_TRUNC
	}
	out, err := os.OpenFile(file, flag, 0o644)
	if errors.Is(err, fs.ErrExist) {
		return fmt.Errorf("%s exists: name another file, or say --overwrite", file)
	}
	if err != nil {
		return fmt.Errorf("write the story: %w", err)
	}
	_, err = out.Write(told.Format())
	if err := errors.Join(err, out.Close()); err != nil {
		return fmt.Errorf("write the story: %w", err)
	}
	p.Line("%s", file)
	return nil
}
