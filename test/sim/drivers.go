package sim

import (
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/services/reconcilers/kube/csi"
	"github.com/millrace/millrace/services/writer/plan"
)

// drivers are the provisioner, the attacher and the resizer of storage drivers, the kubelets
// and the scheduler, with the state that no object has: which volumes are mounted where.
type drivers struct {
	world   *World
	mounted map[string]map[corev1.UniqueVolumeName]bool // by node
	silent  map[string]bool                             // kubelets that are stopped
	busy    map[string]time.Time                        // until when a kubelet unmounts nothing

	// unwanted is since when no pod wants an attachment, torn the attachments that were deleted
	// under a mount by a rule that allows it, and uncertain those that the driver once failed
	// to make.
	unwanted  map[types.UID]time.Time
	torn      map[types.UID]bool
	uncertain map[types.UID]bool
}

const attacherGuard = "external-attacher/example-com"

func newDrivers(w *World) *drivers {
	return &drivers{
		world: w, mounted: map[string]map[corev1.UniqueVolumeName]bool{}, silent: map[string]bool{}, busy: map[string]time.Time{},
		unwanted: map[types.UID]time.Time{}, torn: map[types.UID]bool{}, uncertain: map[types.UID]bool{},
	}
}

// does adds a possible next step.
func (w *World) does(ref events.Ref, note string, change func(metav1.Object)) {
	w.work = append(w.work, func() { w.note("%s: %v", note, ref); w.api.Change(ref, change) })
}

// kubeletActs reports whether the node exists and its kubelet runs.
func (w *World) kubeletActs(node string) bool {
	return w.api.Get(nodeRef(node)) != nil && !w.store.silent[node]
}

// storageWork collects everything that drivers and kubelets could do now.
func (w *World) storageWork() {
	for _, obj := range w.api.List(kinds.PersistentVolumeClaims.Name) {
		w.workOnClaim(obj.(*corev1.PersistentVolumeClaim))
	}
	for _, obj := range w.api.List(kinds.PersistentVolumes.Name) {
		pv := obj.(*corev1.PersistentVolume)
		gone := pv.Status.Phase == corev1.VolumeReleased && pv.Spec.PersistentVolumeReclaimPolicy == corev1.PersistentVolumeReclaimDelete && !byHand(pv)
		if gone && pv.DeletionTimestamp == nil && len(w.attachmentsOf(pv.Name)) == 0 {
			w.work = append(w.work, func() { w.deleteStorage(pv) })
		}
	}
	for _, obj := range w.api.List(kinds.VolumeAttachments.Name) {
		w.workOnAttachment(obj.(*storagev1.VolumeAttachment))
	}
	for _, obj := range w.api.List(kinds.Nodes.Name) {
		w.workOnNode(obj.(*corev1.Node))
	}
}

// workOnClaim provisions the volume of a claim, or resizes it.
//
// Upstream: sigs.k8s.io/sig-storage-lib-external-provisioner, and external-resizer.
func (w *World) workOnClaim(c *corev1.PersistentVolumeClaim) {
	class, ref := "", refOf(kinds.PersistentVolumeClaims.Name, c)
	if c.Spec.StorageClassName != nil {
		class = *c.Spec.StorageClassName
	}
	of, known := classes[class]
	if known && c.Spec.VolumeName == "" && c.DeletionTimestamp == nil && c.Annotations[asksOf] != "" && (!of.late || c.Annotations[selected] != "") {
		if name := "pvc-" + string(c.UID); w.api.Get(volumeRef(name)) == nil {
			w.work = append(w.work, func() { w.provision(name, class, c) })
		}
	}
	pv, there := w.api.Get(volumeRef(c.Spec.VolumeName)).(*corev1.PersistentVolume)
	if !there || c.Status.Phase != corev1.ClaimBound {
		return
	}
	asked, has := sizeIn(c.Spec.Resources.Requests), sizeIn(pv.Spec.Capacity)
	switch {
	case asked > has && (pv.Spec.CSI != nil || c.Annotations[resizes] == ebs):
		w.does(volumeRef(pv.Name), "resizer: larger", func(obj metav1.Object) { obj.(*corev1.PersistentVolume).Spec.Capacity = c.Spec.Resources.Requests })
	case has > sizeIn(c.Status.Capacity):
		w.does(ref, "resizer: has more", func(obj metav1.Object) { obj.(*corev1.PersistentVolumeClaim).Status.Capacity = pv.Spec.Capacity })
	}
}

