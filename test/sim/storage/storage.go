package storage

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
	"github.com/millrace/millrace/test/sim/apiserver"
	"github.com/millrace/millrace/test/sim/cluster"
	"github.com/millrace/millrace/test/sim/nodes"
)

// Storage is what users do with claims, volumes and the pods that use them, and what happens to
// the nodes of those pods. Storage drivers, kubelets and the scheduler act in between
// (drivers.go).
var Storage = []cluster.Operation{
	claimStorage, claimStorage, claimStorage, claimStorage, claimNamed, staticVolume, staticVolume, FreeVolume, FreeVolume, changeDefault,
	usePodClaim, usePodClaim, usePodClaim, usePodClaim, usePodClaim, cluster.DeletePod, cluster.DeletePod, cluster.DeletePod, endPod, GrowClaim, GrowClaim,
	dropStorage, dropStorage, dropStatic, silenceNode, silenceNode, wakeNode, wakeNode, busyNode, busyNode, nodes.OutOfService, nodes.DeleteNode, nodes.NewNode, cluster.Wait, cluster.WaitLong,
}

const (
	// Driver is a storage driver, and ebs the one to which volumes of an in-tree plugin have
	// moved.
	Driver = "example.com"
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
}{"fast": {Driver, false}, "late": {Driver, true}, "old": {inTree, false}}

// Stores reports whether the world has storage.
func Stores(w *cluster.Cluster) bool { return w.Runs("persistentvolume-binder-controller") }

// FurnishStorage creates the initial objects.
func FurnishStorage(w *cluster.Cluster) {
	w.Store = cluster.NewDrivers(w)
	for _, name := range slices.Sorted(maps.Keys(classes)) {
		class := &storagev1.StorageClass{
			TypeMeta: metav1.TypeMeta{APIVersion: "storage.k8s.io/v1", Kind: "StorageClass"}, ObjectMeta: metav1.ObjectMeta{Name: name},
			Provisioner: classes[name].by, ReclaimPolicy: new(corev1.PersistentVolumeReclaimDelete), VolumeBindingMode: new(storagev1.VolumeBindingImmediate),
			AllowVolumeExpansion: new(true),
		}
		if classes[name].late {
			class.VolumeBindingMode = new(storagev1.VolumeBindingWaitForFirstConsumer)
		}
		w.Create(apiserver.RefOf(kinds.StorageClasses.Name, class), class)
	}
	for _, name := range []string{"node-0", "node-1"} {
		n := &corev1.Node{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Node"}, ObjectMeta: metav1.ObjectMeta{Name: name}}
		w.Create(cluster.NodeRef(name), n)
	}
}

func gigabytes(n int) corev1.ResourceList {
	return corev1.ResourceList{corev1.ResourceStorage: *resource.NewQuantity(int64(n)<<30, resource.BinarySI)}
}

// SizeIn is the storage in a list of resources, in bytes.
func SizeIn(l corev1.ResourceList) int64 {
	q := l[corev1.ResourceStorage]
	return q.Value()
}

// ClaimRefOf is the place of a claim.
func ClaimRefOf(name string) events.Ref {
	return events.Ref{Kind: kinds.PersistentVolumeClaims.Name, Namespace: cluster.Namespace, Name: name}
}

// VolumeRef is the place of a volume.
func VolumeRef(name string) events.Ref {
	return events.Ref{Kind: kinds.PersistentVolumes.Name, Name: name}
}

func anyModes(w *cluster.Cluster) []corev1.PersistentVolumeAccessMode {
	if w.Roll(4) == 1 {
		return []corev1.PersistentVolumeAccessMode{corev1.ReadWriteMany}
	}
	return []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce}
}

// claimStorage creates a claim: with a class, without one, or with the default one.
func claimStorage(w *cluster.Cluster) {
	ClaimClass(w, []string{"fast", "late", "old", "none", "default"}[w.Roll(5)], "")
}

// claimNamed creates a claim to a volume that a user creates by hand, before or after.
func claimNamed(w *cluster.Cluster) { ClaimClass(w, "none", fmt.Sprint("pv", w.Roll(3))) }

