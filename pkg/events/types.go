package events

import admissionregistrationv1 "k8s.io/api/admissionregistration/v1"

// SubTypes is the subresource of an ask for the expressions of an admission policy that
// do not fit the types which it is about. The API server has none of that name: the
// writer checks them against the schemas of the API server. The body of the command is
// the policy, the answer is [Types].
const SubTypes = "types"

// Types are the expressions of a policy that do not fit.
type Types struct {
	// Warnings are theirs, in the words of Kubernetes' type checker.
	Warnings []admissionregistrationv1.ExpressionWarning `json:"warnings,omitempty"`
}
