package storage_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"pgregory.net/rapid"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/services/reconcilers/kube/csi"
	"github.com/millrace/millrace/services/writer/plan"
	"github.com/millrace/millrace/test/oracle/objects"
	"github.com/millrace/millrace/test/oracle/oracletest"
	"github.com/millrace/millrace/test/oracle/stage"
	"github.com/millrace/millrace/test/oracle/storage"
	"github.com/millrace/millrace/test/sim/apiserver"
)

// TestAttachmentsLiveAsUpstreams creates and deletes pods with volumes on nodes.
func TestAttachmentsLiveAsUpstreams(t *testing.T) {
	oracletest.Fewer(t, 10)
	rapid.Check(t, func(r *rapid.T) { anyHall(r, nil).Compare(t, r, storage.AttachDetach) })
}

// TestRefusedAttachmentsLiveAsUpstreams is the same on an API server that refuses some writes; both
// controllers retry them within the chapter.
func TestRefusedAttachmentsLiveAsUpstreams(t *testing.T) {
	oracletest.Fewer(t, 10)
	rapid.Check(t, func(r *rapid.T) { anyHall(r, attachingRequests).Compare(t, r, storage.AttachDetach) })
}

// attachingRequests are the writes about attachments. Their names are derived, and never taken.
var attachingRequests = []stage.Refusal{
	{Verb: plan.Create, Kind: kinds.VolumeAttachments.Name}, {Verb: plan.Delete, Kind: kinds.VolumeAttachments.Name}, {Verb: plan.Patch, Kind: kinds.Nodes.Name, Status: true},
}

// hall has nodes with pods that use volumes. One thing happens at a time, because upstream picks by chance
// which of several pods gets a volume first.
type hall struct {
	oracletest.Village
	now  time.Time // of the chapter
	made int
}

func anyHall(r *rapid.T, requests []stage.Refusal) *hall {
	v := &hall{now: objects.Now}
	for _, name := range []string{"n1", "n2"} {
		n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID(name), Annotations: map[string]string{"volumes.kubernetes.io/controller-managed-attach-detach": "true"}}}
		n.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}
		v.Does(func(api *apiserver.API) { api.Load(kinds.Nodes.Name, n) }, "node %s", name)
	}
	for _, name := range []string{"a", "b"} {
		v.disk(name, map[string]corev1.PersistentVolumeAccessMode{"a": corev1.ReadWriteOnce, "b": corev1.ReadWriteMany}[name])
	}
	v.passes()
	for range rapid.IntRange(1, 8).Draw(r, "chapters") {
		if requests != nil {
			v.Refuse(r, requests)
		}
		v.act(r)
		v.passes()
	}
	return v
}

// passes ends a chapter.
func (v *hall) passes() {
	v.Chapter()
	v.now = v.now.Add(storage.AttachDetach.Chapter)
}

func (v *hall) disk(name string, mode corev1.PersistentVolumeAccessMode) {
	pv := &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: "pv-" + name, UID: types.UID("pv-" + name)}}
	pv.Spec.CSI = &corev1.CSIPersistentVolumeSource{Driver: "d.example.com", VolumeHandle: name}
	pv.Spec.AccessModes = []corev1.PersistentVolumeAccessMode{mode}
	claim := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: oracletest.Namespace, Name: name, UID: types.UID("claim-" + name)}}
	claim.Spec.VolumeName, claim.Status.Phase = pv.Name, corev1.ClaimBound
	pv.Spec.ClaimRef = &corev1.ObjectReference{Namespace: oracletest.Namespace, Name: name, UID: claim.UID}
	v.Does(func(api *apiserver.API) {
		api.Load(kinds.PersistentVolumes.Name, pv)
		api.Load(kinds.PersistentVolumeClaims.Name, claim)
	}, "%s with %s", pv.Name, mode)
}