// ClaimClass creates a claim of a class, and to a volume if one is named.
func ClaimClass(w *cluster.Cluster, class, volume string) {
	ref := ClaimRefOf(fmt.Sprint("data", w.Roll(4)))
	if w.API.Get(ref) != nil {
		return
	}
	c := &corev1.PersistentVolumeClaim{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "PersistentVolumeClaim"}, ObjectMeta: metav1.ObjectMeta{Namespace: cluster.Namespace, Name: ref.Name, Finalizers: []string{claimGuard}},
		Spec: corev1.PersistentVolumeClaimSpec{AccessModes: anyModes(w), VolumeName: volume, Resources: corev1.VolumeResourceRequirements{Requests: gigabytes(1 + w.Roll(2))}},
	}
	switch class {
	case "default":
	case "none":
		c.Spec.StorageClassName = new("")
	default:
		c.Spec.StorageClassName = &class
	}
	w.Note("user: claim %s, class %s, volume %q", ref.Name, class, volume)
	w.Create(ref, c)
}

// staticVolume creates a volume by hand, some for a claim of a given name.
func staticVolume(w *cluster.Cluster) {
	name := fmt.Sprint("pv", w.Roll(3))
	if w.API.Get(VolumeRef(name)) != nil {
		return
	}
	pv := Volume(name, Driver, name, 1+w.Roll(3))
	pv.Spec.AccessModes, pv.Spec.PersistentVolumeReclaimPolicy = anyModes(w), corev1.PersistentVolumeReclaimRetain
	pv.Spec.StorageClassName = []string{"", "late"}[w.Roll(2)]
	if w.Roll(3) == 0 {
		pv.Spec.ClaimRef = &corev1.ObjectReference{Namespace: cluster.Namespace, Name: fmt.Sprint("data", w.Roll(4))}
	}
	w.Note("administrator: volume %s of class %q", name, pv.Spec.StorageClassName)
	w.Create(VolumeRef(name), pv)
}

// Volume is a volume of a driver, with a handle and a size in gigabytes.
func Volume(name, driver, handle string, size int) *corev1.PersistentVolume {
	return &corev1.PersistentVolume{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "PersistentVolume"}, ObjectMeta: metav1.ObjectMeta{Name: name, Finalizers: []string{volumeGuard}},
		Spec: corev1.PersistentVolumeSpec{
			Capacity:               gigabytes(size),
			PersistentVolumeSource: corev1.PersistentVolumeSource{CSI: &corev1.CSIPersistentVolumeSource{Driver: driver, VolumeHandle: handle}},
		},
	}
}

// anyVolume is an existing volume that fits.
func anyVolume(w *cluster.Cluster, fits func(*corev1.PersistentVolume) bool) *corev1.PersistentVolume {
	var some []*corev1.PersistentVolume
	for _, obj := range w.API.List(kinds.PersistentVolumes.Name) {
		if pv := obj.(*corev1.PersistentVolume); fits(pv) {
			some = append(some, pv)
		}
	}
	if len(some) == 0 {
		return nil
	}
	return some[w.Roll(len(some))]
}

// ByHand reports whether an administrator made a volume.
func ByHand(pv *corev1.PersistentVolume) bool { return pv.Annotations[madeBy] == "" }

// FreeVolume has an administrator give a released volume to other claims.
func FreeVolume(w *cluster.Cluster) {
	pv := anyVolume(w, func(pv *corev1.PersistentVolume) bool { return ByHand(pv) && pv.Status.Phase == corev1.VolumeReleased })
	if pv != nil {
		w.Note("administrator: %s is for others", pv.Name)
		w.API.Change(VolumeRef(pv.Name), func(obj metav1.Object) { obj.(*corev1.PersistentVolume).Spec.ClaimRef = nil })
	}
}

func dropStatic(w *cluster.Cluster) {
	if pv := anyVolume(w, ByHand); pv != nil {
		w.Delete(VolumeRef(pv.Name), metav1.DeletePropagationBackground)
	}
}

// changeDefault makes the class fast the default one, or takes that back.
func changeDefault(w *cluster.Cluster) {
	w.Note("administrator: fast is the default class, or is not any more")
	w.API.Change(events.Ref{Kind: kinds.StorageClasses.Name, Name: "fast"}, func(obj metav1.Object) {
		if obj.GetAnnotations()[isDefault] == "" {
			obj.SetAnnotations(map[string]string{isDefault: "true"})
		} else {
			obj.SetAnnotations(nil)
		}
	})
}

