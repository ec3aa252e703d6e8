package credentials

import (
	"bytes"
	"context"
	"encoding/json"
	"net/http"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"

	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/pkg/events/query"
	"github.com/millrace/millrace/services/writer/apply/apiclient"
	"github.com/millrace/millrace/services/writer/apply/mint"
	"github.com/millrace/millrace/services/writer/plan"
)

// CompleteToken makes a Secret the token of an account ([query.SubToken]): it completes the patch with the
// fields that the Secret lacks. No content of the Secret leaves this file: neither what is read,
// nor what is written, nor what the API server or an admission webhook may repeat when it refuses.
//
// Upstream: pkg/controller/serviceaccount/tokens_controller.go, generateTokenIfNeeded.
func (i Issuer) CompleteToken(ctx context.Context, c *apiclient.Client, r plan.Request, auditID string) plan.Response {
	if i.Mint == nil {
		return plan.Response{Code: http.StatusForbidden, Reason: query.NoKey, Message: "this writer has no key to sign tokens with: give it --service-account-private-key-file"}
	}
	var patch filling
	if err := json.Unmarshal(r.Body, &patch); err != nil {
		return plan.Response{Code: http.StatusBadRequest, Reason: "Malformed", Message: err.Error()}
	}
	// At -v=8 the client library logs what it sends and receives.
	ctx = klog.NewContext(ctx, logr.Discard())
	look := r
	look.Verb, look.Subresource, look.Body = plan.Read, "", nil
	got := c.Send(ctx, look, "")
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
		return plan.Response{Code: http.StatusUnprocessableEntity, Reason: query.NoToken, Message: "the Secret is not of type " + string(corev1.SecretTypeServiceAccountToken)}
	case secret.UID != patch.Metadata.UID, secret.ResourceVersion != patch.Metadata.ResourceVersion:
		return plan.Response{Code: http.StatusConflict, Reason: string(metav1.StatusReasonConflict), Message: "the Secret has changed"}
	}
	account, refused := accountOf(ctx, c, &secret, patch.Metadata.Annotations)
	if refused != nil {
		return *refused
	}
	if err := patch.complete(&secret, account, i.Mint); err != nil {
		return plan.Response{Code: http.StatusForbidden, Reason: query.NoKey, Message: err.Error()}
	}
	if len(patch.Data) == 0 {
		return got
	}
	body, err := json.Marshal(patch)
	if err != nil {
		return plan.Response{Code: http.StatusBadRequest, Reason: "Malformed", Message: "the patch cannot be written down"}
	}
	r.Subresource, r.Body = "", body
	return c.Send(ctx, r, auditID)
}

// accountOf returns the account whose token a Secret is: the one that the live Secret names, as it
// is now. The turn must name the same Secret and account; its word alone signs nothing.
//
// Upstream: pkg/controller/serviceaccount/tokens_controller.go, syncSecret and
// getServiceAccount.
func accountOf(ctx context.Context, c *apiclient.Client, secret *corev1.Secret, said map[string]string) (mint.Subject, *plan.Response) {
	refuse := func(code int, reason, message string) (mint.Subject, *plan.Response) {
		return mint.Subject{}, &plan.Response{Code: code, Reason: reason, Message: message}
	}
	name, uid := secret.Annotations[corev1.ServiceAccountNameKey], secret.Annotations[corev1.ServiceAccountUIDKey]
	switch {
	case name == "":
		return refuse(http.StatusForbidden, query.OtherAccount, "the Secret names no account")
	case name != said[corev1.ServiceAccountNameKey]:
		return refuse(http.StatusForbidden, query.OtherAccount, "the Secret names another account than the turn")
	}
	got := c.Read(ctx, plan.Request{
		Verb: plan.Look, Kind: kinds.ServiceAccounts.Name, Version: kinds.ServiceAccounts.Version, Namespace: secret.Namespace, Name: name,
	})
	switch {
	case got.Code == http.StatusNotFound:
		return refuse(http.StatusForbidden, query.OtherAccount, "the account that the Secret names is gone")
	case got.Code != http.StatusOK:
		return mint.Subject{}, &got
	case uid != "" && uid != string(got.Object.UID):
		return refuse(http.StatusForbidden, query.OtherAccount, "the Secret is of an earlier account of that name")
	case said[corev1.ServiceAccountUIDKey] != string(got.Object.UID):
		return refuse(http.StatusForbidden, query.OtherAccount, "the turn is about an earlier account of that name")
	}
	return mint.Subject{Namespace: secret.Namespace, Account: name, UID: got.Object.UID, Secret: secret.Name}, nil
}

// filling is the patch of a Secret.
type filling struct {
	Metadata struct {
		UID             types.UID         `json:"uid"`
		ResourceVersion string            `json:"resourceVersion"`
		Annotations     map[string]string `json:"annotations"`
	} `json:"metadata"`
	Data map[string][]byte `json:"data"`
}

// complete adds the fields that a Secret lacks.
func (f *filling) complete(secret *corev1.Secret, account mint.Subject, m *mint.Mint) error {
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
	token, err := m.Token(account)
	f.Data[corev1.ServiceAccountTokenKey] = []byte(token)
	return err
}
