package ask

import (
	"context"
	"encoding/json"
	"net/http"

	authorizationv1 "k8s.io/api/authorization/v1"

	"github.com/millrace/millrace/pkg/events/query"
	"github.com/millrace/millrace/services/writer/apply/apiclient"
	"github.com/millrace/millrace/services/writer/plan"
)

// review asks the API server, as the controller, whether a user may do something
// ([query.Review]). It reads the object that the ask is about last: the object existed when the
// API server answered.
func review(ctx context.Context, c *apiclient.Client, r plan.Request) plan.Response {
	var asked authorizationv1.SubjectAccessReviewSpec
	if err := json.Unmarshal(r.Body, &asked); err != nil {
		return plan.Response{Code: http.StatusBadRequest, Reason: "Malformed", Message: err.Error()}
	}
	status, response := c.ReviewAccess(ctx, r, asked)
	if response.Code != http.StatusOK && response.Code != http.StatusCreated {
		return response
	}
	r.Verb, r.Subresource, r.Body = plan.Look, "", nil
	response = c.Read(ctx, r)
	if response.Code == http.StatusOK {
		response.Body, _ = json.Marshal(query.Review{Of: asked.ResourceAttributes, Status: status}) // it has only fields that encoding/json accepts
	}
	return response
}
