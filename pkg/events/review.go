package events

import authorizationv1 "k8s.io/api/authorization/v1"

// SubReview is the subresource of an ask whether a user may do something. The API server
// has none of that name: the writer makes a SubjectAccessReview, live. The body of the
// command is its [authorizationv1.SubjectAccessReviewSpec], the answer is [Review].
const SubReview = "review"

// SubApproval is the subresource that takes no other change than whether a request is
// approved.
const SubApproval = "approval"

// Review is what the authorizers of the API server say. The object that the ask is about was
// looked at after they were asked, and had the uid that the ask insists on.
type Review struct {
	// Of is what was asked for.
	Of *authorizationv1.ResourceAttributes `json:"of,omitempty"`
	// Status is the answer.
	Status authorizationv1.SubjectAccessReviewStatus `json:"status"`
}
