package policy_test

import (
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"pgregory.net/rapid"

	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/services/writer/plan"
	"github.com/millrace/millrace/test/oracle/oracletest"
	"github.com/millrace/millrace/test/oracle/policy"
	"github.com/millrace/millrace/test/oracle/stage"
)

func TestRefusedQuotasAreAsUpstreams(t *testing.T) {
	oracletest.RestAlike(t, policy.QuotaAtRest, typedQuotaWorld, oracletest.Reports)
}

// typedQuotaWorld has no kinds of which only the metadata is watched.
func typedQuotaWorld(t *rapid.T) []runtime.Object {
	world := slices.DeleteFunc(quotaWorld(t), func(obj runtime.Object) bool { _, secret := obj.(*corev1.Secret); return secret })
	q := world[0].(*corev1.ResourceQuota)
	for _, list := range []corev1.ResourceList{q.Spec.Hard, q.Status.Hard, q.Status.Used} {
		delete(list, "secrets")
		delete(list, "count/secrets")
	}
	return world
}

// The status updates of a budget, and those of a pod that is not disrupted after all.
var (
	budgetReports = stage.Refusal{Verb: plan.Update, Kind: kinds.PodDisruptionBudgets.Name, Status: true}
	podReports    = stage.Refusal{Verb: plan.Patch, Also: plan.Update, Kind: kinds.Pods.Name, Status: true}
)

func TestRefusedBudgetsAreAsUpstreams(t *testing.T) {
	oracletest.RestAlike(t, policy.BudgetAtRest, builtInBudgetWorld, budgetReports, podReports)
}

// builtInBudgetWorld has no pods of custom objects, for whose scales a controller asks.
func builtInBudgetWorld(t *rapid.T) []runtime.Object {
	return slices.DeleteFunc(budgetWorld(t).World, func(obj runtime.Object) bool {
		p, ok := obj.(*corev1.Pod)
		return ok && len(p.OwnerReferences) > 0 && strings.HasPrefix(p.OwnerReferences[0].APIVersion, "example.com")
	})
}
