package apply

import (
	"context"
	"fmt"
	"regexp"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/services/writer/plan"
)

// confidential reports whether the API server's answer to a request may repeat what must not be
// recorded: hidden values of the kind, or, in words about a write, the content of a kind of which
// only metadata is recorded.
func (d *Client) confidential(ctx context.Context, r plan.Request) bool {
	kind, known := kinds.Lookup(r.Kind)
	if recorded := known && kind.Form == kinds.Full; !recorded && r.Verb.Writes() || r.Kind == kinds.Secrets.Name {
		return true
	}
	return d.config.Hides != nil && d.config.Hides(ctx, r.Kind)
}

// refusal converts an error that answered or prevented a request to a response.
func (d *Client) refusal(ctx context.Context, r plan.Request, err error, code int) plan.Response {
	response := refusal(err, code)
	if d.confidential(ctx, r) {
		return redactRefusal(response)
	}
	return response
}

// redactRefusal removes the words of a refusal: it keeps code, reason, cause, field, and the name of
// the webhook. A webhook can put its own words into all of these but the code, so discreet keeps a
// value only if the API server itself could have said it.
func redactRefusal(r plan.Response) plan.Response {
	if r.Code < 400 {
		return r
	}
	if isOwnRefusal(r) { // or a webhook says so: other words may repeat the object
		return plan.Response{Code: r.Code, Reason: string(metav1.StatusReasonForbidden), Message: cannotImpersonate, RetryAfter: r.RetryAfter}
	}
	said := r.Message
	if !slices.Contains(reasons, metav1.StatusReason(r.Reason)) {
		r.Reason = string(metav1.StatusReasonUnknown)
	}
	r.Message = strings.TrimSpace(fmt.Sprintf("%d %s", r.Code, r.Reason)) + ": the API server's words are left out, since they may repeat what must not be told of the object"
	by := webhook.FindStringSubmatch(said)
	if by != nil {
		r.Message += ": webhook " + by[1]
	}
	if by != nil || !slices.Contains(causes, metav1.CauseType(r.Cause)) || !field.MatchString(r.Field) {
		r.Cause, r.Field = "", ""
	}
	if r.Cause != "" {
		r.Message += ": " + strings.TrimSpace(r.Cause+" "+r.Field)
	}
	return r
}

// webhook matches the name of a webhook that refused a request or did not answer. The API server
// puts its own words about that before the webhook's, at the start of the message.
//
// Upstream: k8s.io/apiserver/pkg/admission/plugin/webhook, ToStatusErr and ErrCallingWebhook.
var webhook = regexp.MustCompile(`^(?:admission webhook|Internal error occurred: failed calling webhook) "([a-z0-9.-]{1,253})"`)

// field is a path in an object.
var field = regexp.MustCompile(`^[A-Za-z0-9_.\[\]/-]{0,256}$`)

// reasons are the API server's own, and causes those that it gives details of.
var (
	reasons = []metav1.StatusReason{
		metav1.StatusReasonUnauthorized, metav1.StatusReasonForbidden, metav1.StatusReasonNotFound, metav1.StatusReasonAlreadyExists,
		metav1.StatusReasonConflict, metav1.StatusReasonGone, metav1.StatusReasonInvalid, metav1.StatusReasonServerTimeout,
		metav1.StatusReasonStoreReadError, metav1.StatusReasonTimeout, metav1.StatusReasonTooManyRequests, metav1.StatusReasonBadRequest,
		metav1.StatusReasonMethodNotAllowed, metav1.StatusReasonNotAcceptable, metav1.StatusReasonRequestEntityTooLarge,
		metav1.StatusReasonUnsupportedMediaType, metav1.StatusReasonInternalError, metav1.StatusReasonExpired, metav1.StatusReasonServiceUnavailable,
	}
	causes = []metav1.CauseType{
		metav1.CauseTypeFieldValueNotFound, metav1.CauseTypeFieldValueRequired, metav1.CauseTypeFieldValueDuplicate, metav1.CauseTypeFieldValueInvalid,
		metav1.CauseTypeFieldValueNotSupported, metav1.CauseTypeForbidden, metav1.CauseTypeTooLong, metav1.CauseTypeTooMany, metav1.CauseTypeInternal,
		metav1.CauseTypeTypeInvalid, metav1.CauseTypeUnexpectedServerResponse, metav1.CauseTypeFieldManagerConflict, metav1.CauseTypeResourceVersionTooLarge,
		corev1.NamespaceTerminatingCause, policyv1.DisruptionBudgetCause,
	}
)
