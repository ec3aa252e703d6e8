package applytest

import (
	"encoding/json"
	"net/http"
	"slices"
	"testing"

	authorizationv1 "k8s.io/api/authorization/v1"

	"github.com/millrace/millrace/pkg/events/apiservertest"
)

// Allowed is the group whose members may do everything; others may do nothing.
const Allowed = "allowed"

// Serve starts an API server that serves pods, nodes and ReplicaSets, and answers reviews of access.
// Its documents of discovery are not aggregated, so that a test can break each of them.
func Serve(t testing.TB) *apiservertest.Server {
	t.Helper()
	read := []string{"get", "list", "delete"}
	s := apiservertest.New(t, apiservertest.Plain, apiservertest.Serving(
		apiservertest.Resource{Version: "v1", Name: "pods", Kind: "Pod", Namespaced: true, Verbs: read},
		apiservertest.Resource{Version: "v1", Name: "nodes", Kind: "Node", Verbs: read},
		apiservertest.Resource{Group: "apps", Version: "v1", Name: "replicasets", Kind: "ReplicaSet", Namespaced: true, Scale: true, Verbs: append(read, "update", "patch")},
	))
	s.Handle("/apis/authorization.k8s.io/v1/subjectaccessreviews", func(r apiservertest.Request) (int, any) {
		var review authorizationv1.SubjectAccessReview
		if err := json.Unmarshal(r.Body, &review); err != nil {
			t.Errorf("a review that is none: %v", err)
		}
		review.Status = authorizationv1.SubjectAccessReviewStatus{Allowed: slices.Contains(review.Spec.Groups, Allowed), Reason: "of the group"}
		return http.StatusCreated, review
	})
	return s
}
