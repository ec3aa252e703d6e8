package credentials

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"maps"
	"net/http"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/millrace/millrace/pkg/events/query"
	"github.com/millrace/millrace/services/writer/apply/apiclient"
	"github.com/millrace/millrace/services/writer/plan"
)

const (
	// signed is the key of the signed content, and signature the prefix of the keys of its
	// signatures, which end with the id of the token.
	//
	// Upstream: k8s.io/cluster-bootstrap/token/api.
	signed    = "kubeconfig"
	signature = "jws-kubeconfig-"
)

// Sign updates the signatures in the ConfigMap cluster-info to those of the valid signing tokens
// ([query.SubSignatures]). It replaces the ConfigMap that it has just read: Kubernetes' own role
// allows no patch.
//
// Upstream: pkg/controller/bootstrap, signConfigMap.
func (i Issuer) Sign(ctx context.Context, c *apiclient.Client, r plan.Request, auditID string) plan.Response {
	var patch filling // only the preconditions count
	if err := json.Unmarshal(r.Body, &patch); err != nil {
		return plan.Response{Code: http.StatusBadRequest, Reason: "Malformed", Message: err.Error()}
	}
	tokens, response := bootstrapTokens(ctx, c, r, "")
	if response.Code != http.StatusOK {
		return response
	}
	look := r
	look.Verb, look.Subresource, look.Body = plan.Read, "", nil
	got := c.Read(ctx, look)
	if got.Code != http.StatusOK {
		return got
	}
	if got.Object.UID != patch.Metadata.UID || got.Object.ResourceVersion != patch.Metadata.ResourceVersion {
		return plan.Response{Code: http.StatusConflict, Reason: string(metav1.StatusReasonConflict), Message: "the ConfigMap has changed"}
	}
	object, data := map[string]json.RawMessage{}, struct {
		Data map[string]string `json:"data"`
	}{}
	if json.Unmarshal(got.Body, &object) != nil || json.Unmarshal(got.Body, &data) != nil {
		return plan.Response{Reason: "NoAnswer", Message: "the API server's answer is no ConfigMap"}
	}
	next, told := newSignatures(data.Data, tokens, i.Clock.Now())
	if got.Body = nil; !maps.Equal(next, data.Data) {
		object["data"], _ = json.Marshal(next) // strings always have a JSON form
		r.Verb, r.Subresource, r.PatchType = plan.Update, "", ""
		r.Body, _ = json.Marshal(object)
		if got = c.Send(ctx, r, auditID); got.Code != http.StatusOK {
			return got
		}
	}
	got.Body, _ = json.Marshal(told) // it has a form that JSON knows
	return got
}

// newSignatures returns the new data of the ConfigMap, and whose signatures it then has. Without
// content to sign the data stays as it is.
func newSignatures(data map[string]string, tokens []corev1.Secret, now time.Time) (next map[string]string, told query.Signatures) {
	content, there := data[signed]
	if !there {
		return data, told
	}
	next = maps.Clone(data)
	maps.DeleteFunc(next, func(key, _ string) bool { return strings.HasPrefix(key, signature) })
	for i := range tokens {
		id, key, may := query.SignerOf(&tokens[i], now)
		if !may {
			continue
		}
		next[signature+id] = detachedSignature(content, id, key)
		told.By = append(told.By, tokens[i].Name)
		if at := query.ExpiryOf(&tokens[i]).At; at != nil && (told.Until == nil || at.Before(*told.Until)) {
			told.Until = at
		}
	}
	return next, told
}

// detachedSignature returns the signature of a content by a token, as a JWS without the content. An id is
// six letters or digits, so it needs no escapes.
//
// Upstream: k8s.io/cluster-bootstrap/token/jws, ComputeDetachedSignature.
func detachedSignature(content, id, key string) string {
	encode := base64.RawURLEncoding.EncodeToString
	header := encode([]byte(`{"alg":"HS256","kid":"` + id + `"}`))
	sum := hmac.New(sha256.New, []byte(key))
	_, _ = sum.Write([]byte(header + "." + encode([]byte(content)))) // it never fails
	return header + ".." + encode(sum.Sum(nil))
}
