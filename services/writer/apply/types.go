package apply

import (
	"context"
	"encoding/json"
	"net/http"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/rest"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/services/writer/plan"
)

// TypeCheck finds the expressions of an admission policy that do not fit the kinds which
// it is about.
//
// Errors: the API server did not say what it takes to know.
type TypeCheck func(*admissionregistrationv1.ValidatingAdmissionPolicy, discovery.DiscoveryInterface, meta.RESTMapper) ([]admissionregistrationv1.ExpressionWarning, error)

// types finds out which expressions of a policy do not fit ([events.Types]). Schemas are
// everybody's to read, so the writer reads them as itself. The policy comes last: it was
// there when that was found out.
func (d *Door) types(ctx context.Context, a Actor, client rest.Interface, r plan.Request) plan.Response {
	if d.config.Types == nil {
		return plan.Response{Code: http.StatusNotImplemented, Reason: plan.ReasonLacking, Message: "this writer checks no types"}
	}
	policy := new(admissionregistrationv1.ValidatingAdmissionPolicy)
	if err := json.Unmarshal(r.Body, policy); err != nil {
		return plan.Response{Code: http.StatusBadRequest, Reason: "Malformed", Message: err.Error()}
	}
	warnings, err := d.config.Types(policy, d.disco, d.mapping.mapper)
	if err != nil {
		return plan.Response{Reason: "NoAnswer", Message: err.Error()} // what is not found there says nothing of the policy
	}
	r.Verb, r.Subresource, r.Body = plan.Look, "", nil
	response := d.look(ctx, a, client, r)
	if response.Code == http.StatusOK {
		response.Body, _ = json.Marshal(events.Types{Warnings: warnings}) // it has only fields that encoding/json accepts
	}
	return response
}
