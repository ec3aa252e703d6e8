package pending

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/millrace/millrace/cmd/internal/reader/printer"
	"github.com/millrace/millrace/cmd/internal/reader/session"
	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/bus"
	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/pkg/events/record"
	"github.com/millrace/millrace/pkg/events/record/standing"
	"github.com/millrace/millrace/pkg/events/subject"
	"github.com/millrace/millrace/services/reconcilers/controllers"
)

// whyNot is the answer to why-not.
type whyNot struct {
	// Standing is the controller's; nil if no controller acts for the object.
	*standing.Standing
	// Others are further controllers that have decided about the object.
	Others []string `json:"others,omitempty"`
	// Reasons are why the object is not in its desired state, from the object, its children
	// and its owner.
	Reasons []Reason `json:"reasons,omitempty"`
	// Live are the answers of the processes of --live.
	Live []keyReport `json:"live,omitempty"`
}

func newWhyNot() *cobra.Command {
	controller, live := "", &processes{}
	return session.Program{
		Use: "why-not KIND/NAME [--controller=NAME]", Short: "Show why an object is not in its desired state: what its controller saw, decided and waits for",
		Long: `Shows what keeps an object from its desired state, as far as the record has it: its
conditions, the outcomes of the last turns that wrote it, and the same for the objects
that it owns; and the state of its controller: how far it has read, its last turns for the
key with their outcomes, and when it looks at the key again. If a controller has processed
the object's newest version without a turn, it decided to do nothing. The controller is
that of the object's kind, or --controller. --live also asks running reconcilers and
writers why the key waits now.`,
		Example: "  millrace why-not deploy/web\n  millrace why-not pod/web-6d5f7c9b4-x2x7p\n  millrace why-not deploy/web --controller=disruption-controller\n  millrace why-not deploy/web --live=http://127.0.0.1:10260",
		Args:    cobra.RangeArgs(1, 2),
		Flags: func(f *pflag.FlagSet) {
			f.StringVar(&controller, "controller", controller, "`name` of the controller (default that of the object's kind)")
			live.add(f)
		},
		Run: func(ctx context.Context, s *session.Session, args []string) error {
			kind, ref, err := s.Object(ctx, args)
			if err != nil {
				return err
			}
			answer, err := whyNotOf(ctx, s, kind, ref, controller)
			if err != nil {
				return err
			}
			if answer.Standing != nil {
				if answer.Live, err = live.ask(ctx, answer.Controller, answer.Key); err != nil {
					return err
				}
			}
			return s.Print(answer, func(p *printer.Paper) { drawWhyNot(p, ref, answer) })
		},
	}.Command()
}

func whyNotOf(ctx context.Context, s *session.Session, kind kinds.Kind, ref events.Ref, controller string) (*whyNot, error) {
	answer := &whyNot{}
	if controller != "" {
		names, err := s.Controllers(ctx, []string{controller})
		if err != nil {
			return nil, err
		}
		controller = names[0]
	} else {
		var err error
		if controller, answer.Others, err = decider(ctx, s.Bus, kind, ref); err != nil {
			return nil, err
		}
	}
	var err error
	if controller != "" {
		if answer.Standing, err = standing.New(s.Bus).Standing(ctx, kind, ref, controller); err != nil {
			return nil, err
		}
	}
	answer.Reasons, err = reasons(ctx, s, kind, ref)
	if errors.Is(err, record.ErrNotThere) && answer.Standing != nil && len(answer.Turns) > 0 {
		err = nil // the object is not on record, but turns about its key are
	}
	return answer, err
}

// decider is the controller that acts for an object, empty if none does, and the others that
// have decided about its key.
func decider(ctx context.Context, b bus.Archive, kind kinds.Kind, ref events.Ref) (name string, others []string, err error) {
	have, err := b.Controllers(ctx)
	if err != nil {
		return "", nil, fmt.Errorf("look which controllers are on record: %w", err)
	}
	var found []string
	for _, c := range have {
		decided, err := hasDecided(ctx, b, c, events.Key{Namespace: ref.Namespace, Name: ref.Name}, events.Key(ref))
		if err != nil {
			return "", nil, err
		}
		if decided {
			found = append(found, c)
		}
	}
	name = actor(kind)
	if !slices.Contains(have, name) {
		name = ""
	}
	if name == "" && len(found) > 0 {
		name = found[0]
	}
	return name, slices.DeleteFunc(found, func(c string) bool { return c == name }), nil
}

// hasDecided is whether the record has a turn of a controller about one of some keys.
func hasDecided(ctx context.Context, b bus.Archive, controller string, keys ...events.Key) (bool, error) {
	for _, key := range keys {
		for _, lane := range []events.Lane{events.LaneWrite, events.LaneStatus, events.LanePark} {
			_, there, err := b.Next(ctx, subject.TurnStream(controller), subject.Turn(controller, lane, key), 1)
			if err != nil {
				return false, fmt.Errorf("look for turns of %s: %w", controller, err)
			}
			if there {
				return true, nil
			}
		}
	}
	return false, nil
}

// actor is the controller that acts for the objects of a kind: the one named after it, or else
// the first one whose first input is the kind; empty if there is none.
func actor(kind kinds.Kind) string {
	if e, ok := controllers.Find(strings.ToLower(kind.Kind) + "-controller"); ok && e.Exists() {
		return e.Name
	}
	if kind.Name == kinds.Pods.Name || kind.Name == kinds.Nodes.Name {
		return "" // many controllers read them, and none reconciles them to their spec
	}
	all, err := controllers.Select([]string{"*"}, controllers.Config{})
	if err != nil {
		return ""
	}
	for _, c := range all {
		if d := c.Describe(); len(d.Inputs) > 0 && d.Inputs[0].Kind.Name == kind.Name {
			return d.Name
		}
	}
	return ""
}

func drawWhyNot(p *printer.Paper, ref events.Ref, a *whyNot) {
	for _, r := range a.Reasons {
		p.Line("%s %s", p.In(printer.Bold, r.Object.String()+":"), p.In(printer.Red, r.Text))
		if r.Next != "" {
			p.Line("   %s", p.In(printer.Dim, r.Next))
		}
	}
	if a.Standing == nil {
		p.Line("no controller of Millrace acts for %s, and none has decided about it", ref)
		return
	}
	if len(a.Reasons) > 0 {
		p.Line("")
	}
	drawStanding(p, a.Standing)
	for _, r := range a.Live {
		drawKeyReport(p, r)
	}
	for _, c := range a.Others {
		p.Line("%s", p.In(printer.Dim, fmt.Sprintf("%s has decided about it, too: --controller=%s", c, c)))
	}
}
