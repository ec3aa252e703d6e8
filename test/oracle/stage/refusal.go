package stage

import (
	"fmt"
	"net/http"
	"regexp"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/services/writer/plan"
	"github.com/millrace/millrace/test/oracle/effect"
)

// Refusal is a refusal by the API server: of requests with a verb, of the status only or of everything else,
// a number of times.
type Refusal struct {
	Verb plan.Verb
	// Also, when set, is a second verb: where upstream updates an object that ours patches.
	Also plan.Verb
	// Kind, when set, restricts the refusal to a kind.
	Kind   kinds.Name
	Status bool
	Times  int
	Answer plan.Response
}

// Refusals are the responses with which an API server may refuse a verb. For an existing object none says
// that it does not exist or has another uid.
func Refusals(verb plan.Verb) []plan.Response {
	return slices.DeleteFunc(slices.Clone(AllRefusals), func(r plan.Response) bool {
		switch metav1.StatusReason(r.Reason) {
		case metav1.StatusReasonNotFound, metav1.StatusReasonAlreadyExists:
			return verb != plan.Create
		case metav1.StatusReasonConflict:
			return verb == plan.Create || verb == plan.Delete
		case metav1.StatusReasonInvalid:
			return verb == plan.Patch || verb == plan.Delete
		}
		return r.Cause != "" && verb != plan.Create
	})
}

// AllRefusals are the responses with which an API server refuses requests in the comparisons.
var AllRefusals = []plan.Response{
	{Code: 403, Reason: string(metav1.StatusReasonForbidden), Message: "exceeded quota"},
	{Code: 403, Reason: string(metav1.StatusReasonForbidden), Message: "the namespace is being terminated", Cause: string(corev1.NamespaceTerminatingCause)},
	{Code: 404, Reason: string(metav1.StatusReasonNotFound), Message: "not found"},
	{Code: 409, Reason: string(metav1.StatusReasonConflict), Message: "it has been modified"},
	{Code: 409, Reason: string(metav1.StatusReasonAlreadyExists), Message: "it already exists"},
	{Code: 422, Reason: string(metav1.StatusReasonInvalid), Message: "it is invalid"},
	{Code: 429, Reason: string(metav1.StatusReasonTooManyRequests), Message: "too many requests"},
	{Code: 500, Reason: string(metav1.StatusReasonInternalError), Message: "internal error"},
	{Code: 504, Reason: string(metav1.StatusReasonTimeout), Message: "timed out"},
}

// Lasting reports whether a refusal can only be permanent: a namespace that is being terminated does not come
// back.
func Lasting(r plan.Response) bool { return r.Cause != "" }

// Passing reports whether a refusal can only be temporary: it contradicts the state, or the writer asks until
// it knows whether a create took effect.
func Passing(verb plan.Verb, r plan.Response) bool {
	return r.Reason == string(metav1.StatusReasonAlreadyExists) || r.Reason == string(metav1.StatusReasonConflict) || verb == plan.Create && r.Code >= 500
}

// Retried reports whether the writer itself retries after a response.
func Retried(r plan.Response) bool {
	return r.Code == http.StatusTooManyRequests || r.Code >= http.StatusInternalServerError
}

// String formats the refusal on one line.
func (r Refusal) String() string {
	return fmt.Sprintf("%s %s, status: %v, %d times: %d %s %s", r.Verb, r.Kind, r.Status, r.Times, r.Answer.Code, r.Answer.Reason, r.Answer.Cause)
}

// Refuses returns the function that refuses requests on a stage.
func (r Refusal) Refuses() func(plan.Request) *plan.Response {
	times := 0
	return func(q plan.Request) *plan.Response {
		if q.Verb != r.Verb && (r.Also == "" || q.Verb != r.Also) || r.Kind != "" && q.Kind != r.Kind || (q.Subresource == "status") != r.Status || times == r.Times {
			return nil
		}
		times++
		answer := r.Answer
		return &answer
	}
}

// combined begins the message of a client's eleventh similar Event.
const combined = "(combined from similar events): "

// taken is the writer's message about a name that was taken and is free again.
const taken = "the name was taken a moment ago"

// HasChanged is the writer's message about an object that has changed since it was seen.
const HasChanged = "the object has changed"

// failure matches Events about failed writes.
var failure = regexp.MustCompile(` Failed|Error | error `)

// comparable are the lines without intended differences:
//
//   - The writer retries a temporary failure, and reports it when it gives up. Upstream
//     reports each one.
//   - Ours emits no Event about a create in a namespace that is being terminated. Upstream
//     does for pods of a StatefulSet and for claims.
//   - A client combines the last ones of many similar Events.
//   - The message about a name that is free again, or about an object that has not changed.
func (r Refusal) comparable(lines []string) (left []string) {
	passes := Retried(r.Answer) && r.Times < TriesUntilSpent
	for _, line := range lines {
		line = strings.NewReplacer(combined, "", taken, r.Answer.Message, HasChanged, r.Answer.Message).Replace(line)
		if (passes || r.Answer.Cause != "") && strings.Contains(line, " "+corev1.EventTypeWarning+" ") && failure.MatchString(line) || slices.Contains(left, line) && strings.HasPrefix(line, effect.Event) {
			continue
		}
		left = append(left, line)
	}
	return left
}

// Says matches Events with a text.
func Says(what string) func(effect.Effect) bool {
	return func(e effect.Effect) bool { return e.Verb == effect.Event && strings.Contains(e.Body, what) }
}
