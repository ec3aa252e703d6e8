package apiclient

import (
	"context"
	"encoding/json"
	"net/http"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/services/writer/plan"
)

// ReviewAccess makes a SubjectAccessReview for a command, and returns its status and the API
// server's answer. It stores nothing, so it is sent in a dry run as well, and not announced.
func (c *Client) ReviewAccess(ctx context.Context, r plan.Request, asked authorizationv1.SubjectAccessReviewSpec) (authorizationv1.SubjectAccessReviewStatus, plan.Response) {
	var response plan.Response
	one := authorizationv1.SubjectAccessReview{Spec: asked}
	one.APIVersion, one.Kind = authorizationv1.SchemeGroupVersion.String(), "SubjectAccessReview"
	body, _ := json.Marshal(one) // it was read from JSON
	r = plan.Request{
		Command: r.Command, Verb: r.Verb, Version: authorizationv1.SchemeGroupVersion.Version,
		Kind: kinds.NameOf(authorizationv1.GroupName, "subjectaccessreviews"),
	}
	request := to(c.rest, http.MethodPost, collection(r)).SetHeader("Accept", wholeObject).SetHeader("Content-Type", runtime.ContentTypeJSON).Body(body)
	sent := r
	sent.Verb = plan.Create // a POST that stores nothing
	span := c.trace(ctx, sent, collection, "")
	carry(span, request)
	began := time.Now()
	result := request.MaxRetries(0).Do(ctx)
	var answer authorizationv1.SubjectAccessReview
	if said, failed := c.failure(ctx, result, r); failed {
		response = said
	} else if body, err := result.Raw(); err != nil {
		response = c.refusal(ctx, r, err, said.Code)
	} else if err := json.Unmarshal(body, &answer); err != nil || answer.Kind != one.Kind {
		response = plan.Response{Reason: "NoAnswer", Message: "the API server's answer is no SubjectAccessReview"}
	} else {
		response = said
	}
	c.config.Metrics.requestedIn(span.Trace(), r.Verb, response, time.Since(began))
	traced(span, response)
	if response.Code == http.StatusNotFound { // a 404 for the review says nothing about the object
		response.Cause = string(metav1.CauseTypeUnexpectedServerResponse)
	}
	return answer.Status, response
}
