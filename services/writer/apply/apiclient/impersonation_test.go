package apiclient

import (
	"strings"
	"testing"

	"github.com/millrace/millrace/services/writer/plan"
)

func TestARefusalSaysWhetherTheWriterLacksTheRight(t *testing.T) {
	actor := Actor{Controller: "replicaset-controller", Identity: "replicaset-controller"}
	for _, said := range []string{
		`serviceaccounts "replicaset-controller" is forbidden: User "w" cannot impersonate resource "serviceaccounts" in API group "" in the namespace "kube-system"`,
		`serviceaccounts.authentication.k8s.io "replicaset-controller" is forbidden: User "w" cannot impersonate:serviceaccount resource "serviceaccounts" in API group "authentication.k8s.io"`,
		`pods is forbidden: User "w" cannot impersonate-on:serviceaccount:create resource "pods" in API group "" in the namespace "ns"`,
	} {
		got := ExplainRefusal(actor, plan.Response{Code: 403, Reason: "Forbidden", Message: said})
		if got.Reason != plan.ReasonNotImpersonated || !strings.Contains(got.Message, "millrace rbac") || !strings.Contains(got.Message, "as replicaset-controller") || !strings.HasSuffix(got.Message, said) {
			t.Errorf("%s\nbecame %+v", said, got)
		}
	}
	for _, r := range []plan.Response{
		{Code: 403, Reason: "Forbidden", Message: `pods is forbidden: User "system:serviceaccount:kube-system:replicaset-controller" cannot create resource "pods"`},
		{Code: 404, Reason: "NotFound", Message: "the user cannot impersonate"},
	} {
		if got := ExplainRefusal(actor, r); got.Reason != r.Reason || got.Message != r.Message {
			t.Errorf("%+v became %+v", r, got)
		}
	}
}

// TestALackingRightIsToldOfWhatIsHidden: the writer's own words stay in the answer. The API
// server's, which may be a webhook's, do not.
func TestALackingRightIsToldOfWhatIsHidden(t *testing.T) {
	actor := Actor{Controller: "root-ca-certificate-publisher-controller", Identity: "root-ca-cert-publisher"}
	got := ExplainRefusal(actor, redactRefusal(plan.Response{Code: 403, Reason: "Forbidden", Message: "cannot impersonate, and the value is hunter2"}))
	if got.Reason != plan.ReasonNotImpersonated || !strings.HasPrefix(got.Message, "the writer may not do this as root-ca-cert-publisher: give it the roles") || strings.Contains(got.Message, "hunter2") {
		t.Errorf("the refusal is %+v, want one that names the lacking roles, and not the value", got)
	}
}
