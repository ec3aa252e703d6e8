package sim

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
)

// Devices is what users do with pods that want devices, and drivers and administrators with
// devices that pods have to leave.
var Devices = []Operation{
	devicePod, devicePod, devicePod, devicePod, placedPod, claimDevices, claimDevices, deletePod, deletePod, finishPod, finishPod,
	dropDeviceClaim, newDeviceTemplate, newDeviceTemplate, dropDeviceTemplate, taintDevice, taintDevice, ruleOut, wait,
}

const (
	// chips is the pool of the devices, of the driver [driver] (storage.go).
	chips = "chips"
	// cracked is the key of the taints; some claims tolerate it for [stays].
	cracked = "example.com/cracked"
	stays   = 30 * time.Second
)

func (w *World) hasDevices() bool { return w.runs("resourceclaim-controller") }

// furnishDevices creates the initial devices.
func (w *World) furnishDevices() {
	slice := &resourcev1.ResourceSlice{
		TypeMeta: metav1.TypeMeta{APIVersion: "resource.k8s.io/v1", Kind: "ResourceSlice"}, ObjectMeta: metav1.ObjectMeta{Name: chips},
		Spec: resourcev1.ResourceSliceSpec{
			Driver: driver, Pool: resourcev1.ResourcePool{Name: chips, Generation: 1, ResourceSliceCount: 1}, AllNodes: new(true),
			Devices: []resourcev1.Device{{Name: "chip-0"}, {Name: "chip-1"}},
		},
	}
	w.create(refOf(kinds.ResourceSlices.Name, slice), slice)
	w.prepared = map[string]map[types.UID]types.UID{}
}

func deviceClaimRef(name string) events.Ref {
	return events.Ref{Kind: kinds.ResourceClaims.Name, Namespace: namespace, Name: name}
}

func deviceSpec() resourcev1.ResourceClaimSpec {
	return resourcev1.ResourceClaimSpec{Devices: resourcev1.DeviceClaim{Requests: []resourcev1.DeviceRequest{{
		Name: "chip", Exactly: &resourcev1.ExactDeviceRequest{DeviceClassName: chips, AllocationMode: resourcev1.DeviceAllocationModeExactCount, Count: 1},
	}}}}
}

var deviceTemplate = events.Ref{Kind: kinds.ResourceClaimTemplates.Name, Namespace: namespace, Name: "chip"}

func newDeviceTemplate(w *World) {
	if w.api.Get(deviceTemplate) == nil {
		w.note("user: create %v", deviceTemplate)
		w.create(deviceTemplate, &resourcev1.ResourceClaimTemplate{
			TypeMeta:   metav1.TypeMeta{APIVersion: "resource.k8s.io/v1", Kind: "ResourceClaimTemplate"},
			ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: deviceTemplate.Name}, Spec: resourcev1.ResourceClaimTemplateSpec{Spec: deviceSpec()},
		})
	}
}

func dropDeviceTemplate(w *World) {
	if w.api.Get(deviceTemplate) != nil {
		w.Delete(deviceTemplate, metav1.DeletePropagationBackground)
	}
}

// claimDevices makes a claim that several pods may share.
func claimDevices(w *World) {
	w.someOf(kinds.ResourceClaims.Kind, "shared", func(name string) any {
		return &resourcev1.ResourceClaim{
			TypeMeta: metav1.TypeMeta{APIVersion: "resource.k8s.io/v1", Kind: "ResourceClaim"}, ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
			Spec: deviceSpec(),
		}
	})
}

// dropDeviceClaim deletes a claim that is there.
func dropDeviceClaim(w *World) {
	if all := w.api.List(kinds.ResourceClaims.Name); len(all) > 0 {
		w.Delete(refOf(kinds.ResourceClaims.Name, all[w.roll(len(all))]), metav1.DeletePropagationBackground)
	}
}

// devicePod makes a pod that wants a claim of its own, or shares one.
func devicePod(w *World) { w.wantsDevices("") }

