package storage

import (
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/services/reconcilers/kube/csi"
	"github.com/millrace/millrace/services/writer/plan"
	"github.com/millrace/millrace/test/sim/apiserver"
	"github.com/millrace/millrace/test/sim/cluster"
	"github.com/millrace/millrace/test/sim/nodes"
)

const attacherGuard = "external-attacher/example-com"

// kubeletActs reports whether the node exists and its kubelet runs.
func kubeletActs(w *cluster.Cluster, node string) bool {
	return w.API.Get(cluster.NodeRef(node)) != nil && !w.Store.Silent[node]
}

// StorageWork collects everything that drivers and kubelets could do now.
func StorageWork(w *cluster.Cluster) {
	for _, obj := range w.API.List(kinds.PersistentVolumeClaims.Name) {
		workOnClaim(w, obj.(*corev1.PersistentVolumeClaim))
	}
	for _, obj := range w.API.List(kinds.PersistentVolumes.Name) {
		pv := obj.(*corev1.PersistentVolume)
		gone := pv.Status.Phase == corev1.VolumeReleased && pv.Spec.PersistentVolumeReclaimPolicy == corev1.PersistentVolumeReclaimDelete && !ByHand(pv)
		if gone && pv.DeletionTimestamp == nil && len(attachmentsOf(w, pv.Name)) == 0 {
			w.Work = append(w.Work, func() { deleteStorage(w, pv) })
		}
	}
	for _, obj := range w.API.List(kinds.VolumeAttachments.Name) {
		workOnAttachment(w, obj.(*storagev1.VolumeAttachment))
	}
	for _, obj := range w.API.List(kinds.Nodes.Name) {
		workOnNode(w, obj.(*corev1.Node))
	}
}

// workOnClaim provisions the volume of a claim, or resizes it.
//
// Upstream: sigs.k8s.io/sig-storage-lib-external-provisioner, and external-resizer.
func workOnClaim(w *cluster.Cluster, c *corev1.PersistentVolumeClaim) {
	class, ref := "", apiserver.RefOf(kinds.PersistentVolumeClaims.Name, c)
	if c.Spec.StorageClassName != nil {
		class = *c.Spec.StorageClassName
	}
	of, known := classes[class]
	if known && c.Spec.VolumeName == "" && c.DeletionTimestamp == nil && c.Annotations[asksOf] != "" && (!of.late || c.Annotations[selected] != "") {
		if name := "pvc-" + string(c.UID); w.API.Get(VolumeRef(name)) == nil {
			w.Work = append(w.Work, func() { provision(w, name, class, c) })
		}
	}
	pv, there := w.API.Get(VolumeRef(c.Spec.VolumeName)).(*corev1.PersistentVolume)
	if !there || c.Status.Phase != corev1.ClaimBound {
		return
	}
	asked, has := SizeIn(c.Spec.Resources.Requests), SizeIn(pv.Spec.Capacity)
	switch {
	case asked > has && (pv.Spec.CSI != nil || c.Annotations[resizes] == ebs):
		cluster.Does(w, VolumeRef(pv.Name), "resizer: larger", func(obj metav1.Object) { obj.(*corev1.PersistentVolume).Spec.Capacity = c.Spec.Resources.Requests })
	case has > SizeIn(c.Status.Capacity):
		cluster.Does(w, ref, "resizer: has more", func(obj metav1.Object) { obj.(*corev1.PersistentVolumeClaim).Status.Capacity = pv.Spec.Capacity })
	}
}

