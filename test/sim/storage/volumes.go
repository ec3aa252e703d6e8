package storage

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/test/sim/cluster"
)

// Volumes is what users do with pods that have ephemeral volumes, and administrators with
// storage classes.
var Volumes = []cluster.Operation{
	newOwner, newOwner, newOwner, cluster.DeletePod, takeClaim, takeClaim, dropClaim, dropClaim,
	newClass, newClass, deleteClass, deleteClass, classVolume, classVolume, classVolume, DeleteVolume,
}

const (
	classGuard = "kubernetes.io/vac-protection"
	// own is the name of the volume that such a pod wants.
	own = "own"
)

// newOwner creates a pod with an ephemeral volume.
func newOwner(w *cluster.Cluster) {
	w.SomeOf(kinds.Pods.Kind, "owner", func(name string) any {
		template := &corev1.PersistentVolumeClaimTemplate{ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"of": name}}}
		return &corev1.Pod{
			TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"}, ObjectMeta: metav1.ObjectMeta{Namespace: cluster.Namespace, Name: name},
			Spec: corev1.PodSpec{Volumes: []corev1.Volume{{Name: own, VolumeSource: corev1.VolumeSource{
				Ephemeral: &corev1.EphemeralVolumeSource{VolumeClaimTemplate: template},
			}}}},
		}
	})
}

func ownClaim(w *cluster.Cluster) events.Ref {
	return events.Ref{Kind: kinds.PersistentVolumeClaims.Name, Namespace: cluster.Namespace, Name: fmt.Sprintf("owner%d-%s", w.Roll(2), own)}
}

// takeClaim creates a claim with the name of a pod's claim before the pod has it.
func takeClaim(w *cluster.Cluster) {
	if ref := ownClaim(w); w.API.Get(ref) == nil {
		w.Note("user: create %v by hand", ref)
		w.Create(ref, &corev1.PersistentVolumeClaim{
			TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "PersistentVolumeClaim"}, ObjectMeta: metav1.ObjectMeta{Namespace: cluster.Namespace, Name: ref.Name},
		})
	}
}

// dropClaim deletes a claim with such a name, whichever pod owns it.
func dropClaim(w *cluster.Cluster) {
	if ref := ownClaim(w); w.API.Get(ref) != nil {
		w.Delete(ref, metav1.DeletePropagationBackground)
	}
}

func someClass(w *cluster.Cluster) (events.Ref, bool) {
	return w.SomeOf(kinds.VolumeAttributesClasses.Kind, "class", func(name string) any {
		return &storagev1.VolumeAttributesClass{
			TypeMeta:   metav1.TypeMeta{APIVersion: "storage.k8s.io/v1", Kind: "VolumeAttributesClass"},
			ObjectMeta: metav1.ObjectMeta{Name: name}, DriverName: "example.com",
		}
	})
}

func newClass(w *cluster.Cluster) { someClass(w) }

func deleteClass(w *cluster.Cluster) {
	if ref, there := someClass(w); there {
		w.Delete(ref, metav1.DeletePropagationBackground)
	}
}

// classVolume gives a volume a class, or takes it away.
func classVolume(w *cluster.Cluster) {
	class := fmt.Sprint("class", w.Roll(2))
	if ref, there := someVolume(w); there {
		w.Note("administrator: %v has %s, or has none any more", ref, class)
		w.API.Change(ref, func(obj metav1.Object) {
			pv := obj.(*corev1.PersistentVolume)
			if pv.Spec.VolumeAttributesClassName != nil {
				pv.Spec.VolumeAttributesClassName = nil
			} else {
				pv.Spec.VolumeAttributesClassName = &class
			}
		})
	}
}

// Claimed reports whether each pod has its claim, unless another owner has that name; and whether
// classes have their finalizer while they are used, and no longer.
func Claimed(w *cluster.Cluster) error {
	for _, obj := range w.API.List(kinds.Pods.Name) {
		pod := obj.(*corev1.Pod)
		for _, v := range pod.Spec.Volumes {
			ref := events.Ref{Kind: kinds.PersistentVolumeClaims.Name, Namespace: pod.Namespace, Name: pod.Name + "-" + v.Name}
			claim, there := w.API.Get(ref).(*corev1.PersistentVolumeClaim)
			switch {
			case v.Ephemeral == nil || pod.DeletionTimestamp != nil:
			case !there:
				return fmt.Errorf("pod %s has no claim for its own volume", pod.Name)
			case metav1.IsControlledBy(claim, pod) && claim.Labels["of"] != pod.Name:
				return fmt.Errorf("claim %s is not as the pod asks", claim.Name)
			case !metav1.IsControlledBy(claim, pod) && len(claim.OwnerReferences) > 0:
				return fmt.Errorf("claim %s is of a pod that is gone", claim.Name)
			}
		}
	}
	used := map[string]bool{}
	for _, obj := range w.API.List(kinds.PersistentVolumes.Name) {
		if class := obj.(*corev1.PersistentVolume).Spec.VolumeAttributesClassName; class != nil {
			used[*class] = true
		}
	}
	for _, obj := range w.API.List(kinds.VolumeAttributesClasses.Name) {
		if held := obj.GetDeletionTimestamp() != nil; !cluster.Has(obj, classGuard) || held && !used[obj.GetName()] {
			return fmt.Errorf("class %s, deleted: %v, used: %v, has the finalizers %v", obj.GetName(), held, used[obj.GetName()], obj.GetFinalizers())
		}
	}
	return nil
}

// owns reports whether a claim belongs to a pod's ephemeral volume.
func owns(pod *corev1.Pod, v corev1.Volume, claim metav1.Object) bool {
	return v.Ephemeral != nil && claim.GetName() == pod.Name+"-"+v.Name && metav1.IsControlledBy(claim, pod)
}
