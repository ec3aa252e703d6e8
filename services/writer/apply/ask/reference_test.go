package ask_test

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/apiservertest"
	"github.com/millrace/millrace/services/writer/apply"
	"github.com/millrace/millrace/services/writer/apply/applytest"
	"github.com/millrace/millrace/services/writer/plan"
)

// An ask for an object's scale is answered with what was read, and the note comes back with every
// answer.
func TestAQuestionIsAnswered(t *testing.T) {
	s := applytest.Serve(t)
	s.Put("/apis/apps/v1/namespaces/ns/replicasets/web/scale", "rs", map[string]any{"spec": map[string]any{"replicas": 3}})
	d := open(t, s, func(c *apply.Config) { c.Patience = 2 * time.Second })
	for _, story := range []struct {
		what   string
		of     metav1.OwnerReference
		status events.Status
		reason string
	}{
		{"one that is there", metav1.OwnerReference{APIVersion: "apps/v1", Kind: "ReplicaSet", Name: "web"}, events.Answered, ""},
		{"one that is not", metav1.OwnerReference{APIVersion: "apps/v1", Kind: "ReplicaSet", Name: "gone"}, events.Absent, "NotFound"},
		{"a kind without a scale", metav1.OwnerReference{APIVersion: "v1", Kind: "Pod", Name: "web"}, events.Refused, plan.ReasonLacking},
		{"a kind that is not served", metav1.OwnerReference{APIVersion: "example.com/v1", Kind: "Foo", Name: "f"}, events.Refused, plan.ReasonNoMatch},
	} {
		for _, again := range []bool{false, true} {
			c := events.Command{Verb: events.VerbAsk, Namespace: "ns", Name: story.of.Name, Of: &story.of, Subresource: "scale", Note: json.RawMessage(`{"a":1}`)}
			r := carry(t, d, plan.Options{Again: again}, c)[0]
			if r.Status != story.status || r.Reason != story.reason || r.Answer == nil || string(r.Answer.Note) != `{"a":1}` || r.Unsure {
				t.Errorf("%s: the result is %+v, want %s because of %q, with the note", story.what, r, story.status, story.reason)
			}
			var scale struct{ Spec struct{ Replicas int } }
			if err := json.Unmarshal(r.Answer.Body, &scale); r.OK() != (err == nil && scale.Spec.Replicas == 3) {
				t.Errorf("%s: the answer is %s", story.what, r.Answer.Body)
			}
		}
	}
	for _, r := range s.Requests() {
		if r.Method != "GET" {
			t.Errorf("a question was a %s of %s", r.Method, r.Path)
		}
	}
}

// An ask to an API server that does not answer is given up like any command.
func TestAQuestionIsGivenUp(t *testing.T) {
	s := applytest.Serve(t)
	s.Put("/apis/apps/v1/namespaces/ns/replicasets/web/scale", "rs", map[string]any{})
	s.Break(func(r apiservertest.Request) apiservertest.Fault {
		if r.Path == "/apis/apps/v1/namespaces/ns/replicasets/web/scale" {
			return apiservertest.Fault{Code: 503}
		}
		return apiservertest.Fault{}
	})
	d := open(t, s, func(c *apply.Config) { c.Patience = 1 })
	c := events.Command{
		Verb: events.VerbAsk, Namespace: "ns", Name: "web", Subresource: "scale",
		Of: &metav1.OwnerReference{APIVersion: "apps/v1", Kind: "ReplicaSet", Name: "web"},
	}
	if r := carry(t, d, plan.Options{Again: true}, c)[0]; r.Status != events.Failed {
		t.Errorf("the result is %+v, want Failed", r)
	}
}

// While discovery fails it is unknown which object an ask is about, and whether it has the
// subresource.
func TestAQuestionOfAKindThatIsNotTold(t *testing.T) {
	for what, c := range map[string]struct {
		of     *metav1.OwnerReference
		sub    string
		broken string
		put    string // the path of an existing object
		want   plan.Response
	}{
		"which kinds there are is not told": {&metav1.OwnerReference{APIVersion: "apps/v1", Kind: "ReplicaSet", Name: "web"}, "scale", "/apis", "/apis/apps/v1/namespaces/ns/replicasets/web/scale", plan.Response{Code: 503}},
		"an object that is gone":            {&metav1.OwnerReference{APIVersion: "apps/v1", Kind: "ReplicaSet", Name: "web"}, "", "", "", plan.Response{Code: 404, Reason: "NotFound"}},
		"an object that is there":           {&metav1.OwnerReference{APIVersion: "apps/v1", Kind: "ReplicaSet", Name: "web"}, "", "", "/apis/apps/v1/namespaces/ns/replicasets/web", plan.Response{Code: 200}},
		"an object of no namespace":         {&metav1.OwnerReference{APIVersion: "v1", Kind: "Node", Name: "n"}, "", "", "/api/v1/nodes/n", plan.Response{Code: 200}},
	} {
		s := applytest.Serve(t)
		if c.put != "" {
			s.Put(c.put, "u", map[string]any{})
		}
		s.Break(func(r apiservertest.Request) (f apiservertest.Fault) {
			if r.Path == c.broken {
				f.Code = http.StatusServiceUnavailable
			}
			return f
		})
		r := plan.Request{Verb: plan.Read, Namespace: "ns", Owner: c.of, Subresource: c.sub}
		if got := open(t, s).Do(t.Context(), actor, r, ""); got.Code != c.want.Code || c.want.Reason != "" && got.Reason != c.want.Reason {
			t.Errorf("%s: the answer is %+v, want %+v", what, got, c.want)
		}
	}
}

// A missing scale of a resource that has scales means that the object is missing. While discovery
// fails the ask is repeated.
func TestAScaleThatIsNotThere(t *testing.T) {
	for silent, want := range map[bool]plan.Response{false: {Code: 404}, true: {Code: 503}} {
		s := applytest.Serve(t)
		discovered := false
		s.Break(func(r apiservertest.Request) (f apiservertest.Fault) {
			switch {
			case strings.HasSuffix(r.Path, "/scale"):
				discovered, f.Unserved = true, true
			case discovered && silent:
				f.Code = http.StatusServiceUnavailable
			}
			return f
		})
		r := plan.Request{Verb: plan.Read, Namespace: "ns", Subresource: "scale", Owner: &metav1.OwnerReference{APIVersion: "apps/v1", Kind: "ReplicaSet", Name: "web"}}
		if got := open(t, s).Do(t.Context(), actor, r, ""); got.Code != want.Code || got.Cause != "" {
			t.Errorf("silent: %t: %+v", silent, got)
		}
	}
}
