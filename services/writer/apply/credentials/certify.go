package credentials

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	utiljson "k8s.io/apimachinery/pkg/util/json"

	"github.com/millrace/millrace/pkg/events/csr"
	"github.com/millrace/millrace/pkg/events/query"
	"github.com/millrace/millrace/services/writer/apply/apiclient"
	"github.com/millrace/millrace/services/writer/apply/authority"
	"github.com/millrace/millrace/services/writer/plan"
)

// Certify answers a request for a certificate ([query.SubCertificate]): it reads the request live
// and writes the certificate, or a failed condition, to its status. The turn names the request, in
// the version seen, and the signer; its word alone signs nothing.
//
// Upstream: pkg/controller/certificates/signer, handle.
func (i Issuer) Certify(ctx context.Context, c *apiclient.Client, r plan.Request, auditID string) plan.Response {
	if i.Authority == nil {
		return plan.Response{Code: http.StatusForbidden, Reason: query.NoKey, Message: authority.ErrNoKey.Error()}
	}
	var said struct {
		Metadata struct {
			UID             types.UID `json:"uid"`
			ResourceVersion string    `json:"resourceVersion"`
		} `json:"metadata"`
		Spec struct {
			SignerName string `json:"signerName"`
		} `json:"spec"`
	}
	if err := json.Unmarshal(r.Body, &said); err != nil {
		return plan.Response{Code: http.StatusBadRequest, Reason: "Malformed", Message: err.Error()}
	}
	look := r
	look.Verb, look.Subresource, look.Body = plan.Read, "", nil
	got := c.Send(ctx, look, "")
	if got.Code != http.StatusOK {
		return got
	}
	var request certificatesv1.CertificateSigningRequest
	if err := json.Unmarshal(got.Body, &request); err != nil {
		return plan.Response{Reason: "NoAnswer", Message: "the API server's answer is no CertificateSigningRequest"}
	}
	switch {
	case request.UID != said.Metadata.UID, request.ResourceVersion != said.Metadata.ResourceVersion:
		return plan.Response{Code: http.StatusConflict, Reason: string(metav1.StatusReasonConflict), Message: "the request has changed"}
	case request.Spec.SignerName != said.Spec.SignerName:
		return plan.Response{Code: http.StatusForbidden, Reason: query.NotToBeSigned, Message: "the request is for another signer than the turn says"}
	}
	status, refused := i.statusOf(&request)
	if refused != nil {
		return *refused
	}
	body, err := with(got.Body, status)
	if err != nil {
		return plan.Response{Code: http.StatusBadRequest, Reason: "Malformed", Message: "the status cannot be written down"}
	}
	r.Verb, r.PatchType, r.Subresource, r.Body = plan.Update, "", "status", body
	return c.Send(ctx, r, auditID)
}

// statusOf returns the fields to add to the status of a request.
func (i Issuer) statusOf(request *certificatesv1.CertificateSigningRequest) (map[string]any, *plan.Response) {
	now := i.Clock.Now()
	certificate, err := i.Authority.Certify(request, now)
	var broken authority.Violation
	switch {
	case errors.As(err, &broken):
		return map[string]any{"conditions": failed(now, broken)}, nil
	case errors.Is(err, authority.ErrSettled):
		return nil, &plan.Response{Code: http.StatusForbidden, Reason: query.NotToBeSigned, Message: err.Error()}
	case err != nil:
		return nil, &plan.Response{Code: http.StatusForbidden, Reason: query.NoKey, Message: err.Error()}
	default:
		return map[string]any{"certificate": certificate}, nil
	}
}

// failed returns the condition of a request that breaks a rule of its signer.
func failed(now time.Time, broken authority.Violation) []any {
	return []any{certificatesv1.CertificateSigningRequestCondition{
		Type: certificatesv1.CertificateFailed, Status: corev1.ConditionTrue, Reason: csr.Failure, Message: string(broken), LastUpdateTime: metav1.NewTime(now),
	}}
}

// with returns an object, including its unknown fields, with more in its status: it appends to
// lists and replaces all else.
func with(object []byte, more map[string]any) ([]byte, error) {
	var all map[string]any
	if err := utiljson.Unmarshal(object, &all); err != nil {
		return nil, err
	}
	status, _ := all["status"].(map[string]any)
	if status == nil {
		status = map[string]any{}
	}
	for name, value := range more {
		if list, is := value.([]any); is {
			had, _ := status[name].([]any)
			value = append(had, list...)
		}
		status[name] = value
	}
	all["status"] = status
	return json.Marshal(all)
}
