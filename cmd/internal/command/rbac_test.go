package command

import (
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/pflag"
	appsv1 "k8s.io/api/apps/v1"
	networkingv1 "k8s.io/api/networking/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/millrace/millrace/pkg/events/access"
	"github.com/millrace/millrace/services/reconcilers/controllers"
)

const madeBy = "# Made by: millrace rbac"

// TestRolesAreGenerated compares every file of roles with the output of the command that it names.
// UPDATE_ROLES=1 (make rbac) writes them.
func TestRolesAreGenerated(t *testing.T) {
	files, err := filepath.Glob(filepath.Join(deployments, "*", "*.yaml"))
	ok(t, err)
	made := 0
	for _, file := range files {
		text, err := os.ReadFile(file)
		ok(t, err)
		about, rest, generated := strings.Cut(string(text), madeBy)
		if !generated {
			if strings.Contains(string(text), "\nrules:\n") {
				t.Errorf("%s has roles, and does not say what makes them", file)
			}
			continue
		}
		made++
		arguments, _, _ := strings.Cut(rest, "\n")
		want := about + madeBy + arguments + "\n" + string(printed(t, strings.Fields(arguments)...))
		if os.Getenv("UPDATE_ROLES") != "" {
			ok(t, os.WriteFile(file, []byte(want), 0o644))
			continue
		}
		if want != string(text) {
			t.Errorf("%s is not what millrace rbac%s prints; write it anew: make rbac", file, arguments)
		}
	}
	if made < 3 {
		t.Errorf("only %d files of roles are generated", made)
	}
}

// printed is the output of millrace rbac.
func printed(t *testing.T, arguments ...string) []byte {
	t.Helper()
	o, flags := rbacOptions{}, pflag.NewFlagSet("rbac", pflag.ContinueOnError)
	o.add(flags)
	ok(t, flags.Parse(arguments))
	ok(t, o.check())
	text, err := o.yaml()
	ok(t, err)
	return text
}

func TestRBACRefusesWhatCannotBeMeant(t *testing.T) {
	for _, c := range []struct{ argument, says string }{
		{"--of=reconcilers", `"reconcilers" is not watcher, writer, tokens, metrics or leader`},
		{"--impersonation=modern", `"modern" is not constrained or classic`},
		{"--watchers=3", "3 is not 1 or 2"},
		{"--user=millrace", "set --watchers=1"},
		{"--custom-kinds=*,widgets.example.com", "give it alone"},
	} {
		o, flags := rbacOptions{}, pflag.NewFlagSet("rbac", pflag.ContinueOnError)
		o.add(flags)
		ok(t, flags.Parse([]string{c.argument}))
		if err := o.check(); err == nil || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: %v, want an error with %q", c.argument, err, c.says)
		}
	}
}

// TestWatchersDifferInIdentityAndScope: the watcher that reads Secrets has the same access to the bus
// as the other.
func TestWatchersDifferInIdentityAndScope(t *testing.T) {
	all := manifests(t, "kubernetes")
	byName := map[string]*appsv1.Deployment{}
	for _, d := range of[*appsv1.Deployment](all) {
		byName[d.Name] = d
	}
	own, other := byName["millrace-watcher"], byName["millrace-watcher-other"]
	if own == nil || other == nil {
		t.Fatal("there are not two watchers")
	}
	for _, p := range of[*networkingv1.NetworkPolicy](all) {
		if s := labels.Set(own.Spec.Template.Labels); labels.SelectorFromSet(p.Spec.PodSelector.MatchLabels).Matches(s) &&
			!labels.SelectorFromSet(p.Spec.PodSelector.MatchLabels).Matches(labels.Set(other.Spec.Template.Labels)) {
			t.Errorf("the policy %s is about one watcher alone", p.Name)
		}
	}
	a, b := own.Spec.Template.Spec.DeepCopy(), other.Spec.Template.Spec.DeepCopy()
	if a.ServiceAccountName != "millrace-watcher" || b.ServiceAccountName != "millrace-watcher-other" {
		t.Errorf("they are %s and %s", a.ServiceAccountName, b.ServiceAccountName)
	}
	arguments := strings.Join(b.Containers[0].Args, " ")
	if want := strings.Replace(strings.Join(a.Containers[0].Args, " "), "--scope=built-in", "--scope=other", 1); arguments != want {
		t.Errorf("the second watcher is started with %s, want %s", arguments, want)
	}
	for _, pod := range []any{&a.TopologySpreadConstraints, &b.TopologySpreadConstraints} {
		reflect.ValueOf(pod).Elem().SetZero()
	}
	a.ServiceAccountName, b.ServiceAccountName, a.Containers[0].Args, b.Containers[0].Args = "", "", nil, nil
	if !reflect.DeepEqual(a, b) {
		t.Errorf("the watchers differ in more than their scope:\n%+v\n%+v", a, b)
	}
}

