package attachdetach

import (
	"reflect"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/pkg/events/query"
	"github.com/millrace/millrace/services/reconcilers/kube/claim"
	"github.com/millrace/millrace/services/reconcilers/kube/csi"
	"github.com/millrace/millrace/services/reconcilers/kube/keys"
	"github.com/millrace/millrace/services/reconcilers/reconcile"
)

func keyOfVolume(name string) events.Key { return events.Key{Name: name} }

func keyOfNode(name string) events.Key { return events.Key{Kind: kinds.Nodes.Name, Name: name} }

// addEverywhere adds a volume and the nodes that it is attached to.
func addEverywhere(all *keys.Set, s reconcile.Snapshot, volume string) {
	if volume == "" {
		return
	}
	all.Add(keyOfVolume(volume))
	for _, a := range attachmentsOf(s, volume) {
		all.Add(keyOfNode(a.Spec.NodeName))
	}
}

// keysOfVolume maps a volume to itself and to the nodes that it is attached to.
func keysOfVolume(s reconcile.Snapshot, was, now reconcile.Object) []events.Key {
	var all keys.Set
	addEverywhere(&all, s, keys.Newest(was, now).GetName())
	return all.All()
}

// keysOfClaim maps a claim whose volume changes to the volumes, and their nodes.
func keysOfClaim(s reconcile.Snapshot, was, now reconcile.Object) []events.Key {
	same := func(a, b *corev1.PersistentVolumeClaim) bool { return claim.Volume(a) == claim.Volume(b) }
	var all keys.Set
	for _, c := range keys.Sides(was, now, same) {
		addEverywhere(&all, s, claim.Volume(c))
	}
	return all.All()
}

// keysOfPod maps a pod that gets a node, or ends there, to the volumes behind its claims, and to
// the node.
func keysOfPod(s reconcile.Snapshot, was, now reconcile.Object) []events.Key {
	var all keys.Set
	for _, p := range keys.Sides(was, now, func(a, b *corev1.Pod) bool { return placed(a) == placed(b) }) {
		if p.Spec.NodeName != "" {
			addVolumesOf(&all, s, p)
		}
	}
	return all.All()
}

// addVolumesOf adds the volumes behind a pod's claims, and its node where there are any.
func addVolumesOf(all *keys.Set, s reconcile.Snapshot, p *corev1.Pod) {
	for i := range p.Spec.Volumes {
		name, _ := query.ClaimOf(p, &p.Spec.Volumes[i])
		if name == "" {
			continue
		}
		all.Add(keyOfNode(p.Spec.NodeName))
		if c, ok := reconcile.Get(s, kinds.PersistentVolumeClaims, p.Namespace, name); ok {
			all.Add(keyOfVolume(claim.Volume(c)))
		}
	}
}

// keysOfNode maps a node to itself if a relevant field changes, and to the volumes of its pods if
// attaching for it begins or ends to be this controller's task.
func keysOfNode(s reconcile.Snapshot, was, now reconcile.Object) []events.Key {
	before, _ := was.Object.(*corev1.Node)
	node, _ := now.Object.(*corev1.Node)
	if before != nil && node != nil && reflect.DeepEqual(standing(before), standing(node)) {
		return nil
	}
	var all keys.Set
	name := keys.Newest(was, now).GetName()
	all.Add(keyOfNode(name))
	if (before != nil && manages(before)) == (node != nil && manages(node)) {
		return all.All()
	}
	for _, p := range reconcile.List(s, kinds.Pods, "") {
		if p.Spec.NodeName == name && placed(p) {
			addVolumesOf(&all, s, p)
		}
	}
	return all.All()
}

// stand has the fields of a node that matter to its turns.
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
	var all keys.Set
	for _, obj := range []reconcile.Object{now, was} {
		a, ok := obj.Object.(*storagev1.VolumeAttachment)
		if !ok {
			continue
		}
		if name := a.Spec.Source.PersistentVolumeName; name != nil {
			all.Add(keyOfVolume(*name))
		}
		all.Add(keyOfNode(a.Spec.NodeName))
	}
	return all.All()
}

// keysOfDriver maps a driver to its volumes if it begins or ceases to need attaching.
func keysOfDriver(s reconcile.Snapshot, was, now reconcile.Object) []events.Key {
	before, _ := was.Object.(*storagev1.CSIDriver)
	driver, _ := now.Object.(*storagev1.CSIDriver)
	if (before == nil || attaches(before)) == (driver == nil || attaches(driver)) {
		return nil
	}
	name := keys.Newest(was, now).GetName()
	var all keys.Set
	for _, pv := range reconcile.List(s, kinds.PersistentVolumes, "") {
		if v, ok := csi.VolumeOf(pv); ok && v.Driver == name {
			addEverywhere(&all, s, pv.Name)
		}
	}
	return all.All()
}