// provision creates a volume for a claim.
func (w *World) provision(name, class string, c *corev1.PersistentVolumeClaim) {
	w.note("provisioner: volume %s for %s", name, c.Name)
	pv := volume(name, driver, name, int(sizeIn(c.Spec.Resources.Requests)>>30))
	about := corev1.ObjectReference{APIVersion: "v1", Kind: "PersistentVolumeClaim", Namespace: c.Namespace, Name: c.Name, UID: c.UID, ResourceVersion: c.ResourceVersion}
	pv.Annotations = map[string]string{madeBy: classes[class].by}
	pv.Spec.AccessModes, pv.Spec.StorageClassName, pv.Spec.ClaimRef = c.Spec.AccessModes, class, &about
	pv.Spec.PersistentVolumeReclaimPolicy = corev1.PersistentVolumeReclaimDelete
	if classes[class].by == inTree {
		pv.Spec.PersistentVolumeSource = corev1.PersistentVolumeSource{AWSElasticBlockStore: &corev1.AWSElasticBlockStoreVolumeSource{VolumeID: "vol-" + string(c.UID)}}
	}
	w.create(volumeRef(name), pv)
}

// deleteStorage deletes the data of a released volume, and the volume.
func (w *World) deleteStorage(pv *corev1.PersistentVolume) {
	w.note("provisioner: delete %s", pv.Name)
	w.guard.claimedStill(pv, "its data are deleted")
	w.api.Do(plan.Request{Verb: plan.Delete, Kind: kinds.PersistentVolumes.Name, Name: pv.Name})
}

// workOnAttachment attaches and detaches.
//
// Upstream: external-attacher.
func (w *World) workOnAttachment(a *storagev1.VolumeAttachment) {
	ref, status := refOf(kinds.VolumeAttachments.Name, a), func(obj metav1.Object) *storagev1.VolumeAttachmentStatus {
		return &obj.(*storagev1.VolumeAttachment).Status
	}
	switch {
	case a.DeletionTimestamp != nil:
		w.work = append(w.work, func() { w.detach(a) })
	case len(a.Finalizers) == 0:
		w.does(ref, "attacher: takes on", func(obj metav1.Object) { obj.SetFinalizers([]string{attacherGuard}) })
	case a.Status.Attached:
	case a.Status.AttachError == nil && w.roll(6) == 1:
		w.does(ref, "attacher: fails", func(obj metav1.Object) {
			w.store.uncertain[a.UID] = true
			status(obj).AttachError = &storagev1.VolumeError{Time: metav1.NewTime(w.now.Truncate(time.Second)), Message: "busy"}
		})
	default:
		w.does(ref, "attacher: attached", func(obj metav1.Object) { *status(obj) = storagev1.VolumeAttachmentStatus{Attached: true} })
	}
}

// detach detaches a volume from its node.
func (w *World) detach(a *storagev1.VolumeAttachment) {
	w.note("attacher: %s is off %s", *a.Spec.Source.PersistentVolumeName, a.Spec.NodeName)
	w.guard.detached(a)
	w.api.Change(refOf(kinds.VolumeAttachments.Name, a), func(obj metav1.Object) { obj.SetFinalizers(nil) })
}

func (w *World) attachmentsOf(volume string) (all []*storagev1.VolumeAttachment) {
	for _, obj := range w.api.List(kinds.VolumeAttachments.Name) {
		if a := obj.(*storagev1.VolumeAttachment); *a.Spec.Source.PersistentVolumeName == volume {
			all = append(all, a)
		}
	}
	return all
}

