package sim

import (
	"fmt"
	"maps"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/kinds"
)

// Storage is what users do with claims, volumes and the pods that use them, and what happens to
// the nodes of those pods. Storage drivers, kubelets and the scheduler act in between
// (drivers.go).
var Storage = []Operation{
	claimStorage, claimStorage, claimStorage, claimStorage, claimNamed, staticVolume, staticVolume, freeVolume, freeVolume, changeDefault,
	usePodClaim, usePodClaim, usePodClaim, usePodClaim, usePodClaim, deletePod, deletePod, deletePod, endPod, growClaim, growClaim,
	dropStorage, dropStorage, dropStatic, silenceNode, silenceNode, wakeNode, wakeNode, busyNode, busyNode, outOfService, deleteNode, newNode, wait, waitLong,
}

const (
	// driver is a storage driver, and ebs the one to which volumes of an in-tree plugin have
	// moved.
	driver = "example.com"
	ebs    = "ebs.csi.aws.com"
	inTree = "kubernetes.io/aws-ebs"

	isDefault = "storageclass.kubernetes.io/is-default-class"
	selected  = "volume.kubernetes.io/selected-node"
	asksOf    = "volume.kubernetes.io/storage-provisioner"
	resizes   = "volume.kubernetes.io/storage-resizer"
	madeBy    = "pv.kubernetes.io/provisioned-by"
	manages   = "volumes.kubernetes.io/controller-managed-attach-detach"
)

// classes are the storage classes. Claims of the class late wait for a pod, and users create
// some of its volumes by hand.
var classes = map[string]struct {
	by   string
	late bool
}{"fast": {driver, false}, "late": {driver, true}, "old": {inTree, false}}

// stores reports whether the world has storage.
func (w *World) stores() bool { return w.runs("persistentvolume-binder-controller") }

// furnishStorage creates the initial objects.
func (w *World) furnishStorage() {
	w.store = newDrivers(w)
	for _, name := range slices.Sorted(maps.Keys(classes)) {
		class := &storagev1.StorageClass{
			TypeMeta: metav1.TypeMeta{APIVersion: "storage.k8s.io/v1", Kind: "StorageClass"}, ObjectMeta: metav1.ObjectMeta{Name: name},
			Provisioner: classes[name].by, ReclaimPolicy: new(corev1.PersistentVolumeReclaimDelete), VolumeBindingMode: new(storagev1.VolumeBindingImmediate),
			AllowVolumeExpansion: new(true),
		}
		if classes[name].late {
			class.VolumeBindingMode = new(storagev1.VolumeBindingWaitForFirstConsumer)
		}
		w.create(refOf(kinds.StorageClasses.Name, class), class)
	}
	for _, name := range []string{"node-0", "node-1"} {
		n := &corev1.Node{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Node"}, ObjectMeta: metav1.ObjectMeta{Name: name}}
		w.create(nodeRef(name), n)
	}
}

func gigabytes(n int) corev1.ResourceList {
	return corev1.ResourceList{corev1.ResourceStorage: *resource.NewQuantity(int64(n)<<30, resource.BinarySI)}
}

func sizeIn(l corev1.ResourceList) int64 {
	q := l[corev1.ResourceStorage]
	return q.Value()
}

func claimRefOf(name string) events.Ref {
	return events.Ref{Kind: kinds.PersistentVolumeClaims.Name, Namespace: namespace, Name: name}
}

func volumeRef(name string) events.Ref {
	return events.Ref{Kind: kinds.PersistentVolumes.Name, Name: name}
}

func (w *World) anyModes() []corev1.PersistentVolumeAccessMode {
	if w.roll(4) == 1 {
		return []corev1.PersistentVolumeAccessMode{corev1.ReadWriteMany}
	}
	return []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce}
}

// claimStorage creates a claim: with a class, without one, or with the default one.
func claimStorage(w *World) {
	w.claim([]string{"fast", "late", "old", "none", "default"}[w.roll(5)], "")
}

