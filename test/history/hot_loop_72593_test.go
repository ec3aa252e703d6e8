package history

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/services/reconcilers/controllers/replicaset"
	"github.com/millrace/millrace/services/reconcilers/kube/replicas"
	"github.com/millrace/millrace/services/reconcilers/reconcile"
	"github.com/millrace/millrace/services/reconcilers/reconciletest"
)

// kubernetes/kubernetes #72593 and #130411. A kubelet that refuses what a template asks for (a sysctl, a
// topology, another node) fails each pod at once, and the ReplicaSet controller replaces it at once: users
// counted 1,800 pods a minute, until etcd was full.
//
// Upstream's controller looks at live pods only. It ignores failed pods, however many there are and however
// young they are.
//
// Millrace's controller looks at failed pods too: if the kubelet rejected the youngest pods before any
// container ran, the ReplicaSet waits for as long as the rejections have gone on.
func TestAKubeletThatTurnsEveryPodAway(t *testing.T) {
	play := func(t *testing.T, controller reconcile.Any, minutes int) (creates int, worst int) {
		s := newStage(t)
		p := s.ours(controller)
		s.arrive = p
		s.create(kinds.ReplicaSets.Kind, reconciletest.ReplicaSet("web", 3))
		p.work()
		for range minutes * 60 { // the kubelet acts once in a second
			s.now = s.now.Add(time.Second)
			for _, obj := range s.api.List(kinds.Pods.Name) {
				if obj.(*corev1.Pod).Status.Phase != corev1.PodFailed {
					s.edit(kinds.Pods.Kind, obj.GetName(), func(o metav1.Object) {
						o.(*corev1.Pod).Status = corev1.PodStatus{Phase: corev1.PodFailed, Reason: "SysctlForbidden"}
					})
				}
			}
			p.work()
		}
		for minute, n := range s.minute {
			if minute != reconciletest.Now.Format("15:04") {
				worst = max(worst, n)
			}
		}
		return s.creates, worst
	}
	t.Run("upstream", func(t *testing.T) {
		if creates, worst := play(t, livingOnly(), 2); creates < 300 || worst < 100 {
			t.Errorf("%d pods in two minutes, at most %d in one: the story does not show the bug", creates, worst)
		}
	})
	t.Run("ours", func(t *testing.T) {
		creates, worst := play(t, replicaset.Controller, 10)
		t.Logf("%d pods in ten minutes, at most %d in one after the first", creates, worst)
		if creates > 60 || worst > 20 {
			t.Errorf("%d pods in ten minutes, at most %d in one after the first", creates, worst)
		}
	})
}

// livingOnly is our controller, except that it sees live pods only, because upstream's filters them first.
func livingOnly() reconcile.Any {
	c := replicaset.Controller
	all := c.Observe
	c.Observe = func(s reconcile.Snapshot, k events.Key) (replicas.View, bool) {
		v, ok := all(s, k)
		var living []*corev1.Pod
		for _, p := range v.Pods {
			if p.Status.Phase != corev1.PodFailed && p.Status.Phase != corev1.PodSucceeded {
				living = append(living, p)
			}
		}
		v.Pods = living
		return v, ok
	}
	return c
}
