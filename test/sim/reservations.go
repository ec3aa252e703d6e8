package sim

import (
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	resourcev1beta2 "k8s.io/api/resource/v1beta2"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/kinds"
)

// Rules about allocated devices, and the pods that have to leave them: D1 and D2.

// podOf is the pod of a reservation, if it exists.
func (w *World) podOf(r resourcev1.ResourceClaimConsumerReference) *corev1.Pod {
	pod, _ := w.api.Get(events.Ref{Kind: kinds.Pods.Name, Namespace: namespace, Name: r.Name}).(*corev1.Pod)
	if pod == nil || pod.UID != r.UID {
		return nil
	}
	return pod
}

// mayRun reports whether a pod may use its devices: it has not ended, and has a node or may get
// one.
func mayRun(pod *corev1.Pod) bool {
	return pod != nil && pod.Status.Phase != corev1.PodSucceeded && pod.Status.Phase != corev1.PodFailed && (pod.DeletionTimestamp == nil || pod.Spec.NodeName != "")
}

// claimedDevices checks a changed claim: it keeps what a pod may use, and is reserved for pods
// that name it.
func (g *guard) claimedDevices(old, now metav1.Object) {
	was, ok := old.(*resourcev1.ResourceClaim)
	if !ok || g.restoring || g.doing == nil || !g.world.hasDevices() {
		return
	}
	next, there := now.(*resourcev1.ResourceClaim)
	for _, r := range was.Status.ReservedFor {
		pod := g.world.podOf(r)
		if mayRun(pod) && (!there || !reserved(next, r.UID) || was.Status.Allocation != nil && next.Status.Allocation == nil) {
			g.breaks("D1", "claim %s is taken from the pod %s (%s), which may use it", was.Name, r.Name, r.UID)
		}
	}
	if !there {
		return
	}
	for _, r := range next.Status.ReservedFor {
		if reserved(was, r.UID) {
			continue
		}
		switch pod := g.world.podOf(r); {
		case pod == nil:
			g.spare(podGone)
		case g.world.claimOfPod(pod) == nil || g.world.claimOfPod(pod).UID != was.UID:
			g.breaks("D1", "claim %s is reserved for the pod %s, which did not ask for it", was.Name, r.Name)
		}
	}
	if was.Status.Allocation == nil && next.Status.Allocation != nil {
		g.breaks("D1", "claim %s is given %v, and not by the scheduler", was.Name, devicesOf(next))
	}
}

// prepares checks a pod that begins to use its devices: no pod of another claim uses them.
func (g *guard) prepares(claim *resourcev1.ResourceClaim, pod *corev1.Pod) {
	w := g.world
	for _, device := range devicesOf(claim) {
		for uid, of := range w.prepared[device] {
			if of != claim.UID && w.runsStill(uid) {
				g.breaks("D1", "%s has %s, which a pod %s uses by another claim", pod.Name, device, uid)
			}
		}
		if w.prepared[device] == nil {
			w.prepared[device] = map[types.UID]types.UID{}
		}
		w.prepared[device][pod.UID] = claim.UID
	}
}

func (w *World) runsStill(uid types.UID) bool {
	return slices.ContainsFunc(w.api.List(kinds.Pods.Name), func(obj metav1.Object) bool {
		return obj.GetUID() == uid && working(obj.(*corev1.Pod))
	})
}

// deletesClaim checks a claim that is about to be deleted: it was created for a pod that has
// ended.
func (g *guard) deletesClaim(claim *resourcev1.ResourceClaim) {
	owner := metav1.GetControllerOfNoCopy(claim)
	if owner == nil {
		g.breaks("I4", "claim %s is deleted, and was made for no pod", claim.Name)
		return
	}
	if pod := g.world.podOf(resourcev1.ResourceClaimConsumerReference{Name: owner.Name, UID: owner.UID}); mayRun(pod) {
		g.breaks("D1", "claim %s is deleted, and its pod %s may use it", claim.Name, pod.Name)
	}
}

// drivenSince is since when a pod has to leave one of its devices; ok is false if it does not.
func (w *World) drivenSince(pod *corev1.Pod) (at time.Time, ok bool) {
	claim := w.claimOfPod(pod)
	if claim == nil || claim.Status.Allocation == nil || !reserved(claim, pod.UID) {
		return at, false
	}
	for _, r := range claim.Status.Allocation.Devices.Results {
		for _, t := range w.crackedSince(r.Device) {
			if len(r.Tolerations) > 0 {
				t = t.Add(stays)
			}
			if !ok || t.Before(at) {
				at, ok = t, true
			}
		}
	}
	return at, ok
}

