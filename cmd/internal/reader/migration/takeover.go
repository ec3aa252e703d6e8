package migration

import (
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/millrace/millrace/cmd/internal/election"
	"github.com/millrace/millrace/cmd/internal/reader/printer"
	"github.com/millrace/millrace/cmd/internal/reader/resolve"
	"github.com/millrace/millrace/cmd/internal/reader/session"
	"github.com/millrace/millrace/cmd/internal/takeover"
	"github.com/millrace/millrace/pkg/events/record/standing"
	"github.com/millrace/millrace/services/reconcilers/controllers"
)

// movePatience is the default of --timeout: kube-controller-manager ends ten seconds after its Lease was
// taken, and the Lease expires five seconds later.
const movePatience = 2 * time.Minute

// move are the flags of takeover and giveback.
type move struct {
	kubeconfig, namespace, because string

	plan, off bool
	agreement takeover.Agreement
}

func (o *move) add(f *pflag.FlagSet) {
	f.StringVar(&o.because, "because", "", "the `reason`, which is kept with the Lease")
	f.StringVar(&o.kubeconfig, "kubeconfig", "", "`file` with the API server's address and your credentials (default $KUBECONFIG, then ~/.kube/config)")
	f.StringVar(&o.namespace, "lease-namespace", election.Defaults().LeaseNamespace, "`namespace` of the Lease of Leader Migration")
}

func newTakeover() *cobra.Command {
	o := &move{agreement: takeover.Agreement{For: 10 * time.Minute, Writes: 20}}
	return session.Program{
		Use: "takeover CONTROLLER...", Short: "Move controllers from kube-controller-manager to Millrace",
		Long: `Moves controllers that run in kube-controller-manager to the Millrace writer that stands by
for them (--enable-leader-migration): the holder of a Lease runs them, so that the two
never both do. It shows what will happen, refuses while the shadow does not
agree, and follows the move until Millrace runs the controllers. See docs/takeover.md.`,
		Example: "  millrace takeover replicaset-controller --plan\n  millrace takeover replicaset-controller --because='ticket 4711'\n  millrace giveback replicaset-controller",
		Args:    cobra.MinimumNArgs(1), Patience: movePatience, Outputs: []string{"table", "json", "yaml"},
		Complete: func(*session.Session, []string, string) []string { return controllerNames() },
		Flags: func(f *pflag.FlagSet) {
			o.add(f)
			f.BoolVar(&o.plan, "plan", false, "show what would happen, and do nothing")
			f.BoolVar(&o.off, "kcm-is-off", false, "no kube-controller-manager runs the controllers, although nothing shows that; without it such a takeover is refused")
			f.DurationVar(&o.agreement.For, "agreed-for", o.agreement.For, "how long the shadow must have been compared; only the findings of this last period count")
			f.IntVar(&o.agreement.Writes, "agreed-writes", o.agreement.Writes, "how many writes must have been compared in that period, for each controller; 0 does not ask the shadow")
			f.IntVar(&o.agreement.Differences, "accept-differences", 0, "how many of them may be unexplained")
		},
		Run: func(ctx context.Context, s *session.Session, args []string) error { return o.takeover(ctx, s, args) },
	}.Command()
}

func newGiveback() *cobra.Command {
	o := &move{}
	return session.Program{
		Use: "giveback CONTROLLER...", Short: "Move controllers from Millrace back to kube-controller-manager",
		Long: `Moves controllers back that millrace takeover has moved: Millrace finishes what it has in
flight, and gives their Lease to kube-controller-manager. It reads nothing of the bus. See
docs/takeover.md.`,
		Example: "  millrace giveback replicaset-controller --because='differences in ticket 4711'",
		Args:    cobra.MinimumNArgs(1), Patience: movePatience, Recordless: true,
		Complete: func(*session.Session, []string, string) []string { return controllerNames() },
		Flags:    o.add,
		Run:      func(ctx context.Context, s *session.Session, args []string) error { return o.giveback(ctx, s, args) },
	}.Command()
}

