package rights

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/query"
	"github.com/millrace/millrace/services/reconcilers/controllers"
)

const onBehalf = "impersonate-on:serviceaccount:"

// rightsIn are the rights in rules, each with one verb and one resource.
func rightsIn(rules []rbacv1.PolicyRule) (all []probe) {
	for _, r := range rules {
		for _, verb := range r.Verbs {
			for _, path := range r.NonResourceURLs {
				all = append(all, probe{verb: verb, path: path})
			}
			for _, group := range r.APIGroups {
				for _, resource := range r.Resources {
					all = append(all, probe{verb: verb, group: group, resource: resource})
				}
			}
		}
	}
	return all
}

// rulesOf converts rights to rules.
func rulesOf(rights []probe) (rules []rbacv1.PolicyRule) {
	for _, r := range rights {
		if r.path != "" {
			rules = append(rules, rbacv1.PolicyRule{Verbs: []string{r.verb}, NonResourceURLs: []string{r.path}})
			continue
		}
		rules = append(rules, rbacv1.PolicyRule{Verbs: []string{r.verb}, APIGroups: []string{r.group}, Resources: []string{r.resource}})
	}
	return rules
}

// promised are the writes that controllers promise, by identity, as requests. For a promise about any kind
// the request is about ConfigMaps.
func promised() (all []probe, by map[string]map[probe]bool) {
	by = map[string]map[probe]bool{}
	for _, profile := range controllers.Profiles() {
		if by[profile.Identity] == nil {
			by[profile.Identity] = map[probe]bool{}
		}
		for _, w := range profile.Promise {
			if w.Verb == events.VerbAsk {
				continue
			}
			p := probe{verb: string(w.Verb), group: w.Kind.Group(), resource: w.Kind.Resource()}
			switch {
			case w.Any && w.Subresource != "":
				p.group, p.resource = "apps", "deployments"
			case w.Any:
				p.resource = "configmaps"
			case w.Subresource == query.SubCertificate:
				p.verb, p.resource = "update", p.resource+"/status"
			}
			switch w.Subresource {
			case "", query.SubToken, query.SubCertificate:
			case query.SubSignatures: // the writer replaces the object
				p.verb = "update"
			default:
				p.resource += "/" + w.Subresource
			}
			by[profile.Identity][p] = true
			if !slices.Contains(all, p) {
				all = append(all, p)
			}
		}
	}
	return all, by
}

// reads are the reads that matter: confidential data, and reads that lead to more rights.
var reads = []probe{
	{verb: "get", resource: "secrets"}, {verb: "list", resource: "secrets"}, {verb: "watch", resource: "secrets"},
	{verb: "get", resource: "configmaps"}, {verb: "list", resource: "configmaps"}, {verb: "list", resource: "pods"}, {verb: "get", resource: "pods"},
	{verb: "get", resource: "nodes/proxy"}, {verb: "get", resource: "pods/log"}, {verb: "get", group: "apps", resource: "deployments/scale"},
}

// worse are dangerous writes that no controller promises.
var worse = []probe{
	{verb: "create", resource: "secrets"}, {verb: "update", resource: "secrets"}, {verb: "create", resource: "serviceaccounts/token"},
	{verb: "create", resource: "pods/exec"}, {verb: "create", resource: "pods/binding"}, {verb: "update", resource: "nodes"}, {verb: "create", resource: "nodes"},
	{verb: "create", group: "rbac.authorization.k8s.io", resource: "clusterroles"}, {verb: "update", group: "rbac.authorization.k8s.io", resource: "clusterroles"},
	{verb: "create", group: "rbac.authorization.k8s.io", resource: "clusterrolebindings"},
	{verb: "create", group: "admissionregistration.k8s.io", resource: "mutatingwebhookconfigurations"}, {verb: "create", group: "authorization.k8s.io", resource: "subjectaccessreviews"},
}

// identitiesIn are the accounts that a role allows to impersonate.
func identitiesIn(t *testing.T, rules []rbacv1.PolicyRule) []string {
	t.Helper()
	if len(rules) != 1 || len(rules[0].ResourceNames) == 0 || rules[0].Verbs[0] != "impersonate:serviceaccount" {
		t.Fatalf("the identities are %v", rules)
	}
	return rules[0].ResourceNames
}

// manifest names a file and a role in it: the rights of a writer or watcher.
type manifest struct{ folder, file, role string }

var writers = []manifest{
	{"kubernetes", "rbac.yaml", "millrace-writer"},
	{"kubernetes", "tokens.yaml", "millrace-writer-tokens"},
	{"kubernetes-split", "workloads.yaml", "millrace-writer-workloads"},
	{"kubernetes-split", "collectors.yaml", "millrace-writer-collectors"},
	{"kubernetes-split", "credentials.yaml", "millrace-writer-credentials"},
}

