package ask

import (
	"context"
	"encoding/json"
	"net/http"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/client-go/discovery"

	"github.com/millrace/millrace/pkg/events/query"
	"github.com/millrace/millrace/services/writer/apply/apiclient"
	"github.com/millrace/millrace/services/writer/plan"
)

// TypeCheck finds the expressions of an admission policy with type errors for the kinds that the
// policy is about.
//
// Errors: the API server did not give the schemas or kinds for the check.
type TypeCheck func(*admissionregistrationv1.ValidatingAdmissionPolicy, discovery.DiscoveryInterface, meta.RESTMapper) ([]admissionregistrationv1.ExpressionWarning, error)

// types finds out which expressions of a policy have type errors ([query.Types]). Every client
// may read schemas, so the writer reads them as itself. It reads the policy last: the policy
// existed during the check.
func (a Answerer) types(ctx context.Context, c *apiclient.Client, r plan.Request) plan.Response {
	if a.Types == nil {
		return plan.Response{Code: http.StatusNotImplemented, Reason: plan.ReasonLacking, Message: "this writer checks no types"}
	}
	policy := new(admissionregistrationv1.ValidatingAdmissionPolicy)
	if err := json.Unmarshal(r.Body, policy); err != nil {
		return plan.Response{Code: http.StatusBadRequest, Reason: "Malformed", Message: err.Error()}
	}
	warnings, err := a.Types(policy, a.Discovery.Client, a.Discovery.Mapper)
	if err != nil {
		return plan.Response{Reason: "NoAnswer", Message: err.Error()} // this says nothing of the policy
	}
	r.Verb, r.Subresource, r.Body = plan.Look, "", nil
	response := c.Read(ctx, r)
	if response.Code == http.StatusOK {
		response.Body, _ = json.Marshal(query.Types{Warnings: warnings}) // it has only fields that encoding/json accepts
	}
	return response
}
