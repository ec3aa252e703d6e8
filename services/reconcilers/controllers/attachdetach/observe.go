package attachdetach

import (
	"encoding/json"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/services/reconcilers/kube/claim"
	"github.com/millrace/millrace/services/reconcilers/kube/csi"
	"github.com/millrace/millrace/services/reconcilers/reconcile"
)

// managed is the annotation of nodes whose kubelets leave attaching to this controller.
const managed = "volumes.kubernetes.io/controller-managed-attach-detach"

func observe(s reconcile.Snapshot, k events.Key) (View, bool) {
	if k.Kind == kinds.Nodes.Name {
		return observeNode(s, k)
	}
	pv, ok := reconcile.Get(s, kinds.PersistentVolumes, "", k.Name)
	if !ok {
		return View{}, false
	}
	volume, attachable := volumeOf(s, pv)
	if !attachable {
		return View{Volume: pv}, true
	}
	v := View{Volume: pv, Attachments: attachmentsOf(s, pv.Name)}
	for _, p := range users(s, pv) {
		if n, ok := reconcile.Get(s, kinds.Nodes, "", p.Spec.NodeName); !ok || !manages(n) {
			continue
		}
		v.Pods = append(v.Pods, p)
		if a, ok := reconcile.Get(s, kinds.VolumeAttachments, "", volume.Attachment(p.Spec.NodeName)); ok && !slices.Contains(v.Attachments, a) {
			v.Attachments = append(v.Attachments, a)
		}
	}
	for _, a := range v.Attachments {
		if n, ok := reconcile.Get(s, kinds.Nodes, "", a.Spec.NodeName); !ok || slices.Contains(n.Status.VolumesInUse, volume.Name()) && !outOfService(n) {
			v.Busy = append(v.Busy, a.Spec.NodeName)
		}
	}
	if last, ok := reconcile.LastOf(s, k, events.LaneStatus, pv); ok {
		v.Told = noted(last).Told
	}
	v.Asked = asked(s, k, v.Attachments)
	return v, true
}

// asked returns when the last turn created those of the attachments that it created.
func asked(s reconcile.Snapshot, k events.Key, of []*storagev1.VolumeAttachment) map[types.UID]time.Time {
	last, ok := reconcile.LastOfAny(s, k, events.LaneWrite)
	if !ok || last.Decided.IsZero() {
		return nil
	}
	all := map[types.UID]time.Time{}
	for _, r := range last.Results {
		made := func(a *storagev1.VolumeAttachment) bool { return a.UID == r.UID && r.Status == events.Applied }
		if slices.ContainsFunc(of, made) {
			all[r.UID] = last.Decided
		}
	}
	return all
}

// noted returns the note of the last report.
func noted(last events.Outcome) (n note) {
	for _, r := range last.Results {
		var one note
		if r.Answer == nil || json.Unmarshal(r.Answer.Note, &one) != nil {
			continue
		}
		n.Told, n.Leaving = append(n.Told, one.Told...), append(n.Leaving, one.Leaving...)
		for uid, since := range one.Since {
			if n.Since == nil {
				n.Since = map[types.UID]time.Time{}
			}
			n.Since[uid] = last.Noted(since)
		}
	}
	return n
}

func observeNode(s reconcile.Snapshot, k events.Key) (View, bool) {
	var v View
	if node, ok := reconcile.Get(s, kinds.Nodes, "", k.Name); ok {
		v.Node = node
	} else {
		v.Name = k.Name
	}
	if last, ok := reconcile.LastOfAny(s, k, events.LaneStatus); ok {
		n := noted(last)
		v.Since, v.Leaving = n.Since, n.Leaving
	}
	on := podsOn{node: k.Name}
	for _, a := range reconcile.List(s, kinds.VolumeAttachments, "") {
		if a.Spec.NodeName != k.Name {
			continue
		}
		// An attachment whose node has been given time, or that was about to be detached, is this
		// controller's, even if the volume is deleted and the node does not list it.
		h, ours := held(s, v.Node, a, &on)
		if _, waited := v.Since[a.UID]; ours || waited || slices.Contains(v.Leaving, a.UID) {
			v.Held = append(v.Held, h)
		}
	}
	return v, v.Node != nil || len(v.Held) > 0
}

