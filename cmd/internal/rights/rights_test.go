package rights

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"

	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/services/reconcilers/controllers"
	"github.com/millrace/millrace/services/reconcilers/reconcile"
	"github.com/millrace/millrace/services/watcher"
)

func chosen(t *testing.T, list string) []reconcile.Any {
	t.Helper()
	some, err := controllers.Select(strings.Split(list, ","), controllers.Whole())
	if err != nil {
		t.Fatal(err)
	}
	return some
}

func has(rules []rbacv1.PolicyRule, verb, group, resource string) bool {
	return slices.ContainsFunc(rules, func(r rbacv1.PolicyRule) bool { return covers(r, Need{Verb: verb, Group: group, Resource: resource}) })
}

func TestWatchersReadWhatControllersRead(t *testing.T) {
	for _, c := range []struct {
		list    string
		scope   watcher.Scope
		custom  []kinds.Name
		secrets bool
		widgets bool
		pods    bool
	}{
		{"*", watcher.BuiltIn, []kinds.Name{Any}, false, false, true},
		{"*", watcher.Other, []kinds.Name{Any}, true, true, true}, // RBAC has no word for less
		{"*", watcher.Other, []kinds.Name{"widgets.example.com"}, true, true, false},
		{"*", watcher.Other, nil, true, false, false},
		{"*", watcher.All, nil, true, false, true},
		{"garbage-collector-controller", watcher.BuiltIn, nil, false, false, true},
		{"replicaset-controller", watcher.All, []kinds.Name{Any}, false, false, true},
		{"replicaset-controller", watcher.Other, []kinds.Name{Any}, false, false, false},
		{"legacy-serviceaccount-token-cleaner-controller", watcher.Other, nil, true, false, false},
	} {
		rules := Watcher(chosen(t, c.list), c.scope, c.custom)
		for what, want := range map[[2]string]bool{{"", "secrets"}: c.secrets, {"example.com", "widgets"}: c.widgets, {"", "pods"}: c.pods} {
			for _, verb := range []string{"list", "watch"} {
				if has(rules, verb, what[0], what[1]) != want {
					t.Errorf("a watcher of %s, scope %s, custom kinds %v: %s %v is %t", c.list, c.scope, c.custom, verb, what, !want)
				}
			}
		}
		for _, r := range rules {
			if !slices.Equal(r.Verbs, []string{"list", "watch"}) {
				t.Errorf("a watcher may %v", r)
			}
		}
	}
}

// TestAListedWriterHasNoStar: if custom kinds are named, the role has only scale for every kind,
// and so no subresource such as nodes/proxy.
func TestAListedWriterHasNoStar(t *testing.T) {
	needs, err := Needs(chosen(t, "*"))
	if err != nil {
		t.Fatal(err)
	}
	rules := Writer(needs, []kinds.Name{"widgets.example.com"})
	for what, want := range map[Need]bool{
		{Verb: "delete", Group: "example.com", Resource: "widgets"}:                      true,
		{Verb: "get", Group: "", Resource: "secrets"}:                                    true,
		{Verb: "create", Group: "", Resource: "pods"}:                                    true,
		{Verb: "get", Group: "", Resource: "nodes/proxy"}:                                false,
		{Verb: "get", Group: "", Resource: "pods/log"}:                                   false,
		{Verb: "delete", Group: "example.com", Resource: "others"}:                       false,
		{Verb: "create", Group: "", Resource: "secrets"}:                                 false,
		{Verb: "escalate", Group: "rbac.authorization.k8s.io", Resource: "clusterroles"}: false,
	} {
		if has(rules, Constrained+what.Verb, what.Group, what.Resource) != want {
			t.Errorf("the writer may %s: %t", fmt.Sprint(what), !want)
		}
	}
}

// Rights that a controller has in some namespaces only come from its role there: the cleaner of
// expired tokens needs nothing else.
func TestACleanerOfTokensReadsAndDeletesThem(t *testing.T) {
	needs, err := Needs(chosen(t, "tokencleaner"))
	if err != nil {
		t.Fatal(err)
	}
	var of []string
	for _, n := range needs {
		if n.Identity != "token-cleaner" {
			t.Errorf("%+v", n)
		}
		of = append(of, n.Verb+" "+n.Resource)
	}
	if want := []string{"create events", "patch events", "delete secrets", "get secrets", "list secrets"}; !slices.Equal(of, want) {
		t.Errorf("the writer may %q, want %q", of, want)
	}
}

// It replaces one ConfigMap, by a rule of its role that names it, and reads the tokens.
func TestASignerReadsTokensAndReplacesAConfigMap(t *testing.T) {
	needs, err := Needs(chosen(t, "bootstrapsigner"))
	if err != nil {
		t.Fatal(err)
	}
	var of []string
	for _, n := range needs {
		of = append(of, n.Verb+" "+n.Resource)
	}
	if want := []string{"get configmaps", "update configmaps", "create events", "patch events", "list secrets"}; !slices.Equal(of, want) {
		t.Errorf("the writer may %q, want %q", of, want)
	}
	f := finding{role: []rbacv1.PolicyRule{{Verbs: []string{"update"}, APIGroups: []string{""}, Resources: []string{"configmaps"}, ResourceNames: []string{"a", "b"}}}, needs: map[Need]bool{}}
	if f.add("update", "", "configmaps") || f.add("update", "", "configmaps", "a", "c") || !f.add("update", "", "configmaps", "b") {
		t.Error("a rule that names objects counts for these, and for no others")
	}
}

func TestAWriterOfWorkloadsHasNothingToDoWithSecrets(t *testing.T) {
	needs, err := Needs(chosen(t, "*,-garbagecollector,-namespace,-svm,-serviceaccount-token,-legacy-serviceaccount-token-cleaner-controller"))
	if err != nil {
		t.Fatal(err)
	}
	for _, n := range needs {
		if n.Resource == "secrets" || n.Resource == Any && n.Group == Any {
			t.Errorf("%+v", n)
		}
	}
}