// provision creates a volume for a claim.
func provision(w *cluster.Cluster, name, class string, c *corev1.PersistentVolumeClaim) {
	w.Note("provisioner: volume %s for %s", name, c.Name)
	pv := Volume(name, Driver, name, int(SizeIn(c.Spec.Resources.Requests)>>30))
	about := corev1.ObjectReference{APIVersion: "v1", Kind: "PersistentVolumeClaim", Namespace: c.Namespace, Name: c.Name, UID: c.UID, ResourceVersion: c.ResourceVersion}
	pv.Annotations = map[string]string{madeBy: classes[class].by}
	pv.Spec.AccessModes, pv.Spec.StorageClassName, pv.Spec.ClaimRef = c.Spec.AccessModes, class, &about
	pv.Spec.PersistentVolumeReclaimPolicy = corev1.PersistentVolumeReclaimDelete
	if classes[class].by == inTree {
		pv.Spec.PersistentVolumeSource = corev1.PersistentVolumeSource{AWSElasticBlockStore: &corev1.AWSElasticBlockStoreVolumeSource{VolumeID: "vol-" + string(c.UID)}}
	}
	w.Create(VolumeRef(name), pv)
}

// deleteStorage deletes the data of a released volume, and the volume.
func deleteStorage(w *cluster.Cluster, pv *corev1.PersistentVolume) {
	w.Note("provisioner: delete %s", pv.Name)
	claimedStill(w.Guard, pv, "its data are deleted")
	w.API.Do(plan.Request{Verb: plan.Delete, Kind: kinds.PersistentVolumes.Name, Name: pv.Name})
}

// workOnAttachment attaches and detaches.
//
// Upstream: external-attacher.
func workOnAttachment(w *cluster.Cluster, a *storagev1.VolumeAttachment) {
	ref, status := apiserver.RefOf(kinds.VolumeAttachments.Name, a), func(obj metav1.Object) *storagev1.VolumeAttachmentStatus {
		return &obj.(*storagev1.VolumeAttachment).Status
	}
	switch {
	case a.DeletionTimestamp != nil:
		w.Work = append(w.Work, func() { detach(w, a) })
	case len(a.Finalizers) == 0:
		cluster.Does(w, ref, "attacher: takes on", func(obj metav1.Object) { obj.SetFinalizers([]string{attacherGuard}) })
	case a.Status.Attached:
	case a.Status.AttachError == nil && w.Roll(6) == 1:
		cluster.Does(w, ref, "attacher: fails", func(obj metav1.Object) {
			w.Store.Uncertain[a.UID] = true
			status(obj).AttachError = &storagev1.VolumeError{Time: metav1.NewTime(w.Now.Truncate(time.Second)), Message: "busy"}
		})
	default:
		cluster.Does(w, ref, "attacher: attached", func(obj metav1.Object) { *status(obj) = storagev1.VolumeAttachmentStatus{Attached: true} })
	}
}

// detach detaches a volume from its node.
func detach(w *cluster.Cluster, a *storagev1.VolumeAttachment) {
	w.Note("attacher: %s is off %s", *a.Spec.Source.PersistentVolumeName, a.Spec.NodeName)
	detached(w.Guard, a)
	w.API.Change(apiserver.RefOf(kinds.VolumeAttachments.Name, a), func(obj metav1.Object) { obj.SetFinalizers(nil) })
}

func attachmentsOf(w *cluster.Cluster, volume string) (all []*storagev1.VolumeAttachment) {
	for _, obj := range w.API.List(kinds.VolumeAttachments.Name) {
		if a := obj.(*storagev1.VolumeAttachment); *a.Spec.Source.PersistentVolumeName == volume {
			all = append(all, a)
		}
	}
	return all
}

// workOnNode is the work of a kubelet besides its pods: it reports its status, unmounts volumes
// that no pod needs, and then reports that it does not use them.
func workOnNode(w *cluster.Cluster, n *corev1.Node) {
	ref := cluster.NodeRef(n.Name)
	if !kubeletActs(w, n.Name) {
		return
	}
	if n.Annotations[manages] == "" || nodes.Readiness(n) == nil {
		cluster.Does(w, ref, "kubelet: registers", func(obj metav1.Object) {
			obj.SetAnnotations(map[string]string{manages: "true"})
			nodes.Speak(w, obj.(*corev1.Node), corev1.ConditionTrue)
		})
		return
	}
	needed := map[corev1.UniqueVolumeName]bool{}
	for _, pod := range podsOn(w, n.Name) {
		for _, v := range volumesOf(w, pod) {
			needed[v] = needed[v] || needs(pod)
		}
	}
	for _, v := range sortedVolumes(w.Store.Mounted[n.Name]) {
		if !needed[v] && !w.Now.Before(w.Store.Busy[n.Name]) {
			w.Work = append(w.Work, func() { unmount(w, n.Name, v) })
		}
	}
	for _, v := range n.Status.VolumesInUse {
		if !needed[v] && !w.Store.Mounted[n.Name][v] {
			cluster.Does(w, ref, "kubelet: does not use "+string(v), func(obj metav1.Object) {
				s := &obj.(*corev1.Node).Status
				s.VolumesInUse = slices.DeleteFunc(slices.Clone(s.VolumesInUse), func(o corev1.UniqueVolumeName) bool { return o == v })
			})
		}
	}
}