// TestSplitWritersShareOutTheControllers: in deployments/kubernetes-split exactly one writer may
// impersonate the identity of each controller.
func TestSplitWritersShareOutTheControllers(t *testing.T) {
	all := manifests(t, "kubernetes-split")
	allowed := map[string][]string{}
	for _, r := range of[*rbacv1.ClusterRole](all) {
		if name, identities := strings.CutSuffix(r.Name, "-identities"); identities {
			allowed[name] = r.Rules[0].ResourceNames
		}
	}
	config := controllers.Whole()
	writers := map[string]string{}
	for _, d := range of[*appsv1.Deployment](all) {
		if d.Spec.Template.Spec.ServiceAccountName != d.Name {
			t.Errorf("%s runs as %s", d.Name, d.Spec.Template.Spec.ServiceAccountName)
		}
		command := subcommand(t, "writer")
		ok(t, command.ParseFlags(d.Spec.Template.Spec.Containers[0].Args[1:]))
		list, err := command.Flags().GetStringSlice("controllers")
		ok(t, err)
		chosen, err := controllers.Select(list, config)
		ok(t, err)
		for _, c := range chosen {
			name, identity := c.Describe().Name, c.Describe().Identity
			if writers[name] != "" {
				t.Errorf("%s falls to %s and to %s", name, writers[name], d.Name)
			}
			writers[name] = d.Name
			user := flagOf(d.Spec.Template.Spec.Containers[0].Args, "nats-user")
			if !slices.Contains(access.SplitWriters, user) || !access.Carries(user, name) {
				t.Errorf("%s falls to %s, which is on the bus as %q, to whom it does not fall", name, d.Name, user)
			}
			for account, identities := range allowed {
				if slices.Contains(identities, identity) != (account == d.Name) {
					t.Errorf("%s is carried out by %s; %s may act as %s: %t", name, d.Name, account, identity, account != d.Name)
				}
			}
		}
	}
	every, err := controllers.Select([]string{"*"}, config)
	ok(t, err)
	for _, c := range every {
		if name := c.Describe().Name; writers[name] == "" {
			t.Errorf("%s has no writer", name)
		}
	}
}

// TestALeaderMayHoldItsLease: and no other Lease, as far as RBAC can restrict verbs to a name.
func TestALeaderMayHoldItsLease(t *testing.T) {
	text := string(printed(t, "--of=watcher,leader", "--watchers=1", "--user=millrace"))
	for _, want := range []string{"kind: Role\n", "namespace: kube-system\n", "resourceNames:\n  - kube-controller-manager\n  resources:\n  - leases\n  verbs:\n  - get\n  - update\n", "kind: User\n  name: millrace\n"} {
		if !strings.Contains(text, want) {
			t.Errorf("the roles of a leader have no %q:\n%s", want, text)
		}
	}
	if without := string(printed(t, "--watchers=1", "--user=millrace")); strings.Contains(without, "\n  - update\n") || strings.Contains(without, "name: millrace-leader") {
		t.Errorf("a Lease is held unasked:\n%s", without)
	}
}

// TestTheRightToALease: it goes to who writes, and to no watcher.
func TestTheRightToALease(t *testing.T) {
	for args, want := range map[string]string{
		"--of=leader":                            "kind: ServiceAccount\n  name: millrace-writer\n",
		"--of=watcher,writer,leader":             "kind: ServiceAccount\n  name: millrace-writer\n",
		"--of=leader --account=mine":             "kind: ServiceAccount\n  name: mine\n",
		"--of=leader --watchers=1 --user=alice":  "kind: User\n  name: alice\n",
		"--of=leader --writer=writer-collectors": "kind: ServiceAccount\n  name: millrace-writer-collectors\n",
	} {
		text := string(printed(t, append(strings.Fields(args), "--lease=moves")...))
		_, binding, is := strings.Cut(text, "-leader\n  namespace: kube-system\nroleRef")
		if binding, _, _ = strings.Cut(binding, "---"); !is || !strings.Contains(binding, want) || strings.Contains(binding, "watcher") || !strings.Contains(text, "- moves\n") {
			t.Errorf("with %s the right is\n%s", args, text)
		}
	}
}
