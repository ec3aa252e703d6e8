package attachdetach

import (
	"reflect"
	"slices"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/services/reconcilers/kube/csi"
	"github.com/millrace/millrace/services/reconcilers/reconcile"
)

func keyOfVolume(name string) events.Key { return events.Key{Name: name} }

func keyOfNode(name string) events.Key { return events.Key{Kind: kinds.Nodes.Name, Name: name} }

// keys are keys, each once.
type keys []events.Key

func (k *keys) add(key events.Key) {
	if key.Name != "" && !slices.Contains(*k, key) {
		*k = append(*k, key)
	}
}

// everywhere adds a volume and the nodes that it is attached to.
func (k *keys) everywhere(s reconcile.Snapshot, volume string) {
	if volume == "" {
		return
	}
	k.add(keyOfVolume(volume))
	for _, a := range attachmentsOf(s, volume) {
		k.add(keyOfNode(a.Spec.NodeName))
	}
}

// keysOfVolume maps a volume to itself and to the nodes that it is attached to.
func keysOfVolume(s reconcile.Snapshot, was, now reconcile.Object) []events.Key {
	var all keys
	if now.None() {
		now = was
	}
	all.everywhere(s, now.GetName())
	return all
}

// keysOfClaim maps a claim whose volume changes to the volumes, and their nodes.
func keysOfClaim(s reconcile.Snapshot, was, now reconcile.Object) []events.Key {
	before, _ := was.Object.(*corev1.PersistentVolumeClaim)
	claim, _ := now.Object.(*corev1.PersistentVolumeClaim)
	if before != nil && claim != nil && before.UID == claim.UID && volumeBehind(before) == volumeBehind(claim) {
		return nil
	}
	var all keys
	for _, c := range []*corev1.PersistentVolumeClaim{claim, before} {
		if c != nil {
			all.everywhere(s, volumeBehind(c))
		}
	}
	return all
}

// keysOfPod maps a pod that gets a node, or ends there, to the volumes behind its claims, and to
// the node.
func keysOfPod(s reconcile.Snapshot, was, now reconcile.Object) []events.Key {
	before, _ := was.Object.(*corev1.Pod)
	pod, _ := now.Object.(*corev1.Pod)
	if before != nil && pod != nil && before.UID == pod.UID && placed(before) == placed(pod) {
		return nil
	}
	var all keys
	for _, p := range []*corev1.Pod{pod, before} {
		if p != nil && p.Spec.NodeName != "" {
			all.volumesOf(s, p)
		}
	}
	return all
}

// volumesOf adds the volumes behind a pod's claims, and its node where there are any.
func (k *keys) volumesOf(s reconcile.Snapshot, p *corev1.Pod) {
	for i := range p.Spec.Volumes {
		name, _ := events.ClaimOf(p, &p.Spec.Volumes[i])
		if name == "" {
			continue
		}
		k.add(keyOfNode(p.Spec.NodeName))
		if claim, ok := reconcile.Get(s, kinds.PersistentVolumeClaims, p.Namespace, name); ok {
			k.add(keyOfVolume(volumeBehind(claim)))
		}
	}
}

// keysOfNode maps a node to itself, where something changes that it goes by, and to the volumes
// of its pods, where it begins or ceases to have them attached.
func keysOfNode(s reconcile.Snapshot, was, now reconcile.Object) []events.Key {
	before, _ := was.Object.(*corev1.Node)
	node, _ := now.Object.(*corev1.Node)
	if before != nil && node != nil && reflect.DeepEqual(standing(before), standing(node)) {
		return nil
	}
	var all keys
	if now.None() {
		now = was
	}
	all.add(keyOfNode(now.GetName()))
	if (before != nil && manages(before)) == (node != nil && manages(node)) {
		return all
	}
	for _, p := range reconcile.List(s, kinds.Pods, "") {
		if p.Spec.NodeName == now.GetName() && placed(p) {
			all.volumesOf(s, p)
		}
	}
	return all
}

// stand is what of a node its turns go by.
type stand struct {
	managed, ready, out bool
	inUse               []corev1.UniqueVolumeName
	attached            []corev1.AttachedVolume
}

func standing(n *corev1.Node) stand {
	return stand{manages(n), ready(n), outOfService(n), n.Status.VolumesInUse, n.Status.VolumesAttached}
}

// keysOfAttachment maps an attachment to its volume and its node.
func keysOfAttachment(_ reconcile.Snapshot, was, now reconcile.Object) []events.Key {
	var all keys
	for _, obj := range []reconcile.Object{now, was} {
		a, ok := obj.Object.(*storagev1.VolumeAttachment)
		if !ok {
			continue
		}
		if name := a.Spec.Source.PersistentVolumeName; name != nil {
			all.add(keyOfVolume(*name))
		}
		all.add(keyOfNode(a.Spec.NodeName))
	}
	return all
}

// keysOfDriver maps a driver to its volumes, where it begins or ceases to attach them.
func keysOfDriver(s reconcile.Snapshot, was, now reconcile.Object) []events.Key {
	before, _ := was.Object.(*storagev1.CSIDriver)
	driver, _ := now.Object.(*storagev1.CSIDriver)
	if (before == nil || attaches(before)) == (driver == nil || attaches(driver)) {
		return nil
	}
	if now.None() {
		now = was
	}
	var all keys
	for _, pv := range reconcile.List(s, kinds.PersistentVolumes, "") {
		if v, ok := csi.VolumeOf(pv); ok && v.Driver == now.GetName() {
			all.everywhere(s, pv.Name)
		}
	}
	return all
}
