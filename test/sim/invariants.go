package sim

import (
	"fmt"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/pkg/events/subject"
	"github.com/millrace/millrace/services/writer/plan"
)

// peaks is the most that has ever been allowed of something, by owner.
type peaks struct {
	pods  map[types.UID]int // of a ReplicaSet: the largest spec.replicas it had
	total map[types.UID]int // of a Deployment: the largest replicas + maxSurge
	under map[string]uint64 // act turns under way, by subject
	owner map[types.UID]types.UID
	// brought is what the ReplicaSets of a Deployment asked for when they came
	// into its hands.
	brought map[types.UID]int
}

func newPeaks() peaks {
	return peaks{pods: map[types.UID]int{}, total: map[types.UID]int{}, under: map[string]uint64{}, owner: map[types.UID]types.UID{}, brought: map[types.UID]int{}}
}

func (w *World) breaks(rule string, format string, args ...any) {
	if w.broken == nil {
		w.broken = fmt.Errorf("%s broken: %s", rule, fmt.Sprintf(format, args...))
	}
}

// check looks at the invariants that hold after every step.
func (w *World) check() {
	for _, obj := range w.api.List(kinds.Deployments.Name) {
		d := obj.(*appsv1.Deployment)
		w.peaks.total[d.UID] = max(w.peaks.total[d.UID], int(*d.Spec.Replicas)+surge(d))
	}
	count, sum := map[types.UID]int{}, map[types.UID]int{}
	for _, obj := range w.api.List(kinds.Pods.Name) {
		if owner := metav1.GetControllerOfNoCopy(obj); owner != nil && active(obj.(*corev1.Pod)) {
			count[owner.UID]++
		}
	}
	for _, obj := range w.api.List(kinds.ReplicaSets.Name) {
		rs := obj.(*appsv1.ReplicaSet)
		w.peaks.pods[rs.UID] = max(w.peaks.pods[rs.UID], int(*rs.Spec.Replicas))
		if count[rs.UID] > w.peaks.pods[rs.UID] {
			w.breaks("I2 (no over-creation)", "%s has %d live pods and was never allowed more than %d", rs.Name, count[rs.UID], w.peaks.pods[rs.UID])
		}
		if owner := metav1.GetControllerOfNoCopy(rs); owner != nil {
			sum[owner.UID] += int(*rs.Spec.Replicas)
			if w.peaks.owner[rs.UID] != owner.UID { // what it brings along is nobody's fault
				w.peaks.owner[rs.UID] = owner.UID
				w.peaks.brought[owner.UID] += int(*rs.Spec.Replicas)
			}
		}
	}
	for uid, total := range sum {
		if allowed, known := w.peaks.total[uid]; known && total > allowed && total > w.peaks.brought[uid] {
			w.breaks("I2 (no over-creation)", "the replica sets of %s ask for %d, more than replicas and surge ever were (%d)", uid, total, allowed)
		}
	}
}

// stored looks at a turn as it is stored: no act turn may overlap another.
func (w *World) stored(t events.Turn, sequence uint64) {
	w.note("turn %d of %s %v (%s): %s, %d commands", sequence, t.Controller, t.Key, t.Lane, t.Because, len(t.Commands))
	if t.Lane != events.Act {
		return
	}
	at := subject.Turn(t.Controller, t.Lane, t.Key)
	if before := w.peaks.under[at]; before > 0 && !w.bus.decided[t.Controller][before] {
		w.breaks("I8 (turns of a key never overlap)", "turn %d of %s %v was stored while turn %d had no outcome", sequence, t.Controller, t.Key, before)
	}
	w.peaks.under[at] = sequence
}

// beforeRequest looks at what is about to be done: nothing with a live owner is
// collected. An owner that is being deleted does not live: whoever turns a
// foreground deletion into one that orphans races the collector, between its look
// at the owner and its delete, here as upstream.
func (w *World) beforeRequest(controller string, r plan.Request) {
	if controller != "garbage-collector-controller" || r.Verb != plan.Delete {
		return
	}
	obj := w.api.Get(events.Ref{Kind: r.Kind, Namespace: r.Namespace, Name: r.Name})
	if obj == nil || (r.Delete.Preconditions != nil && *r.Delete.Preconditions.UID != obj.GetUID()) {
		return
	}
	if r.Delete.Preconditions != nil && r.Delete.Preconditions.ResourceVersion != nil && *r.Delete.Preconditions.ResourceVersion != obj.GetResourceVersion() {
		return // the API server will refuse it
	}
	for _, ref := range obj.GetOwnerReferences() {
		at, known := w.api.ownerRef(&ref, obj.GetNamespace())
		if owner := w.api.Get(at); known && owner != nil && owner.GetUID() == ref.UID && owner.GetDeletionTimestamp() == nil {
			w.breaks("I4 (no orphan deleted)", "%s %s is collected although its owner %s %s lives", r.Kind, r.Name, ref.Kind, ref.Name)
		}
	}
}

