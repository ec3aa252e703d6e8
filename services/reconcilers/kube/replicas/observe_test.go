package replicas

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

func key(name string) events.Key { return events.Key{Namespace: reconciletest.Namespace, Name: name} }

func of(set *appsv1.ReplicaSet) reconciletest.Edit[*corev1.Pod] {
	return reconciletest.OwnedBy[*corev1.Pod](kinds.ReplicaSets.Kind, set)
}

func labelled(value string) reconciletest.Edit[*corev1.Pod] {
	return reconciletest.Labelled[*corev1.Pod](map[string]string{"app": value})
}

func TestWhoseTurnAPodMakesIt(t *testing.T) {
	web, twin, other := reconciletest.ReplicaSet("web", 1), reconciletest.ReplicaSet("twin", 1), reconciletest.ReplicaSet("other", 1)
	other.Spec.Selector = &metav1.LabelSelector{MatchLabels: map[string]string{"app": "other"}}
	empty := reconciletest.ReplicaSet("empty", 1)
	empty.Spec.Selector = &metav1.LabelSelector{}
	world := reconciletest.NewWorld(kinds.Pods.Kind).Put(kinds.ReplicaSets.Kind, web, twin, other, empty)
	namesake := reconciletest.ReplicaSet("web", 1)
	namesake.UID = "another"
	stranger := reconciletest.Deployment("web", 1)
	stranger.UID = web.UID
	deleted := reconciletest.Deleted[*corev1.Pod](now)
	pod := reconciletest.Pod

	for _, c := range []struct {
		what     string
		was, now metav1.Object
		want     []events.Key
	}{
		{"a pod of a set is new", nil, pod("p", of(web)), []events.Key{key("web")}},
		{"a pod of a set changes", pod("p", of(web)), pod("p", of(web)), []events.Key{key("web")}},
		{"a pod of a set is going", pod("p", of(web)), pod("p", of(web), deleted), []events.Key{key("web")}},
		{"a pod of a set is gone", pod("p", of(web)), nil, []events.Key{key("web")}},
		{"a pod changes hands", pod("p", of(web)), pod("p", of(other)), []events.Key{key("other"), key("web")}},
		{"a pod is released", pod("p", of(web)), pod("p", labelled("other")), []events.Key{key("web"), key("other")}},
		{"a pod is released and still selected", pod("p", of(twin)), pod("p"), []events.Key{key("twin"), key("web")}},
		{"an orphan is new", nil, pod("p"), []events.Key{key("twin"), key("web")}},
		{"an orphan that no set selects", nil, pod("p", labelled("db")), nil},
		{"an orphan without labels", nil, pod("p", reconciletest.Labelled[*corev1.Pod](nil)), nil},
		{"an orphan elsewhere", nil, pod("p", reconciletest.In[*corev1.Pod]("far")), nil},
		{"an orphan is going", pod("p"), pod("p", deleted), nil},
		{"an orphan is gone", pod("p"), nil, nil},
		{"a pod of an earlier set of that name", nil, pod("p", of(namesake)), nil},
		{"a pod of another kind of owner", nil, pod("p", reconciletest.OwnedBy[*corev1.Pod](kinds.Deployments.Kind, stranger)), nil},
	} {
		t.Run(c.what, func(t *testing.T) {
			if got := world.Keys(controller, kinds.Pods.Kind, c.was, c.now); !slices.Equal(got, c.want) {
				t.Errorf("keys %v, want %v", got, c.want)
			}
		})
	}
}

