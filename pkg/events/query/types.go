package query

import admissionregistrationv1 "k8s.io/api/admissionregistration/v1"

// SubTypes is the subresource of an ask for the expressions of an admission policy that do not
// match the types that they apply to. The API server has no such subresource: the writer checks
// them against the schemas of the API server. The body of the command is the policy; the answer
// is [Types].
const SubTypes = "types"

// Types are the expressions of a policy that do not match.
type Types struct {
	// Warnings are in the words of Kubernetes' type checker.
	Warnings []admissionregistrationv1.ExpressionWarning `json:"warnings,omitempty"`
}
