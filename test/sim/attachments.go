package sim

import (
	"encoding/json"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/millrace/millrace/pkg/events/kinds"
)

// Rules about attached volumes: V3 to V5.

// letGo is how long the controller waits for a node that is not ready to unmount a volume.
//
// Upstream: pkg/controller/volume/attachdetach, DefaultTimerConfig.
const letGo = 6 * time.Minute

// detaches checks a volume that is about to be detached. Its node must not use it, neither by
// its mounts nor by its status as seen, unless the node is out of service, or has not been
// ready for the waiting time. If the log has lost what was seen of the node, its real status counts.
func (g *guard) detaches(c *carrying, a *storagev1.VolumeAttachment) {
	w := g.world
	pv, _ := w.api.Get(volumeRef(*a.Spec.Source.PersistentVolumeName)).(*corev1.PersistentVolume)
	seen, known := g.objectOf(c.turn, kinds.Nodes.Kind, nodeRef(a.Spec.NodeName)).(*corev1.Node)
	if g.lostSince(c.turn, kinds.Nodes.Name) {
		seen, known = w.api.Get(nodeRef(a.Spec.NodeName)).(*corev1.Node)
	}
	mounted := pv != nil && w.store.mounted[a.Spec.NodeName][nameOf(pv)]
	used := mounted || pv != nil && known && slices.Contains(seen.Status.VolumesInUse, nameOf(pv))
	g.unlisted(c, a, pv)
	if !used && known {
		return
	}
	since, unwanted := w.store.unwanted[a.UID]
	switch n, _ := w.api.Get(nodeRef(a.Spec.NodeName)).(*corev1.Node); {
	case known && silenced(seen) || n != nil && silenced(n):
	case known && wellSaid(seen):
		g.breaks("V3", "turn %d detaches %s from %s, which is ready and uses it (mounted %v)", c.sequence, *a.Spec.Source.PersistentVolumeName, a.Spec.NodeName, mounted)
	case unwanted && w.now.Sub(since) >= letGo:
	case g.passed(c.turn, letGo):
		g.spare(clockAhead)
	case used || n == nil:
		g.breaks("V3", "turn %d detaches %s from %s, where no pod has wanted it since %v (%v)", c.sequence, *a.Spec.Source.PersistentVolumeName, a.Spec.NodeName, since, unwanted)
	}
	if mounted {
		w.store.torn[a.UID] = true
	}
}

// unlisted checks the node of a volume that is about to be detached: its status must not list
// the volume as attached any more, since the kubelet may mount a listed volume at any moment.
//
// Upstream: pkg/controller/volume/attachdetach/reconciler, and issue 27836 of Kubernetes.
func (g *guard) unlisted(c *carrying, a *storagev1.VolumeAttachment, pv *corev1.PersistentVolume) {
	n, _ := g.world.api.Get(nodeRef(a.Spec.NodeName)).(*corev1.Node)
	if n == nil || pv == nil {
		return
	}
	if slices.ContainsFunc(n.Status.VolumesAttached, func(v corev1.AttachedVolume) bool { return v.Name == nameOf(pv) }) {
		g.breaks("V5", "turn %d detaches %s from %s, whose status lists it as attached", c.sequence, pv.Name, n.Name)
	}
}

// detached checks a volume that is being detached.
func (g *guard) detached(a *storagev1.VolumeAttachment) {
	pv, _ := g.world.api.Get(volumeRef(*a.Spec.Source.PersistentVolumeName)).(*corev1.PersistentVolume)
	if pv == nil || !g.world.store.mounted[a.Spec.NodeName][nameOf(pv)] {
		return
	}
	if !g.world.store.torn[a.UID] {
		g.breaks("V3", "%s is detached from %s, which has it mounted", pv.Name, a.Spec.NodeName)
	}
	delete(g.world.store.mounted[a.Spec.NodeName], nameOf(pv))
}

// exclusive reports whether a volume may be attached to only one node at a time.
func exclusive(pv *corev1.PersistentVolume) bool {
	return !slices.Contains(pv.Spec.AccessModes, corev1.ReadWriteMany)
}

