package command

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strings"

	rbacv1 "k8s.io/api/rbac/v1"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/millrace/millrace/cmd/internal/election"
	"github.com/millrace/millrace/cmd/internal/program"
	"github.com/millrace/millrace/cmd/internal/rights"
	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/services/reconcilers/controllers"
)

// rbacOptions are the flags for the roles to print.
type rbacOptions struct {
	of                []string
	controllers       []string
	custom            []string
	impersonation     string
	namespace, prefix string
	writer, account   string
	user              string
	watchers          int
	leases            []string
}

// The parts of the roles, and the ways to impersonate.
const (
	ofWatcher, ofWriter, ofTokens, ofMetrics, ofLeader = "watcher", "writer", "tokens", "metrics", "leader"
	constrained, classic                               = "constrained", "classic"
)

func (o *rbacOptions) add(f *pflag.FlagSet) {
	f.StringSliceVar(&o.of, "of", []string{ofWatcher, ofWriter, ofMetrics}, "`parts` to print: watcher and writer, the roles of these services; metrics, the rights to authorize requests for their metrics; tokens, the role of serviceaccount-token-controller, which Kubernetes does not have; leader, the right to the Leases of --leader-elect and --enable-leader-migration")
	f.StringSliceVar(&o.controllers, "controllers", []string{"*", "-serviceaccount-token-controller"}, "controllers that run, as in the services' flag of that name")
	f.StringSliceVar(&o.custom, "custom-kinds", []string{rights.Any}, "custom `kinds`, such as widgets.example.com, for controllers that read every kind; '*' for all of them puts a \"*\" into the role")
	f.StringVar(&o.impersonation, "impersonation", constrained, "how the writer impersonates: constrained, from Kubernetes 1.36, or classic")
	f.StringVar(&o.namespace, "namespace", "millrace-system", "`namespace` of the services")
	f.StringVar(&o.prefix, "prefix", "millrace", "`prefix` of the names of roles; service accounts always begin with millrace")
	f.StringVar(&o.writer, "writer", "writer", "`suffix` of the names of the writer's roles and service account, if there are several writers")
	f.StringVar(&o.account, "account", "", "`name` of an existing service account that gets the writer's roles (default: a new one)")
	f.StringVar(&o.user, "user", "", "`name` of a user that gets all roles, if one process is watcher and writer; no service account is printed")
	f.StringSliceVar(&o.leases, "lease", []string{election.Defaults().LeaseName}, "`names` of the Leases of the role leader: that of --leader-elect-resource-name, and the leaderName of --leader-migration-config")
	f.IntVar(&o.watchers, "watchers", 2, "number of watcher identities: 2, one with --scope=built-in and one with --scope=other, which may read Secrets; or 1 for all kinds")
}

// check validates the flags.
func (o *rbacOptions) check() error {
	for _, part := range o.of {
		if !slices.Contains([]string{ofWatcher, ofWriter, ofTokens, ofMetrics, ofLeader}, part) {
			return fmt.Errorf("read --of: %q is not %s, %s, %s, %s or %s", part, ofWatcher, ofWriter, ofTokens, ofMetrics, ofLeader)
		}
	}
	if o.impersonation != constrained && o.impersonation != classic {
		return fmt.Errorf("read --impersonation: %q is not %s or %s", o.impersonation, constrained, classic)
	}
	if o.watchers != 1 && o.watchers != 2 {
		return fmt.Errorf("read --watchers: %d is not 1 or 2", o.watchers)
	}
	if o.user != "" && (o.account != "" || o.watchers != 1) {
		return fmt.Errorf("read --user: %s has every role: leave --account out, and set --watchers=1", o.user)
	}
	if slices.Contains(o.custom, rights.Any) && len(o.custom) > 1 {
		return fmt.Errorf("read --custom-kinds: %q stands for every kind: give it alone, or the names without it", rights.Any)
	}
	return nil
}

// newRBAC is the command that prints the roles that the services need.
func newRBAC() *cobra.Command {
	o := rbacOptions{}
	return program.Program{
		Use: "rbac", Short: "Print the roles that the services need on the API server",
		Long: `Prints service accounts, roles and bindings with exactly the rights that the controllers
need, for kubectl apply -f -, or to compare them with those of a cluster. The files
rbac.yaml under deployments are its output.`,
		Flags: []func(*pflag.FlagSet){o.add}, Check: o.check,
		Run: func(context.Context) error {
			text, err := o.yaml()
			if err != nil {
				return err
			}
			_, err = os.Stdout.Write(text)
			return err
		},
	}.Command()
}

// subject is the subject of role bindings: the user of --user, an existing service account, or one
// that it adds to the manifest.
func (o *rbacOptions) subject(m *rights.Manifest, name, account string) rbacv1.Subject {
	switch {
	case o.user != "":
		return rights.User(o.user)
	case account != "":
		return rbacv1.Subject{Kind: rbacv1.ServiceAccountKind, Namespace: o.namespace, Name: account}
	}
	return m.Account(o.namespace, name)
}

func (o *rbacOptions) yaml() ([]byte, error) {
	// The roles include the rights of controllers that only a flag of the services turns on.
	chosen, err := controllers.Select(o.controllers, controllers.Whole())
	if err != nil {
		return nil, fmt.Errorf("read --controllers: %w", err)
	}
	var scraped []rbacv1.Subject
	first := o.prefix + "-" + o.writer
	m := rights.Manifest{Chosen: chosen, Classic: o.impersonation == classic}
	for _, name := range o.custom {
		m.Custom = append(m.Custom, kinds.Name(strings.TrimSpace(name)))
	}
	if slices.Contains(o.of, ofWatcher) {
		who := o.subject(&m, "millrace-watcher", "")
		var other *rbacv1.Subject
		if o.watchers == 2 {
			another := m.Account(o.namespace, "millrace-watcher-other")
			other = &another
		}
		m.Watchers(o.prefix+"-watcher", other, who)
		first, scraped = o.prefix+"-watcher", append(scraped, who)
		if other != nil {
			scraped = append(scraped, *other)
		}
	}
	if slices.Contains(o.of, ofTokens) {
		m.Tokens(o.prefix)
	}
	if slices.Contains(o.of, ofWriter) {
		name := o.prefix + "-" + o.writer
		who := o.subject(&m, "millrace-"+o.writer, o.account)
		m.Writer(name, who)
		if !slices.Contains(scraped, who) {
			scraped = append(scraped, who)
		}
	}
	if slices.Contains(o.of, ofMetrics) && len(scraped) > 0 {
		m.Delegator(first+"-delegator", scraped...)
	}
	if slices.Contains(o.of, ofLeader) {
		m.Leader(o.prefix+"-leader", election.Defaults().LeaseNamespace, o.leases, o.leader())
	}
	return m.YAML()
}

// leader holds the Lease: the writer, which may be one with the other services.
func (o *rbacOptions) leader() rbacv1.Subject {
	switch {
	case o.user != "":
		return rights.User(o.user)
	case o.account != "":
		return rbacv1.Subject{Kind: rbacv1.ServiceAccountKind, Namespace: o.namespace, Name: o.account}
	default:
		return rbacv1.Subject{Kind: rbacv1.ServiceAccountKind, Namespace: o.namespace, Name: "millrace-" + o.writer}
	}
}
