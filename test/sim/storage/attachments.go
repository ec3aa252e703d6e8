package storage

import (
	"encoding/json"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/test/sim/cluster"
	"github.com/millrace/millrace/test/sim/nodes"
)

// Rules about attached volumes: V3 to V5.

// LetGo is how long the controller waits for a node that is not ready to unmount a volume.
//
// Upstream: pkg/controller/volume/attachdetach, DefaultTimerConfig.
const LetGo = 6 * time.Minute

// Detaches checks a volume that is about to be detached. Its node must not use it, neither by
// its mounts nor by its status as seen, unless the node is out of service, or has not been
// ready for the waiting time. If the log has lost what was seen of the node, its real status counts.
func Detaches(g *cluster.Guard, c *cluster.Taken, a *storagev1.VolumeAttachment) {
	w := g.World
	pv, _ := w.API.Get(VolumeRef(*a.Spec.Source.PersistentVolumeName)).(*corev1.PersistentVolume)
	seen, known := g.ObjectOf(c.Turn, kinds.Nodes.Kind, cluster.NodeRef(a.Spec.NodeName)).(*corev1.Node)
	if g.LostSince(c.Turn, kinds.Nodes.Name) {
		seen, known = w.API.Get(cluster.NodeRef(a.Spec.NodeName)).(*corev1.Node)
	}
	mounted := pv != nil && w.Store.Mounted[a.Spec.NodeName][nameOf(pv)]
	used := mounted || pv != nil && known && slices.Contains(seen.Status.VolumesInUse, nameOf(pv))
	unlisted(g, c, a, pv)
	if !used && known {
		return
	}
	since, unwanted := w.Store.Unwanted[a.UID]
	switch n, _ := w.API.Get(cluster.NodeRef(a.Spec.NodeName)).(*corev1.Node); {
	case known && nodes.Silenced(seen) || n != nil && nodes.Silenced(n):
	case known && nodes.WellSaid(seen):
		g.Breaks("V3", "turn %d detaches %s from %s, which is ready and uses it (mounted %v)", c.Sequence, *a.Spec.Source.PersistentVolumeName, a.Spec.NodeName, mounted)
	case unwanted && w.Now.Sub(since) >= LetGo:
	case g.Passed(c.Turn, LetGo):
		g.Spare(cluster.ClockAhead)
	case used || n == nil:
		g.Breaks("V3", "turn %d detaches %s from %s, where no pod has wanted it since %v (%v)", c.Sequence, *a.Spec.Source.PersistentVolumeName, a.Spec.NodeName, since, unwanted)
	}
	if mounted {
		w.Store.Torn[a.UID] = true
	}
}

// unlisted checks the node of a volume that is about to be detached: its status must not list
// the volume as attached any more, since the kubelet may mount a listed volume at any moment.
//
// Upstream: pkg/controller/volume/attachdetach/reconciler, and issue 27836 of Kubernetes.
func unlisted(g *cluster.Guard, c *cluster.Taken, a *storagev1.VolumeAttachment, pv *corev1.PersistentVolume) {
	n, _ := g.World.API.Get(cluster.NodeRef(a.Spec.NodeName)).(*corev1.Node)
	if n == nil || pv == nil {
		return
	}
	if slices.ContainsFunc(n.Status.VolumesAttached, func(v corev1.AttachedVolume) bool { return v.Name == nameOf(pv) }) {
		g.Breaks("V5", "turn %d detaches %s from %s, whose status lists it as attached", c.Sequence, pv.Name, n.Name)
	}
}

// detached checks a volume that is being detached.
func detached(g *cluster.Guard, a *storagev1.VolumeAttachment) {
	pv, _ := g.World.API.Get(VolumeRef(*a.Spec.Source.PersistentVolumeName)).(*corev1.PersistentVolume)
	if pv == nil || !g.World.Store.Mounted[a.Spec.NodeName][nameOf(pv)] {
		return
	}
	if !g.World.Store.Torn[a.UID] {
		g.Breaks("V3", "%s is detached from %s, which has it mounted", pv.Name, a.Spec.NodeName)
	}
	delete(g.World.Store.Mounted[a.Spec.NodeName], nameOf(pv))
}

// exclusive reports whether a volume may be attached to only one node at a time.
func exclusive(pv *corev1.PersistentVolume) bool {
	return !slices.Contains(pv.Spec.AccessModes, corev1.ReadWriteMany)
}

