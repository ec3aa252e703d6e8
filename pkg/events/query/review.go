package query

import authorizationv1 "k8s.io/api/authorization/v1"

// SubReview is the subresource of an ask whether a user may do something. The API server has no
// such subresource: the writer creates a SubjectAccessReview, live. The body of the command is
// its [authorizationv1.SubjectAccessReviewSpec]; the answer is [Review].
const SubReview = "review"

// SubApproval is the subresource that changes only the approval of a CertificateSigningRequest.
const SubApproval = "approval"

// Review is the decision of the API server's authorizers. Afterwards the writer read the object
// that the ask is about, and it had the uid that the ask requires.
type Review struct {
	// Of is the request that was reviewed.
	Of *authorizationv1.ResourceAttributes `json:"of,omitempty"`
	// Status is the answer.
	Status authorizationv1.SubjectAccessReviewStatus `json:"status"`
}
