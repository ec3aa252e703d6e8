package replicationcontroller

import (
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"pgregory.net/rapid"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/services/reconcilers/kube/replicas"
	"github.com/millrace/millrace/services/reconcilers/reconciletest"
)

func TestStories(t *testing.T) { reconciletest.Stories(t, Controller) }

func TestLaws(t *testing.T) {
	reconciletest.Laws(t, Controller, rapid.Custom(anyView), reconciletest.Now)
}

func anyView(t *rapid.T) replicas.View {
	rc := web(int32(rapid.IntRange(0, 3).Draw(t, "replicas")))
	rc.Status.Replicas = int32(rapid.IntRange(0, 3).Draw(t, "replicas in status"))
	if rapid.Bool().Draw(t, "had a failure") {
		rc.Status.Conditions = []corev1.ReplicationControllerCondition{{Type: corev1.ReplicationControllerReplicaFailure, Status: corev1.ConditionTrue}}
	}
	v := replicas.View{Set: replicaSet(rc)}
	for _, name := range []string{"web-a", "web-b", "web-c"}[:rapid.IntRange(0, 3).Draw(t, "pods")] {
		p := reconciletest.Pod(name)
		if rapid.IntRange(0, 3).Draw(t, "orphan") > 0 {
			reconciletest.OwnedBy[*corev1.Pod](kinds.ReplicationControllers.Kind, rc)(p)
		}
		if rapid.Bool().Draw(t, "ready") {
			reconciletest.ReadySince(reconciletest.Now.Add(-time.Minute))(p)
		}
		v.Pods = append(v.Pods, p)
	}
	return v
}

func web(count int32) *corev1.ReplicationController {
	set := reconciletest.ReplicaSet("web", count)
	return &corev1.ReplicationController{
		ObjectMeta: set.ObjectMeta,
		Spec: corev1.ReplicationControllerSpec{
			Replicas: &count, Selector: set.Spec.Selector.MatchLabels, Template: &set.Spec.Template, MinReadySeconds: 7,
		},
		Status: corev1.ReplicationControllerStatus{
			Replicas: 1, FullyLabeledReplicas: 2, ReadyReplicas: 3, AvailableReplicas: 4, ObservedGeneration: 5,
			Conditions: []corev1.ReplicationControllerCondition{{
				Type: corev1.ReplicationControllerReplicaFailure, Status: corev1.ConditionTrue,
				LastTransitionTime: metav1.NewTime(reconciletest.Now), Reason: "FailedCreate", Message: "quota",
			}},
		},
	}
}

// The conversion to a ReplicaSet and back loses nothing of an object; otherwise
// its status would be written for ever.
func TestThereAndBack(t *testing.T) {
	rc := web(3)
	set := replicaSet(rc)
	back := reported(set, set.Status).(*corev1.ReplicationController)
	back.TypeMeta = metav1.TypeMeta{}
	if diff := cmp.Diff(rc, back); diff != "" {
		t.Errorf("there and back it is another (-before +after):\n%s", diff)
	}
}

func TestWhoseTurnAPodMakesIt(t *testing.T) {
	rc, set := web(1), reconciletest.ReplicaSet("web", 1)
	world := reconciletest.NewWorld(kinds.Pods.Kind).Put(kinds.ReplicationControllers.Kind, rc)
	mine := []events.Key{{Namespace: reconciletest.Namespace, Name: "web"}}
	for _, c := range []struct {
		what string
		pod  *corev1.Pod
		want []events.Key
	}{
		{"its own", reconciletest.Pod("p", reconciletest.OwnedBy[*corev1.Pod](kinds.ReplicationControllers.Kind, rc)), mine},
		{"an orphan that it selects", reconciletest.Pod("p"), mine},
		{"a ReplicaSet's of its name and uid", reconciletest.Pod("p", reconciletest.OwnedBy[*corev1.Pod](kinds.ReplicaSets.Kind, set)), nil},
	} {
		if got := world.Keys(Controller, kinds.Pods.Kind, nil, c.pod); !slices.Equal(got, c.want) {
			t.Errorf("%s: turns of %v, want %v", c.what, got, c.want)
		}
	}
}