// placedPod creates a pod that has a node, but not from the scheduler.
func placedPod(w *World) { w.wantsDevices("node-1") }

func (w *World) wantsDevices(node string) {
	ref := events.Ref{Kind: kinds.Pods.Name, Namespace: namespace, Name: fmt.Sprint("user", w.roll(4))}
	if w.api.Get(ref) != nil {
		return
	}
	entry := corev1.PodResourceClaim{Name: "chip", ResourceClaimTemplateName: &deviceTemplate.Name}
	if w.roll(2) == 0 {
		entry = corev1.PodResourceClaim{Name: "chip", ResourceClaimName: new(fmt.Sprint("shared", w.roll(2)))}
	}
	w.note("user: create %v on %q", ref, node)
	w.create(ref, &corev1.Pod{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"}, ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: ref.Name},
		Spec: corev1.PodSpec{NodeName: node, ResourceClaims: []corev1.PodResourceClaim{entry}},
	})
}

// finishPod ends a pod.
func finishPod(w *World) {
	if pod, ok := w.anyPod().(*corev1.Pod); ok && pod.Status.Phase == corev1.PodRunning {
		w.note("node: %s has done its work", pod.Name)
		w.api.Change(refOf(kinds.Pods.Name, pod), func(obj metav1.Object) { w.ended(obj, corev1.PodSucceeded, 0) })
	}
}