// controllerNames are the names of all controllers of Millrace.
func controllerNames() (names []string) {
	for _, e := range controllers.Catalog() {
		if e.Exists() {
			names = append(names, e.Name)
		}
	}
	return names
}

// find finds the Lease of the named controllers.
func (o *move) find(ctx context.Context, words []string) (*takeover.Client, takeover.Move, error) {
	var names []string
	for _, word := range words {
		e, err := resolve.Controller(word)
		if err != nil {
			return nil, takeover.Move{}, err
		}
		names = append(names, e.Name)
	}
	rules := clientcmd.NewDefaultClientConfigLoadingRules()
	rules.ExplicitPath = o.kubeconfig
	config, err := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules, nil).ClientConfig()
	if err != nil {
		return nil, takeover.Move{}, fmt.Errorf("read the kubeconfig: %w", err)
	}
	client, err := takeover.New(config, o.namespace)
	if err != nil {
		return nil, takeover.Move{}, err
	}
	m, err := client.Find(ctx, names)
	return client, m, err
}

func (o *move) takeover(ctx context.Context, s *session.Session, words []string) error {
	client, m, err := o.find(ctx, words)
	if err != nil {
		return err
	}
	shadows, err := o.shadows(ctx, s, m.Controllers)
	if err != nil {
		return err
	}
	plan, err := client.Plan(ctx, m, o.agreement, shadows, o.off)
	if err != nil {
		return err
	}
	if err := s.Print(plan, func(p *printer.Paper) { drawPlan(p, plan) }); err != nil {
		return err
	}
	switch {
	case plan.Refused():
		return takeover.ErrRefused
	case o.plan || m.Millrace():
		return nil
	}
	began := time.Now()
	a, err := client.Assign(ctx, m.Lease, election.Millrace, o.because)
	if err != nil {
		return err
	}
	s.Note("assigned to Millrace as %s", a.By)
	if err := client.FollowTakeover(ctx, m.Lease, once(s)); err != nil {
		return err
	}
	s.Note("Millrace runs the controllers, %v after the assignment", time.Since(began).Round(100*time.Millisecond))
	return nil
}

// shadows are the findings about the controllers, those of the last period apart.
func (o *move) shadows(ctx context.Context, s *session.Session, names []string) (map[string]takeover.Shadow, error) {
	ever, err := standing.New(s.Bus).Parities(ctx, names, standing.Compared{})
	if err != nil {
		return nil, err
	}
	lately, err := standing.New(s.Bus).Parities(ctx, names, standing.Compared{Since: s.Now().Add(-o.agreement.For)})
	if err != nil {
		return nil, err
	}
	all := map[string]takeover.Shadow{}
	for _, p := range ever {
		all[p.Controller] = takeover.Shadow{Ever: p}
	}
	for _, p := range lately {
		all[p.Controller] = takeover.Shadow{Ever: all[p.Controller].Ever, Lately: p}
	}
	return all, nil
}

func (o *move) giveback(ctx context.Context, s *session.Session, words []string) error {
	client, m, err := o.find(ctx, words)
	if err != nil {
		return err
	}
	began := time.Now()
	a, err := client.Assign(ctx, m.Lease, election.KCM, o.because)
	if err != nil {
		return err
	}
	s.Note("assigned to kube-controller-manager as %s", a.By)
	if err := client.FollowGiveback(ctx, m.Lease, once(s)); err != nil {
		return err
	}
	s.Note("kube-controller-manager runs the controllers, %v after the assignment", time.Since(began).Round(100*time.Millisecond))
	return nil
}

// once writes each remark once.
func once(s *session.Session) func(string) {
	said := map[string]bool{}
	return func(text string) {
		if !said[text] {
			said[text] = true
			s.Note("%s", text)
		}
	}
}

func drawPlan(p *printer.Paper, plan takeover.Plan) {
	for i, step := range plan.Steps {
		if step.Refused {
			p.Line("%d. %s", i+1, p.In(printer.Red, "refused: "+step.Text))
			continue
		}
		p.Line("%d. %s", i+1, step.Text)
	}
}
