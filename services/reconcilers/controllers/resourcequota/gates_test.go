package resourcequota

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/millrace/millrace/services/reconcilers/kube/gate"
	"github.com/millrace/millrace/services/reconcilers/reconciletest"
)

func TestGates(t *testing.T) {
	v := View{Classes: []*resourcev1.DeviceClass{gold()}}
	off := v
	off.Gates = gate.Set{gate.PodLevelResources: false, gate.DRAExtendedResource: false}
	c := devices("d", resourcev1.DeviceRequest{Exactly: &resourcev1.ExactDeviceRequest{DeviceClassName: "gold", AllocationMode: resourcev1.DeviceAllocationModeExactCount, Count: 2}})
	if gpus := v.deviceUsage(c, now)["requests.example.com/gpu"]; gpus.Value() != 2 {
		t.Errorf("a claim counts as %v of the extended resource", &gpus)
	}
	if used := off.deviceUsage(c, now); len(used) != 2 {
		t.Errorf("without DRAExtendedResource a claim counts as %v", used)
	}
	if name := corev1.ResourceName("requests.example.com/gpu"); !v.ofDevices(name) || off.ofDevices(name) {
		t.Error("the extended resource is measured by claims where DRAExtendedResource is on, and nowhere else")
	}
	p := reconciletest.Pod("p")
	p.Spec.Containers = []corev1.Container{{Name: "c"}}
	p.Spec.Resources = &corev1.ResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("3")}}
	if cpu := v.podUsage(p, now)[corev1.ResourceCPU]; cpu.Value() != 3 || v.bestEffort(p) {
		t.Errorf("a pod that requests 3 as a whole uses %v, and is best effort: %v", &cpu, v.bestEffort(p))
	}
	if cpu := off.podUsage(p, now)[corev1.ResourceCPU]; !cpu.IsZero() || !off.bestEffort(p) {
		t.Errorf("without PodLevelResources it uses %v, and is best effort: %v", &cpu, off.bestEffort(p))
	}
}
