package clusterroleaggregation

import (
	"fmt"
	"slices"
	"testing"
	"time"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"pgregory.net/rapid"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/services/reconcilers/reconcile"
	"github.com/millrace/millrace/services/reconcilers/reconciletest"
)

func role(name string, to string, resources ...string) *rbacv1.ClusterRole {
	r := &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: name, UID: "u", Labels: map[string]string{to: "true"}}}
	for _, resource := range resources {
		r.Rules = append(r.Rules, rbacv1.PolicyRule{APIGroups: []string{""}, Resources: []string{resource}, Verbs: []string{"get"}})
	}
	return r
}

func whole(name string, of ...string) *rbacv1.ClusterRole {
	r := &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: name, UID: "u"}, AggregationRule: &rbacv1.AggregationRule{}}
	for _, label := range of {
		r.AggregationRule.ClusterRoleSelectors = append(r.AggregationRule.ClusterRoleSelectors, metav1.LabelSelector{MatchLabels: map[string]string{label: "true"}})
	}
	return r
}

func TestStories(t *testing.T) { reconciletest.Stories(t, Controller) }

func TestLaws(t *testing.T) {
	reconciletest.Laws(t, Controller, rapid.Custom(func(t *rapid.T) View {
		v := View{Role: whole("admin"), Malformed: rapid.IntRange(0, 9).Draw(t, "malformed") == 0}
		for i := range rapid.IntRange(0, 4).Draw(t, "parts") {
			v.Parts = append(v.Parts, role(fmt.Sprint(i), "x", rapid.SliceOf(rapid.SampledFrom([]string{"pods", "nodes", "jobs"})).Draw(t, "rules")...))
		}
		if rapid.Bool().Draw(t, "right") {
			v.Role.Rules = v.rules()
		}
		return v
	}), reconciletest.Now, reconciletest.Content(2, func(v View, _ reconcile.Decision, _ time.Time) View {
		v.Role = v.Role.DeepCopy()
		v.Role.Rules = v.rules()
		return v
	}))
}

func TestObserve(t *testing.T) {
	admin := whole("admin", "admin", "edit")
	world := reconciletest.NewWorld().Put(kinds.ClusterRoles.Kind,
		admin, role("b", "admin"), role("a", "admin"), role("c", "edit"), role("d", "view"))
	v, ok := observe(world, events.Key{Name: "admin"})
	var names []string
	for _, part := range v.Parts {
		names = append(names, part.Name)
	}
	if !ok || !slices.Equal(names, []string{"a", "b", "c"}) {
		t.Errorf("the parts are %v, want a, b, c", names)
	}
	if _, ok := observe(world, events.Key{Name: "d"}); ok {
		t.Error("a role without an aggregation rule has a view")
	}
	admin.AggregationRule.ClusterRoleSelectors[0].MatchExpressions = []metav1.LabelSelectorRequirement{{Key: "x", Operator: "Like"}}
	if v, _ = observe(world, events.Key{Name: "admin"}); !v.Malformed {
		t.Error("a malformed selector is not noticed")
	}
	if got := world.Keys(Controller, kinds.ClusterRoles.Kind, nil, role("e", "view")); !slices.Equal(got, []events.Key{{Name: "admin"}}) {
		t.Errorf("a new role makes it the turn of %v", got)
	}
}