// held returns the volume of an attachment; ok is false if its name is not in the form of this
// controller, so that it belongs to another program.
func held(s reconcile.Snapshot, node *corev1.Node, a *storagev1.VolumeAttachment, on *podsOn) (h Held, ok bool) {
	h = Held{Attachment: *a}
	source := a.Spec.Source
	var volume csi.Volume
	switch {
	case source.InlineVolumeSpec != nil && source.InlineVolumeSpec.CSI != nil:
		volume, h.Wanted = csi.Volume{Driver: source.InlineVolumeSpec.CSI.Driver, Handle: source.InlineVolumeSpec.CSI.VolumeHandle}, true
	case source.PersistentVolumeName == nil:
		return h, false
	default:
		pv, there := reconcile.Get(s, kinds.PersistentVolumes, "", *source.PersistentVolumeName)
		if !there {
			volume = listed(node, a)
			break
		}
		if volume, there = csi.VolumeOf(pv); !there {
			return h, false
		}
		_, attachable := volumeOf(s, pv)
		h.Wanted = attachable && on.use(s, pv)
	}
	h.Volume = volume.Name()
	return h, volume.Attachment(a.Spec.NodeName) == a.Name
}

// listed returns the volume in a node's status after which an attachment is named, and whose
// PersistentVolume is deleted.
func listed(node *corev1.Node, a *storagev1.VolumeAttachment) csi.Volume {
	if node == nil {
		return csi.Volume{}
	}
	names := slices.Clone(node.Status.VolumesInUse)
	for _, of := range node.Status.VolumesAttached {
		names = append(names, of.Name)
	}
	for _, name := range names {
		if volume, ok := csi.Named(name); ok && volume.Attachment(node.Name) == a.Name {
			return volume
		}
	}
	return csi.Volume{}
}

// volumeOf returns the volume in the form of its driver; ok is false if no CSI driver serves it, or
// the driver needs no attaching.
func volumeOf(s reconcile.Snapshot, pv *corev1.PersistentVolume) (v csi.Volume, ok bool) {
	if v, ok = csi.VolumeOf(pv); !ok {
		return v, false
	}
	driver, known := reconcile.Get(s, kinds.CSIDrivers, "", v.Driver)
	return v, !known || attaches(driver)
}

// attaches reports whether the volumes of a driver need attaching.
func attaches(driver *storagev1.CSIDriver) bool {
	return driver.Spec.AttachRequired == nil || *driver.Spec.AttachRequired
}

func manages(n *corev1.Node) bool {
	_, ok := n.Annotations[managed]
	return ok
}

// attachmentsOf returns the attachments of a volume.
func attachmentsOf(s reconcile.Snapshot, volume string) (of []*storagev1.VolumeAttachment) {
	for _, a := range reconcile.List(s, kinds.VolumeAttachments, "") {
		if name := a.Spec.Source.PersistentVolumeName; name != nil && *name == volume {
			of = append(of, a)
		}
	}
	return of
}

// users returns the pods with a node that use a volume and have not ended.
func users(s reconcile.Snapshot, pv *corev1.PersistentVolume) (pods []*corev1.Pod) {
	of := claim.Of(s, pv)
	if of == nil {
		return nil
	}
	for _, p := range reconcile.List(s, kinds.Pods, of.Namespace) {
		if placed(p) && uses(p, of) {
			pods = append(pods, p)
		}
	}
	return pods
}

func uses(p *corev1.Pod, of *corev1.PersistentVolumeClaim) bool {
	return slices.ContainsFunc(p.Spec.Volumes, func(v corev1.Volume) bool { return claim.Used(p, &v, of) })
}

// podsOn are the pods of one node that have not ended, by namespace. A node has an attachment for
// nearly every pod with a volume: each must not look at all pods.
type podsOn struct {
	node string
	in   map[string][]*corev1.Pod
}

// use reports whether one of the pods uses a volume.
func (on *podsOn) use(s reconcile.Snapshot, pv *corev1.PersistentVolume) bool {
	of := claim.Of(s, pv)
	if of == nil {
		return false
	}
	pods, known := on.in[of.Namespace]
	if !known {
		for _, p := range reconcile.List(s, kinds.Pods, of.Namespace) {
			if p.Spec.NodeName == on.node && placed(p) {
				pods = append(pods, p)
			}
		}
		if on.in == nil {
			on.in = map[string][]*corev1.Pod{}
		}
		on.in[of.Namespace] = pods
	}
	return slices.ContainsFunc(pods, func(p *corev1.Pod) bool { return uses(p, of) })
}

// placed reports whether a pod has a node and has not ended there.
//
// Upstream: pkg/volume/util, IsPodTerminated.
func placed(p *corev1.Pod) bool {
	ended := p.Status.Phase == corev1.PodFailed || p.Status.Phase == corev1.PodSucceeded ||
		p.DeletionTimestamp != nil && stopped(p.Status.InitContainerStatuses) && stopped(p.Status.ContainerStatuses) && stopped(p.Status.EphemeralContainerStatuses)
	return p.Spec.NodeName != "" && !ended
}

// stopped reports whether no container runs.
func stopped(containers []corev1.ContainerStatus) bool {
	return !slices.ContainsFunc(containers, func(c corev1.ContainerStatus) bool { return c.State.Terminated == nil && c.State.Waiting == nil })
}
