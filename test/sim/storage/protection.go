package storage

import (
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/test/sim/apiserver"
	"github.com/millrace/millrace/test/sim/cluster"
)

// The finalizers of claims and volumes that are in use.
const (
	claimGuard  = "kubernetes.io/pvc-protection"
	volumeGuard = "kubernetes.io/pv-protection"
)

func someVolume(w *cluster.Cluster) (events.Ref, bool) {
	return w.SomeOf(kinds.PersistentVolumes.Kind, "pv", func(name string) any {
		return &corev1.PersistentVolume{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "PersistentVolume"}, ObjectMeta: metav1.ObjectMeta{Name: name}}
	})
}

// NewVolume creates a volume.
func NewVolume(w *cluster.Cluster) { someVolume(w) }

// BindVolume has the binder bind a volume, or release a bound one.
func BindVolume(w *cluster.Cluster) {
	if ref, there := someVolume(w); there {
		w.Note("binder: bind or release %v", ref)
		w.API.Change(ref, func(obj metav1.Object) {
			if pv := obj.(*corev1.PersistentVolume); pv.Status.Phase == corev1.VolumeBound {
				pv.Status.Phase = corev1.VolumeReleased
			} else {
				pv.Status.Phase = corev1.VolumeBound
			}
		})
	}
}

// DeleteVolume deletes a volume.
func DeleteVolume(w *cluster.Cluster) {
	if ref, there := someVolume(w); there {
		w.Delete(ref, metav1.DeletePropagationBackground)
	}
}

func someClaim(w *cluster.Cluster) (events.Ref, bool) {
	return w.SomeOf(kinds.PersistentVolumeClaims.Kind, "claim", func(name string) any {
		return &corev1.PersistentVolumeClaim{
			TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "PersistentVolumeClaim"}, ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: cluster.Namespace},
		}
	})
}

// NewClaim creates a claim.
func NewClaim(w *cluster.Cluster) { someClaim(w) }

// UseClaim creates a pod that uses a claim.
func UseClaim(w *cluster.Cluster) {
	claim, _ := someClaim(w)
	ref := events.Ref{Kind: kinds.Pods.Name, Namespace: cluster.Namespace, Name: fmt.Sprint("user", w.Roll(3))}
	w.Note("user: create %v, which uses %v", ref, claim)
	source := corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: claim.Name}}
	w.Create(ref, &corev1.Pod{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"}, ObjectMeta: metav1.ObjectMeta{Namespace: cluster.Namespace, Name: ref.Name},
		Spec: corev1.PodSpec{Volumes: []corev1.Volume{{Name: "data", VolumeSource: source}}},
	})
}

// usersOfClaim are the pods that have a node and name a claim.
func usersOfClaim(w *cluster.Cluster, claim metav1.Object) (all []string) {
	for _, obj := range w.API.List(kinds.Pods.Name) {
		pod := obj.(*corev1.Pod)
		uses := func(v corev1.Volume) bool {
			return v.PersistentVolumeClaim != nil && v.PersistentVolumeClaim.ClaimName == claim.GetName() || owns(pod, v, claim)
		}
		if pod.Spec.NodeName != "" && pod.Namespace == claim.GetNamespace() && slices.ContainsFunc(pod.Spec.Volumes, uses) {
			all = append(all, pod.Name)
		}
	}
	return all
}

// Unguarded checks a claim or a volume that has lost its finalizers.
func Unguarded(g *cluster.Guard, old, now metav1.Object) {
	if old == nil || g.Record.Restoring {
		return
	}
	switch o := old.(type) {
	case *corev1.PersistentVolumeClaim:
		if users := usersOfClaim(g.World, o); slices.Contains(o.Finalizers, claimGuard) && !cluster.Has(now, claimGuard) && len(users) > 0 {
			g.Breaks("I12", "claim %s is let go, and %v use it", o.Name, users)
		}
	case *corev1.PersistentVolume:
		if slices.Contains(o.Finalizers, volumeGuard) && !cluster.Has(now, volumeGuard) && o.Status.Phase == corev1.VolumeBound {
			g.Breaks("I12", "volume %s is let go, and is bound", o.Name)
		}
	}
}

// Protected reports whether volumes and claims have their finalizer while they are used, and no
// longer.
func Protected(w *cluster.Cluster) error {
	for _, obj := range w.API.List(kinds.PersistentVolumes.Name) {
		held := obj.GetDeletionTimestamp() != nil
		if w.Runs("persistentvolume-protection-controller") && (!cluster.Has(obj, volumeGuard) || held && obj.(*corev1.PersistentVolume).Status.Phase != corev1.VolumeBound) {
			return fmt.Errorf("volume %s, deleted: %v, has the finalizers %v", obj.GetName(), held, obj.GetFinalizers())
		}
	}
	for _, obj := range w.API.List(kinds.PersistentVolumeClaims.Name) {
		held := obj.GetDeletionTimestamp() != nil
		if w.Runs("persistentvolumeclaim-protection-controller") && (!cluster.Has(obj, claimGuard) || held && len(usersOfClaim(w, obj)) == 0) {
			return fmt.Errorf("claim %s, deleted: %v, has the finalizers %v", obj.GetName(), held, obj.GetFinalizers())
		}
	}
	return nil
}

// DeleteClaim deletes a claim.
func DeleteClaim(w *cluster.Cluster) {
	if all := w.API.List(kinds.PersistentVolumeClaims.Name); len(all) > 0 {
		w.Delete(apiserver.RefOf(kinds.PersistentVolumeClaims.Name, all[w.Roll(len(all))]), metav1.DeletePropagationBackground)
	}
}