// attaches checks a volume that is being attached, by the real state: an exclusive volume is
// attached to no other node.
func (g *guard) attaches(old, now metav1.Object) {
	a, ok := now.(*storagev1.VolumeAttachment)
	if !ok || old != nil || g.restoring || g.doing == nil {
		return
	}
	pv, ok := g.world.api.Get(volumeRef(*a.Spec.Source.PersistentVolumeName)).(*corev1.PersistentVolume)
	if !ok || !exclusive(pv) {
		return
	}
	for _, other := range g.world.attachmentsOf(pv.Name) {
		switch {
		case other.UID == a.UID:
		case g.world.store.uncertain[other.UID]:
			g.spare(uncertainAttach)
		default:
			g.breaks("V4", "%s is attached to %s, and to %s (attached %v)", pv.Name, a.Spec.NodeName, other.Spec.NodeName, other.Status.Attached)
		}
	}
}

// attachingJudged judges the attachments of a turn: the view has a pod on the node that wants
// the volume.
func attachingJudged(l *look, f findings) {
	for _, c := range l.creates(kinds.VolumeAttachments.Name) {
		var a storagev1.VolumeAttachment
		if json.Unmarshal(c.Body, &a) != nil || a.Spec.Source.PersistentVolumeName == nil {
			f.breaks("V4", "asks for an attachment of nothing")
			continue
		}
		wanted := slices.ContainsFunc(l.list(kinds.Pods.Name), func(obj metav1.Object) bool {
			pod := obj.(*corev1.Pod)
			return pod.Spec.NodeName == a.Spec.NodeName && needs(pod) && slices.ContainsFunc(pod.Spec.Volumes, func(v corev1.Volume) bool {
				claim, _ := l.get(claimRefOf(v.PersistentVolumeClaim.ClaimName)).(*corev1.PersistentVolumeClaim)
				return claim != nil && claim.Spec.VolumeName == *a.Spec.Source.PersistentVolumeName && claim.Status.Phase == corev1.ClaimBound
			})
		})
		if !wanted {
			f.breaks("V4", "attaches %s to %s, where no pod wants it", *a.Spec.Source.PersistentVolumeName, a.Spec.NodeName)
		}
	}
}

// attachedAsWanted reports whether volumes are attached where pods want them and nowhere else,
// and the pods run.
func (w *World) attachedAsWanted() error {
	for _, obj := range w.api.List(kinds.VolumeAttachments.Name) {
		a := obj.(*storagev1.VolumeAttachment)
		n, _ := w.api.Get(nodeRef(a.Spec.NodeName)).(*corev1.Node)
		switch {
		case n != nil && n.Annotations[manages] == "": // its kubelet attaches and detaches itself
		case n != nil && !w.wanted(a):
			return fmt.Errorf("%s is attached to %s, where no pod wants it", *a.Spec.Source.PersistentVolumeName, a.Spec.NodeName)
		case n == nil:
			return fmt.Errorf("%s is attached to %s, which is gone", *a.Spec.Source.PersistentVolumeName, a.Spec.NodeName)
		}
	}
	for _, obj := range w.api.List(kinds.Pods.Name) {
		pod := obj.(*corev1.Pod)
		if pod.Spec.NodeName == "" || pod.Status.Phase != corev1.PodPending || pod.DeletionTimestamp != nil || !w.kubeletActs(pod.Spec.NodeName) || len(w.volumesOf(pod)) < len(pod.Spec.Volumes) {
			continue
		}
		if !slices.ContainsFunc(pod.Spec.Volumes, func(v corev1.Volume) bool { return w.elsewhere(pod, w.volumeBehind(v.PersistentVolumeClaim.ClaimName)) }) {
			return fmt.Errorf("pod %s waits on %s for volumes that could be there", pod.Name, pod.Spec.NodeName)
		}
	}
	return nil
}

// elsewhere reports whether an exclusive volume is attached to another node than a pod's.
func (w *World) elsewhere(pod *corev1.Pod, pv *corev1.PersistentVolume) bool {
	return exclusive(pv) && slices.ContainsFunc(w.attachmentsOf(pv.Name), func(a *storagev1.VolumeAttachment) bool { return a.Spec.NodeName != pod.Spec.NodeName })
}

// leavesStorage handles the deletion of a node, whose machine is gone too.
func (g *guard) leavesStorage(old, now metav1.Object) {
	if store := g.world.store; store != nil && now == nil && old != nil && !g.restoring {
		delete(store.mounted, old.GetName())
		delete(store.silent, old.GetName())
		delete(store.busy, old.GetName())
	}
}
