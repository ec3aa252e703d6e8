package pvcprotection

import (
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/pkg/events/query"
	"github.com/millrace/millrace/services/reconcilers/kube/pod"
	"github.com/millrace/millrace/services/reconcilers/reconcile"
)

// Use reports whether a pod refers to a claim.
type Use string

const (
	used   Use = "used"
	unused Use = "unused"
)

// useOf looks for a pod that refers to a claim and has not ended, scheduled or not.
//
// Upstream: podUsesPVCForUnusedSince. A pod that is not seen in its cache is looked for live,
// too; here a pod that is seen later corrects the condition.
func useOf(s reconcile.Snapshot, claim *corev1.PersistentVolumeClaim) Use {
	owner := metav1.GetControllerOfNoCopy(claim)
	for _, p := range reconcile.List(s, kinds.Pods, claim.Namespace) {
		if over(p) {
			continue
		}
		for i := range p.Spec.Volumes {
			name, own := query.ClaimOf(p, &p.Spec.Volumes[i])
			if name == claim.Name && (!own || owner != nil && owner.UID == p.UID) {
				return used
			}
		}
	}
	return unused
}

// over reports whether a pod has ended, or is being deleted and has no running container.
//
// Upstream: pkg/volume/util, IsPodTerminated.
func over(p *corev1.Pod) bool {
	runs := func(c corev1.ContainerStatus) bool { return c.State.Terminated == nil && c.State.Waiting == nil }
	return pod.Terminal(p) || p.DeletionTimestamp != nil && !slices.ContainsFunc(p.Status.ContainerStatuses, runs)
}

// untold reports whether the claim's condition is missing or differs.
func (u Use) untold(claim *corev1.PersistentVolumeClaim) bool {
	at := conditionOf(claim)
	switch u {
	case used:
		return at < 0 || claim.Status.Conditions[at].Status == corev1.ConditionTrue
	case unused:
		return at < 0 || claim.Status.Conditions[at].Status != corev1.ConditionTrue
	default:
		return false
	}
}

func conditionOf(claim *corev1.PersistentVolumeClaim) int {
	return slices.IndexFunc(claim.Status.Conditions, func(c corev1.PersistentVolumeClaimCondition) bool {
		return c.Type == corev1.PersistentVolumeClaimUnused
	})
}

// tell writes the condition.
//
// Upstream: updateUnusedCondition.
func (u Use) tell(claim *corev1.PersistentVolumeClaim, now time.Time) reconcile.Decision {
	says := corev1.PersistentVolumeClaimCondition{
		Type: corev1.PersistentVolumeClaimUnused, Status: corev1.ConditionTrue, LastTransitionTime: metav1.NewTime(now.Truncate(time.Second)),
		Reason: "NoPodsUsingPVC", Message: "No pods are currently referencing this PVC",
	}
	because := "no pod refers to the claim any more"
	if u == used {
		says.Status, says.Reason, says.Message = corev1.ConditionFalse, "PodUsingPVC", "A pod is currently referencing this PVC"
		because = "a pod refers to the claim"
	}
	next := claim.DeepCopy()
	if at := conditionOf(next); at >= 0 {
		next.Status.Conditions[at] = says
	} else {
		next.Status.Conditions = append(next.Status.Conditions, says)
	}
	return reconcile.Do(because, reconcile.UpdateStatus(kinds.PersistentVolumeClaims.Kind, next))
}
