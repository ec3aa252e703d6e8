package apply_test

import (
	"context"
	"net/http"
	"sync/atomic"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/pkg/events/trace"
	"github.com/millrace/millrace/services/writer/apply"
	"github.com/millrace/millrace/services/writer/apply/applytest"
	"github.com/millrace/millrace/services/writer/plan"
)

// The door sends nothing to a path that a segment would change, whatever plan it comes from.
func TestTheDoorBuildsNoOtherPath(t *testing.T) {
	s := applytest.Serve(t)
	d := open(t, s)
	bend := map[string]func(*plan.Request, string){
		"group":       func(r *plan.Request, text string) { r.Kind = kinds.NameOf(text, "widgets") },
		"resource":    func(r *plan.Request, text string) { r.Kind = kinds.Name(text) },
		"version":     func(r *plan.Request, text string) { r.Version = text },
		"namespace":   func(r *plan.Request, text string) { r.Namespace = text },
		"name":        func(r *plan.Request, text string) { r.Name = text },
		"subresource": func(r *plan.Request, text string) { r.Subresource = text },
		"owner": func(r *plan.Request, text string) {
			r.Owner = &metav1.OwnerReference{APIVersion: "v1", Kind: "Pod", Name: text}
		},
	}
	for _, verb := range []plan.Verb{plan.Create, plan.Update, plan.Patch, plan.Delete, plan.Look, plan.Read, plan.Search} {
		for field, with := range bend {
			for _, text := range []string{"..", ".", "/", "a/b", "%2f", "../../../kube-system/pods/etcd"} {
				r := plan.Request{Verb: verb, Kind: "pods", Version: "v1", Namespace: "ns", Name: "a", Body: []byte(`{}`), PatchType: "application/merge-patch+json"}
				with(&r, text)
				if answer := d.Do(t.Context(), actor, r, ""); answer.Code != http.StatusBadRequest || answer.Reason != plan.ReasonUnaddressable {
					t.Errorf("%s with the %s %q: %+v", verb, field, text, answer)
				}
			}
		}
	}
	if requests := s.Requests(); len(requests) > 0 {
		t.Errorf("requests were made: %v", requests)
	}
}

// A panic is the answer to the request that caused it; the others go on.
func TestAPanicIsAnAnswer(t *testing.T) {
	s := applytest.Serve(t)
	var panics atomic.Int64
	d := open(t, s, func(c *apply.Config) {
		c.Panicked = func(controller string, cause any, stack []byte) {
			if controller == actor.Controller && cause == "a fault" && len(stack) > 0 {
				panics.Add(1)
			}
		}
		c.Announce = faulty("web-1")
	})
	results := carry(t, d, plan.Options{}, creates(3)...)
	for i, r := range results {
		if failed := r.Status == events.Failed && r.Reason == plan.ReasonPanicked; failed != (i == 1) && r.Reason != "Skipped" {
			t.Errorf("%d: %+v", i, r)
		}
	}
	if panics.Load() != 1 {
		t.Errorf("%d panics were told", panics.Load())
	}
}

// faulty panics on a write of an object with a given name.
func faulty(name string) func(context.Context, trace.Write) {
	return func(_ context.Context, w trace.Write) {
		if w.About.Name == name {
			panic("a fault")
		}
	}
}
