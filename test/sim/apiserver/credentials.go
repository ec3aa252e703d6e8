package apiserver

import (
	"encoding/json"
	"maps"
	"strings"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"fmt"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/csr"
	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/pkg/events/query"
	"github.com/millrace/millrace/services/writer/plan"

	"k8s.io/apimachinery/pkg/types"
)

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

// Resigned is the right content of cluster-info at a time, and the report about it.
func (a *API) Resigned(data map[string]string, now time.Time) (next map[string]string, told query.Signatures) {
	next = maps.Clone(data)
	maps.DeleteFunc(next, func(key, _ string) bool { return strings.HasPrefix(key, Signature) })
	for _, obj := range a.List(kinds.Secrets.Name) {
		id, key, may := query.SignerOf(obj.(*corev1.Secret), now)
		if !may {
			continue
		}
		next[Signature+id] = data["kubeconfig"] + " by " + key
		told.By = append(told.By, obj.GetName())
		if at := query.ExpiryOf(obj.(*corev1.Secret)).At; at != nil && (told.Until == nil || at.Before(*told.Until)) {
			told.Until = at
		}
	}
	return next, told
}

// sign is the writer's operation on cluster-info.
func (a *API) sign(c *Collection, ref events.Ref, old metav1.Object, r plan.Request) plan.Response {
	if _, refused := wantedOf(r.Body, old); refused != nil {
		return *refused
	}
	next := clone(old).(*corev1.ConfigMap)
	data, told := a.Resigned(next.Data, a.now())
	next.Data = data
	response := answer(a.store(c, ref, old, next))
	response.Body, _ = json.Marshal(told) // it has a form that JSON knows
	return response
}

// certify answers a request like the writer's door, but checks nothing except the version, and
// signs with the key of the named signer. So it shows whether the decision by itself is right.
func (a *API) certify(c *Collection, ref events.Ref, old metav1.Object, r plan.Request) plan.Response {
	said, refused := wantedOf(r.Body, old)
	if refused != nil {
		return *refused
	}
	next := clone(old).(*certificatesv1.CertificateSigningRequest)
	asked, err := csr.Read(next.Spec.Request)
	if err != nil {
		return Refusal(403, query.NotToBeSigned, err.Error())
	}
	if why := csr.Violation(said.Spec.SignerName, asked, next.Spec.Usages); why != "" {
		next.Status.Conditions = append(next.Status.Conditions, certificatesv1.CertificateSigningRequestCondition{
			Type: certificatesv1.CertificateFailed, Status: corev1.ConditionTrue, Reason: csr.Failure, Message: why, LastUpdateTime: metav1.NewTime(a.now()),
		})
	} else {
		next.Status.Certificate = Certificate(next, said.Spec.SignerName)
	}
	return answer(a.store(c, ref, old, next))
}

// fillToken is the writer's operation on a token Secret.
func (a *API) fillToken(c *Collection, ref events.Ref, old metav1.Object, r plan.Request) plan.Response {
	var patch struct{ Metadata metav1.ObjectMeta }
	if err := json.Unmarshal(r.Body, &patch); err != nil {
		return Refusal(400, "BadRequest", err.Error())
	}
	next := clone(old).(*corev1.Secret)
	switch {
	case next.Type != corev1.SecretTypeServiceAccountToken:
		return Refusal(422, query.NoToken, "not a token")
	case patch.Metadata.UID != next.UID, patch.Metadata.ResourceVersion != next.ResourceVersion:
		return Refusal(409, "Conflict", "the Secret has changed")
	case len(next.Data) > 0:
		return answer(old)
	}
	for key, value := range patch.Metadata.Annotations {
		next.Annotations[key] = value
	}
	said := patch.Metadata.Annotations
	next.Data = map[string][]byte{
		corev1.ServiceAccountTokenKey: TokenOf(ref.Namespace, said[corev1.ServiceAccountNameKey], said[corev1.ServiceAccountUIDKey], ref.Name),
	}
	return answer(a.store(c, ref, old, next))
}

// retyped reports whether a change would change the type of a Secret, which is immutable.
func retyped(old, next metav1.Object) bool {
	was, ok := old.(*corev1.Secret)
	return ok && was.Type != next.(*corev1.Secret).Type
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
		answer := Refusal(400, "BadRequest", err.Error())
		return said, &answer
	}
	if said.Metadata.UID != old.GetUID() || said.Metadata.ResourceVersion != old.GetResourceVersion() {
		answer := Refusal(409, "Conflict", "the object has changed")
		return said, &answer
	}
	return said, nil
}

// Signature is what the keys of signatures in cluster-info begin with.
const Signature = "jws-kubeconfig-"

// Certificate is what a signer issues for a request.
func Certificate(r *certificatesv1.CertificateSigningRequest, signer string) []byte {
	return fmt.Appendf(nil, "certificate of %s by %s", r.UID, signer)
}

// TokenOf is the token of a service account in a Secret, as the simulated API server fills it in.
func TokenOf(namespace, name, uid, secret string) []byte {
	return fmt.Appendf(nil, "%s/%s (%s) in %s", namespace, name, uid, secret)
}