// workOnNode is the work of a kubelet besides its pods: it reports its status, unmounts volumes
// that no pod needs, and then reports that it does not use them.
func (w *World) workOnNode(n *corev1.Node) {
	ref := nodeRef(n.Name)
	if !w.kubeletActs(n.Name) {
		return
	}
	if n.Annotations[manages] == "" || readiness(n) == nil {
		w.does(ref, "kubelet: registers", func(obj metav1.Object) {
			obj.SetAnnotations(map[string]string{manages: "true"})
			w.speak(obj.(*corev1.Node), corev1.ConditionTrue)
		})
		return
	}
	needed := map[corev1.UniqueVolumeName]bool{}
	for _, pod := range w.podsOn(n.Name) {
		for _, v := range w.volumesOf(pod) {
			needed[v] = needed[v] || needs(pod)
		}
	}
	for _, v := range sortedVolumes(w.store.mounted[n.Name]) {
		if !needed[v] && !w.now.Before(w.store.busy[n.Name]) {
			w.work = append(w.work, func() { w.unmount(n.Name, v) })
		}
	}
	for _, v := range n.Status.VolumesInUse {
		if !needed[v] && !w.store.mounted[n.Name][v] {
			w.does(ref, "kubelet: does not use "+string(v), func(obj metav1.Object) {
				s := &obj.(*corev1.Node).Status
				s.VolumesInUse = slices.DeleteFunc(slices.Clone(s.VolumesInUse), func(o corev1.UniqueVolumeName) bool { return o == v })
			})
		}
	}
}

func (w *World) unmount(node string, v corev1.UniqueVolumeName) {
	w.note("kubelet: %s is unmounted on %s", v, node)
	delete(w.store.mounted[node], v)
	w.dirty = true
}

// due considers when kubelets have finished what delays their unmounts.
func (s *drivers) due(consider func(time.Time)) {
	if s == nil {
		return
	}
	for _, until := range s.busy {
		consider(until)
	}
}

