package history

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/services/reconcilers/controllers/garbagecollector"
	"github.com/millrace/millrace/services/reconcilers/controllers/replicaset"
	"github.com/millrace/millrace/services/reconcilers/reconcile"
	"github.com/millrace/millrace/services/reconcilers/reconciletest"
)

// kubernetes/kubernetes #69376. Users who deleted a ReplicaSet and created it again under the same name got
// no pods for five minutes.
//
// The queue holds names. If the ReplicaSet is deleted and created again before its key is processed, the
// controller finds a ReplicaSet of that name and never learns that the first one has ended. Its expectations
// for the first one, the pods that it had just created and not yet seen, now belong to the second one, and
// those pods are not the second one's when they arrive. So it waits until the expectations expire.
//
// In Millrace the fence of a key waits for the objects and versions that the writer reported, no matter which
// ReplicaSet owns them, and opens as soon as they have been seen.
func TestASetMadeAnewInOneBreathHasItsPods(t *testing.T) {
	play := func(t *testing.T, choose func(*stage) player) int {
		s := newStage(t)
		p := choose(s)
		s.create(kinds.ReplicaSets.Kind, reconciletest.ReplicaSet("web", 3))
		p.hear(s.changes...)
		p.work()
		if s.creates != 3 {
			t.Fatalf("%d pods of the first set, want 3", s.creates)
		}
		s.remove(kinds.ReplicaSets.Kind, "web")
		s.create(kinds.ReplicaSets.Kind, reconciletest.ReplicaSet("web", 3))
		// The successor arrives in place of the deletion, then the pods arrive.
		p.hear(newest(s.since(1, kinds.ReplicaSets.Name))...)
		p.hear(s.since(1, kinds.Pods.Name)...)
		p.work()
		return s.alive(s.uid(kinds.ReplicaSets.Kind, "web"))
	}
	t.Run("upstream", func(t *testing.T) {
		if got := play(t, func(s *stage) player { return s.informed(replicaset.Controller) }); got != 0 {
			t.Errorf("%d pods: the story does not show the bug", got)
		}
	})
	t.Run("ours", func(t *testing.T) {
		if got := play(t, func(s *stage) player { return s.ours(replicaset.Controller) }); got != 3 {
			t.Errorf("%d pods, want 3", got)
		}
	})
}

// The same scenario for the garbage collector: the pods of the first ReplicaSet have an owner whose name
// exists and whose uid does not. A collector that takes two objects of one name for an update of one object
// never learns that the first one was deleted.
func TestWhatTheFirstSetOwnedIsCollected(t *testing.T) {
	play := func(t *testing.T, controller reconcile.Any) int {
		s := newStage(t)
		p := s.ours(controller)
		s.create(kinds.ReplicaSets.Kind, reconciletest.ReplicaSet("web", 1))
		first := s.uid(kinds.ReplicaSets.Kind, "web")
		s.create(kinds.Pods.Kind, reconciletest.Pod("web-1", reconciletest.OwnedBy[*corev1.Pod](kinds.ReplicaSets.Kind, named("web", first))))
		p.hear(s.changes...)
		p.work()
		from := len(s.changes)
		s.remove(kinds.ReplicaSets.Kind, "web")
		s.create(kinds.ReplicaSets.Kind, reconciletest.ReplicaSet("web", 1))
		p.hear(newest(s.changes[from:])...)
		p.work()
		return s.alive(first)
	}
	if left := play(t, blindToUIDs()); left != 1 {
		t.Errorf("%d pods are left: the story does not show the bug", left)
	}
	if left := play(t, garbagecollector.Controller); left != 0 {
		t.Errorf("%d pods of a set that is gone are left", left)
	}
}

// blindToUIDs is the garbage collector with a mapping that takes the successor of the same name for the same
// object.
func blindToUIDs() reconcile.Any {
	blind := garbagecollector.Controller
	keys := blind.Inputs[0].Keys
	blind.Inputs = []reconcile.Input{{Every: true, Keys: func(s reconcile.Snapshot, was, now reconcile.Object) []events.Key {
		if !was.None() && !now.None() && was.GetUID() != now.GetUID() {
			was = now
		}
		return keys(s, was, now)
	}}}
	return blind
}

func named(name string, uid types.UID) metav1.Object {
	return &metav1.ObjectMeta{Namespace: reconciletest.Namespace, Name: name, UID: uid}
}
