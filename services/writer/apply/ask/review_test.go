package ask_test

import (
	"encoding/json"
	"net/http"
	"testing"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/apiservertest"
	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/pkg/events/query"
	"github.com/millrace/millrace/services/writer/apply"
	"github.com/millrace/millrace/services/writer/apply/applytest"
	"github.com/millrace/millrace/services/writer/plan"
)

const (
	requestPath = "/apis/certificates.k8s.io/v1/certificatesigningrequests/r"
	reviewsPath = "/apis/authorization.k8s.io/v1/subjectaccessreviews"
)

// asksReview asks whether a user of some groups may create what node clients need.
func asksReview(groups ...string) events.Command {
	body, err := json.Marshal(authorizationv1.SubjectAccessReviewSpec{
		User: "u", Groups: groups, Extra: map[string]authorizationv1.ExtraValue{"k": {"v"}},
		ResourceAttributes: &authorizationv1.ResourceAttributes{Verb: "create", Resource: "certificatesigningrequests", Subresource: "nodeclient"},
	})
	if err != nil {
		panic(err) // a type of the API
	}
	return events.Command{
		Verb: events.VerbAsk, Kind: kinds.CertificateSigningRequests.Name, Version: "v1", Name: "r", Subresource: query.SubReview, Body: body, If: &events.If{UID: "uid-r"},
	}
}

// The answer has the API server's decision on exactly the question, and the question itself.
func TestReview(t *testing.T) {
	s := applytest.Serve(t)
	s.Put(requestPath, "uid-r", object("r", nil))
	for _, allowed := range []bool{true, false} {
		groups := []string{"nodes"}
		if allowed {
			groups = append(groups, applytest.Allowed)
		}
		asked := asksReview(groups...)
		r := carry(t, open(t, s), plan.Options{}, asked)[0]
		if r.Status != events.Answered {
			t.Fatalf("asked whether a user may: %+v", r)
		}
		var review query.Review
		if err := json.Unmarshal(r.Answer.Body, &review); err != nil || review.Status.Allowed != allowed || review.Of == nil || review.Of.Subresource != "nodeclient" || review.Status.Reason != "of the group" {
			t.Errorf("allowed: %v, and the answer is %s", allowed, r.Answer.Body)
		}
		var sent struct{ Spec, Status json.RawMessage }
		for _, request := range s.Requests() {
			if request.Path == reviewsPath {
				if err := json.Unmarshal(request.Body, &sent); err != nil {
					t.Fatal(err)
				}
			}
		}
		if string(sent.Spec) != string(asked.Body) {
			t.Errorf("the API server was asked %s, want %s", sent.Spec, asked.Body)
		}
	}
}

// No user is allowed anything if the review failed, or was about a request that no longer exists.
func TestReviewsThatAreNone(t *testing.T) {
	s := applytest.Serve(t)
	s.Put(requestPath, "uid-later", object("r", nil))
	if r := carry(t, open(t, s), plan.Options{}, asksReview(applytest.Allowed))[0]; r.Status != events.Absent || r.Answer != nil {
		t.Errorf("about another request of that name: %+v", r)
	}
	s.Put(requestPath, "uid-r", object("r", nil))
	malformed := asksReview()
	malformed.Body = json.RawMessage(`{"user":7}`)
	if r := carry(t, open(t, s), plan.Options{}, malformed)[0]; r.Status != events.Refused || r.Reason != "Malformed" {
		t.Errorf("a question that is none: %+v", r)
	}
	for code, want := range map[int]events.Status{
		http.StatusForbidden: events.Refused, http.StatusNotFound: events.Refused, http.StatusUnprocessableEntity: events.Refused, http.StatusInternalServerError: events.Failed,
	} {
		s.Break(func(r apiservertest.Request) apiservertest.Fault {
			if r.Path == reviewsPath {
				return apiservertest.Fault{Code: code}
			}
			return apiservertest.Fault{}
		})
		door := open(t, s, func(c *apply.Config) { c.Patience = 50 * time.Millisecond })
		if r := carry(t, door, plan.Options{}, asksReview(applytest.Allowed))[0]; r.Status != want || r.Answer != nil {
			t.Errorf("where reviews cannot be made (%d): %+v", code, r)
		}
	}
}