// passed lets those kubelets continue.
func (s *drivers) passed() {
	if s == nil {
		return
	}
	for node, until := range s.busy {
		if !s.world.now.Before(until) {
			delete(s.busy, node)
			s.world.dirty = true
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

func (w *World) podsOn(node string) (all []*corev1.Pod) {
	for _, obj := range w.api.List(kinds.Pods.Name) {
		if pod := obj.(*corev1.Pod); pod.Spec.NodeName == node {
			all = append(all, pod)
		}
	}
	return all
}

// volumeBehind is the volume of a bound claim; nil if it has none.
func (w *World) volumeBehind(claim string) *corev1.PersistentVolume {
	c, ok := w.api.Get(claimRefOf(claim)).(*corev1.PersistentVolumeClaim)
	if !ok || c.Status.Phase != corev1.ClaimBound {
		return nil
	}
	pv, _ := w.api.Get(volumeRef(c.Spec.VolumeName)).(*corev1.PersistentVolume)
	if pv == nil || pv.Spec.ClaimRef == nil || pv.Spec.ClaimRef.UID != c.UID {
		return nil
	}
	return pv
}

// volumesOf are the names, in the form of node statuses, of the volumes of a pod.
func (w *World) volumesOf(pod *corev1.Pod) (all []corev1.UniqueVolumeName) {
	for _, v := range pod.Spec.Volumes {
		if pv := w.volumeBehind(v.PersistentVolumeClaim.ClaimName); pv != nil {
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
	return pod.Status.Phase != corev1.PodSucceeded && pod.Status.Phase != corev1.PodFailed && (pod.DeletionTimestamp == nil || working(pod))
}

func working(pod *corev1.Pod) bool {
	return slices.ContainsFunc(pod.Status.ContainerStatuses, func(c corev1.ContainerStatus) bool { return c.State.Running != nil })
}

// workOnPod has the scheduler and the kubelet act on a pod that uses claims.
func (w *World) workOnPod(pod *corev1.Pod, ref events.Ref) {
	node := pod.Spec.NodeName
	switch {
	case node == "":
		w.placeByStorage(pod, ref)
	case !w.kubeletActs(node):
	case pod.DeletionTimestamp != nil && working(pod):
		w.does(ref, "kubelet: killed", func(obj metav1.Object) { w.ended(obj, obj.(*corev1.Pod).Status.Phase, 137) })
	case pod.DeletionTimestamp != nil:
		if !slices.ContainsFunc(w.volumesOf(pod), func(v corev1.UniqueVolumeName) bool { return w.mountedFor(pod, v) }) {
			w.work = append(w.work, func() { w.note("kubelet: %s is gone", pod.Name); w.api.Finish(ref) })
		}
	case pod.Status.Phase == corev1.PodPending:
		w.start(pod, ref)
	}
}

// mountedFor reports whether a volume is mounted for this pod only.
func (w *World) mountedFor(pod *corev1.Pod, v corev1.UniqueVolumeName) bool {
	return w.store.mounted[pod.Spec.NodeName][v] && !slices.ContainsFunc(w.podsOn(pod.Spec.NodeName), func(o *corev1.Pod) bool {
		return o.UID != pod.UID && needs(o) && slices.Contains(w.volumesOf(o), v)
	})
}

// start has a kubelet report that it uses the volumes of a pod, mount those that the node's
// status lists as attached, and run the pod.
//
// Upstream: pkg/kubelet/volumemanager, WaitForAttachAndMount, and VerifyControllerAttachedVolume.
func (w *World) start(pod *corev1.Pod, ref events.Ref) {
	n := w.api.Get(nodeRef(pod.Spec.NodeName)).(*corev1.Node)
	all := w.volumesOf(pod)
	ready := len(all) == len(pod.Spec.Volumes)
	for _, v := range all {
		switch listed := slices.ContainsFunc(n.Status.VolumesAttached, func(a corev1.AttachedVolume) bool { return a.Name == v }); {
		case w.store.mounted[n.Name][v]:
			continue
		case !slices.Contains(n.Status.VolumesInUse, v):
			w.does(nodeRef(n.Name), "kubelet: uses "+string(v), func(obj metav1.Object) {
				s := &obj.(*corev1.Node).Status
				s.VolumesInUse = append(slices.Clone(s.VolumesInUse), v)
			})
		case listed:
			w.work = append(w.work, func() { w.mount(n.Name, v) })
		}
		ready = false
	}
	if ready {
		w.does(ref, "kubelet: runs", func(obj metav1.Object) {
			w.run(obj)
			obj.(*corev1.Pod).Status.ContainerStatuses = []corev1.ContainerStatus{{Name: "main", State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}}}
		})
	}
}

func (w *World) mount(node string, v corev1.UniqueVolumeName) {
	w.note("kubelet: %s is mounted on %s", v, node)
	if w.store.mounted[node] == nil {
		w.store.mounted[node] = map[corev1.UniqueVolumeName]bool{}
	}
	w.store.mounted[node][v] = true
	w.dirty = true
}

// placeByStorage assigns a node to a pod once its claims have volumes. For a claim that waits
// for a pod it first selects a node, or binds an existing volume.
//
// Upstream: pkg/scheduler/framework/plugins/volumebinding.
func (w *World) placeByStorage(pod *corev1.Pod, ref events.Ref) {
	var nodes []string
	for _, obj := range w.api.List(kinds.Nodes.Name) {
		if n := obj.(*corev1.Node); w.kubeletActs(n.Name) && readiness(n) != nil {
			nodes = append(nodes, n.Name)
		}
	}
	if len(nodes) == 0 || pod.DeletionTimestamp != nil {
		return
	}
	node, bound := nodes[w.roll(len(nodes))], true
	for _, v := range pod.Spec.Volumes {
		c, ok := w.api.Get(claimRefOf(v.PersistentVolumeClaim.ClaimName)).(*corev1.PersistentVolumeClaim)
		switch {
		case !ok || c.DeletionTimestamp != nil:
			return
		case c.Status.Phase == corev1.ClaimBound:
			continue
		case c.Spec.StorageClassName != nil && *c.Spec.StorageClassName == "late" && c.Spec.VolumeName == "" && c.Annotations[selected] == "":
			w.choose(c, node)
		}
		bound = false
	}
	if bound {
		w.does(ref, "scheduler: on "+node, func(obj metav1.Object) { obj.(*corev1.Pod).Spec.NodeName = node })
	}
}

// choose binds a volume to a claim that waits for a pod, or has one provisioned.
func (w *World) choose(c *corev1.PersistentVolumeClaim, node string) {
	some := w.anyVolume(func(pv *corev1.PersistentVolume) bool { return free(pv) && fits(pv, c) })
	held := w.anyVolume(func(pv *corev1.PersistentVolume) bool { return reservedFor(pv, c) && fits(pv, c) })
	switch {
	case held != nil: // it will be the claim's in a moment, or not
	case some != nil:
		w.does(volumeRef(some.Name), "scheduler: for "+c.Name, func(obj metav1.Object) {
			pv := obj.(*corev1.PersistentVolume)
			pv.Spec.ClaimRef = &corev1.ObjectReference{APIVersion: "v1", Kind: "PersistentVolumeClaim", Namespace: c.Namespace, Name: c.Name, UID: c.UID}
			pv.Annotations = map[string]string{"pv.kubernetes.io/bound-by-controller": "yes"}
		})
	default:
		w.does(refOf(kinds.PersistentVolumeClaims.Name, c), "scheduler: on "+node, func(obj metav1.Object) {
			notes := map[string]string{selected: node}
			for name, value := range obj.GetAnnotations() {
				notes[name] = value
			}
			obj.SetAnnotations(notes)
		})
	}
}

// restored makes kubelets adopt the statuses of their nodes after a restore.
func (s *drivers) restored() {
	if s == nil {
		return
	}
	was := s.mounted
	s.mounted = map[string]map[corev1.UniqueVolumeName]bool{}
	for _, obj := range s.world.api.List(kinds.Nodes.Name) {
		n := obj.(*corev1.Node)
		for _, v := range n.Status.VolumesInUse {
			attached := slices.ContainsFunc(s.world.api.List(kinds.VolumeAttachments.Name), func(obj metav1.Object) bool {
				a, volume := obj.(*storagev1.VolumeAttachment), volumeCalled(v)
				return a.Spec.NodeName == n.Name && volume.Attachment(n.Name) == a.Name && a.Status.Attached && a.DeletionTimestamp == nil
			})
			listed := slices.ContainsFunc(n.Status.VolumesAttached, func(a corev1.AttachedVolume) bool { return a.Name == v })
			if was[n.Name][v] && attached && listed {
				s.world.mount(n.Name, v)
			}
		}
		s.silent[n.Name] = readiness(n) != nil && !wellSaid(n)
	}
	s.wants() // an attachment that the restore made unwanted is so from now on: time does not go back
}

func volumeCalled(name corev1.UniqueVolumeName) csi.Volume {
	v, _ := csi.Named(name)
	return v
}

// wants records since when no pod wants each attachment.
func (s *drivers) wants() {
	for _, obj := range s.world.api.List(kinds.VolumeAttachments.Name) {
		a := obj.(*storagev1.VolumeAttachment)
		if s.world.wanted(a) {
			delete(s.unwanted, a.UID)
		} else if _, known := s.unwanted[a.UID]; !known {
			s.unwanted[a.UID] = s.world.now
		}
	}
}

// wanted reports whether a pod on the node of an attachment uses its volume.
func (w *World) wanted(a *storagev1.VolumeAttachment) bool {
	pv, ok := w.api.Get(volumeRef(*a.Spec.Source.PersistentVolumeName)).(*corev1.PersistentVolume)
	return ok && slices.ContainsFunc(w.podsOn(a.Spec.NodeName), func(pod *corev1.Pod) bool {
		return needs(pod) && slices.Contains(w.volumesOf(pod), nameOf(pv))
	})
}
