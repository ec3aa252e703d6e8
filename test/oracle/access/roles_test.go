package access_test

import (
	"fmt"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"pgregory.net/rapid"

	"github.com/millrace/millrace/test/oracle/access"
	"github.com/millrace/millrace/test/oracle/oracletest"
)

func TestRolesAreAggregatedAsUpstreams(t *testing.T) {
	oracletest.Agree(t, access.RoleAggregation, oracletest.ClusterKey, roleWorld)
}

// roleWorld is an aggregated role, and parts of it and of others.
func roleWorld(t *rapid.T) []runtime.Object {
	rules := func() (all []rbacv1.PolicyRule) {
		for _, n := range rapid.SliceOfN(rapid.IntRange(0, 2), 0, 3).Draw(t, "rules") {
			all = append(all, rbacv1.PolicyRule{Verbs: []string{"get"}, APIGroups: []string{""}, Resources: []string{fmt.Sprint("r", n)}})
		}
		return all
	}
	whole := &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: oracletest.Owner, UID: "role", ResourceVersion: "10"}, Rules: rules()}
	if !oracletest.Chance(t, 8, "no rule") {
		whole.AggregationRule = &rbacv1.AggregationRule{}
		for range rapid.IntRange(0, 2).Draw(t, "selectors") {
			s := metav1.LabelSelector{MatchLabels: map[string]string{"to": rapid.SampledFrom([]string{"a", "b"}).Draw(t, "selects")}}
			if oracletest.Chance(t, 12, "malformed") {
				s.MatchExpressions = []metav1.LabelSelectorRequirement{{Key: "to", Operator: "Nonsense"}}
			}
			whole.AggregationRule.ClusterRoleSelectors = append(whole.AggregationRule.ClusterRoleSelectors, s)
		}
	}
	if oracletest.Chance(t, 4, "part of itself") {
		whole.Labels = map[string]string{"to": "a"}
	}
	world := []runtime.Object{whole}
	for i := range rapid.IntRange(0, 4).Draw(t, "parts") {
		world = append(world, &rbacv1.ClusterRole{
			ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprint("part", i), Labels: map[string]string{"to": rapid.SampledFrom([]string{"a", "b", "c"}).Draw(t, "to")}},
			Rules:      rules(),
		})
	}
	return world
}
