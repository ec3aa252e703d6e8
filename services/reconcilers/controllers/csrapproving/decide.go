package csrapproving

import (
	"slices"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"
	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"

	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/services/reconcilers/reconcile"
)

// The permission that a requester needs: to create one of these subresources.
const (
	group          = "certificates.k8s.io"
	resource       = "certificatesigningrequests"
	selfNodeClient = "selfnodeclient"
	nodeClient     = "nodeclient"
)

// means describes what a permission allows.
var means = map[string]string{
	selfNodeClient: "renew its own certificate",
	nodeClient:     "have the client certificate of any node",
}

// said is the message of the condition, by the permission for which a request was approved.
var said = map[string]string{
	selfNodeClient: "Auto approving self kubelet client certificate after SubjectAccessReview.",
	nodeClient:     "Auto approving kubelet client certificate after SubjectAccessReview.",
}

const (
	// lasting is how long an answer is valid.
	lasting = 30 * time.Second
	// A missing permission is checked again when the request is twice as old, but not before least
	// nor after most.
	least = time.Second
	most  = 1000 * time.Second
)

// decide approves a request whose requester has a sufficient permission.
//
// Upstream: pkg/controller/certificates/approver, handle.
func decide(v View, now time.Time) reconcile.Decision {
	enough := v.enough()
	asked, allowed := v.answer(enough)
	fresh := now.Before(v.At.Add(lasting))
	again := v.At.Add(min(max(v.At.Sub(v.Request.CreationTimestamp.Time), least), most))
	switch {
	case len(v.Request.Status.Certificate) > 0:
		return reconcile.Nothing("the request has its certificate")
	case v.judged():
		return reconcile.Nothing("the request was approved or denied")
	case len(enough) == 0:
		return reconcile.Nothing("the request is not a kubelet's request for a client certificate")
	case allowed && fresh:
		return reconcile.Do("the requester may "+means[enough[asked]], reconcile.UpdateApproval(kinds.CertificateSigningRequests.Kind, v.approved(said[enough[asked]])))
	case asked >= 0 && !allowed && fresh && asked < len(enough)-1:
		return v.ask(now, enough[asked+1])
	case asked == len(enough)-1 && !allowed && now.Before(again):
		return reconcile.Wake(again, "the requester has no permission that suffices for approval")
	default:
		return v.ask(now, enough[0])
	}
}

// judged reports whether the request was approved or denied already. The status of the condition does
// not matter, because the API server accepts only True.
func (v View) judged() bool {
	return slices.ContainsFunc(v.Request.Status.Conditions, func(c certificatesv1.CertificateSigningRequestCondition) bool {
		return c.Type == certificatesv1.CertificateApproved || c.Type == certificatesv1.CertificateDenied
	})
}

// enough returns the permissions of which one suffices to approve the request, in the order in
// which they are checked; none if the request is for a person, or another program, to judge.
func (v View) enough() []string {
	name, kubelets := nodeOf(v.Request)
	switch {
	case !kubelets:
		return nil
	case name == v.Request.Spec.Username:
		return []string{selfNodeClient, nodeClient}
	default:
		return []string{nodeClient}
	}
}

// answer returns the permission of the last answer, and whether it is granted; asked is negative if
// there is no answer about any of these permissions.
func (v View) answer(enough []string) (asked int, allowed bool) {
	if v.Review == nil || v.Review.Of == nil {
		return -1, false
	}
	asked = slices.Index(enough, v.Review.Of.Subresource)
	return asked, asked >= 0 && v.Review.Status.Allowed
}

// ask asks whether the requester has a permission.
func (v View) ask(now time.Time, permission string) reconcile.Decision {
	spec := v.Request.Spec
	question := authorizationv1.SubjectAccessReviewSpec{
		User: spec.Username, UID: spec.UID, Groups: spec.Groups,
		ResourceAttributes: &authorizationv1.ResourceAttributes{Group: group, Resource: resource, Subresource: permission, Verb: "create", Version: "*"},
	}
	for key, values := range spec.Extra {
		if question.Extra == nil {
			question.Extra = map[string]authorizationv1.ExtraValue{}
		}
		question.Extra[key] = authorizationv1.ExtraValue(values)
	}
	return v.Unread.Ask(now, "it is not known whether the requester may "+means[permission], reconcile.AskReview(kinds.CertificateSigningRequests.Kind, v.Request, question))
}

// approved returns the request with its approval. The API server sets the time.
func (v View) approved(message string) *certificatesv1.CertificateSigningRequest {
	next := *v.Request // shallow: only the conditions change
	next.Status.Conditions = append(slices.Clone(next.Status.Conditions), certificatesv1.CertificateSigningRequestCondition{
		Type: certificatesv1.CertificateApproved, Status: corev1.ConditionTrue, Reason: "AutoApproved", Message: message,
	})
	return &next
}
