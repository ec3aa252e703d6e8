package system

import (
	"maps"
	"reflect"
	"slices"
	"testing"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/millrace/millrace/cmd/clustertest"
)

const policyStatus = "validatingadmissionpolicy-status-controller"

// about is a rule for some resources of a group.
func about(group, version string, resources ...string) admissionregistrationv1.NamedRuleWithOperations {
	return admissionregistrationv1.NamedRuleWithOperations{RuleWithOperations: admissionregistrationv1.RuleWithOperations{
		Operations: []admissionregistrationv1.OperationType{admissionregistrationv1.Create},
		Rule:       admissionregistrationv1.Rule{APIGroups: []string{group}, APIVersions: []string{version}, Resources: resources},
	}}
}

func policySpec(expression string, rules ...admissionregistrationv1.NamedRuleWithOperations) admissionregistrationv1.ValidatingAdmissionPolicySpec {
	return admissionregistrationv1.ValidatingAdmissionPolicySpec{
		MatchConstraints: &admissionregistrationv1.MatchResources{ResourceRules: rules},
		Validations:      []admissionregistrationv1.Validation{{Expression: expression}},
	}
}

// policies are keyed by name; no binding uses them.
func policies() map[string]admissionregistrationv1.ValidatingAdmissionPolicySpec {
	sets, parts := about("apps", "v1", "deployments", "replicasets"), about("", "v1", "pods")
	all := map[string]admissionregistrationv1.ValidatingAdmissionPolicySpec{
		"fits":               policySpec("object.spec.replicas > 1", sets),
		"number-and-text":    policySpec("object.spec.replicas > '1'", sets),
		"no-such-field":      policySpec("object.spec.template.spec.containers.all(c, c.imaje == 'a')", sets, parts),
		"of-some-kinds-only": policySpec("object.spec.replicas > 1", sets, parts),
		"of-no-kind":         policySpec("object.spec.x == 1", about("example.com", "v1", "nothings")),
		"deep":               policySpec("object.spec.containers.exists(c, c.ports[0].containerPort == 'http') || object.metadata.labels['a'] == 3", parts),
		"quantities":         policySpec("object.spec.containers.all(c, c.resources.limits['cpu'] > 1)", parts),
		"of-a-custom-kind":   policySpec("object.spec.crontab == 1", about("apiextensions.k8s.io", "v1", "customresourcedefinitions")),
	}
	params := policySpec("params.data.limit > object.spec.replicas", sets)
	params.ParamKind = &admissionregistrationv1.ParamKind{APIVersion: "v1", Kind: "ConfigMap"}
	all["with-parameters"] = params
	said := policySpec("object.spec.replicas > variables.least", sets)
	said.Variables = []admissionregistrationv1.Variable{{Name: "least", Expression: "'1'"}}
	said.Validations[0].MessageExpression = "object.spec.paused ? 'paused' : string(object.spec.none)"
	all["with-variables-and-messages"] = said
	return all
}

// TestPoliciesWhoseExpressionsDoNotFit: Millrace writes the same warnings into the status of a policy as
// kube-controller-manager does.
func TestPoliciesWhoseExpressionsDoNotFit(t *testing.T) {
	s := here(t)
	client := s.kube.AdmissionregistrationV1().ValidatingAdmissionPolicies()
	specs := policies()
	for name, spec := range specs {
		policy := &admissionregistrationv1.ValidatingAdmissionPolicy{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: spec}
		_, err := client.Create(t.Context(), policy, metav1.CreateOptions{})
		must(t, err)
	}
	said := func(by string) map[string][]admissionregistrationv1.ExpressionWarning {
		all := map[string][]admissionregistrationv1.ExpressionWarning{}
		for name := range specs {
			within(t, patience, by+" looks at the policy "+name, func() string {
				policy, err := client.Get(t.Context(), name, metav1.GetOptions{})
				if err != nil {
					return err.Error()
				}
				if policy.Status.ObservedGeneration < policy.Generation || policy.Status.TypeChecking == nil {
					return "it has not"
				}
				all[name] = policy.Status.TypeChecking.ExpressionWarnings
				return ""
			})
		}
		return all
	}

	millrace := s.run(t, "--controllers="+policyStatus)
	ours := said("Millrace")
	millrace.stop(t)
	for name := range specs {
		within(t, patience, "the policy "+name+" is changed", func() string {
			policy, err := client.Get(t.Context(), name, metav1.GetOptions{})
			if err != nil {
				return err.Error()
			}
			ignore := admissionregistrationv1.Ignore
			policy.Spec.FailurePolicy = &ignore
			_, err = client.Update(t.Context(), policy, metav1.UpdateOptions{})
			return ask(err)
		})
	}
	kcm, err := s.StartKCM(t.Context(), 0, clustertest.KCM{Controllers: policyStatus})
	must(t, err)
	t.Cleanup(func() { must(t, kcm.Stop()) })
	theirs := said("kube-controller-manager")
	for _, name := range slices.Sorted(maps.Keys(specs)) {
		if !reflect.DeepEqual(ours[name], theirs[name]) {
			t.Errorf("about the policy %s Millrace has the warnings\n%+v\nwant those of kube-controller-manager\n%+v", name, ours[name], theirs[name])
		}
	}
	if len(theirs["number-and-text"]) == 0 || len(theirs["fits"]) > 0 {
		t.Errorf("kube-controller-manager has the warnings %+v about a wrong expression, and %+v about a right one; want some, and none", theirs["number-and-text"], theirs["fits"])
	}
}
