package devices

import (
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	resourcev1beta2 "k8s.io/api/resource/v1beta2"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/test/sim/apiserver"
	"github.com/millrace/millrace/test/sim/cluster"
	"github.com/millrace/millrace/test/sim/nodes"
	"github.com/millrace/millrace/test/sim/storage"
)

// Devices is what users do with pods that want devices, and drivers and administrators with
// devices that pods have to leave.
var Devices = []cluster.Operation{
	DevicePod, DevicePod, DevicePod, DevicePod, placedPod, ClaimDevices, ClaimDevices, cluster.DeletePod, cluster.DeletePod, nodes.FinishPod, nodes.FinishPod,
	dropDeviceClaim, newDeviceTemplate, newDeviceTemplate, dropDeviceTemplate, TaintDevice, TaintDevice, ruleOut, cluster.Wait,
}

const (
	// chips is the pool of the devices, of the driver [storage.Driver].
	chips = "chips"
	// cracked is the key of the taints; some claims tolerate it for [stays].
	cracked = "example.com/cracked"
	stays   = 30 * time.Second
)

// HasDevices reports whether nodes of this world have devices.
func HasDevices(w *cluster.Cluster) bool { return w.Runs("resourceclaim-controller") }

// FurnishDevices creates the initial devices.
func FurnishDevices(w *cluster.Cluster) {
	slice := &resourcev1.ResourceSlice{
		TypeMeta: metav1.TypeMeta{APIVersion: "resource.k8s.io/v1", Kind: "ResourceSlice"}, ObjectMeta: metav1.ObjectMeta{Name: chips},
		Spec: resourcev1.ResourceSliceSpec{
			Driver: storage.Driver, Pool: resourcev1.ResourcePool{Name: chips, Generation: 1, ResourceSliceCount: 1}, AllNodes: new(true),
			Devices: []resourcev1.Device{{Name: "chip-0"}, {Name: "chip-1"}},
		},
	}
	w.Create(apiserver.RefOf(kinds.ResourceSlices.Name, slice), slice)
	w.Prepared = map[string]map[types.UID]types.UID{}
}

func deviceClaimRef(name string) events.Ref {
	return events.Ref{Kind: kinds.ResourceClaims.Name, Namespace: cluster.Namespace, Name: name}
}

func deviceSpec() resourcev1.ResourceClaimSpec {
	return resourcev1.ResourceClaimSpec{Devices: resourcev1.DeviceClaim{Requests: []resourcev1.DeviceRequest{{
		Name: "chip", Exactly: &resourcev1.ExactDeviceRequest{DeviceClassName: chips, AllocationMode: resourcev1.DeviceAllocationModeExactCount, Count: 1},
	}}}}
}

var deviceTemplate = events.Ref{Kind: kinds.ResourceClaimTemplates.Name, Namespace: cluster.Namespace, Name: "chip"}

func newDeviceTemplate(w *cluster.Cluster) {
	if w.API.Get(deviceTemplate) == nil {
		w.Note("user: create %v", deviceTemplate)
		w.Create(deviceTemplate, &resourcev1.ResourceClaimTemplate{
			TypeMeta:   metav1.TypeMeta{APIVersion: "resource.k8s.io/v1", Kind: "ResourceClaimTemplate"},
			ObjectMeta: metav1.ObjectMeta{Namespace: cluster.Namespace, Name: deviceTemplate.Name}, Spec: resourcev1.ResourceClaimTemplateSpec{Spec: deviceSpec()},
		})
	}
}

func dropDeviceTemplate(w *cluster.Cluster) {
	if w.API.Get(deviceTemplate) != nil {
		w.Delete(deviceTemplate, metav1.DeletePropagationBackground)
	}
}

// ClaimDevices makes a claim that several pods may share.
func ClaimDevices(w *cluster.Cluster) {
	w.SomeOf(kinds.ResourceClaims.Kind, "shared", func(name string) any {
		return &resourcev1.ResourceClaim{
			TypeMeta: metav1.TypeMeta{APIVersion: "resource.k8s.io/v1", Kind: "ResourceClaim"}, ObjectMeta: metav1.ObjectMeta{Namespace: cluster.Namespace, Name: name},
			Spec: deviceSpec(),
		}
	})
}

// dropDeviceClaim deletes a claim that is there.
func dropDeviceClaim(w *cluster.Cluster) {
	if all := w.API.List(kinds.ResourceClaims.Name); len(all) > 0 {
		w.Delete(apiserver.RefOf(kinds.ResourceClaims.Name, all[w.Roll(len(all))]), metav1.DeletePropagationBackground)
	}
}