// TestMatrix tries every request as each identity of each writer, and as the writer itself.
func TestMatrix(t *testing.T) {
	s := begin(t)
	// Kubernetes has no role for the controller of tokens.
	for name, rules := range clusterRoles(t, "kubernetes", "tokens.yaml") {
		if strings.HasSuffix(name, "-tokens-controller") {
			s.role(t, "tokens-controller", rules, rbacv1.Subject{Kind: rbacv1.ServiceAccountKind, Namespace: "kube-system", Name: "tokens-controller"})
		}
	}
	writes, by := promised()
	asked := slices.Concat(writes, reads, worse)
	var table strings.Builder
	for _, m := range writers {
		roles := clusterRoles(t, m.folder, m.file)
		rules, who := roles[m.role], roles[m.role+"-identities"]
		w := s.writer(t, who, rules)
		names := identitiesIn(t, who)
		w.await(t, names[0], attempt(rightsIn(rules)[0]))
		fmt.Fprintf(&table, "== %s of deployments/%s/%s\n", m.role, m.folder, m.file)
		for _, identity := range append([]string{"", "route-controller"}, names...) {
			row := map[string][]string{}
			for _, p := range asked {
				got := w.ask(t, identity, p)
				row[got] = append(row[got], p.String())
				if by[identity][p] && got != yes {
					t.Errorf("%s may not %v as %s, which promises it: %s", m.role, p, identity, got)
				}
			}
			write(&table, identity, row)
		}
		t.Run("each right of "+m.role, func(t *testing.T) { s.removals(t, m.role, names, rules) })
		t.Run("each identity of "+m.role, func(t *testing.T) { s.identities(t, names, who, rules) })
	}
	golden(t, "testdata/matrix.txt", table.String())
}

// write adds the row of an identity to the table.
func write(table *strings.Builder, identity string, row map[string][]string) {
	if identity == "" {
		identity = "itself"
	}
	fmt.Fprintf(table, "%s\n", identity)
	for _, answer := range []struct{ is, says string }{{yes, "may"}, {byRole, "is kept by its own role from"}} {
		if some := row[answer.is]; len(some) > 0 {
			fmt.Fprintf(table, "  %s: %s\n", answer.says, strings.Join(some, ", "))
		}
	}
	fmt.Fprintf(table, "  the writer is refused: %d others\n", len(row[byWriter]))
}

// golden compares a text with a golden file, or writes the file.
func golden(t *testing.T, file, got string) {
	t.Helper()
	if os.Getenv("UPDATE_MATRIX") != "" {
		ok(t, os.WriteFile(file, []byte(got), 0o644))
	}
	want, err := os.ReadFile(file)
	ok(t, err)
	if got != string(want) {
		t.Errorf("the API server gives another table than %s; UPDATE_MATRIX=1 writes it. It gives\n%s", file, got)
	}
}

// removals removes each right in turn from a writer's role: the API server must then refuse a request that
// some identity could make before.
func (s *site) removals(t *testing.T, name string, identities []string, rules []rbacv1.PolicyRule) {
	rights := rightsIn(rules)
	full := s.writer(t, anyIdentity, rules)
	full.await(t, identities[0], attempt(rights[0]))
	for i, right := range rights {
		try := attempt(right)
		at := slices.IndexFunc(identities, func(id string) bool { return full.ask(t, id, try) == yes })
		if at < 0 {
			t.Errorf("%s has the right to %v, with which no identity can do anything", name, right)
			continue
		}
		without := s.writer(t, anyIdentity, rulesOf(slices.Delete(slices.Clone(rights), i, i+1)))
		without.await(t, identities[at], attempt(rights[(i+1)%len(rights)]))
		if got := without.ask(t, identities[at], try); got != byWriter {
			t.Errorf("without the right to %v the writer can do that as %s all the same (%s): another rule of %s gives it, too", right, identities[at], got, name)
		}
	}
}

// attempt is a request that needs a right. For "*" it is about Deployments.
func attempt(right probe) probe {
	try := right
	try.verb = strings.TrimPrefix(right.verb, onBehalf)
	if try.group == "*" {
		try.group = "apps"
	}
	try.resource = strings.Replace(try.resource, "*", "deployments", 1)
	return try
}

// anyIdentity lets a writer of these tests impersonate every account.
var anyIdentity = []rbacv1.PolicyRule{{APIGroups: []string{"authentication.k8s.io"}, Resources: []string{"serviceaccounts"}, Verbs: []string{"impersonate:serviceaccount"}}}

// identities removes each identity in turn.
func (s *site) identities(t *testing.T, names []string, who, rules []rbacv1.PolicyRule) {
	control := attempt(rightsIn(rules)[0])
	for i, identity := range names {
		less := *who[0].DeepCopy()
		less.ResourceNames = slices.Delete(slices.Clone(names), i, i+1)
		if len(less.ResourceNames) == 0 {
			continue // an empty list of names means all names
		}
		w := s.writer(t, []rbacv1.PolicyRule{less}, rules)
		w.await(t, less.ResourceNames[0], control)
		if got := w.ask(t, identity, control); got != byWriter {
			t.Errorf("%s, which is not named, can be impersonated: %s", identity, got)
		}
	}
}
