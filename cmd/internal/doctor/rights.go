package doctor

import (
	"slices"
	"strings"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/millrace/millrace/cmd/internal/rights"
)

// The parts whose rights are checked, named as in millrace rbac.
const (
	PartWatcher = "watcher"
	PartWriter  = "writer"
	PartMetrics = "metrics"
	PartLeader  = "leader"
)

// Right is one permission of a user.
type Right struct {
	Verb string
	// Group and Resource are as in RBAC: the resource may have a subresource.
	Group, Resource string
	// Namespace restricts the right to one namespace; empty: all. Name restricts it to one
	// object.
	Namespace, Name string
	// Path is a non-resource URL; Group and Resource are empty then.
	Path string
}

// String is the right as text for users.
func (r Right) String() string {
	text := r.Verb + " " + r.Resource + r.Path
	if r.Group != "" {
		text += "." + r.Group
	}
	if r.Name != "" {
		text += " " + r.Name
	}
	if r.Namespace != "" {
		text += " in " + r.Namespace
	}
	return text
}

// Rights are the single rights in rules.
func Rights(rules []rbacv1.PolicyRule, namespace string) (all []Right) {
	for _, rule := range rules {
		for _, verb := range rule.Verbs {
			for _, path := range rule.NonResourceURLs {
				all = append(all, Right{Verb: verb, Path: path})
			}
			for _, group := range rule.APIGroups {
				for _, resource := range rule.Resources {
					for _, name := range names(rule) {
						all = append(all, Right{Verb: verb, Group: group, Resource: resource, Namespace: namespace, Name: name})
					}
				}
			}
		}
	}
	return all
}

func names(rule rbacv1.PolicyRule) []string {
	if len(rule.ResourceNames) == 0 {
		return []string{""}
	}
	return rule.ResourceNames
}

// given is whether rules include a right.
func given(rules []rbacv1.PolicyRule, r Right) bool {
	return slices.ContainsFunc(rules, func(rule rbacv1.PolicyRule) bool {
		return rights.Covers(rule, rights.Need{Verb: r.Verb, Group: r.Group, Resource: r.Resource, Path: r.Path}, r.Name)
	})
}

// Needed are the rights that one part needs.
type Needed struct {
	Part string
	// All are needed.
	All []Right
	// Instead are the rights of classic impersonation: each replaces the one of All at its
	// position. If all of them are given, Bounds are not needed.
	Instead []Right
	Bounds  []Right
	// Idle is why no right is needed; empty: some are.
	Idle string
	// Roles is the command that prints the roles.
	Roles string
	// Optional: a missing right is a warning.
	Optional bool
}

// WriterNeeds are the rights of a writer that impersonates the controllers' accounts: by
// constrained impersonation, which bounds its requests as them, or by the classic one.
func WriterNeeds(identities []string, bounds []rbacv1.PolicyRule, constrains bool) Needed {
	n := Needed{Part: PartWriter}
	for _, name := range identities {
		n.All = append(n.All, Right{Verb: "impersonate:serviceaccount", Group: "authentication.k8s.io", Resource: "serviceaccounts", Namespace: metav1.NamespaceSystem, Name: name})
		n.Instead = append(n.Instead, Right{Verb: "impersonate", Resource: "serviceaccounts", Namespace: metav1.NamespaceSystem, Name: name})
	}
	if !constrains {
		n.All, n.Instead = n.Instead, nil
		return n
	}
	n.Bounds = Rights(bounds, "")
	return n
}

// Finding checks the needed rights against may, the given ones.
func (n Needed) Finding(may map[Right]bool) Finding {
	check := rightsOf + n.Part
	if n.Idle != "" {
		return found(check, NotChecked, "%s", n.Idle)
	}
	lacks := func(all []Right) (list []string) {
		for _, r := range all {
			if !may[r] {
				list = append(list, r.String())
			}
		}
		return list
	}
	missing, how := lacks(slices.Concat(n.All, n.Bounds)), ""
	if len(n.Instead) > 0 && len(missing) > 0 && len(lacks(n.Instead)) == 0 {
		missing, how = nil, "; it impersonates in the classic way, bounded by the controllers' own roles alone"
	}
	needed := len(n.All) + len(n.Bounds)
	if len(missing) == 0 {
		return found(check, OK, "all %d rights of the %s are there%s", needed, n.Part, how)
	}
	state := Failed
	if n.Optional {
		state = Warning
	}
	return found(check, state, "%d of %d rights of the %s are missing: %s", len(missing), needed, n.Part, some(missing)).
		so("apply the roles: %s | kubectl apply -f - (docs/rights.md)", n.Roles)
}

// split splits a resource and its subresource.
func split(resource string) (plural, sub string) {
	plural, sub, _ = strings.Cut(resource, "/")
	return plural, sub
}