// DevicePod makes a pod that wants a claim of its own, or shares one.
func DevicePod(w *cluster.Cluster) { wantsDevices(w, "") }

// placedPod creates a pod that has a node, but not from the scheduler.
func placedPod(w *cluster.Cluster) { wantsDevices(w, "node-1") }

func wantsDevices(w *cluster.Cluster, node string) {
	ref := events.Ref{Kind: kinds.Pods.Name, Namespace: cluster.Namespace, Name: fmt.Sprint("user", w.Roll(4))}
	if w.API.Get(ref) != nil {
		return
	}
	entry := corev1.PodResourceClaim{Name: "chip", ResourceClaimTemplateName: &deviceTemplate.Name}
	if w.Roll(2) == 0 {
		entry = corev1.PodResourceClaim{Name: "chip", ResourceClaimName: new(fmt.Sprint("shared", w.Roll(2)))}
	}
	w.Note("user: create %v on %q", ref, node)
	w.Create(ref, &corev1.Pod{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"}, ObjectMeta: metav1.ObjectMeta{Namespace: cluster.Namespace, Name: ref.Name},
		Spec: corev1.PodSpec{NodeName: node, ResourceClaims: []corev1.PodResourceClaim{entry}},
	})
}

// TaintDevice has the driver taint a device, so that pods have to leave it, or remove the
// taint.
func TaintDevice(w *cluster.Cluster) {
	which := w.Roll(2)
	w.Note("driver: chip-%d is cracked, or whole", which)
	at := metav1.NewTime(w.Now.Truncate(time.Second))
	w.API.Change(events.Ref{Kind: kinds.ResourceSlices.Name, Name: chips}, func(obj metav1.Object) {
		s := &obj.(*resourcev1.ResourceSlice).Spec
		if d := &s.Devices[which]; len(d.Taints) > 0 {
			d.Taints = nil
		} else {
			d.Taints = []resourcev1.DeviceTaint{{Key: cracked, Effect: resourcev1.DeviceTaintEffectNoExecute, TimeAdded: &at}}
		}
		s.Pool.Generation++
	})
}

// ruleOut creates a rule that taints a device, or deletes it.
func ruleOut(w *cluster.Cluster) {
	ref, which := events.Ref{Kind: kinds.DeviceTaintRules.Name, Name: "out"}, fmt.Sprint("chip-", w.Roll(2))
	if w.API.Get(ref) != nil {
		w.Delete(ref, metav1.DeletePropagationBackground)
		return
	}
	at := metav1.NewTime(w.Now.Truncate(time.Second))
	w.Note("administrator: pods have to leave %s", which)
	w.Create(ref, &resourcev1beta2.DeviceTaintRule{
		TypeMeta: metav1.TypeMeta{APIVersion: "resource.k8s.io/v1beta2", Kind: "DeviceTaintRule"}, ObjectMeta: metav1.ObjectMeta{Name: ref.Name},
		Spec: resourcev1beta2.DeviceTaintRuleSpec{
			DeviceSelector: &resourcev1beta2.DeviceTaintSelector{Driver: new(storage.Driver), Pool: new(chips), Device: &which},
			Taint:          resourcev1beta2.DeviceTaint{Key: cracked, Effect: resourcev1beta2.DeviceTaintEffectNoExecute, TimeAdded: &at},
		},
	})
}

// claimOfPod is the claim that a pod uses; nil while it has none.
func claimOfPod(w *cluster.Cluster, pod *corev1.Pod) *resourcev1.ResourceClaim {
	if len(pod.Spec.ResourceClaims) == 0 {
		return nil
	}
	name := pod.Spec.ResourceClaims[0].ResourceClaimName
	made := name == nil
	for _, s := range pod.Status.ResourceClaimStatuses {
		if made {
			name = s.ResourceClaimName
		}
	}
	if name == nil {
		return nil
	}
	claim, _ := w.API.Get(deviceClaimRef(*name)).(*resourcev1.ResourceClaim)
	if claim == nil || made && !metav1.IsControlledBy(claim, pod) {
		return nil
	}
	return claim
}

func reserved(claim *resourcev1.ResourceClaim, uid types.UID) bool {
	return slices.ContainsFunc(claim.Status.ReservedFor, func(r resourcev1.ResourceClaimConsumerReference) bool { return r.UID == uid })
}

// DevicesOf are the devices that a claim has been given.
func DevicesOf(claim *resourcev1.ResourceClaim) (all []string) {
	if claim.Status.Allocation == nil {
		return nil
	}
	for _, r := range claim.Status.Allocation.Devices.Results {
		all = append(all, r.Device)
	}
	return all
}

