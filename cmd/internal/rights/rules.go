package rights

import (
	"cmp"
	"maps"
	"slices"
	"strings"

	rbacv1 "k8s.io/api/rbac/v1"

	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/services/reconcilers/controllers"
	"github.com/millrace/millrace/services/reconcilers/reconcile"
	"github.com/millrace/millrace/services/watcher"
)

// Constrained is the prefix of the verbs in a writer's role.
const Constrained = "impersonate-on:serviceaccount:"

// grid has the verbs of each resource.
type grid map[[2]string]map[string]bool

func (g grid) add(group, resource string, verbs ...string) {
	at := [2]string{group, resource}
	if g[at] == nil {
		g[at] = map[string]bool{}
	}
	for _, v := range verbs {
		g[at][v] = true
	}
}

// rules are the fewest rules with exactly these rights: resources of a group with the same
// verbs share one. They do not repeat rights that a rule for "*" has.
func (g grid) rules() (all []rbacv1.PolicyRule) {
	every := g[[2]string{Any, Any}]
	shared := map[[2]string][]string{} // by group and verbs
	for at, verbs := range g {
		kept := slices.Sorted(maps.Keys(verbs))
		if at != [2]string{Any, Any} {
			kept = slices.DeleteFunc(kept, func(v string) bool { return every[v] })
		}
		if len(kept) > 0 {
			by := [2]string{at[0], strings.Join(kept, " ")}
			shared[by] = append(shared[by], at[1])
		}
	}
	for by, resources := range shared {
		slices.Sort(resources)
		all = append(all, rbacv1.PolicyRule{APIGroups: []string{by[0]}, Resources: resources, Verbs: strings.Fields(by[1])})
	}
	slices.SortFunc(all, func(a, b rbacv1.PolicyRule) int {
		return cmp.Or(cmp.Compare(a.APIGroups[0], b.APIGroups[0]), slices.Compare(a.Resources, b.Resources), slices.Compare(a.Verbs, b.Verbs))
	})
	return all
}

// every adds verbs on every kind: on "*", or on the built-in kinds and the named custom
// ones.
func (g grid) every(custom []kinds.Name, verbs ...string) {
	if slices.Contains(custom, Any) {
		g.add(Any, Any, verbs...)
		return
	}
	for _, kind := range slices.Concat(kinds.BuiltIn(), custom) {
		g.add(kind.Group(), kind.Resource(), verbs...)
	}
}

// Watcher are the rules that a watcher of a scope needs for some controllers. custom are the
// custom kinds; a "*" stands for all of them, and for Secrets.
func Watcher(chosen []reconcile.Any, scope watcher.Scope, custom []kinds.Name) []rbacv1.PolicyRule {
	full, every := controllers.Kinds(chosen)
	g := grid{}
	add := func(kind kinds.Name) {
		if scope.Has(kind) {
			g.add(kind.Group(), kind.Resource(), "list", "watch")
		}
	}
	for _, k := range full {
		add(k.Name)
	}
	switch {
	case every && scope != watcher.BuiltIn && slices.Contains(custom, Any):
		g = grid{}
		g.add(Any, Any, "list", "watch")
	case every:
		for _, kind := range slices.Concat(kinds.BuiltIn(), custom) {
			add(kind)
		}
		g.add("", kinds.Namespaces.Name.Resource(), "list", "watch") // the watcher takes the storage's revision from it
	}
	return g.rules()
}

// Writer are the rules that a writer needs besides its identities for constrained
// impersonation. custom is as in [Watcher].
func Writer(needs []Need, custom []kinds.Name) []rbacv1.PolicyRule {
	g, paths := grid{}, map[string]bool{}
	for _, n := range needs {
		switch verb := Constrained + n.Verb; {
		case n.Path != "":
			paths[n.Path] = true
		case n.Group == Any && n.Resource == Any:
			g.every(custom, verb)
		default:
			g.add(n.Group, n.Resource, verb)
		}
	}
	all := g.rules()
	for _, path := range slices.Sorted(maps.Keys(paths)) {
		all = append(all, rbacv1.PolicyRule{NonResourceURLs: []string{path}, Verbs: []string{Constrained + "get"}})
	}
	return all
}

// Identities are the service accounts in kube-system of controllers.
func Identities(chosen []reconcile.Any) (names []string) {
	for _, c := range chosen {
		names = append(names, c.Describe().Identity)
	}
	slices.Sort(names)
	return slices.Compact(names)
}
