package command

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"sigs.k8s.io/yaml"

	"github.com/millrace/millrace/services/reconcilers/controllers"
)

// TestTheShadowReadsAndNothingElse compares the role of deployments/kubernetes-shadow with the
// controllers in shadow: the watcher may list and watch the kinds that they read, and no account
// may do anything else.
func TestTheShadowReadsAndNothingElse(t *testing.T) {
	all := manifests(t, "kubernetes-shadow")
	var want, got []string
	for _, c := range looking(t, of[*corev1.ConfigMap](all)[0]) {
		want = append(want, kindsOf(t, c)...)
	}
	roles := of[*rbacv1.ClusterRole](all)
	if len(roles) != 1 || len(of[*rbacv1.Role](all)) > 0 || len(of[*rbacv1.ClusterRoleBinding](all)) != 1 || len(of[*rbacv1.RoleBinding](all)) > 0 {
		t.Fatalf("there are %d roles", len(roles))
	}
	for _, rule := range roles[0].Rules {
		if !slices.Equal(rule.Verbs, []string{"list", "watch"}) {
			t.Errorf("the watcher may %v", rule)
		}
		for _, group := range rule.APIGroups {
			for _, resource := range rule.Resources {
				got = append(got, strings.TrimSuffix(resource+"."+group, "."))
			}
		}
	}
	slices.Sort(want)
	slices.Sort(got)
	if want = slices.Compact(want); !slices.Equal(got, want) {
		t.Errorf("the watcher may read %v; the controllers read %v", got, want)
	}
}

// TestTheShadowsUsers: each service logs in to the bus as the user with no more rights than it
// needs, and only the watcher has Kubernetes credentials.
func TestTheShadowsUsers(t *testing.T) {
	all := manifests(t, "kubernetes-shadow")
	deployed := map[string]string{}
	for _, d := range of[*appsv1.Deployment](all) {
		pod := d.Spec.Template.Spec
		c := pod.Containers[0]
		for _, arg := range c.Args {
			if user, is := strings.CutPrefix(arg, "--nats-user="); is {
				deployed[c.Args[0]] = user
			}
		}
		if none := pod.AutomountServiceAccountToken != nil && !*pod.AutomountServiceAccountToken; none == (c.Args[0] == "watcher") {
			t.Errorf("%s has credentials of Kubernetes: %t", d.Name, !none)
		}
	}
	if len(deployed) != 3 || deployed["provisioner"] != "provisioner" || deployed["watcher"] != "watcher" || deployed["reconcilers"] != "shadow" {
		t.Errorf("the services come to the bus as %v", deployed)
	}
	bus := of[*appsv1.StatefulSet](all)[0].Spec.Template.Spec.Containers[0]
	if !slices.Contains(bus.Args, "--nats-accounts=/etc/nats/accounts.conf") {
		t.Errorf("the bus is started with %v: it lets everybody in", bus.Args)
	}
}

// looking are the controllers in shadow in a configuration. None may act.
func looking(t *testing.T, config *corev1.ConfigMap) []string {
	t.Helper()
	var file struct {
		Flags map[string]any `json:"flags"`
	}
	ok(t, yaml.Unmarshal([]byte(config.Data["services.yaml"]), &file))
	if file.Flags["shadow"] != "*" {
		t.Errorf("only %v are in shadow", file.Flags["shadow"])
	}
	return strings.Split(fmt.Sprint(file.Flags["controllers"]), ",")
}

// kindsOf are the kinds that a controller reads, as RBAC names them.
func kindsOf(t *testing.T, controller string) (names []string) {
	t.Helper()
	chosen, err := controllers.Select([]string{controller}, controllers.Whole())
	if err != nil || len(chosen) != 1 {
		t.Fatalf("%q is %d controllers: %v", controller, len(chosen), err)
	}
	full, every := controllers.Kinds(chosen)
	if every {
		return []string{"*"}
	}
	for _, k := range full {
		names = append(names, string(k.Name))
	}
	return names
}

// TestThePageListsWhatControllersRead: docs/deploy-shadow.md lists the kinds that each controller
// needs in the role.
func TestThePageListsWhatControllersRead(t *testing.T) {
	page, err := os.ReadFile(filepath.Join(checkout, "docs", "deploy-shadow.md"))
	ok(t, err)
	listed := map[string][]string{}
	for _, row := range regexp.MustCompile("(?m)^\\| `([a-z-]+-controller)` \\| (.*) \\|$").FindAllStringSubmatch(string(page), -1) {
		for _, name := range regexp.MustCompile("`([^`]+)`").FindAllStringSubmatch(row[2], -1) {
			listed[row[1]] = append(listed[row[1]], name[1])
		}
	}
	for _, e := range controllers.Catalog() {
		if !e.Exists() {
			continue
		}
		want := kindsOf(t, e.Name)
		slices.Sort(want)
		if got := listed[e.Name]; !slices.Equal(got, want) {
			t.Errorf("docs/deploy-shadow.md lists %v; write\n| `%s` | `%s` |", got, e.Name, strings.Join(want, "`, `"))
		}
		delete(listed, e.Name)
	}
	for name := range listed {
		t.Errorf("docs/deploy-shadow.md lists %s, which does not exist", name)
	}
}
