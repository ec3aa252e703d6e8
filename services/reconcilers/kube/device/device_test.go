package device_test

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/utils/ptr"

	"github.com/millrace/millrace/services/reconcilers/kube/device"
)

func TestClaimOf(t *testing.T) {
	p := &corev1.Pod{Status: corev1.PodStatus{ResourceClaimStatuses: []corev1.PodResourceClaimStatus{
		{Name: "none"}, {Name: "made", ResourceClaimName: ptr.To("x")}, {Name: "empty", ResourceClaimName: ptr.To("")},
	}}}
	by := func(name string) corev1.PodResourceClaim {
		return corev1.PodResourceClaim{Name: name, ResourceClaimTemplateName: ptr.To("t")}
	}
	for _, c := range []struct {
		entry corev1.PodResourceClaim
		what  device.Standing
		name  string
	}{
		{corev1.PodResourceClaim{Name: "made", ResourceClaimName: ptr.To("c")}, device.Given, "c"},
		{corev1.PodResourceClaim{Name: "made"}, device.Unsupported, ""},
		{by("none"), device.Unneeded, ""}, {by("made"), device.Made, "x"}, {by("empty"), device.Unnamed, ""}, {by("new"), device.Unnamed, ""},
	} {
		if what, name := device.ClaimOf(p, &c.entry); what != c.what || name != c.name {
			t.Errorf("the claim of %+v is %s %q, want %s %q", c.entry, what, name, c.what, c.name)
		}
	}
}

func TestReservations(t *testing.T) {
	p := &corev1.Pod{}
	p.UID = "u"
	claim := &resourcev1.ResourceClaim{}
	claim.Status.ReservedFor = []resourcev1.ResourceClaimConsumerReference{{Resource: "pods", Name: "p", UID: "v"}}
	if device.Reserved(claim, p) {
		t.Error("a claim is reserved for another pod of the name")
	}
	claim.Status.ReservedFor[0].UID = "u"
	if !device.Reserved(claim, p) {
		t.Error("a claim is not reserved for the pod that it names")
	}
	for want, by := range map[bool]resourcev1.ResourceClaimConsumerReference{true: {Resource: "pods"}, false: {APIGroup: "scheduling.k8s.io", Resource: "podgroups"}} {
		if device.IsPod(by) != want || device.IsPod(resourcev1.ResourceClaimConsumerReference{APIGroup: "x", Resource: "pods"}) {
			t.Errorf("%+v is a pod: %v", by, !want)
		}
	}
}

func TestTolerates(t *testing.T) {
	taint := resourcev1.DeviceTaint{Key: "k", Value: "v", Effect: resourcev1.DeviceTaintEffectNoExecute}
	for _, c := range []struct {
		by   resourcev1.DeviceToleration
		want bool
	}{
		{resourcev1.DeviceToleration{Operator: resourcev1.DeviceTolerationOpExists}, true},
		{resourcev1.DeviceToleration{Key: "k", Operator: resourcev1.DeviceTolerationOpExists}, true},
		{resourcev1.DeviceToleration{Key: "x", Operator: resourcev1.DeviceTolerationOpExists}, false},
		{resourcev1.DeviceToleration{Key: "k", Value: "v"}, true},
		{resourcev1.DeviceToleration{Key: "k", Value: "v", Operator: resourcev1.DeviceTolerationOpEqual}, true},
		{resourcev1.DeviceToleration{Key: "k", Value: "x", Operator: resourcev1.DeviceTolerationOpEqual}, false},
		{resourcev1.DeviceToleration{Key: "k", Value: "v", Operator: "Newer"}, false},
		{resourcev1.DeviceToleration{Key: "k", Value: "v", Effect: resourcev1.DeviceTaintEffectNoSchedule}, false},
		{resourcev1.DeviceToleration{Key: "k", Value: "v", Effect: resourcev1.DeviceTaintEffectNoExecute}, true},
	} {
		if got := device.Tolerates(c.by, taint); got != c.want {
			t.Errorf("%+v tolerates %+v: %v", c.by, taint, got)
		}
	}
}