// WorkOnDevices has the scheduler and the kubelet act on a pod that wants devices.
//
// Upstream: pkg/scheduler/framework/plugins/dynamicresources, and pkg/kubelet/cm/dra.
func WorkOnDevices(w *cluster.Cluster, pod *corev1.Pod, ref events.Ref) {
	claim := claimOfPod(w, pod)
	switch {
	case pod.DeletionTimestamp != nil && nodes.Working(pod):
		cluster.Does(w, ref, "kubelet: killed", func(obj metav1.Object) { nodes.Ended(w, obj, corev1.PodFailed, 137) })
	case pod.DeletionTimestamp != nil:
		w.Work = append(w.Work, func() { w.Note("kubelet: %s is gone", pod.Name); w.API.Finish(ref) })
	case claim == nil || pod.Status.Phase != corev1.PodPending:
	case pod.Spec.NodeName == "" && claim.DeletionTimestamp == nil:
		allocate(w, claim, pod, ref)
	case pod.Spec.NodeName != "" && claim.Status.Allocation != nil && reserved(claim, pod.UID):
		cluster.Does(w, ref, "kubelet: runs", func(obj metav1.Object) {
			nodes.Run(w, obj)
			obj.(*corev1.Pod).Status.ContainerStatuses = []corev1.ContainerStatus{{Name: "main", State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}}}
			prepares(w.Guard, claim, obj.(*corev1.Pod))
		})
	}
}

// allocate finds a device for a claim, reserves the claim for a pod, and assigns a node to the
// pod.
func allocate(w *cluster.Cluster, claim *resourcev1.ResourceClaim, pod *corev1.Pod, ref events.Ref) {
	at := deviceClaimRef(claim.Name)
	switch {
	case !cluster.Has(claim, resourcev1.Finalizer):
		cluster.Does(w, at, "scheduler: holds", func(obj metav1.Object) { obj.SetFinalizers([]string{resourcev1.Finalizer}) })
	case claim.Status.Allocation == nil:
		device := freeDevice(w)
		if device == "" {
			return
		}
		result := resourcev1.DeviceRequestAllocationResult{Request: "chip", Driver: storage.Driver, Pool: chips, Device: device}
		if w.Roll(2) == 0 {
			seconds := int64(stays / time.Second)
			result.Tolerations = []resourcev1.DeviceToleration{{Key: cracked, Operator: resourcev1.DeviceTolerationOpExists, Effect: resourcev1.DeviceTaintEffectNoExecute, TolerationSeconds: &seconds}}
		}
		cluster.Does(w, at, "scheduler: "+device+" for "+pod.Name, func(obj metav1.Object) {
			s := &obj.(*resourcev1.ResourceClaim).Status
			s.Allocation = &resourcev1.AllocationResult{Devices: resourcev1.DeviceAllocationResult{Results: []resourcev1.DeviceRequestAllocationResult{result}}}
			s.ReservedFor = append(slices.Clone(s.ReservedFor), consumer(pod))
		})
	case !reserved(claim, pod.UID):
		cluster.Does(w, at, "scheduler: also for "+pod.Name, func(obj metav1.Object) {
			s := &obj.(*resourcev1.ResourceClaim).Status
			s.ReservedFor = append(slices.Clone(s.ReservedFor), consumer(pod))
		})
	default:
		cluster.Does(w, ref, "scheduler: on node-0", func(obj metav1.Object) { obj.(*corev1.Pod).Spec.NodeName = "node-0" })
	}
}

func consumer(pod *corev1.Pod) resourcev1.ResourceClaimConsumerReference {
	return resourcev1.ResourceClaimConsumerReference{Resource: "pods", Name: pod.Name, UID: pod.UID}
}

// freeDevice is a device that no claim has, and that its slice does not taint.
func freeDevice(w *cluster.Cluster) string {
	slice, ok := w.API.Get(events.Ref{Kind: kinds.ResourceSlices.Name, Name: chips}).(*resourcev1.ResourceSlice)
	if !ok {
		return ""
	}
	for _, d := range slice.Spec.Devices {
		taken := slices.ContainsFunc(w.API.List(kinds.ResourceClaims.Name), func(obj metav1.Object) bool {
			return slices.Contains(DevicesOf(obj.(*resourcev1.ResourceClaim)), d.Name)
		})
		if !taken && len(d.Taints) == 0 {
			return d.Name
		}
	}
	return ""
}