// claimNamed creates a claim to a volume that a user creates by hand, before or after.
func claimNamed(w *World) { w.claim("none", fmt.Sprint("pv", w.roll(3))) }

func (w *World) claim(class, volume string) {
	ref := claimRefOf(fmt.Sprint("data", w.roll(4)))
	if w.api.Get(ref) != nil {
		return
	}
	c := &corev1.PersistentVolumeClaim{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "PersistentVolumeClaim"}, ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: ref.Name, Finalizers: []string{claimGuard}},
		Spec: corev1.PersistentVolumeClaimSpec{AccessModes: w.anyModes(), VolumeName: volume, Resources: corev1.VolumeResourceRequirements{Requests: gigabytes(1 + w.roll(2))}},
	}
	switch class {
	case "default":
	case "none":
		c.Spec.StorageClassName = new("")
	default:
		c.Spec.StorageClassName = &class
	}
	w.note("user: claim %s, class %s, volume %q", ref.Name, class, volume)
	w.create(ref, c)
}

// staticVolume creates a volume by hand, some for a claim of a given name.
func staticVolume(w *World) {
	name := fmt.Sprint("pv", w.roll(3))
	if w.api.Get(volumeRef(name)) != nil {
		return
	}
	pv := volume(name, driver, name, 1+w.roll(3))
	pv.Spec.AccessModes, pv.Spec.PersistentVolumeReclaimPolicy = w.anyModes(), corev1.PersistentVolumeReclaimRetain
	pv.Spec.StorageClassName = []string{"", "late"}[w.roll(2)]
	if w.roll(3) == 0 {
		pv.Spec.ClaimRef = &corev1.ObjectReference{Namespace: namespace, Name: fmt.Sprint("data", w.roll(4))}
	}
	w.note("administrator: volume %s of class %q", name, pv.Spec.StorageClassName)
	w.create(volumeRef(name), pv)
}

func volume(name, driver, handle string, size int) *corev1.PersistentVolume {
	return &corev1.PersistentVolume{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "PersistentVolume"}, ObjectMeta: metav1.ObjectMeta{Name: name, Finalizers: []string{volumeGuard}},
		Spec: corev1.PersistentVolumeSpec{
			Capacity:               gigabytes(size),
			PersistentVolumeSource: corev1.PersistentVolumeSource{CSI: &corev1.CSIPersistentVolumeSource{Driver: driver, VolumeHandle: handle}},
		},
	}
}

// anyVolume is an existing volume that fits.
func (w *World) anyVolume(fits func(*corev1.PersistentVolume) bool) *corev1.PersistentVolume {
	var some []*corev1.PersistentVolume
	for _, obj := range w.api.List(kinds.PersistentVolumes.Name) {
		if pv := obj.(*corev1.PersistentVolume); fits(pv) {
			some = append(some, pv)
		}
	}
	if len(some) == 0 {
		return nil
	}
	return some[w.roll(len(some))]
}

func byHand(pv *corev1.PersistentVolume) bool { return pv.Annotations[madeBy] == "" }

// freeVolume has an administrator give a released volume to other claims.
func freeVolume(w *World) {
	pv := w.anyVolume(func(pv *corev1.PersistentVolume) bool { return byHand(pv) && pv.Status.Phase == corev1.VolumeReleased })
	if pv != nil {
		w.note("administrator: %s is for others", pv.Name)
		w.api.Change(volumeRef(pv.Name), func(obj metav1.Object) { obj.(*corev1.PersistentVolume).Spec.ClaimRef = nil })
	}
}

func dropStatic(w *World) {
	if pv := w.anyVolume(byHand); pv != nil {
		w.Delete(volumeRef(pv.Name), metav1.DeletePropagationBackground)
	}
}