// crackedSince is since when taints evict pods from a device.
func (w *World) crackedSince(device string) (all []time.Time) {
	if slice, ok := w.api.Get(events.Ref{Kind: kinds.ResourceSlices.Name, Name: chips}).(*resourcev1.ResourceSlice); ok {
		for _, d := range slice.Spec.Devices {
			if d.Name == device && len(d.Taints) > 0 {
				all = append(all, d.Taints[0].TimeAdded.Time)
			}
		}
	}
	for _, obj := range w.api.List(kinds.DeviceTaintRules.Name) {
		if rule := obj.(*resourcev1beta2.DeviceTaintRule); *rule.Spec.DeviceSelector.Device == device {
			all = append(all, rule.Spec.Taint.TimeAdded.Time)
		}
	}
	return all
}

// crackedOf reports whether a taint evicted pods from one of the pod's devices after a time, without
// toleration.
func (w *World) crackedOf(pod *corev1.Pod, after time.Time) bool {
	claim := w.claimOfPod(pod)
	return claim != nil && claim.Status.Allocation != nil && slices.ContainsFunc(claim.Status.Allocation.Devices.Results, func(r resourcev1.DeviceRequestAllocationResult) bool {
		return len(r.Tolerations) == 0 && w.guard.cracked[r.Device].After(after)
	})
}

// drivenNow records which pods have to leave their devices now, and until when others had to.
func (g *guard) drivenNow() {
	if !g.world.hasDevices() {
		return
	}
	for _, device := range []string{"chip-0", "chip-1"} {
		if len(g.world.crackedSince(device)) > 0 {
			g.cracked[device] = g.world.now
		}
	}
	for _, obj := range g.world.api.List(kinds.Pods.Name) {
		pod := obj.(*corev1.Pod)
		if at, ok := g.world.drivenSince(pod); ok && !at.After(g.world.now) {
			g.driven[pod.UID] = g.world.now
		}
	}
}

// leavesDevice checks a pod that is about to be deleted because of its devices: they evict it
// now, or did at the decision.
func (g *guard) leavesDevice(c *carrying, pod *corev1.Pod) {
	const late = maxAge + time.Minute
	g.drivenNow()
	switch last, ever := g.driven[pod.UID]; {
	case ever && g.world.now.Sub(last) <= late:
	case g.world.crackedOf(pod, g.world.now.Add(-late)):
		g.spare(crackedBefore)
	case g.passed(c.turn, time.Hour):
		g.spare(clockAhead)
	default:
		g.breaks("D2", "turn %d deletes %s, whose devices do not drive it away (%v)", c.sequence, pod.Name, last)
	}
}

// devicesSettled reports whether each pod has its claim, none holds what it does not need, and
// none is left where it cannot stay.
func (w *World) devicesSettled() error {
	if !w.hasDevices() {
		return nil
	}
	for _, obj := range w.api.List(kinds.Pods.Name) {
		pod := obj.(*corev1.Pod)
		claim := w.claimOfPod(pod)
		byTemplate := pod.Spec.ResourceClaims[0].ResourceClaimTemplateName != nil
		if byTemplate && mayRun(pod) && pod.DeletionTimestamp == nil && claim == nil && w.api.Get(deviceTemplate) != nil {
			return fmt.Errorf("pod %s has no claim, and there is a template", pod.Name)
		}
		if at, ok := w.drivenSince(pod); ok && pod.Spec.NodeName != "" && pod.DeletionTimestamp == nil && mayRun(pod) && w.now.After(at) {
			return fmt.Errorf("pod %s is left on devices that drive it away since %v", pod.Name, at)
		}
		if claim != nil && claim.DeletionTimestamp == nil && claim.Status.Allocation != nil && pod.Spec.NodeName != "" && mayRun(pod) && pod.DeletionTimestamp == nil && !reserved(claim, pod.UID) {
			return fmt.Errorf("pod %s has a node, and its claim %s is not reserved for it", pod.Name, claim.Name)
		}
	}
	for _, obj := range w.api.List(kinds.ResourceClaims.Name) {
		claim := obj.(*resourcev1.ResourceClaim)
		for _, r := range claim.Status.ReservedFor {
			if !mayRun(w.podOf(r)) {
				return fmt.Errorf("claim %s is reserved for %s, which does not need it", claim.Name, r.Name)
			}
		}
		if claim.DeletionTimestamp != nil && len(claim.Status.ReservedFor) == 0 {
			return fmt.Errorf("claim %s is deleted, and held by %v", claim.Name, claim.Finalizers)
		}
		if owner := metav1.GetControllerOfNoCopy(claim); owner != nil && claim.DeletionTimestamp == nil {
			if pod := w.podOf(resourcev1.ResourceClaimConsumerReference{Name: owner.Name, UID: owner.UID}); pod == nil || !mayRun(pod) {
				return fmt.Errorf("claim %s outlived what %s needs", claim.Name, owner.Name)
			}
		}
	}
	return nil
}
