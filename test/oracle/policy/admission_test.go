package policy_test

import (
	"testing"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"pgregory.net/rapid"

	"github.com/millrace/millrace/test/oracle/objects"
	"github.com/millrace/millrace/test/oracle/oracletest"
	"github.com/millrace/millrace/test/oracle/policy"
)

// TestPoliciesAreCheckedAsUpstreams leaves out policies that are being deleted, which only upstream checks.
func TestPoliciesAreCheckedAsUpstreams(t *testing.T) {
	oracletest.Fewer(t, 4)
	rapid.Check(t, func(r *rapid.T) {
		p := anyPolicy(r)
		diff, err := policy.ComparePolicy(t, p)
		if err != nil {
			r.Fatal(err)
		}
		if diff != "" {
			r.Fatalf("upstream (-) and we (+) say otherwise:\n%s\n%s", diff, oracletest.Page(r, []runtime.Object{p}))
		}
	})
}

func TestAPolicyThatGoesIsNotChecked(t *testing.T) {
	p := rapid.Custom(anyPolicy).Example(1)
	p.Generation, p.Status.ObservedGeneration = 2, 1
	if diff, err := policy.ComparePolicy(t, p); err != nil || diff != "" {
		t.Fatalf("it differs already (%v): %s", err, diff)
	}
	p.DeletionTimestamp, p.Finalizers = oracletest.Ptr(oracletest.Before(objects.Now, 10)), []string{"example.com/held"}
	if diff, err := policy.ComparePolicy(t, p); err != nil || diff == "" {
		t.Errorf("upstream leaves it alone now, as we do (%v): docs/differences.md says otherwise", err)
	}
}

func anyPolicy(t *rapid.T) *admissionregistrationv1.ValidatingAdmissionPolicy {
	p := &admissionregistrationv1.ValidatingAdmissionPolicy{ObjectMeta: metav1.ObjectMeta{Name: "p", UID: "p", ResourceVersion: "1"}}
	p.Generation = rapid.Int64Range(1, 3).Draw(t, "generation")
	p.Status.ObservedGeneration = rapid.Int64Range(0, 3).Draw(t, "observed")
	p.Spec.MatchConstraints = &admissionregistrationv1.MatchResources{}
	for range rapid.IntRange(0, 2).Draw(t, "rules") {
		of := rapid.SampledFrom([]admissionregistrationv1.Rule{
			{APIGroups: []string{"apps"}, APIVersions: []string{"v1"}, Resources: []string{"deployments"}},
			{APIGroups: []string{"apps"}, APIVersions: []string{"v1"}, Resources: []string{"deployments"}},
			{APIGroups: []string{""}, APIVersions: []string{"v1"}, Resources: []string{"configmaps"}},
			{APIGroups: []string{"*"}, APIVersions: []string{"*"}, Resources: []string{"*"}},
		}).Draw(t, "of")
		p.Spec.MatchConstraints.ResourceRules = append(p.Spec.MatchConstraints.ResourceRules,
			admissionregistrationv1.NamedRuleWithOperations{RuleWithOperations: admissionregistrationv1.RuleWithOperations{Rule: of}})
	}
	expression := func(what string) string {
		return rapid.SampledFrom([]string{
			"object.spec.replicas < 5", "object.spec.replicas == 'many'", "object.spec.unheard == 1", "object.spec.paused", "nonsense(", "'plain words'",
		}).Draw(t, what)
	}
	for range rapid.IntRange(0, 3).Draw(t, "validations") {
		v := admissionregistrationv1.Validation{Expression: expression("expression")}
		if rapid.Bool().Draw(t, "with a message") {
			v.MessageExpression = expression("message")
		}
		p.Spec.Validations = append(p.Spec.Validations, v)
	}
	if rapid.Bool().Draw(t, "checked before") {
		p.Status.TypeChecking = &admissionregistrationv1.TypeChecking{ExpressionWarnings: []admissionregistrationv1.ExpressionWarning{{FieldRef: "spec", Warning: "old"}}}
		p.Status.Conditions = []metav1.Condition{{Type: "Theirs", Status: metav1.ConditionTrue}}
	}
	return p
}
