package pending

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/millrace/millrace/cmd/internal/approval"
	"github.com/millrace/millrace/cmd/internal/reader/printer"
	"github.com/millrace/millrace/cmd/internal/reader/session"
	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/pkg/events/record/standing"
)

func newHeld() *cobra.Command {
	return session.Program{
		Use: "held", Short: "Show the writes that a write limit holds, and how to approve them",
		Long: `Shows the keys whose writes exceed a limit of --write-limits (docs/write-limits.md), with
the reason of the decision, the first of the held writes, and what they wait for. The
writes are made when there is room, or when a person approves them: millrace approve.`,
		Args:     cobra.NoArgs,
		Complete: func(*session.Session, []string, string) []string { return nil },
		Run: func(ctx context.Context, s *session.Session, _ []string) error {
			held, err := standing.New(s.Bus).Held(ctx, s.Now())
			if err != nil {
				return err
			}
			return s.Print(held, func(p *printer.Paper) { drawHeld(p, held) })
		},
	}.Command()
}

func drawHeld(p *printer.Paper, held []standing.Held) {
	if len(held) == 0 {
		p.Line("%s", p.In(printer.Dim, "no write is held"))
		return
	}
	for _, h := range held {
		p.Line("%s %s: %s", p.In(printer.Bold, h.Controller), h.Key, h.Because)
		for _, w := range h.Writes {
			rest := ""
			if w.Writes > 1 {
				rest = fmt.Sprintf(" and %d more", w.Writes-1)
			}
			p.Line("   %s%s: %s", w.First, rest, p.In(printer.Red, w.Message))
		}
		if h.UID == "" {
			p.Line("   %s", p.In(printer.Dim, "the key names no object, so that its writes cannot be approved; they wait for room"))
			continue
		}
		p.Line("   %s", p.In(printer.Dim, "kubectl millrace approve "+printer.ArgumentOf(h.Object)+", or deny"))
	}
}

// ruling is what a person decides about held writes, and the flags of that.
type ruling struct {
	approve             bool
	limits              []string
	because, kubeconfig string
}

func newApprove() *cobra.Command {
	return newRuling(true, "approve", "Approve the held writes of an object's controller",
		`Approves the writes that a write limit holds for an object, as its controller wants them
for the object's present generation. The approval is an annotation of the object, written
with the rights of the kubeconfig's user: a user who may change the object may approve.
The approval ends with the next change of the object's spec.`)
}

func newDeny() *cobra.Command {
	return newRuling(false, "deny", "Deny the held writes of an object's controller",
		`Denies the writes that a write limit holds for an object, also when the limit has room
again, until the object's spec changes or the writes are approved. The denial is an
annotation of the object, written with the rights of the kubeconfig's user.`)
}

func newRuling(approve bool, verb, short, long string) *cobra.Command {
	r := &ruling{approve: approve}
	return session.Program{
		Use: verb + " KIND/NAME", Short: short, Long: long,
		Example: "  millrace held\n  millrace " + verb + " replicaset/web-6d5f7c9b4 -n shop --because='ticket 4711'",
		Args:    cobra.RangeArgs(1, 2),
		Flags: func(f *pflag.FlagSet) {
			f.StringSliceVar(&r.limits, "limit", nil, "`names` of the limits (default all that hold writes of the object)")
			f.StringVar(&r.because, "because", "", "the `reason`, which the record keeps")
			f.StringVar(&r.kubeconfig, "kubeconfig", "", "`file` with the API server's address and your credentials (default $KUBECONFIG, then ~/.kube/config)")
		},
		Run: func(ctx context.Context, s *session.Session, args []string) error {
			kind, ref, err := s.Object(ctx, args)
			if err != nil {
				return err
			}
			a, err := r.apply(ctx, s, kind, ref)
			if err != nil {
				return fmt.Errorf("%s the writes of %v: %w", verb, ref, err)
			}
			return s.Print(a, func(p *printer.Paper) {
				p.Line("%s as %s: %s of %v, generation %d", r.done(), a.By, strings.Join(a.Limits, ", "), ref, a.Generation)
			})
		},
	}.Command()
}

func (r *ruling) done() string {
	if r.approve {
		return "approved"
	}
	return "denied"
}

// apply writes the decision about what is held of an object.
//
// Errors: nothing is held; a named limit holds nothing; the object has changed since; the API server
// refuses.
func (r *ruling) apply(ctx context.Context, s *session.Session, kind kinds.Kind, ref events.Ref) (events.Approval, error) {
	d := approval.Decision{Kind: kind, Ref: ref, Approve: r.approve}
	held, err := standing.New(s.Bus).Held(ctx, s.Now())
	if err != nil {
		return d.Approval, err
	}
	if d.Approval, d.UID, err = r.about(ref, held); err != nil {
		return d.Approval, err
	}
	rules := clientcmd.NewDefaultClientConfigLoadingRules()
	rules.ExplicitPath = r.kubeconfig
	config, err := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules, nil).ClientConfig()
	if err != nil {
		return d.Approval, fmt.Errorf("read the kubeconfig: %w", err)
	}
	return approval.Write(ctx, config, d)
}

// about is the decision about what is held of an object, and the object's uid.
func (r *ruling) about(ref events.Ref, held []standing.Held) (a events.Approval, uid types.UID, err error) {
	a.Because = r.because
	var all []string
	for _, h := range held {
		if h.Object != ref {
			continue
		}
		uid, a.Generation = h.UID, max(a.Generation, h.Generation)
		for _, w := range h.Writes {
			if !slices.Contains(all, w.Limit) {
				all = append(all, w.Limit)
			}
		}
	}
	if len(all) == 0 {
		return a, "", errors.New("none is held; millrace held lists those that are")
	}
	for _, l := range r.limits {
		if !slices.Contains(all, l) {
			return a, "", fmt.Errorf("the limit %q holds none of them; those that do: %s", l, strings.Join(all, ", "))
		}
	}
	if a.Limits = all; len(r.limits) > 0 {
		a.Limits = r.limits
	}
	slices.Sort(a.Limits)
	return a, uid, nil
}
