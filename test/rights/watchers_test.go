package rights

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
)

// watchers are the watchers' roles in files. Watchers impersonate no other user.
var watchers = []manifest{
	{"kubernetes", "rbac.yaml", "millrace-watcher"},
	{"kubernetes", "rbac.yaml", "millrace-watcher-other"},
	{"kubernetes-shadow", "rbac.yaml", "millrace-shadow-watcher"},
}

// roleless is the account of the pods of reconcilers, bus, provisioner and notary. None of these pods mounts
// a token of it, and the account may do nothing.
const roleless = "the account without a role"

// TestWatchersMatrix tries every request that the writers are measured by, as each watcher and as an account
// without a role. Watchers list and watch, and need each of their rights for that; only the watcher for
// Secrets reads them.
func TestWatchersMatrix(t *testing.T) {
	s := begin(t)
	writes, _ := promised()
	asked := slices.Concat(writes, reads, worse, impersonations)
	var table strings.Builder
	for _, m := range append(slices.Clone(watchers), manifest{role: roleless}) {
		var rules []rbacv1.PolicyRule
		if m.role != roleless {
			rules = clusterRoles(t, m.folder, m.file)[m.role]
		}
		w := s.writer(t, nil, rules)
		if len(rules) > 0 {
			w.await(t, "", attempt(rightsIn(rules)[0]))
		}
		var may []string
		for _, p := range asked {
			if got := w.ask(t, "", p); got == byWriter {
				continue
			}
			may = append(may, p.String())
			if p.verb != "list" && p.verb != "watch" {
				t.Errorf("%s may %v", m.role, p)
			}
		}
		fmt.Fprintf(&table, "== %s\n  may: %s\n  is refused: %d others\n", m.role, strings.Join(may, ", "), len(asked)-len(may))
		t.Run("each right of "+m.role, func(t *testing.T) { s.lessOfWatcher(t, m.role, rules) })
	}
	golden(t, "testdata/watchers.txt", table.String())
}

// impersonations are requests to act as another user.
var impersonations = []probe{
	{verb: "list", resource: "serviceaccounts"}, {verb: "create", group: "authentication.k8s.io", resource: "tokenreviews"},
	{verb: "list", group: "rbac.authorization.k8s.io", resource: "clusterrolebindings"}, {verb: "list", group: "example.com", resource: "widgets"},
}

// lessOfWatcher removes each right in turn from a watcher's role: the API server then refuses the request
// that needs it, and no other.
func (s *site) lessOfWatcher(t *testing.T, name string, rules []rbacv1.PolicyRule) {
	rights := rightsIn(rules)
	for i, right := range rights {
		if right.resource == "clustertrustbundles" {
			continue // Upstream: system:cluster-trust-bundle-discovery lets each service account read them
		}
		less := slices.Delete(slices.Clone(rights), i, i+1)
		without := s.writer(t, nil, rulesOf(less))
		without.await(t, "", attempt(less[(i+1)%len(less)]))
		if got := without.ask(t, "", attempt(right)); got != byWriter {
			t.Errorf("without the right to %v the watcher can do that all the same: another rule of %s gives it, too", right, name)
		}
	}
}