// Attaches checks a volume that is being attached, by the real state: an exclusive volume is
// attached to no other node.
func Attaches(g *cluster.Guard, old, now metav1.Object) {
	a, ok := now.(*storagev1.VolumeAttachment)
	if !ok || old != nil || g.Record.Restoring || g.Turns.Doing == nil {
		return
	}
	pv, ok := g.World.API.Get(VolumeRef(*a.Spec.Source.PersistentVolumeName)).(*corev1.PersistentVolume)
	if !ok || !exclusive(pv) {
		return
	}
	for _, other := range attachmentsOf(g.World, pv.Name) {
		switch {
		case other.UID == a.UID:
		case g.World.Store.Uncertain[other.UID]:
			g.Spare(cluster.UncertainAttach)
		default:
			g.Breaks("V4", "%s is attached to %s, and to %s (attached %v)", pv.Name, a.Spec.NodeName, other.Spec.NodeName, other.Status.Attached)
		}
	}
}

// AttachingJudged judges the attachments of a turn: the view has a pod on the node that wants
// the volume.
func AttachingJudged(l *cluster.Look, f cluster.Findings) {
	for _, c := range l.Creates(kinds.VolumeAttachments.Name) {
		var a storagev1.VolumeAttachment
		if json.Unmarshal(c.Body, &a) != nil || a.Spec.Source.PersistentVolumeName == nil {
			f.Breaks("V4", "asks for an attachment of nothing")
			continue
		}
		wanted := slices.ContainsFunc(l.List(kinds.Pods.Name), func(obj metav1.Object) bool {
			pod := obj.(*corev1.Pod)
			return pod.Spec.NodeName == a.Spec.NodeName && needs(pod) && slices.ContainsFunc(pod.Spec.Volumes, func(v corev1.Volume) bool {
				claim, _ := l.Get(ClaimRefOf(v.PersistentVolumeClaim.ClaimName)).(*corev1.PersistentVolumeClaim)
				return claim != nil && claim.Spec.VolumeName == *a.Spec.Source.PersistentVolumeName && claim.Status.Phase == corev1.ClaimBound
			})
		})
		if !wanted {
			f.Breaks("V4", "attaches %s to %s, where no pod wants it", *a.Spec.Source.PersistentVolumeName, a.Spec.NodeName)
		}
	}
}

// attachedAsWanted reports whether volumes are attached where pods want them and nowhere else,
// and the pods run.
func attachedAsWanted(w *cluster.Cluster) error {
	for _, obj := range w.API.List(kinds.VolumeAttachments.Name) {
		a := obj.(*storagev1.VolumeAttachment)
		n, _ := w.API.Get(cluster.NodeRef(a.Spec.NodeName)).(*corev1.Node)
		switch {
		case n != nil && n.Annotations[manages] == "": // its kubelet attaches and detaches itself
		case n != nil && !wantedOn(w, a):
			return fmt.Errorf("%s is attached to %s, where no pod wants it", *a.Spec.Source.PersistentVolumeName, a.Spec.NodeName)
		case n == nil:
			return fmt.Errorf("%s is attached to %s, which is gone", *a.Spec.Source.PersistentVolumeName, a.Spec.NodeName)
		}
	}
	for _, obj := range w.API.List(kinds.Pods.Name) {
		pod := obj.(*corev1.Pod)
		if pod.Spec.NodeName == "" || pod.Status.Phase != corev1.PodPending || pod.DeletionTimestamp != nil || !kubeletActs(w, pod.Spec.NodeName) || len(volumesOf(w, pod)) < len(pod.Spec.Volumes) {
			continue
		}
		if !slices.ContainsFunc(pod.Spec.Volumes, func(v corev1.Volume) bool {
			return elsewhere(w, pod, volumeBehind(w, v.PersistentVolumeClaim.ClaimName))
		}) {
			return fmt.Errorf("pod %s waits on %s for volumes that could be there", pod.Name, pod.Spec.NodeName)
		}
	}
	return nil
}

// elsewhere reports whether an exclusive volume is attached to another node than a pod's.
func elsewhere(w *cluster.Cluster, pod *corev1.Pod, pv *corev1.PersistentVolume) bool {
	return exclusive(pv) && slices.ContainsFunc(attachmentsOf(w, pv.Name), func(a *storagev1.VolumeAttachment) bool { return a.Spec.NodeName != pod.Spec.NodeName })
}

// LeavesStorage handles the deletion of a node, whose machine is gone too.
func LeavesStorage(g *cluster.Guard, old, now metav1.Object) {
	if store := g.World.Store; store != nil && now == nil && old != nil && !g.Record.Restoring {
		delete(store.Mounted, old.GetName())
		delete(store.Silent, old.GetName())
		delete(store.Busy, old.GetName())
	}
}
