package garbagecollector

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/services/reconcilers/reconciletest"
)

// The next view has the refusal of the writer, and none if nothing failed, or if the
// failure was about an earlier object of that name.
func TestWhatWasRefusedIsSeen(t *testing.T) {
	pod := reconciletest.Pod("p")
	key := events.Key{Kind: kinds.Pods.Name, Namespace: pod.Namespace, Name: pod.Name}
	refused := events.Result{Status: events.Refused, Reason: ownerAlive, Code: 409}
	for what, c := range map[string]struct {
		outcome events.Outcome
		want    string
	}{
		"it was refused":           {events.Outcome{UID: pod.UID, Results: []events.Result{refused}}, ownerAlive},
		"one of two was":           {events.Outcome{UID: pod.UID, Results: []events.Result{{Status: events.Applied}, refused}}, ownerAlive},
		"it was done":              {events.Outcome{UID: pod.UID, Results: []events.Result{{Status: events.Applied}}}, ""},
		"another was refused":      {events.Outcome{UID: "before", Results: []events.Result{refused}}, ""},
		"nothing has been decided": {events.Outcome{Lane: events.LaneStatus, UID: pod.UID, Results: []events.Result{refused}}, ""},
	} {
		if c.outcome.Key = key; c.outcome.Lane == "" {
			c.outcome.Lane = events.LaneWrite
		}
		c.outcome.At = reconciletest.Now
		v, ok := observe(reconciletest.NewWorld().Put(kinds.Pods.Kind, pod).Remember(c.outcome), key)
		got := ""
		if v.Refused != nil {
			got = v.Refused.Reason
		}
		if !ok || got != c.want || v.Refused != nil && (v.Refused.Code != 409 || !v.Refused.At.Equal(reconciletest.Now)) {
			t.Errorf("%s: the view has %+v, want %q", what, v.Refused, c.want)
		}
	}
}

// Two references are the same if they have the same owner, name, kind, version and
// blockOwnerDeletion.
func TestReferencesThatAreTheSame(t *testing.T) {
	yes := true
	one := metav1.OwnerReference{APIVersion: "v1", Kind: "Pod", Name: "p", UID: "u"}
	for what, c := range map[string]struct {
		edit func(*metav1.OwnerReference)
		same bool
	}{
		"itself":          {func(*metav1.OwnerReference) {}, true},
		"a controller":    {func(r *metav1.OwnerReference) { r.Controller = &yes }, true},
		"another version": {func(r *metav1.OwnerReference) { r.APIVersion = "v2" }, false},
		"another kind":    {func(r *metav1.OwnerReference) { r.Kind = "Node" }, false},
		"another name":    {func(r *metav1.OwnerReference) { r.Name = "q" }, false},
		"another uid":     {func(r *metav1.OwnerReference) { r.UID = "v" }, false},
		"one that blocks": {func(r *metav1.OwnerReference) { r.BlockOwnerDeletion = &yes }, false},
	} {
		other := one
		if c.edit(&other); sameReference(one, other) != c.same {
			t.Errorf("a reference and %s are the same: %v, want %v", what, !c.same, c.same)
		}
	}
}
