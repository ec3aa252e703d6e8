package apply

import (
	"context"
	"encoding/json"
	"net/http"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/services/writer/plan"
)

// review asks the API server, as the controller, whether a user may do something
// ([events.Review]). It reads the object that the ask is about last: the object existed when the
// API server answered.
func (d *Client) review(ctx context.Context, a Actor, client rest.Interface, r plan.Request) plan.Response {
	var asked authorizationv1.SubjectAccessReviewSpec
	if err := json.Unmarshal(r.Body, &asked); err != nil {
		return plan.Response{Code: http.StatusBadRequest, Reason: "Malformed", Message: err.Error()}
	}
	status, response := d.reviewed(ctx, client, r, asked)
	if response.Code != http.StatusOK && response.Code != http.StatusCreated {
		return response
	}
	r.Verb, r.Subresource, r.Body = plan.Look, "", nil
	response = d.readObject(ctx, a, client, r)
	if response.Code == http.StatusOK {
		response.Body, _ = json.Marshal(events.Review{Of: asked.ResourceAttributes, Status: status}) // it has only fields that encoding/json accepts
	}
	return response
}

// reviewed makes a SubjectAccessReview, and returns its status and the API server's answer.
func (d *Client) reviewed(ctx context.Context, client rest.Interface, r plan.Request, asked authorizationv1.SubjectAccessReviewSpec) (authorizationv1.SubjectAccessReviewStatus, plan.Response) {
	var response plan.Response
	one := authorizationv1.SubjectAccessReview{Spec: asked}
	one.APIVersion, one.Kind = authorizationv1.SchemeGroupVersion.String(), "SubjectAccessReview"
	body, _ := json.Marshal(one) // it was read from JSON
	r = plan.Request{
		Command: r.Command, Verb: r.Verb, Version: authorizationv1.SchemeGroupVersion.Version,
		Kind: kinds.NameOf(authorizationv1.GroupName, "subjectaccessreviews"),
	}
	request := to(client, http.MethodPost, collection(r)).SetHeader("Accept", wholeObject).SetHeader("Content-Type", runtime.ContentTypeJSON).Body(body)
	sent := r
	sent.Verb = plan.Create // a POST that stores nothing
	span := d.trace(ctx, sent, collection, "")
	carry(span, request)
	began := time.Now()
	result := request.MaxRetries(0).Do(ctx)
	var answer authorizationv1.SubjectAccessReview
	if said, failed := d.failure(ctx, result, r); failed {
		response = said
	} else if body, err := result.Raw(); err != nil {
		response = d.refusal(ctx, r, err, said.Code)
	} else if err := json.Unmarshal(body, &answer); err != nil || answer.Kind != one.Kind {
		response = plan.Response{Reason: "NoAnswer", Message: "the API server's answer is no SubjectAccessReview"}
	} else {
		response = said
	}
	d.config.Metrics.requestedIn(span.Trace(), r.Verb, response, time.Since(began))
	traced(span, response)
	if response.Code == http.StatusNotFound { // a 404 for the review says nothing about the object
		response.Cause = string(metav1.CauseTypeUnexpectedServerResponse)
	}
	return answer.Status, response
}