func unmount(w *cluster.Cluster, node string, v corev1.UniqueVolumeName) {
	w.Note("kubelet: %s is unmounted on %s", v, node)
	delete(w.Store.Mounted[node], v)
	w.Dirty = true
}

// Due considers when kubelets have finished what delays their unmounts.
func Due(s *cluster.Drivers, consider func(time.Time)) {
	if s == nil {
		return
	}
	for _, until := range s.Busy {
		consider(until)
	}
}

// Passed lets those kubelets continue.
func Passed(s *cluster.Drivers) {
	if s == nil {
		return
	}
	for node, until := range s.Busy {
		if !s.World.Now.Before(until) {
			delete(s.Busy, node)
			s.World.Dirty = true
		}
	}
}

func sortedVolumes(all map[corev1.UniqueVolumeName]bool) (names []corev1.UniqueVolumeName) {
	for name := range all {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

func podsOn(w *cluster.Cluster, node string) (all []*corev1.Pod) {
	for _, obj := range w.API.List(kinds.Pods.Name) {
		if pod := obj.(*corev1.Pod); pod.Spec.NodeName == node {
			all = append(all, pod)
		}
	}
	return all
}

// volumeBehind is the volume of a bound claim; nil if it has none.
func volumeBehind(w *cluster.Cluster, claim string) *corev1.PersistentVolume {
	c, ok := w.API.Get(ClaimRefOf(claim)).(*corev1.PersistentVolumeClaim)
	if !ok || c.Status.Phase != corev1.ClaimBound {
		return nil
	}
	pv, _ := w.API.Get(VolumeRef(c.Spec.VolumeName)).(*corev1.PersistentVolume)
	if pv == nil || pv.Spec.ClaimRef == nil || pv.Spec.ClaimRef.UID != c.UID {
		return nil
	}
	return pv
}

// volumesOf are the names, in the form of node statuses, of the volumes of a pod.
func volumesOf(w *cluster.Cluster, pod *corev1.Pod) (all []corev1.UniqueVolumeName) {
	for _, v := range pod.Spec.Volumes {
		if pv := volumeBehind(w, v.PersistentVolumeClaim.ClaimName); pv != nil {
			all = append(all, nameOf(pv))
		}
	}
	return all
}

func nameOf(pv *corev1.PersistentVolume) corev1.UniqueVolumeName {
	v, _ := csi.VolumeOf(pv)
	return v.Name()
}

// needs reports whether a pod may use its volumes: it has not ended, or is still terminating.
func needs(pod *corev1.Pod) bool {
	return pod.Status.Phase != corev1.PodSucceeded && pod.Status.Phase != corev1.PodFailed && (pod.DeletionTimestamp == nil || nodes.Working(pod))
}

// WorkOnPod has the scheduler and the kubelet act on a pod that uses claims.
func WorkOnPod(w *cluster.Cluster, pod *corev1.Pod, ref events.Ref) {
	node := pod.Spec.NodeName
	switch {
	case node == "":
		placeByStorage(w, pod, ref)
	case !kubeletActs(w, node):
	case pod.DeletionTimestamp != nil && nodes.Working(pod):
		cluster.Does(w, ref, "kubelet: killed", func(obj metav1.Object) { nodes.Ended(w, obj, obj.(*corev1.Pod).Status.Phase, 137) })
	case pod.DeletionTimestamp != nil:
		if !slices.ContainsFunc(volumesOf(w, pod), func(v corev1.UniqueVolumeName) bool { return mountedFor(w, pod, v) }) {
			w.Work = append(w.Work, func() { w.Note("kubelet: %s is gone", pod.Name); w.API.Finish(ref) })
		}
	case pod.Status.Phase == corev1.PodPending:
		start(w, pod, ref)
	}
}

// mountedFor reports whether a volume is mounted for this pod only.
func mountedFor(w *cluster.Cluster, pod *corev1.Pod, v corev1.UniqueVolumeName) bool {
	return w.Store.Mounted[pod.Spec.NodeName][v] && !slices.ContainsFunc(podsOn(w, pod.Spec.NodeName), func(o *corev1.Pod) bool {
		return o.UID != pod.UID && needs(o) && slices.Contains(volumesOf(w, o), v)
	})
}

// start has a kubelet report that it uses the volumes of a pod, mount those that the node's
// status lists as attached, and run the pod.
//
// Upstream: pkg/kubelet/volumemanager, WaitForAttachAndMount, and VerifyControllerAttachedVolume.
func start(w *cluster.Cluster, pod *corev1.Pod, ref events.Ref) {
	n := w.API.Get(cluster.NodeRef(pod.Spec.NodeName)).(*corev1.Node)
	all := volumesOf(w, pod)
	ready := len(all) == len(pod.Spec.Volumes)
	for _, v := range all {
		switch listed := slices.ContainsFunc(n.Status.VolumesAttached, func(a corev1.AttachedVolume) bool { return a.Name == v }); {
		case w.Store.Mounted[n.Name][v]:
			continue
		case !slices.Contains(n.Status.VolumesInUse, v):
			cluster.Does(w, cluster.NodeRef(n.Name), "kubelet: uses "+string(v), func(obj metav1.Object) {
				s := &obj.(*corev1.Node).Status
				s.VolumesInUse = append(slices.Clone(s.VolumesInUse), v)
			})
		case listed:
			w.Work = append(w.Work, func() { mount(w, n.Name, v) })
		}
		ready = false
	}
	if ready {
		cluster.Does(w, ref, "kubelet: runs", func(obj metav1.Object) {
			nodes.Run(w, obj)
			obj.(*corev1.Pod).Status.ContainerStatuses = []corev1.ContainerStatus{{Name: "main", State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}}}
		})
	}
}

func mount(w *cluster.Cluster, node string, v corev1.UniqueVolumeName) {
	w.Note("kubelet: %s is mounted on %s", v, node)
	if w.Store.Mounted[node] == nil {
		w.Store.Mounted[node] = map[corev1.UniqueVolumeName]bool{}
	}
	w.Store.Mounted[node][v] = true
	w.Dirty = true
}

// placeByStorage assigns a node to a pod once its claims have volumes. For a claim that waits
// for a pod it first selects a node, or binds an existing volume.
//
// Upstream: pkg/scheduler/framework/plugins/volumebinding.
func placeByStorage(w *cluster.Cluster, pod *corev1.Pod, ref events.Ref) {
	var candidates []string
	for _, obj := range w.API.List(kinds.Nodes.Name) {
		if n := obj.(*corev1.Node); kubeletActs(w, n.Name) && nodes.Readiness(n) != nil {
			candidates = append(candidates, n.Name)
		}
	}
	if len(candidates) == 0 || pod.DeletionTimestamp != nil {
		return
	}
	node, bound := candidates[w.Roll(len(candidates))], true
	for _, v := range pod.Spec.Volumes {
		c, ok := w.API.Get(ClaimRefOf(v.PersistentVolumeClaim.ClaimName)).(*corev1.PersistentVolumeClaim)
		switch {
		case !ok || c.DeletionTimestamp != nil:
			return
		case c.Status.Phase == corev1.ClaimBound:
			continue
		case c.Spec.StorageClassName != nil && *c.Spec.StorageClassName == "late" && c.Spec.VolumeName == "" && c.Annotations[selected] == "":
			choose(w, c, node)
		}
		bound = false
	}
	if bound {
		cluster.Does(w, ref, "scheduler: on "+node, func(obj metav1.Object) { obj.(*corev1.Pod).Spec.NodeName = node })
	}
}

// choose binds a volume to a claim that waits for a pod, or has one provisioned.
func choose(w *cluster.Cluster, c *corev1.PersistentVolumeClaim, node string) {
	some := anyVolume(w, func(pv *corev1.PersistentVolume) bool { return free(pv) && fits(pv, c) })
	held := anyVolume(w, func(pv *corev1.PersistentVolume) bool { return reservedFor(pv, c) && fits(pv, c) })
	switch {
	case held != nil: // it will be the claim's in a moment, or not
	case some != nil:
		cluster.Does(w, VolumeRef(some.Name), "scheduler: for "+c.Name, func(obj metav1.Object) {
			pv := obj.(*corev1.PersistentVolume)
			pv.Spec.ClaimRef = &corev1.ObjectReference{APIVersion: "v1", Kind: "PersistentVolumeClaim", Namespace: c.Namespace, Name: c.Name, UID: c.UID}
			pv.Annotations = map[string]string{"pv.kubernetes.io/bound-by-controller": "yes"}
		})
	default:
		cluster.Does(w, apiserver.RefOf(kinds.PersistentVolumeClaims.Name, c), "scheduler: on "+node, func(obj metav1.Object) {
			notes := map[string]string{selected: node}
			for name, value := range obj.GetAnnotations() {
				notes[name] = value
			}
			obj.SetAnnotations(notes)
		})
	}
}

// Restored makes kubelets adopt the statuses of their nodes after a restore.
func Restored(s *cluster.Drivers) {
	if s == nil {
		return
	}
	was := s.Mounted
	s.Mounted = map[string]map[corev1.UniqueVolumeName]bool{}
	for _, obj := range s.World.API.List(kinds.Nodes.Name) {
		n := obj.(*corev1.Node)
		for _, v := range n.Status.VolumesInUse {
			attached := slices.ContainsFunc(s.World.API.List(kinds.VolumeAttachments.Name), func(obj metav1.Object) bool {
				a, volume := obj.(*storagev1.VolumeAttachment), volumeCalled(v)
				return a.Spec.NodeName == n.Name && volume.Attachment(n.Name) == a.Name && a.Status.Attached && a.DeletionTimestamp == nil
			})
			listed := slices.ContainsFunc(n.Status.VolumesAttached, func(a corev1.AttachedVolume) bool { return a.Name == v })
			if was[n.Name][v] && attached && listed {
				mount(s.World, n.Name, v)
			}
		}
		s.Silent[n.Name] = nodes.Readiness(n) != nil && !nodes.WellSaid(n)
	}
	Wants(s) // an attachment that the restore made unwanted is so from now on: time does not go back
}

func volumeCalled(name corev1.UniqueVolumeName) csi.Volume {
	v, _ := csi.Named(name)
	return v
}

// Wants records since when no pod wants each attachment.
func Wants(s *cluster.Drivers) {
	for _, obj := range s.World.API.List(kinds.VolumeAttachments.Name) {
		a := obj.(*storagev1.VolumeAttachment)
		if wantedOn(s.World, a) {
			delete(s.Unwanted, a.UID)
		} else if _, known := s.Unwanted[a.UID]; !known {
			s.Unwanted[a.UID] = s.World.Now
		}
	}
}

// wantedOn reports whether a pod on the node of an attachment uses its volume.
func wantedOn(w *cluster.Cluster, a *storagev1.VolumeAttachment) bool {
	pv, ok := w.API.Get(VolumeRef(*a.Spec.Source.PersistentVolumeName)).(*corev1.PersistentVolume)
	return ok && slices.ContainsFunc(podsOn(w, a.Spec.NodeName), func(pod *corev1.Pod) bool {
		return needs(pod) && slices.Contains(volumesOf(w, pod), nameOf(pv))
	})
}