func dropStorage(w *cluster.Cluster) {
	if ref := ClaimRefOf(fmt.Sprint("data", w.Roll(4))); w.API.Get(ref) != nil {
		w.Delete(ref, metav1.DeletePropagationBackground)
	}
}

// GrowClaim asks for more storage for a bound claim.
func GrowClaim(w *cluster.Cluster) {
	ref := ClaimRefOf(fmt.Sprint("data", w.Roll(4)))
	if c, ok := w.API.Get(ref).(*corev1.PersistentVolumeClaim); ok && c.Status.Phase == corev1.ClaimBound && SizeIn(c.Spec.Resources.Requests) < 4<<30 {
		w.Note("user: %s asks for more", ref.Name)
		w.API.Change(ref, func(obj metav1.Object) {
			s := &obj.(*corev1.PersistentVolumeClaim).Spec
			s.Resources.Requests = gigabytes(int(SizeIn(s.Resources.Requests)>>30) + 1)
		})
	}
}

// usePodClaim creates a pod that uses one claim or two.
func usePodClaim(w *cluster.Cluster) {
	first := w.Roll(4)
	names := []string{fmt.Sprint("data", first)}
	if w.Roll(3) == 0 {
		names = append(names, fmt.Sprint("data", (first+1)%4))
	}
	UsesClaims(w, fmt.Sprint("user", w.Roll(5)), names...)
}

// UsesClaims creates a pod that uses claims.
func UsesClaims(w *cluster.Cluster, name string, names ...string) {
	ref := events.Ref{Kind: kinds.Pods.Name, Namespace: cluster.Namespace, Name: name}
	if w.API.Get(ref) != nil {
		return
	}
	w.Note("user: create %v with %v", ref, names)
	pod := &corev1.Pod{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"}, ObjectMeta: metav1.ObjectMeta{Namespace: cluster.Namespace, Name: ref.Name}}
	for _, name := range names {
		source := corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: name}}
		pod.Spec.Volumes = append(pod.Spec.Volumes, corev1.Volume{Name: name, VolumeSource: source})
	}
	w.Create(ref, pod)
}

// endPod ends a pod.
func endPod(w *cluster.Cluster) {
	if pod, ok := w.AnyPod().(*corev1.Pod); ok && pod.Status.Phase == corev1.PodRunning && kubeletActs(w, pod.Spec.NodeName) {
		w.Note("node: %s has done its work", pod.Name)
		w.API.Change(apiserver.RefOf(kinds.Pods.Name, pod), func(obj metav1.Object) { nodes.Ended(w, obj, corev1.PodSucceeded, 0) })
	}
}

// silenceNode stops a kubelet, and the node's pods run on. The node is marked as not ready.
func silenceNode(w *cluster.Cluster) { nodeSpeaks(w, true) }

func wakeNode(w *cluster.Cluster) { nodeSpeaks(w, false) }

func nodeSpeaks(w *cluster.Cluster, silent bool) {
	ref := cluster.NodeRef(fmt.Sprint("node-", w.Roll(2)))
	if w.API.Get(ref) == nil || w.Store.Silent[ref.Name] == silent {
		return
	}
	w.Note("kubelet of %s is silent: %v", ref.Name, silent)
	w.Store.Silent[ref.Name] = silent
	w.Dirty = true
	w.API.Change(ref, func(obj metav1.Object) {
		status := corev1.ConditionTrue
		if silent {
			status = corev1.ConditionUnknown
		}
		nodes.Speak(w, obj.(*corev1.Node), status)
	})
}

// busyNode delays a kubelet's unmounts of volumes that pods no longer need.
func busyNode(w *cluster.Cluster) {
	Busy(w, fmt.Sprint("node-", w.Roll(2)), time.Duration(10+w.Roll(120))*time.Second)
}

// Busy has a kubelet unmount nothing for a while.
func Busy(w *cluster.Cluster, node string, d time.Duration) {
	if w.API.Get(cluster.NodeRef(node)) != nil {
		w.Note("kubelet of %s unmounts nothing for %v", node, d)
		w.Store.Busy[node] = w.Now.Add(d)
	}
}
