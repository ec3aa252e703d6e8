package apiclient

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/services/writer/plan"
)

// failure returns the answer to a request that failed. The status in the body has the reason;
// Retry-After is a header, which only the error without the body has.
func (c *Client) failure(ctx context.Context, result rest.Result, r plan.Request) (response plan.Response, failed bool) {
	said := result.StatusCode(&response.Code).Error()
	if said == nil {
		return response, false
	}
	response = c.refusal(ctx, r, said, response.Code)
	if _, err := result.Raw(); err != nil {
		response.RetryAfter = max(response.RetryAfter, Refusal(err, response.Code).RetryAfter)
	}
	return response, true
}

// Refusal converts an error to a response, with the API server's own status if it answered. code is
// the HTTP status of an answer whose body has none.
func Refusal(err error, code int) plan.Response {
	var status apierrors.APIStatus
	if !errors.As(err, &status) {
		return plan.Response{Reason: "NoAnswer", Message: err.Error()}
	}
	s := status.Status()
	response := plan.Response{Code: int(s.Code), Reason: string(s.Reason), Message: err.Error()}
	if response.Code == 0 {
		response.Code = code
	}
	if s.Details != nil {
		if len(s.Details.Causes) > 0 {
			response.Cause, response.Field = string(s.Details.Causes[0].Type), s.Details.Causes[0].Field
		}
		for _, cause := range s.Details.Causes {
			if cause.Type == metav1.CauseTypeUnexpectedServerResponse {
				response.Cause = string(cause.Type)
			}
		}
		response.RetryAfter = time.Duration(s.Details.RetryAfterSeconds) * time.Second
	}
	return response
}

// confidential reports whether the API server's answer to a request may repeat what must not be
// recorded: hidden values of the kind, or, in words about a write, the content of a kind of which
// only metadata is recorded.
func (c *Client) confidential(ctx context.Context, r plan.Request) bool {
	kind, known := kinds.Lookup(r.Kind)
	if recorded := known && kind.Form == kinds.Full; !recorded && r.Verb.Writes() || r.Kind == kinds.Secrets.Name {
		return true
	}
	return c.config.Hides != nil && c.config.Hides(ctx, r.Kind)
}

// refusal converts an error that answered or prevented a request to a response.
func (c *Client) refusal(ctx context.Context, r plan.Request, err error, code int) plan.Response {
	response := Refusal(err, code)
	if c.confidential(ctx, r) {
		return redactRefusal(response)
	}
	return response
}

// redactRefusal removes the words of a refusal: it keeps code, reason, cause, field, and the name of
// the webhook. A webhook can put its own words into all of these but the code, so it keeps a
// value only if the API server itself could have said it.
func redactRefusal(r plan.Response) plan.Response {
	if r.Code < 400 {
		return r
	}
	if IsOwnRefusal(r) { // or a webhook says so: other words may repeat the object
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

// cannotImpersonate is in the API server's message of every such refusal.
const cannotImpersonate = "cannot impersonate"

// IsOwnRefusal reports whether a request was refused because of the writer's own rights.
func IsOwnRefusal(r plan.Response) bool {
	return r.Code == http.StatusForbidden && strings.Contains(r.Message, cannotImpersonate)
}

// ExplainRefusal adds which roles are missing if a request was refused because of the writer's
// rights, and not the controller's. If both ways of impersonation fail the API server names only
// one of them.
func ExplainRefusal(a Actor, r plan.Response) plan.Response {
	if !IsOwnRefusal(r) {
		return r
	}
	r.Reason = plan.ReasonNotImpersonated
	r.Message = "the writer may not do this as " + a.Identity +
		": give it the roles that millrace rbac prints (with --impersonation=classic before Kubernetes 1.36); the API server says: " + r.Message
	return r
}
