package oracle

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/scheme"

	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/services/reconcilers/reconcile"
	"github.com/millrace/millrace/services/writer/plan"
	"github.com/millrace/millrace/test/sim"
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
	return slices.DeleteFunc(slices.Clone(refusals), func(r plan.Response) bool {
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

var refusals = []plan.Response{
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

// passes reports whether the writer itself retries after a response.
func passes(r plan.Response) bool {
	return r.Code == http.StatusTooManyRequests || r.Code >= http.StatusInternalServerError
}

// String formats the refusal on one line.
func (r Refusal) String() string {
	return fmt.Sprintf("%s %s, status: %v, %d times: %d %s %s", r.Verb, r.Kind, r.Status, r.Times, r.Answer.Code, r.Answer.Reason, r.Answer.Cause)
}

// refuses returns the function that refuses requests on a stage.
func (r Refusal) refuses() func(plan.Request) *plan.Response {
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

// Rest is one controller, upstream's and ours, that runs undisturbed on an API server which refuses some
// writes, until it is at rest.
type Rest struct {
	Theirs Build
	Ours   reconcile.Any
	Kinds  []kinds.Kind
	// Long is how long both run; 0: [resting].
	Long time.Duration
	// Shown, when set, makes the form of an object that our controller sees.
	Shown func(kinds.Kind, metav1.Object) metav1.Object
	// Spared, when set, makes upstream's refusal from ours.
	Spared func(Refusal) Refusal
	// Door, when set, carries out our requests; nil: the stage does.
	Door func(s *Stage, now time.Time, r plan.Request) plan.Response
	// Chance reports, from upstream's writes, whether its end is chance; nil: it never is.
	Chance func(writes []string) bool
	// Picture selects the compared lines of the objects and Events; nil: all.
	Picture func(world []runtime.Object, told []string) []string
	// Lines removes intended differences from the lines of both ends, and Fair from the effects made of them;
	// nil: nothing.
	Lines func(refusal Refusal, theirs, ours []string) ([]string, []string)
	Fair  func(world []runtime.Object, refusal Refusal, theirs, ours []Effect) ([]Effect, []Effect)
}

// resting is how long both run: all refused writes have been retried by then.
const resting = 90 * time.Second

// Compare runs both, and shows the differences of their ends; "" if there are none.
func (c Rest) Compare(t *testing.T, world []runtime.Object, refusal Refusal) (diff string, err error) {
	var theirs, writes []string
	upstreams := refusal
	if c.Spared != nil {
		upstreams = c.Spared(refusal)
	}
	failed := under(nil, func() { synctest.Test(t, func(*testing.T) { theirs, writes, err = c.theirs(world, upstreams) }) })
	err = errors.Join(failed, err)
	if err != nil {
		return "", fmt.Errorf("ask upstream: %w", err)
	}
	if c.Chance != nil && c.Chance(writes) {
		return "", nil
	}
	ours, err := c.ours(world, refusal)
	if err != nil {
		return "", fmt.Errorf("ask ours: %w", err)
	}
	theirs, ours = refusal.comparable(theirs), refusal.comparable(ours)
	if c.Lines != nil {
		theirs, ours = c.Lines(refusal, theirs, ours)
	}
	a, b := effectsIn(theirs), effectsIn(ours)
	if c.Fair != nil {
		a, b = c.Fair(world, refusal, a, b)
	}
	return Diff(a, b), nil
}

// combined begins the message of a client's eleventh similar Event.
const combined = "(combined from similar events): "

// taken is the writer's message about a name that was taken and is free again.
const taken = "the name was taken a moment ago"

// moved is the writer's message about an object that has changed since it was seen.
const moved = "the object has changed"

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
	passes := passes(r.Answer) && r.Times < spentTries
	for _, line := range lines {
		line = strings.NewReplacer(combined, "", taken, r.Answer.Message, moved, r.Answer.Message).Replace(line)
		if (passes || r.Answer.Cause != "") && strings.Contains(line, " "+corev1.EventTypeWarning+" ") && failure.MatchString(line) || slices.Contains(left, line) && strings.HasPrefix(line, event) {
			continue
		}
		left = append(left, line)
	}
	return left
}

// effectsIn converts lines to effects, so that [Diff] can show them field by field.
func effectsIn(lines []string) (effects []Effect) {
	for _, line := range lines {
		resource, body, _ := strings.Cut(line, " ")
		e := Effect{Verb: event, Resource: resource, Body: body}
		if meta, ok := tree(body).(map[string]any); ok {
			m, _ := meta["metadata"].(map[string]any)
			e.Verb, e.Name = update, fmt.Sprint(m["name"])
		}
		effects = append(effects, e)
	}
	return effects
}

func (c Rest) stage(now func() time.Time, world []runtime.Object, refusal Refusal) (*Stage, error) {
	s := NewStage(now, c.Kinds...)
	for _, obj := range world {
		gvks, _, err := scheme.Scheme.ObjectKinds(obj)
		if err != nil {
			return nil, err
		}
		at := slices.IndexFunc(c.Kinds, func(k kinds.Kind) bool { return k.Kind == gvks[0].Kind && k.Name.Group() == gvks[0].Group })
		if at < 0 {
			return nil, fmt.Errorf("the world holds a %v", gvks[0])
		}
		s.API.Load(c.Kinds[at].Name, obj.DeepCopyObject().(object))
	}
	s.Refuse, s.API.Allows = refusal.refuses(), permitted
	return s, nil
}

func (c Rest) ours(world []runtime.Object, refusal Refusal) (lines []string, err error) {
	a, err := c.rested(world, refusal)
	if err != nil {
		return nil, err
	}
	return c.rest(a.Stage), nil
}

// rested is our controller when it is at rest.
func (c Rest) rested(world []runtime.Object, refusal Refusal) (a *Actor, err error) {
	a = &Actor{Controller: c.Ours, Now: Now, Shown: c.Shown}
	if a.Stage, err = c.stage(func() time.Time { return a.Now }, world, refusal); err != nil {
		return nil, err
	}
	if c.Door != nil {
		a.Door = func(r plan.Request) plan.Response { return c.Door(a.Stage, a.Now, r) }
	}
	a.Begin(c.Kinds...)
	if err := a.Until(Now.Add(cmp.Or(c.Long, resting))); err != nil {
		return nil, fmt.Errorf("%w:\n%s", err, strings.Join(a.Stage.Writes[max(0, len(a.Stage.Writes)-20):], "\n"))
	}
	return a, nil
}

func (c Rest) theirs(world []runtime.Object, refusal Refusal) (lines, writes []string, err error) {
	time.Sleep(time.Until(Now))
	s, err := c.stage(time.Now, world, refusal)
	if err != nil {
		return nil, nil, err
	}
	build := func(ctx context.Context, f informers.SharedInformerFactory, client kubernetes.Interface) (func(), error) {
		s.Informers = f
		return c.Theirs(ctx, f, client)
	}
	err = s.during(build, func() {
		time.Sleep(cmp.Or(c.Long, resting))
		synctest.Wait()
		s.Do(func(*sim.API) { lines, writes = c.rest(s), s.Writes })
	})
	return lines, writes, err
}

// counted matches the uid of an object that was created meanwhile.
var counted = regexp.MustCompile(`"uid-\d+"`)

// suffix matches the end of the name of a pod that was created and deleted meanwhile.
var suffix = regexp.MustCompile(`(Deleted pod: \S+-)[a-z0-9]{5}$`)

// rest are the objects and Events when a controller is at rest.
func (c Rest) rest(s *Stage) (out []string) {
	settled := Settled{Told: s.Told}
	for _, obj := range s.Objects() {
		settled.World = append(settled.World, obj.(object).DeepCopyObject())
	}
	if c.Picture != nil {
		return c.Picture(settled.World, settled.Told)
	}
	for _, line := range lines(settled) {
		out = append(out, suffix.ReplaceAllString(counted.ReplaceAllString(line, `"uid"`), "$1*"))
	}
	return out
}
