package apply_test

import (
	"encoding/json"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/services/writer/apply"
	"github.com/millrace/millrace/services/writer/internal/fakeserver"
	"github.com/millrace/millrace/services/writer/plan"
)

// A question about an object's scale is answered with what is read, and what was to
// be remembered comes back whatever the answer is.
func TestAQuestionIsAnswered(t *testing.T) {
	s := fakeserver.New(t)
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
		{"a kind that nobody knows", metav1.OwnerReference{APIVersion: "example.com/v1", Kind: "Foo", Name: "f"}, events.Refused, plan.ReasonNoMatch},
	} {
		for _, again := range []bool{false, true} {
			c := events.Command{Verb: events.VerbAsk, Namespace: "ns", Name: story.of.Name, Of: &story.of, Subresource: "scale", Note: json.RawMessage(`{"a":1}`)}
			r := carry(t, d, plan.Options{Again: again}, c)[0]
			if r.Status != story.status || r.Reason != story.reason || r.Answer == nil || string(r.Answer.Note) != `{"a":1}` || r.Unsure {
				t.Errorf("%s: %+v", story.what, r)
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

// A question to an API server that does not answer is given up like any command.
func TestAQuestionIsGivenUp(t *testing.T) {
	s := fakeserver.New(t)
	s.Put("/apis/apps/v1/namespaces/ns/replicasets/web/scale", "rs", map[string]any{})
	s.Break(func(r fakeserver.Request) fakeserver.Fault {
		if r.Path == "/apis/apps/v1/namespaces/ns/replicasets/web/scale" {
			return fakeserver.Fault{Code: 503}
		}
		return fakeserver.Fault{}
	})
	d := open(t, s, func(c *apply.Config) { c.Patience = 1 })
	c := events.Command{
		Verb: events.VerbAsk, Namespace: "ns", Name: "web", Subresource: "scale",
		Of: &metav1.OwnerReference{APIVersion: "apps/v1", Kind: "ReplicaSet", Name: "web"},
	}
	if r := carry(t, d, plan.Options{Again: true}, c)[0]; r.Status != events.Failed {
		t.Errorf("%+v", r)
	}
}