// changeDefault makes the class fast the default one, or takes that back.
func changeDefault(w *World) {
	w.note("administrator: fast is the default class, or is not any more")
	w.api.Change(events.Ref{Kind: kinds.StorageClasses.Name, Name: "fast"}, func(obj metav1.Object) {
		if obj.GetAnnotations()[isDefault] == "" {
			obj.SetAnnotations(map[string]string{isDefault: "true"})
		} else {
			obj.SetAnnotations(nil)
		}
	})
}

func dropStorage(w *World) {
	if ref := claimRefOf(fmt.Sprint("data", w.roll(4))); w.api.Get(ref) != nil {
		w.Delete(ref, metav1.DeletePropagationBackground)
	}
}

// growClaim asks for more storage for a bound claim.
func growClaim(w *World) {
	ref := claimRefOf(fmt.Sprint("data", w.roll(4)))
	if c, ok := w.api.Get(ref).(*corev1.PersistentVolumeClaim); ok && c.Status.Phase == corev1.ClaimBound && sizeIn(c.Spec.Resources.Requests) < 4<<30 {
		w.note("user: %s asks for more", ref.Name)
		w.api.Change(ref, func(obj metav1.Object) {
			s := &obj.(*corev1.PersistentVolumeClaim).Spec
			s.Resources.Requests = gigabytes(int(sizeIn(s.Resources.Requests)>>30) + 1)
		})
	}
}

// usePodClaim creates a pod that uses one claim or two.
func usePodClaim(w *World) {
	first := w.roll(4)
	names := []string{fmt.Sprint("data", first)}
	if w.roll(3) == 0 {
		names = append(names, fmt.Sprint("data", (first+1)%4))
	}
	w.usesClaims(fmt.Sprint("user", w.roll(5)), names...)
}

func (w *World) usesClaims(name string, names ...string) {
	ref := events.Ref{Kind: kinds.Pods.Name, Namespace: namespace, Name: name}
	if w.api.Get(ref) != nil {
		return
	}
	w.note("user: create %v with %v", ref, names)
	pod := &corev1.Pod{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"}, ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: ref.Name}}
	for _, name := range names {
		source := corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: name}}
		pod.Spec.Volumes = append(pod.Spec.Volumes, corev1.Volume{Name: name, VolumeSource: source})
	}
	w.create(ref, pod)
}

// endPod ends a pod.
func endPod(w *World) {
	if pod, ok := w.anyPod().(*corev1.Pod); ok && pod.Status.Phase == corev1.PodRunning && w.kubeletActs(pod.Spec.NodeName) {
		w.note("node: %s has done its work", pod.Name)
		w.api.Change(refOf(kinds.Pods.Name, pod), func(obj metav1.Object) { w.ended(obj, corev1.PodSucceeded, 0) })
	}
}

// silenceNode stops a kubelet, and the node's pods run on. The node is marked as not ready.
func silenceNode(w *World) { w.nodeSpeaks(true) }

func wakeNode(w *World) { w.nodeSpeaks(false) }

func (w *World) nodeSpeaks(silent bool) {
	ref := nodeRef(fmt.Sprint("node-", w.roll(2)))
	if w.api.Get(ref) == nil || w.store.silent[ref.Name] == silent {
		return
	}
	w.note("kubelet of %s is silent: %v", ref.Name, silent)
	w.store.silent[ref.Name] = silent
	w.dirty = true
	w.api.Change(ref, func(obj metav1.Object) {
		status := corev1.ConditionTrue
		if silent {
			status = corev1.ConditionUnknown
		}
		w.speak(obj.(*corev1.Node), status)
	})
}

// busyNode delays a kubelet's unmounts of volumes that pods no longer need.
func busyNode(w *World) {
	w.busy(fmt.Sprint("node-", w.roll(2)), time.Duration(10+w.roll(120))*time.Second)
}

func (w *World) busy(node string, d time.Duration) {
	if w.api.Get(nodeRef(node)) != nil {
		w.note("kubelet of %s unmounts nothing for %v", node, d)
		w.store.busy[node] = w.now.Add(d)
	}
}