func (v *hall) act(r *rapid.T) {
	pod := rapid.SampledFrom([]string{"p", "q", "s"}).Draw(r, "pod")
	node := rapid.SampledFrom([]string{"n1", "n2"}).Draw(r, "node")
	switch rapid.IntRange(0, 9).Draw(r, "act") {
	case 0, 1, 2:
		v.user(pod, node, rapid.SampledFrom([]string{"a", "a", "b"}).Draw(r, "claim"))
	case 3, 4:
		v.Does(func(api *apiserver.API) { mountedOn(api, node) }, "%s mounts", node)
	case 5:
		v.Does(func(api *apiserver.API) {
			if api.Get(oracletest.PodRef(pod)) != nil {
				api.Change(oracletest.PodRef(pod), func(o metav1.Object) { o.(*corev1.Pod).Status.Phase = corev1.PodSucceeded })
			}
		}, "%s ends", pod)
	case 6:
		v.Does(func(api *apiserver.API) {
			api.Do(plan.Request{Verb: plan.Delete, Kind: kinds.Pods.Name, Namespace: oracletest.Namespace, Name: pod, Delete: &metav1.DeleteOptions{GracePeriodSeconds: oracletest.Ptr(int64(0))}})
		}, "%s goes", pod)
	case 7, 8:
		status := rapid.SampledFrom([]corev1.ConditionStatus{"True", "Unknown"}).Draw(r, "ready")
		v.Does(func(api *apiserver.API) {
			api.Change(nodeRef(node), func(o metav1.Object) { o.(*corev1.Node).Status.Conditions[0].Status = status })
		}, "%s is ready: %s", node, status)
	default:
		out := rapid.Bool().Draw(r, "out")
		v.Does(func(api *apiserver.API) {
			api.Change(nodeRef(node), func(o metav1.Object) {
				o.(*corev1.Node).Spec.Taints = nil
				if out {
					o.(*corev1.Node).Spec.Taints = []corev1.Taint{{Key: corev1.TaintNodeOutOfService, Effect: corev1.TaintEffectNoExecute}}
				}
			})
		}, "%s is out of service: %v", node, out)
	}
}

// user creates a pod on a node that uses a claim, unless a pod of that name exists.
func (v *hall) user(name, node, claim string) {
	v.made++
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: oracletest.Namespace, Name: name, UID: types.UID(fmt.Sprint(name, "-", v.made)), CreationTimestamp: metav1.NewTime(v.now.Truncate(time.Second))}}
	p.Spec.NodeName, p.Status.Phase = node, corev1.PodPending
	p.Spec.Volumes = []corev1.Volume{{Name: "v", VolumeSource: corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: claim}}}}
	v.Does(func(api *apiserver.API) {
		if api.Get(oracletest.PodRef(name)) == nil {
			api.Load(kinds.Pods.Name, p)
		}
	}, "create %s on %s with %s", p.UID, node, claim)
}

// mountedOn makes the kubelet of a node mount the wanted volumes that are attached there, and unmount all
// others.
func mountedOn(api *apiserver.API, node string) {
	var wanted []corev1.UniqueVolumeName
	for _, obj := range api.List(kinds.Pods.Name) {
		if p := obj.(*corev1.Pod); p.Spec.NodeName == node && p.Status.Phase != corev1.PodSucceeded {
			pv := api.Get(pvRef("pv-" + p.Spec.Volumes[0].PersistentVolumeClaim.ClaimName)).(*corev1.PersistentVolume)
			if volume, ok := csi.VolumeOf(pv); ok {
				wanted = append(wanted, volume.Name())
			}
		}
	}
	n := api.Get(nodeRef(node)).(*corev1.Node)
	var used []corev1.UniqueVolumeName
	for _, at := range n.Status.VolumesAttached {
		if slices.Contains(wanted, at.Name) {
			used = append(used, at.Name)
		}
	}
	api.Change(nodeRef(node), func(o metav1.Object) { o.(*corev1.Node).Status.VolumesInUse = used })
}

func nodeRef(name string) events.Ref { return events.Ref{Kind: kinds.Nodes.Name, Name: name} }
