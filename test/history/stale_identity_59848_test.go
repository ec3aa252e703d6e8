package history

import (
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/services/reconcilers/controllers/statefulset"
	"github.com/millrace/millrace/services/reconcilers/reconciletest"
)

// kubernetes/kubernetes #59848 as reported, for a StatefulSet. Its pods keep their names, so a name in a
// stale list can belong to another pod today. A controller that restarts beside an API server that lags sees
// db-0 as it failed yesterday, and deletes it to create another one; the API server deletes the db-0 that has
// replaced it since, while that one works.
//
// Upstream deletes pods of a StatefulSet by name. Millrace deletes with the uid that the decision saw, and
// here it does not even send the delete: the record has the last writes for the key, and until the view has
// them, no other turn is made.
func TestAStatefulSetBesideAnAPIServerThatLags(t *testing.T) {
	play := func(t *testing.T, start func(*stage) player) (lives bool, creates int) {
		s := newStage(t, kinds.StatefulSets.Kind, kinds.Pods.Kind, kinds.ControllerRevisions.Kind, kinds.PersistentVolumeClaims.Kind)
		first := start(s)
		s.arrive = first
		s.create(kinds.StatefulSets.Kind, statefulSet("db"))
		first.work()
		s.phase("db-0", corev1.PodFailed)
		past := len(s.changes)
		first.work()
		if s.phase("db-0", corev1.PodRunning); s.podCreates() != 2 {
			t.Fatalf("%d pods were created to begin with, want one and its successor", s.podCreates())
		}
		second := start(s)
		s.arrive = nil
		healthy := s.uid(kinds.Pods.Kind, "db-0")
		second.hear(s.changes[:past]...) // the content of the lagging API server
		second.work()
		second.hear(s.changes[past:]...) // the API server catches up
		second.work()
		found := s.api.Get(events.Ref{Kind: kinds.Pods.Name, Namespace: reconciletest.Namespace, Name: "db-0"})
		return found != nil && found.GetUID() == healthy, s.podCreates()
	}
	t.Run("upstream", func(t *testing.T) {
		if lives, _ := play(t, func(s *stage) player {
			p := s.informed(statefulset.Controller)
			p.named = true
			return p
		}); lives {
			t.Error("the pod that works is spared: the story does not show the bug")
		}
	})
	t.Run("ours", func(t *testing.T) {
		if lives, creates := play(t, func(s *stage) player { return s.ours(statefulset.Controller) }); !lives || creates != 2 {
			t.Errorf("the pod that works lives: %v; %d pods were created, want 2", lives, creates)
		}
	})
}

func statefulSet(name string) *appsv1.StatefulSet {
	like := reconciletest.Deployment(name, 1)
	return &appsv1.StatefulSet{
		ObjectMeta: like.ObjectMeta,
		Spec: appsv1.StatefulSetSpec{
			Replicas: like.Spec.Replicas, Selector: like.Spec.Selector, Template: like.Spec.Template,
			PodManagementPolicy: appsv1.OrderedReadyPodManagement, RevisionHistoryLimit: new(int32(10)),
			UpdateStrategy: appsv1.StatefulSetUpdateStrategy{Type: appsv1.RollingUpdateStatefulSetStrategyType},
		},
	}
}

// phase sets the status of a pod, as its node would.
func (s *stage) phase(pod string, phase corev1.PodPhase) {
	s.Helper()
	s.uid(kinds.Pods.Kind, pod)
	s.edit(kinds.Pods.Kind, pod, func(o metav1.Object) {
		p := o.(*corev1.Pod)
		p.Status.Phase = phase
		if phase == corev1.PodRunning {
			p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}
		}
	})
}

// podCreates is how many different pods were created in all.
func (s *stage) podCreates() int {
	seen := map[any]bool{}
	for _, c := range s.changes {
		if c.kind.Name == kinds.Pods.Name {
			seen[c.obj.GetUID()] = true
		}
	}
	return len(seen)
}
