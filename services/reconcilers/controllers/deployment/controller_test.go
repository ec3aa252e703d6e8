package deployment

import (
	"slices"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/services/reconcilers/reconciletest"
)

var (
	ownSet = reconciletest.OwnedBy[*appsv1.ReplicaSet]
	ownPod = reconciletest.OwnedBy[*corev1.Pod]
	web    = events.Key{Namespace: reconciletest.Namespace, Name: "web"}
)

func TestObserve(t *testing.T) {
	d := rolling(3, "25%", "25%")
	mine := reconciletest.ReplicaSet("web-a", 1, ownSet(kinds.Deployments.Kind, d))
	orphan, leaving := reconciletest.ReplicaSet("web-b", 1), reconciletest.ReplicaSet("web-c", 1, reconciletest.Deleted[*appsv1.ReplicaSet](reconciletest.Now))
	other := reconciletest.ReplicaSet("web-d", 1, reconciletest.Labelled[*appsv1.ReplicaSet](map[string]string{"app": "other"}))
	w := reconciletest.NewWorld().Put(kinds.Deployments.Kind, d).Put(kinds.ReplicaSets.Kind, mine, orphan, leaving, other).
		Put(kinds.Pods.Kind,
			reconciletest.Pod("web-a-1", ownPod(kinds.ReplicaSets.Kind, mine)),
			reconciletest.Pod("web-a-2", ownPod(kinds.ReplicaSets.Kind, mine), reconciletest.InPhase(corev1.PodFailed)))
	w.Remember(events.Outcome{Key: web, UID: d.UID, Lane: events.LaneWrite, Results: []events.Result{{Status: events.Failed, Message: "no"}}})

	v, ok := observe(w, web)
	if !ok || !slices.Equal(v.Sets, []*appsv1.ReplicaSet{mine, orphan}) || v.Running != nil {
		t.Errorf("view = %+v, %v", v, ok)
	}
	if v.Failure == nil || v.Failure.Message != "no" {
		t.Errorf("failure = %+v", v.Failure)
	}
	recreating := d.DeepCopy()
	recreating.Spec.Strategy = appsv1.DeploymentStrategy{Type: appsv1.RecreateDeploymentStrategyType}
	if v, _ = observe(w.Put(kinds.Deployments.Kind, recreating), web); v.Running[mine.UID] != 1 {
		t.Errorf("running = %v", v.Running)
	}
	w.Remove(kinds.Deployments.Name, web.Namespace, web.Name)
	if _, ok := observe(w, web); ok {
		t.Error("there is a view of a Deployment that is gone")
	}
}

func TestWhoseTurnASetMakesIt(t *testing.T) {
	d := rolling(3, "25%", "25%")
	twin := reconciletest.Deployment("twin", 1)
	w := reconciletest.NewWorld().Put(kinds.Deployments.Kind, d, twin)
	owned := reconciletest.ReplicaSet("web-a", 1, ownSet(kinds.Deployments.Kind, d))
	orphan := reconciletest.ReplicaSet("web-a", 1)
	relabelled := reconciletest.ReplicaSet("web-a", 1, reconciletest.Labelled[*appsv1.ReplicaSet](map[string]string{"app": "web", "x": "y"}))
	stranger := reconciletest.ReplicaSet("web-a", 1, ownSet(kinds.Deployments.Kind, reconciletest.Deployment("gone", 1)))
	again := rolling(3, "25%", "25%")
	again.UID = "another"
	both := []events.Key{{Namespace: web.Namespace, Name: "twin"}, web}
	for _, c := range []struct {
		what     string
		was, now metav1.Object
		want     []events.Key
	}{
		{"owned, new", nil, owned, []events.Key{web}},
		{"owned, changed", owned, owned, []events.Key{web}},
		{"owned, gone", owned, nil, []events.Key{web}},
		{"orphan, new", nil, orphan, both},
		{"orphan, the same", orphan, orphan, nil},
		{"orphan, other labels", orphan, relabelled, both},
		{"orphan, gone", orphan, nil, nil},
		{"a stranger's", nil, stranger, nil},
		{"of an owner of that name that is gone", nil, reconciletest.ReplicaSet("web-a", 1, ownSet(kinds.Deployments.Kind, again)), nil},
		{"adopted", orphan, owned, []events.Key{web}},
	} {
		if got := w.Keys(Controller, kinds.ReplicaSets.Kind, c.was, c.now); !slices.Equal(got, c.want) {
			t.Errorf("%s: %v, want %v", c.what, got, c.want)
		}
	}
	released := w.Keys(Controller, kinds.ReplicaSets.Kind, owned, orphan)
	if len(released) != 2 || released[0] != web {
		t.Errorf("released: %v", released)
	}
}

func TestWhoseTurnAPodMakesIt(t *testing.T) {
	d := rolling(3, "25%", "25%")
	set := reconciletest.ReplicaSet("web-a", 1, ownSet(kinds.Deployments.Kind, d))
	last, sibling := reconciletest.Pod("last", ownPod(kinds.ReplicaSets.Kind, set)), reconciletest.Pod("sibling", ownPod(kinds.ReplicaSets.Kind, set))
	w := reconciletest.NewWorld().Put(kinds.Deployments.Kind, d).Put(kinds.ReplicaSets.Kind, set)
	gone := func() []events.Key { return w.Keys(Controller, kinds.Pods.Kind, last, nil) }

	if got := gone(); got != nil {
		t.Errorf("a rolling update waits for no pod, but %v", got)
	}
	recreating := d.DeepCopy()
	recreating.Spec.Strategy = appsv1.DeploymentStrategy{Type: appsv1.RecreateDeploymentStrategyType}
	w.Put(kinds.Deployments.Kind, recreating)
	if got := gone(); !slices.Equal(got, []events.Key{web}) {
		t.Errorf("the last pod is gone: %v", got)
	}
	if got := w.Keys(Controller, kinds.Pods.Kind, nil, last); got != nil {
		t.Errorf("a new pod: %v", got)
	}
	if got := w.Keys(Controller, kinds.Pods.Kind, last, last); got != nil {
		t.Errorf("a pod that goes on: %v", got)
	}
	if got := w.Keys(Controller, kinds.Pods.Kind, last, reconciletest.Pod("last")); !slices.Equal(got, []events.Key{web}) {
		t.Errorf("the set has let go of its last pod: %v", got)
	}
	if w.Put(kinds.Pods.Kind, sibling); gone() != nil {
		t.Errorf("another pod runs: %v", gone())
	}
}
