package apply

import (
	"bytes"
	"context"
	"encoding/json"
	"net/http"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/services/writer/apply/mint"
	"github.com/millrace/millrace/services/writer/plan"
)

// fill makes a Secret the token of an account ([events.SubToken]): it completes the
// patch with what the Secret lacks. Nothing of what is in the Secret leaves this file:
// neither what is read, nor what is written, nor what the API server or an admission
// webhook may repeat of it when it refuses.
//
// Upstream: pkg/controller/serviceaccount/tokens_controller.go, generateTokenIfNeeded.
func (d *Door) fill(ctx context.Context, client rest.Interface, r plan.Request, auditID string) plan.Response {
	if d.config.Mint == nil {
		return plan.Response{Code: http.StatusForbidden, Reason: "NoKey", Message: "this writer has no key to sign tokens with: give it --service-account-private-key-file"}
	}
	var patch filling
	if err := json.Unmarshal(r.Body, &patch); err != nil {
		return plan.Response{Code: http.StatusBadRequest, Reason: "Malformed", Message: err.Error()}
	}
	// At -v=8 the client library logs what it sends and receives.
	ctx = klog.NewContext(ctx, logr.Discard())
	look := r
	look.Verb, look.Subresource, look.Body = plan.Read, "", nil
	got := d.send(ctx, client, look, "")
	if got.Code != http.StatusOK {
		return got
	}
	var secret corev1.Secret
	if err := json.Unmarshal(got.Body, &secret); err != nil {
		return plan.Response{Reason: "NoAnswer", Message: "the API server's answer is no Secret"}
	}
	got.Body = nil
	switch {
	case secret.Type != corev1.SecretTypeServiceAccountToken:
		return plan.Response{Code: http.StatusUnprocessableEntity, Reason: events.NoToken, Message: "the Secret is not of type " + string(corev1.SecretTypeServiceAccountToken)}
	case secret.UID != patch.Metadata.UID, secret.ResourceVersion != patch.Metadata.ResourceVersion:
		return plan.Response{Code: http.StatusConflict, Reason: string(metav1.StatusReasonConflict), Message: "the Secret has changed"}
	}
	if err := patch.complete(&secret, d.config.Mint); err != nil {
		return plan.Response{Code: http.StatusForbidden, Reason: "NoKey", Message: err.Error()}
	}
	if len(patch.Data) == 0 {
		return got
	}
	body, err := json.Marshal(patch)
	if err != nil {
		return plan.Response{Code: http.StatusBadRequest, Reason: "Malformed", Message: "the patch cannot be written down"}
	}
	r.Subresource, r.Body = "", body
	return discreet(d.send(ctx, client, r, auditID))
}

// filling is the patch.
type filling struct {
	Metadata struct {
		UID             types.UID         `json:"uid"`
		ResourceVersion string            `json:"resourceVersion"`
		Annotations     map[string]string `json:"annotations"`
	} `json:"metadata"`
	Data map[string][]byte `json:"data"`
}

// complete adds what a Secret lacks.
func (f *filling) complete(secret *corev1.Secret, m *mint.Mint) error {
	f.Data = map[string][]byte{}
	if ca := m.RootCA(); len(ca) > 0 && !bytes.Equal(secret.Data[corev1.ServiceAccountRootCAKey], ca) {
		f.Data[corev1.ServiceAccountRootCAKey] = ca
	}
	if len(secret.Data[corev1.ServiceAccountNamespaceKey]) == 0 {
		f.Data[corev1.ServiceAccountNamespaceKey] = []byte(secret.Namespace)
	}
	if len(secret.Data[corev1.ServiceAccountTokenKey]) > 0 {
		return nil
	}
	token, err := m.Token(mint.Subject{
		Namespace: secret.Namespace, Account: f.Metadata.Annotations[corev1.ServiceAccountNameKey],
		UID: types.UID(f.Metadata.Annotations[corev1.ServiceAccountUIDKey]), Secret: secret.Name,
	})
	f.Data[corev1.ServiceAccountTokenKey] = []byte(token)
	return err
}

// discreet leaves out what is said in words of a write: only code, reason and times are
// told.
func discreet(r plan.Response) plan.Response {
	if r.Message != "" {
		r.Message = "the API server's words are left out, since they may repeat what is in the Secret"
	}
	return r
}