// taintDevice has the driver taint a device, so that pods have to leave it, or remove the
// taint.
func taintDevice(w *World) {
	which := w.roll(2)
	w.note("driver: chip-%d is cracked, or whole", which)
	at := metav1.NewTime(w.now.Truncate(time.Second))
	w.api.Change(events.Ref{Kind: kinds.ResourceSlices.Name, Name: chips}, func(obj metav1.Object) {
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
func ruleOut(w *World) {
	ref, which := events.Ref{Kind: kinds.DeviceTaintRules.Name, Name: "out"}, fmt.Sprint("chip-", w.roll(2))
	if w.api.Get(ref) != nil {
		w.Delete(ref, metav1.DeletePropagationBackground)
		return
	}
	at := metav1.NewTime(w.now.Truncate(time.Second))
	w.note("administrator: pods have to leave %s", which)
	w.create(ref, &resourcev1beta2.DeviceTaintRule{
		TypeMeta: metav1.TypeMeta{APIVersion: "resource.k8s.io/v1beta2", Kind: "DeviceTaintRule"}, ObjectMeta: metav1.ObjectMeta{Name: ref.Name},
		Spec: resourcev1beta2.DeviceTaintRuleSpec{
			DeviceSelector: &resourcev1beta2.DeviceTaintSelector{Driver: new(driver), Pool: new(chips), Device: &which},
			Taint:          resourcev1beta2.DeviceTaint{Key: cracked, Effect: resourcev1beta2.DeviceTaintEffectNoExecute, TimeAdded: &at},
		},
	})
}

// claimOfPod is the claim that a pod uses; nil while it has none.
func (w *World) claimOfPod(pod *corev1.Pod) *resourcev1.ResourceClaim {
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
	claim, _ := w.api.Get(deviceClaimRef(*name)).(*resourcev1.ResourceClaim)
	if claim == nil || made && !metav1.IsControlledBy(claim, pod) {
		return nil
	}
	return claim
}

func reserved(claim *resourcev1.ResourceClaim, uid types.UID) bool {
	return slices.ContainsFunc(claim.Status.ReservedFor, func(r resourcev1.ResourceClaimConsumerReference) bool { return r.UID == uid })
}

func devicesOf(claim *resourcev1.ResourceClaim) (all []string) {
	if claim.Status.Allocation == nil {
		return nil
	}
	for _, r := range claim.Status.Allocation.Devices.Results {
		all = append(all, r.Device)
	}
	return all
}

// workOnDevices has the scheduler and the kubelet act on a pod that wants devices.
//
// Upstream: pkg/scheduler/framework/plugins/dynamicresources, and pkg/kubelet/cm/dra.
func (w *World) workOnDevices(pod *corev1.Pod, ref events.Ref) {
	claim := w.claimOfPod(pod)
	switch {
	case pod.DeletionTimestamp != nil && working(pod):
		w.does(ref, "kubelet: killed", func(obj metav1.Object) { w.ended(obj, corev1.PodFailed, 137) })
	case pod.DeletionTimestamp != nil:
		w.work = append(w.work, func() { w.note("kubelet: %s is gone", pod.Name); w.api.Finish(ref) })
	case claim == nil || pod.Status.Phase != corev1.PodPending:
	case pod.Spec.NodeName == "" && claim.DeletionTimestamp == nil:
		w.allocate(claim, pod, ref)
	case pod.Spec.NodeName != "" && claim.Status.Allocation != nil && reserved(claim, pod.UID):
		w.does(ref, "kubelet: runs", func(obj metav1.Object) {
			w.run(obj)
			obj.(*corev1.Pod).Status.ContainerStatuses = []corev1.ContainerStatus{{Name: "main", State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}}}
			w.guard.prepares(claim, obj.(*corev1.Pod))
		})
	}
}

// allocate finds a device for a claim, reserves the claim for a pod, and assigns a node to the
// pod.
func (w *World) allocate(claim *resourcev1.ResourceClaim, pod *corev1.Pod, ref events.Ref) {
	at := deviceClaimRef(claim.Name)
	switch {
	case !has(claim, resourcev1.Finalizer):
		w.does(at, "scheduler: holds", func(obj metav1.Object) { obj.SetFinalizers([]string{resourcev1.Finalizer}) })
	case claim.Status.Allocation == nil:
		device := w.freeDevice()
		if device == "" {
			return
		}
		result := resourcev1.DeviceRequestAllocationResult{Request: "chip", Driver: driver, Pool: chips, Device: device}
		if w.roll(2) == 0 {
			seconds := int64(stays / time.Second)
			result.Tolerations = []resourcev1.DeviceToleration{{Key: cracked, Operator: resourcev1.DeviceTolerationOpExists, Effect: resourcev1.DeviceTaintEffectNoExecute, TolerationSeconds: &seconds}}
		}
		w.does(at, "scheduler: "+device+" for "+pod.Name, func(obj metav1.Object) {
			s := &obj.(*resourcev1.ResourceClaim).Status
			s.Allocation = &resourcev1.AllocationResult{Devices: resourcev1.DeviceAllocationResult{Results: []resourcev1.DeviceRequestAllocationResult{result}}}
			s.ReservedFor = append(slices.Clone(s.ReservedFor), consumer(pod))
		})
	case !reserved(claim, pod.UID):
		w.does(at, "scheduler: also for "+pod.Name, func(obj metav1.Object) {
			s := &obj.(*resourcev1.ResourceClaim).Status
			s.ReservedFor = append(slices.Clone(s.ReservedFor), consumer(pod))
		})
	default:
		w.does(ref, "scheduler: on node-0", func(obj metav1.Object) { obj.(*corev1.Pod).Spec.NodeName = "node-0" })
	}
}

func consumer(pod *corev1.Pod) resourcev1.ResourceClaimConsumerReference {
	return resourcev1.ResourceClaimConsumerReference{Resource: "pods", Name: pod.Name, UID: pod.UID}
}

// freeDevice is a device that no claim has, and that its slice does not taint.
func (w *World) freeDevice() string {
	slice, ok := w.api.Get(events.Ref{Kind: kinds.ResourceSlices.Name, Name: chips}).(*resourcev1.ResourceSlice)
	if !ok {
		return ""
	}
	for _, d := range slice.Spec.Devices {
		taken := slices.ContainsFunc(w.api.List(kinds.ResourceClaims.Name), func(obj metav1.Object) bool {
			return slices.Contains(devicesOf(obj.(*resourcev1.ResourceClaim)), d.Name)
		})
		if !taken && len(d.Taints) == 0 {
			return d.Name
		}
	}
	return ""
}