func TestObserve(t *testing.T) {
	web := reconciletest.ReplicaSet("web", 2)
	mine := reconciletest.Pod("a", of(web), reconciletest.On("n1"))
	going := reconciletest.Pod("b", of(web), reconciletest.Deleted[*corev1.Pod](now))
	orphan := reconciletest.Pod("c")
	world := reconciletest.NewWorld().Put(kinds.ReplicaSets.Kind, web).Put(kinds.Pods.Kind,
		mine, going, orphan,
		reconciletest.Pod("d", labelled("db")),
		reconciletest.Pod("e", reconciletest.InPhase(corev1.PodFailed)),
		reconciletest.Pod("f", reconciletest.In[*corev1.Pod]("far"), of(web)),
	)
	v, ok := observe(world, key("web"))
	if !ok || v.Set != web {
		t.Fatalf("observe = %v, %v", v, ok)
	}
	if want := []*corev1.Pod{mine, going, orphan}; !slices.Equal(v.Pods, want) {
		t.Errorf("the observed pods are %v, want %v", v.Pods, want)
	}
	if v.Crowd != nil || v.Failure != nil {
		t.Errorf("with no pod to spare and no failure the view has %v and %v", v.Crowd, v.Failure)
	}
	if _, ok := observe(world, key("absent")); ok {
		t.Error("observe finds a missing set")
	}
}

func TestTheCrowdOfSiblingsChoosesWhoGoes(t *testing.T) {
	deployment := reconciletest.Deployment("web", 1)
	rolled := reconciletest.OwnedBy[*appsv1.ReplicaSet](kinds.Deployments.Kind, deployment)
	web, old := reconciletest.ReplicaSet("web", 1, rolled), reconciletest.ReplicaSet("old", 1, rolled)
	old.Spec.Selector = &metav1.LabelSelector{MatchLabels: map[string]string{"app": "old"}}
	far := reconciletest.ReplicaSet("far", 1, rolled, reconciletest.In[*appsv1.ReplicaSet]("far"))
	far.Spec.Selector = &metav1.LabelSelector{MatchLabels: map[string]string{"app": "db"}}
	pod, on := reconciletest.Pod, reconciletest.On
	world := reconciletest.NewWorld().Put(kinds.ReplicaSets.Kind, web, old, far).Put(kinds.Pods.Kind,
		pod("a", of(web), on("n1")),
		pod("b", of(web), on("n2")),
		pod("c", of(old), labelled("old"), on("n2")),
		pod("d", of(old), labelled("old"), on("n1"), reconciletest.InPhase(corev1.PodFailed)),
		pod("e", labelled("db"), on("n1")),
	)
	v, _ := observe(world, key("web"))
	if len(v.Crowd) != 2 || v.Crowd["n1"] != 1 || v.Crowd["n2"] != 2 {
		t.Errorf("the crowd is %v, want one on n1 and two on n2", v.Crowd)
	}
	deletions := decide(v, now).In(events.LaneWrite).Commands
	if len(deletions) != 1 || deletions[0].Name != "b" {
		t.Errorf("decided %v, want the deletion of b, which has company", deletions)
	}
}

func TestObserveRemembersWhatFailed(t *testing.T) {
	web := reconciletest.ReplicaSet("web", 2)
	world := reconciletest.NewWorld().Put(kinds.ReplicaSets.Kind, web)
	refusal := events.Result{Command: 1, Status: events.Refused, Message: "exceeded quota"}
	world.Remember(events.Outcome{Key: key("web"), UID: web.UID, Lane: events.LaneWrite, Turn: 9, Results: []events.Result{
		{Status: events.Applied}, refusal, {Command: 2, Status: events.Skipped},
	}})
	if v, _ := observe(world, key("web")); v.Failure == nil || v.Failure.Attempt != 9 || v.Failure.Result != refusal {
		t.Errorf("the view has the failure %+v, want the refusal in turn 9", v.Failure)
	}
	world.Remember(events.Outcome{Key: key("web"), UID: web.UID, Lane: events.LaneWrite, Turn: 10, Results: []events.Result{{Status: events.Applied}}})
	if v, _ := observe(world, key("web")); v.Failure != nil {
		t.Errorf("after a success the view has the failure %+v", v.Failure)
	}
}
