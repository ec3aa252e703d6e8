package sim

import (
	"encoding/json"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"
	certificatesv1 "k8s.io/api/certificates/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/millrace/millrace/pkg/events/query"
	"github.com/millrace/millrace/services/writer/plan"
)

// review reports whether a user may do something. The question is about an existing object.
func (a *API) review(about metav1.Object, body []byte) plan.Response {
	var asked authorizationv1.SubjectAccessReviewSpec
	if err := json.Unmarshal(body, &asked); err != nil {
		return refusal(400, "BadRequest", err.Error())
	}
	review := query.Review{Of: asked.ResourceAttributes}
	review.Status.Allowed = a.Allows != nil && a.Allows(asked, a.now())
	r := answer(about)
	r.Body, _ = json.Marshal(review) // it has only fields that encoding/json accepts
	return r
}

// judged is a request with the conditions of an approval, and no other change.
//
// Upstream: pkg/registry/certificates/certificates, the strategy of approvals, which sets the
// times of conditions that say none.
func judged(next, old metav1.Object, now time.Time) metav1.Object {
	judged := clone(old).(*certificatesv1.CertificateSigningRequest)
	judged.Status.Conditions = next.(*certificatesv1.CertificateSigningRequest).Status.Conditions
	for i := range judged.Status.Conditions {
		c := &judged.Status.Conditions[i]
		if c.LastUpdateTime.IsZero() {
			c.LastUpdateTime = metav1.NewTime(now)
		}
		if c.LastTransitionTime.IsZero() {
			c.LastTransitionTime = metav1.NewTime(now)
		}
	}
	return judged
}

// wantedPatch is a patch that the writer's door carries out itself: it names the version of the object, and
// the signer as which the door is to act.
type wantedPatch struct {
	Metadata struct {
		UID             types.UID `json:"uid"`
		ResourceVersion string    `json:"resourceVersion"`
	} `json:"metadata"`
	Spec struct {
		SignerName string `json:"signerName"`
	} `json:"spec"`
}

// wantedOf parses such a patch, and refuses it if the object has changed since.
func wantedOf(body []byte, old metav1.Object) (said wantedPatch, refused *plan.Response) {
	if err := json.Unmarshal(body, &said); err != nil {
		answer := refusal(400, "BadRequest", err.Error())
		return said, &answer
	}
	if said.Metadata.UID != old.GetUID() || said.Metadata.ResourceVersion != old.GetResourceVersion() {
		answer := refusal(409, "Conflict", "the object has changed")
		return said, &answer
	}
	return said, nil
}
