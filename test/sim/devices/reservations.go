package devices

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
	"github.com/millrace/millrace/test/sim/cluster"
	"github.com/millrace/millrace/test/sim/nodes"
)

// Rules about allocated devices, and the pods that have to leave them: D1 and D2.

// podOf is the pod of a reservation, if it exists.
func podOf(w *cluster.Cluster, r resourcev1.ResourceClaimConsumerReference) *corev1.Pod {
	pod, _ := w.API.Get(events.Ref{Kind: kinds.Pods.Name, Namespace: cluster.Namespace, Name: r.Name}).(*corev1.Pod)
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

// ClaimedDevices checks a changed claim: it keeps what a pod may use, and is reserved for pods
// that name it.
func ClaimedDevices(g *cluster.Guard, old, now metav1.Object) {
	was, ok := old.(*resourcev1.ResourceClaim)
	if !ok || g.Record.Restoring || g.Turns.Doing == nil || !HasDevices(g.World) {
		return
	}
	next, there := now.(*resourcev1.ResourceClaim)
	for _, r := range was.Status.ReservedFor {
		pod := podOf(g.World, r)
		if mayRun(pod) && (!there || !reserved(next, r.UID) || was.Status.Allocation != nil && next.Status.Allocation == nil) {
			g.Breaks("D1", "claim %s is taken from the pod %s (%s), which may use it", was.Name, r.Name, r.UID)
		}
	}
	if !there {
		return
	}
	for _, r := range next.Status.ReservedFor {
		if reserved(was, r.UID) {
			continue
		}
		switch pod := podOf(g.World, r); {
		case pod == nil:
			g.Spare(cluster.PodGone)
		case claimOfPod(g.World, pod) == nil || claimOfPod(g.World, pod).UID != was.UID:
			g.Breaks("D1", "claim %s is reserved for the pod %s, which did not ask for it", was.Name, r.Name)
		}
	}
	if was.Status.Allocation == nil && next.Status.Allocation != nil {
		g.Breaks("D1", "claim %s is given %v, and not by the scheduler", was.Name, DevicesOf(next))
	}
}

// prepares checks a pod that begins to use its devices: no pod of another claim uses them.
func prepares(g *cluster.Guard, claim *resourcev1.ResourceClaim, pod *corev1.Pod) {
	w := g.World
	for _, device := range DevicesOf(claim) {
		for uid, of := range w.Prepared[device] {
			if of != claim.UID && runsStill(w, uid) {
				g.Breaks("D1", "%s has %s, which a pod %s uses by another claim", pod.Name, device, uid)
			}
		}
		if w.Prepared[device] == nil {
			w.Prepared[device] = map[types.UID]types.UID{}
		}
		w.Prepared[device][pod.UID] = claim.UID
	}
}

func runsStill(w *cluster.Cluster, uid types.UID) bool {
	return slices.ContainsFunc(w.API.List(kinds.Pods.Name), func(obj metav1.Object) bool {
		return obj.GetUID() == uid && nodes.Working(obj.(*corev1.Pod))
	})
}

// DeletesClaim checks a claim that is about to be deleted: it was created for a pod that has
// ended.
func DeletesClaim(g *cluster.Guard, claim *resourcev1.ResourceClaim) {
	owner := metav1.GetControllerOfNoCopy(claim)
	if owner == nil {
		g.Breaks("I4", "claim %s is deleted, and was made for no pod", claim.Name)
		return
	}
	if pod := podOf(g.World, resourcev1.ResourceClaimConsumerReference{Name: owner.Name, UID: owner.UID}); mayRun(pod) {
		g.Breaks("D1", "claim %s is deleted, and its pod %s may use it", claim.Name, pod.Name)
	}
}

// drivenSince is since when a pod has to leave one of its devices; ok is false if it does not.
func drivenSince(w *cluster.Cluster, pod *corev1.Pod) (at time.Time, ok bool) {
	claim := claimOfPod(w, pod)
	if claim == nil || claim.Status.Allocation == nil || !reserved(claim, pod.UID) {
		return at, false
	}
	for _, r := range claim.Status.Allocation.Devices.Results {
		for _, t := range crackedSince(w, r.Device) {
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
func crackedSince(w *cluster.Cluster, device string) (all []time.Time) {
	if slice, ok := w.API.Get(events.Ref{Kind: kinds.ResourceSlices.Name, Name: chips}).(*resourcev1.ResourceSlice); ok {
		for _, d := range slice.Spec.Devices {
			if d.Name == device && len(d.Taints) > 0 {
				all = append(all, d.Taints[0].TimeAdded.Time)
			}
		}
	}
	for _, obj := range w.API.List(kinds.DeviceTaintRules.Name) {
		if rule := obj.(*resourcev1beta2.DeviceTaintRule); *rule.Spec.DeviceSelector.Device == device {
			all = append(all, rule.Spec.Taint.TimeAdded.Time)
		}
	}
	return all
}

// crackedOf reports whether a taint evicted pods from one of the pod's devices after a time, without
// toleration.
func crackedOf(w *cluster.Cluster, pod *corev1.Pod, after time.Time) bool {
	claim := claimOfPod(w, pod)
	return claim != nil && claim.Status.Allocation != nil && slices.ContainsFunc(claim.Status.Allocation.Devices.Results, func(r resourcev1.DeviceRequestAllocationResult) bool {
		return len(r.Tolerations) == 0 && w.Guard.Devices.Cracked[r.Device].After(after)
	})
}

// DrivenNow records which pods have to leave their devices now, and until when others had to.
func DrivenNow(g *cluster.Guard) {
	if !HasDevices(g.World) {
		return
	}
	for _, device := range []string{"chip-0", "chip-1"} {
		if len(crackedSince(g.World, device)) > 0 {
			g.Devices.Cracked[device] = g.World.Now
		}
	}
	for _, obj := range g.World.API.List(kinds.Pods.Name) {
		pod := obj.(*corev1.Pod)
		if at, ok := drivenSince(g.World, pod); ok && !at.After(g.World.Now) {
			g.Devices.Driven[pod.UID] = g.World.Now
		}
	}
}

// LeavesDevice checks a pod that is about to be deleted because of its devices: they evict it
// now, or did at the decision.
func LeavesDevice(g *cluster.Guard, c *cluster.Taken, pod *corev1.Pod) {
	const late = cluster.MaxAge + time.Minute
	DrivenNow(g)
	switch last, ever := g.Devices.Driven[pod.UID]; {
	case ever && g.World.Now.Sub(last) <= late:
	case crackedOf(g.World, pod, g.World.Now.Add(-late)):
		g.Spare(cluster.CrackedBefore)
	case g.Passed(c.Turn, time.Hour):
		g.Spare(cluster.ClockAhead)
	default:
		g.Breaks("D2", "turn %d deletes %s, whose devices do not drive it away (%v)", c.Sequence, pod.Name, last)
	}
}

// DevicesSettled reports whether each pod has its claim, none holds what it does not need, and
// none is left where it cannot stay.
func DevicesSettled(w *cluster.Cluster) error {
	if !HasDevices(w) {
		return nil
	}
	for _, obj := range w.API.List(kinds.Pods.Name) {
		pod := obj.(*corev1.Pod)
		claim := claimOfPod(w, pod)
		byTemplate := pod.Spec.ResourceClaims[0].ResourceClaimTemplateName != nil
		if byTemplate && mayRun(pod) && pod.DeletionTimestamp == nil && claim == nil && w.API.Get(deviceTemplate) != nil {
			return fmt.Errorf("pod %s has no claim, and there is a template", pod.Name)
		}
		if at, ok := drivenSince(w, pod); ok && pod.Spec.NodeName != "" && pod.DeletionTimestamp == nil && mayRun(pod) && w.Now.After(at) {
			return fmt.Errorf("pod %s is left on devices that drive it away since %v", pod.Name, at)
		}
		if claim != nil && claim.DeletionTimestamp == nil && claim.Status.Allocation != nil && pod.Spec.NodeName != "" && mayRun(pod) && pod.DeletionTimestamp == nil && !reserved(claim, pod.UID) {
			return fmt.Errorf("pod %s has a node, and its claim %s is not reserved for it", pod.Name, claim.Name)
		}
	}
	for _, obj := range w.API.List(kinds.ResourceClaims.Name) {
		claim := obj.(*resourcev1.ResourceClaim)
		for _, r := range claim.Status.ReservedFor {
			if !mayRun(podOf(w, r)) {
				return fmt.Errorf("claim %s is reserved for %s, which does not need it", claim.Name, r.Name)
			}
		}
		if claim.DeletionTimestamp != nil && len(claim.Status.ReservedFor) == 0 {
			return fmt.Errorf("claim %s is deleted, and held by %v", claim.Name, claim.Finalizers)
		}
		if owner := metav1.GetControllerOfNoCopy(claim); owner != nil && claim.DeletionTimestamp == nil {
			if pod := podOf(w, resourcev1.ResourceClaimConsumerReference{Name: owner.Name, UID: owner.UID}); pod == nil || !mayRun(pod) {
				return fmt.Errorf("claim %s outlived what %s needs", claim.Name, owner.Name)
			}
		}
	}
	return nil
}
