package metadata

import (
	"fmt"
	"slices"

	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/test/sim/cluster"
)

// addTo is the label of a role that another role aggregates.
const addTo = "example.com/add-to"

func someRole(w *cluster.Cluster) (events.Ref, bool) {
	return w.SomeOf(kinds.ClusterRoles.Kind, "part", func(name string) any { return part(w, name) })
}

// part is a role that another role aggregates.
func part(w *cluster.Cluster, name string) any {
	return &rbacv1.ClusterRole{
		TypeMeta:   metav1.TypeMeta{APIVersion: "rbac.authorization.k8s.io/v1", Kind: "ClusterRole"},
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{addTo: fmt.Sprint("sum", w.Roll(2))}},
		Rules:      []rbacv1.PolicyRule{{Verbs: []string{"get"}, APIGroups: []string{""}, Resources: []string{fmt.Sprint("r", w.Roll(3))}}},
	}
}

// NewRole creates a part, or a role that aggregates parts.
func NewRole(w *cluster.Cluster) {
	if w.Roll(2) == 0 {
		someRole(w)
		return
	}
	w.SomeOf(kinds.ClusterRoles.Kind, "sum", func(name string) any {
		return &rbacv1.ClusterRole{
			TypeMeta: metav1.TypeMeta{APIVersion: "rbac.authorization.k8s.io/v1", Kind: "ClusterRole"}, ObjectMeta: metav1.ObjectMeta{Name: name},
			AggregationRule: &rbacv1.AggregationRule{ClusterRoleSelectors: []metav1.LabelSelector{{MatchLabels: map[string]string{addTo: name}}}},
		}
	})
}

// ChangeRole changes the rules of a role.
func ChangeRole(w *cluster.Cluster) {
	if ref, there := someRole(w); there {
		next := part(w, ref.Name).(*rbacv1.ClusterRole)
		w.Note("user: change %v", ref)
		w.API.Change(ref, func(obj metav1.Object) {
			role := obj.(*rbacv1.ClusterRole)
			role.Labels, role.Rules = next.Labels, next.Rules
		})
	}
}

// DeleteRole deletes a role.
func DeleteRole(w *cluster.Cluster) {
	if ref, there := someRole(w); there {
		w.Delete(ref, metav1.DeletePropagationBackground)
	}
}

// Aggregated reports whether every aggregating role has the rules of its parts.
func Aggregated(w *cluster.Cluster) error {
	for _, obj := range w.API.List(kinds.ClusterRoles.Name) {
		role := obj.(*rbacv1.ClusterRole)
		if role.AggregationRule == nil {
			continue
		}
		var want []rbacv1.PolicyRule
		for _, other := range w.API.List(kinds.ClusterRoles.Name) {
			if other.GetLabels()[addTo] != role.Name {
				continue
			}
			for _, rule := range other.(*rbacv1.ClusterRole).Rules {
				if !slices.ContainsFunc(want, func(r rbacv1.PolicyRule) bool { return equality.Semantic.DeepEqual(r, rule) }) {
					want = append(want, rule)
				}
			}
		}
		if len(want)+len(role.Rules) > 0 && !equality.Semantic.DeepEqual(want, role.Rules) {
			return fmt.Errorf("%s has the rules %v, its parts %v", role.Name, role.Rules, want)
		}
	}
	return nil
}
