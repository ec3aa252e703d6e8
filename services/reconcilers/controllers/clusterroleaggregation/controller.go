// Package clusterroleaggregation gives ClusterRoles with an aggregation rule the rules of
// the roles that it selects, so that "view", "edit" and "admin" grow with what is
// installed in a cluster.
package clusterroleaggregation

import (
	"time"

	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/services/reconcilers/reconcile"
)

// Controller is the aggregation controller. A key is a ClusterRole.
var Controller = reconcile.Controller[View]{
	Name:    "clusterrole-aggregation-controller",
	Aliases: []string{"clusterrole-aggregation"},
	Queue:   "ClusterRoleAggregator",
	Owns:    &kinds.ClusterRoles.Kind,
	Inputs:  []reconcile.Input{{Kind: kinds.ClusterRoles.Kind, Keys: aggregated}},
	Writes: reconcile.Writes{
		{Verb: events.VerbPatch, Kind: kinds.ClusterRoles.Name, On: reconcile.Itself, Fields: []string{".rules"}, How: []types.PatchType{types.ApplyPatchType}, Where: ".aggregationRule"},
	},
	Observe: observe,
	Decide:  decide,
}

// View is the input of the turn of one role.
type View struct {
	Role *rbacv1.ClusterRole `json:"role"`
	// Parts are the other roles that the role selects, in the order of its selectors,
	// then by name. A role that several selectors match appears several times.
	Parts []*rbacv1.ClusterRole `json:"parts,omitempty"`
	// Malformed is true if one of the selectors is invalid.
	Malformed bool `json:"malformed,omitempty"`
}

// aggregated returns the keys of all roles with an aggregation rule, because any changed
// role may be part of any of them, or have been.
func aggregated(s reconcile.Snapshot, _, _ reconcile.Object) []events.Key {
	var keys []events.Key
	for _, role := range reconcile.List(s, kinds.ClusterRoles, "") {
		if role.AggregationRule != nil {
			keys = append(keys, events.Key{Name: role.Name})
		}
	}
	return keys
}

func observe(s reconcile.Snapshot, k events.Key) (View, bool) {
	role, ok := reconcile.Get(s, kinds.ClusterRoles, "", k.Name)
	if !ok || role.AggregationRule == nil {
		return View{}, false
	}
	v := View{Role: role}
	all := reconcile.List(s, kinds.ClusterRoles, "")
	for i := range role.AggregationRule.ClusterRoleSelectors {
		selector, err := metav1.LabelSelectorAsSelector(&role.AggregationRule.ClusterRoleSelectors[i])
		if err != nil {
			v.Malformed = true
			continue
		}
		for _, part := range all {
			if part.Name != role.Name && selector.Matches(labels.Set(part.Labels)) {
				v.Parts = append(v.Parts, part)
			}
		}
	}
	return v, true
}

func decide(v View, _ time.Time) reconcile.Decision {
	rules := v.rules()
	switch {
	case v.Malformed:
		return reconcile.Nothing("a selector of the aggregation rule is malformed")
	case equality.Semantic.DeepEqual(rules, v.Role.Rules):
		return reconcile.Nothing("the role has the rules of the aggregated roles")
	}
	// Upstream: server-side apply. The uid makes the API server refuse it for another
	// role of this name.
	body := map[string]any{
		"apiVersion": kinds.ClusterRoles.APIVersion(), "kind": kinds.ClusterRoles.Kind.Kind,
		"metadata": map[string]any{"name": v.Role.Name, "uid": v.Role.UID}, "rules": rules,
	}
	return reconcile.Do("the role's rules differ from those of the aggregated roles",
		reconcile.Patch(kinds.ClusterRoles.Kind, v.Role, types.ApplyPatchType, reconcile.Body(body)))
}

// rules returns the rules of all parts, each once.
func (v View) rules() []rbacv1.PolicyRule {
	rules := []rbacv1.PolicyRule{}
	for _, part := range v.Parts {
		for _, rule := range part.Rules {
			if !contains(rules, rule) {
				rules = append(rules, rule)
			}
		}
	}
	return rules
}

func contains(rules []rbacv1.PolicyRule, rule rbacv1.PolicyRule) bool {
	for i := range rules {
		if equality.Semantic.DeepEqual(rules[i], rule) {
			return true
		}
	}
	return false
}