// waits tells whether an owner is being deleted in the foreground.
func waits(owner metav1.Object) bool {
	for _, f := range owner.GetFinalizers() {
		if f == metav1.FinalizerDeleteDependents && owner.GetDeletionTimestamp() != nil {
			return true
		}
	}
	return false
}

func surge(d *appsv1.Deployment) int {
	if d.Spec.Strategy.RollingUpdate == nil {
		return 0
	}
	n, _ := intstr.GetScaledValueFromIntOrPercent(d.Spec.Strategy.RollingUpdate.MaxSurge, int(*d.Spec.Replicas), true)
	return n
}

// rest looks at a world that has come to rest: it must be as its specs ask, and
// stay silent when time passes.
func (w *World) rest() error {
	if err := w.asAsked(); err != nil {
		return fmt.Errorf("I1 (convergence) broken: %w", err)
	}
	before := w.api.version
	for w.step() {
		if w.broken != nil {
			return w.broken
		}
	}
	if w.api.version != before {
		return fmt.Errorf("I1 (silence) broken: %d writes after the world had come to rest", w.api.version-before)
	}
	return nil
}

func (w *World) asAsked() error {
	pods, sets := map[types.UID]int{}, map[types.UID][]*appsv1.ReplicaSet{}
	for _, obj := range w.api.List(kinds.Pods.Name) {
		pod := obj.(*corev1.Pod)
		owner := metav1.GetControllerOfNoCopy(pod)
		if owner == nil {
			continue
		}
		if active(pod) {
			pods[owner.UID]++
		}
		if w.api.Get(events.Ref{Kind: kinds.ReplicaSets.Name, Namespace: pod.Namespace, Name: owner.Name}) == nil {
			return fmt.Errorf("pod %s outlived its owner %s", pod.Name, owner.Name)
		}
	}
	for _, obj := range w.api.List(kinds.ReplicaSets.Name) {
		rs := obj.(*appsv1.ReplicaSet)
		if rs.DeletionTimestamp == nil && pods[rs.UID] != int(*rs.Spec.Replicas) {
			return fmt.Errorf("%s has %d live pods and asks for %d", rs.Name, pods[rs.UID], *rs.Spec.Replicas)
		}
		if rs.DeletionTimestamp == nil && (rs.Status.Replicas != *rs.Spec.Replicas || rs.Status.ObservedGeneration != rs.Generation) {
			return fmt.Errorf("%s says %d replicas at generation %d; it has %d at %d", rs.Name, rs.Status.Replicas, rs.Status.ObservedGeneration, *rs.Spec.Replicas, rs.Generation)
		}
		if owner := metav1.GetControllerOfNoCopy(rs); owner != nil {
			if w.api.Get(deploymentRef(owner.Name)) == nil {
				return fmt.Errorf("%s outlived its owner %s", rs.Name, owner.Name)
			}
			sets[owner.UID] = append(sets[owner.UID], rs)
		}
	}
	for _, obj := range w.api.List(kinds.Deployments.Name) {
		if err := rolledOut(obj.(*appsv1.Deployment), sets[obj.GetUID()]); err != nil {
			return err
		}
	}
	return nil
}

// rolledOut tells whether a Deployment is where its spec wants it.
func rolledOut(d *appsv1.Deployment, sets []*appsv1.ReplicaSet) error {
	if d.DeletionTimestamp != nil {
		return fmt.Errorf("%s is still on its way out", d.Name)
	}
	if d.Status.ObservedGeneration != d.Generation {
		return fmt.Errorf("%s reports generation %d of %d", d.Name, d.Status.ObservedGeneration, d.Generation)
	}
	total := int32(0)
	for _, rs := range sets {
		total += *rs.Spec.Replicas
		current := rs.Spec.Template.Spec.Containers[0].Image == d.Spec.Template.Spec.Containers[0].Image
		if !d.Spec.Paused && !current && *rs.Spec.Replicas > 0 {
			return fmt.Errorf("%s still has %d replicas of an old template in %s", d.Name, *rs.Spec.Replicas, rs.Name)
		}
	}
	if !d.Spec.Paused && (total != *d.Spec.Replicas || d.Status.AvailableReplicas != total || d.Status.UpdatedReplicas != total) {
		return fmt.Errorf("%s wants %d, its replica sets %d; it says %d available and %d updated", d.Name, *d.Spec.Replicas, total, d.Status.AvailableReplicas, d.Status.UpdatedReplicas)
	}
	return nil
}
