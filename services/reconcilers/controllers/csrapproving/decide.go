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

// What a requester must be allowed to create.
const (
	group          = "certificates.k8s.io"
	resource       = "certificatesigningrequests"
	selfNodeClient = "selfnodeclient"
	nodeClient     = "nodeclient"
)

// means is what a permission is for.
var means = map[string]string{
	selfNodeClient: "renew its own certificate",
	nodeClient:     "have the client certificate of any node",
}

// said is what a condition says of the permission that a request was approved for.
var said = map[string]string{
	selfNodeClient: "Auto approving self kubelet client certificate after SubjectAccessReview.",
	nodeClient:     "Auto approving kubelet client certificate after SubjectAccessReview.",
}

const (
	// lasting is for how long an answer counts.
	lasting = 30 * time.Second
	// A refused permission is asked for again when the request is twice as old, but not
	// sooner than after least, nor later than after most.
	least = time.Second
	most  = 1000 * time.Second
)

// decide approves a request whose requester has one of the permissions that are enough for it.
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
		return reconcile.Nothing("the request is not one of a kubelet for a client certificate, so it is left to others")
	case allowed && fresh:
		return reconcile.Do("the requester may "+means[enough[asked]], reconcile.UpdateApproval(kinds.CertificateSigningRequests.Kind, v.approved(said[enough[asked]])))
	case asked >= 0 && !allowed && fresh && asked < len(enough)-1:
		return v.ask(now, enough[asked+1])
	case asked == len(enough)-1 && !allowed && now.Before(again):
		return reconcile.Wake(again, "the requester has no permission that is enough for an approval")
	default:
		return v.ask(now, enough[0])
	}
}

// judged tells whether the request was approved or denied already. A condition counts
// whatever its status is: the API server takes no other than True.
func (v View) judged() bool {
	return slices.ContainsFunc(v.Request.Status.Conditions, func(c certificatesv1.CertificateSigningRequestCondition) bool {
		return c.Type == certificatesv1.CertificateApproved || c.Type == certificatesv1.CertificateDenied
	})
}

// enough are the permissions of which one is enough to approve the request, in the order in
// which they are asked for; none where it is for a person, or another program, to judge.
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

// answer is which permission the last answer was about, and whether it is given; asked is
// less than 0 where there was no answer about any of them.
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

// approved is the request with its approval. When that was the API server says.
func (v View) approved(message string) *certificatesv1.CertificateSigningRequest {
	next := *v.Request // shallow: only the conditions change
	next.Status.Conditions = append(slices.Clone(next.Status.Conditions), certificatesv1.CertificateSigningRequestCondition{
		Type: certificatesv1.CertificateApproved, Status: corev1.ConditionTrue, Reason: "AutoApproved", Message: message,
	})
	return &next
}
