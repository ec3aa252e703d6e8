package resourcequota

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/millrace/millrace/services/reconcilers/kube/gate"
	"github.com/millrace/millrace/services/reconcilers/reconciletest"
)

// The usage that a quota reports for every resource that it can limit, with a few objects.
func TestWhatAQuotaSays(t *testing.T) {
	pod := reconciletest.Pod("p", asking(
		amounts("cpu", "1", "memory", "2", "ephemeral-storage", "3", "hugepages-2Mi", "4", "example.com/gpu", "5"),
		amounts("cpu", "6", "memory", "7", "ephemeral-storage", "8")))
	claim := &corev1.PersistentVolumeClaim{ObjectMeta: some("c").ObjectMeta, Spec: corev1.PersistentVolumeClaimSpec{
		StorageClassName: ptr.To("gold"), Resources: corev1.VolumeResourceRequirements{Requests: amounts("storage", "9")},
	}}
	balanced := &corev1.Service{ObjectMeta: some("s").ObjectMeta, Spec: corev1.ServiceSpec{Type: "LoadBalancer", AllocateLoadBalancerNodePorts: ptr.To(true), Ports: make([]corev1.ServicePort, 2)}}
	exposed := &corev1.Service{ObjectMeta: some("t").ObjectMeta, Spec: corev1.ServiceSpec{Type: "NodePort", AllocateLoadBalancerNodePorts: ptr.To(false), Ports: make([]corev1.ServicePort, 3)}}
	v := View{
		Pods: []*corev1.Pod{pod}, Claims: []*corev1.PersistentVolumeClaim{claim}, Services: []*corev1.Service{balanced, exposed},
		Devices: []*resourcev1.ResourceClaim{devices("d", exactly("tin", 10))}, Period: DefaultPeriod,
	}
	for name, want := range map[string]string{
		"pods": "1", "count/pods": "1", "cpu": "1", "requests.cpu": "1", "limits.cpu": "6", "memory": "2", "requests.memory": "2", "limits.memory": "7",
		"ephemeral-storage": "3", "requests.ephemeral-storage": "3", "limits.ephemeral-storage": "8", "hugepages-2Mi": "4", "requests.hugepages-2Mi": "4",
		"requests.example.com/gpu": "5", "services": "2", "count/services": "2", "services.nodeports": "5", "services.loadbalancers": "1",
		"persistentvolumeclaims": "1", "count/persistentvolumeclaims": "1", "requests.storage": "9",
		"gold.storageclass.storage.k8s.io/requests.storage": "9", "gold.storageclass.storage.k8s.io/persistentvolumeclaims": "1",
		"tin.storageclass.storage.k8s.io/requests.storage": "0", "count/resourceclaims.resource.k8s.io": "1", "tin.deviceclass.resource.k8s.io/devices": "10",
	} {
		v.Quota = quota(amounts(name, "99"))
		must(t, "of "+name+" it", v.used(now), name, want)
	}
	v.Quota = quota(amounts("unheard.of/things", "99"))
	must(t, "of what is not counted it", v.used(now))
}

// A quota has a turn when a terminating pod that it counts should be gone.
func TestWhenAPodIsFreed(t *testing.T) {
	const grace = 30 * time.Second
	for what, c := range map[string]struct {
		hard  string
		scope corev1.ResourceQuotaScope
		edit  func(*corev1.Pod)
		want  time.Duration // 0: never
	}{
		"it is counted":               {"pods", "", nil, grace},
		"its requests are":            {"requests.cpu", "", nil, grace},
		"all pods are, dead or alive": {"count/pods", "", nil, 0},
		"nothing of it is":            {"limits.memory", "", nil, 0},
		"it has ended":                {"pods", "", func(p *corev1.Pod) { p.Status.Phase = corev1.PodFailed }, 0},
		"it should have gone":         {"pods", "", func(p *corev1.Pod) { p.DeletionTimestamp.Time = now.Add(-grace) }, 0},
		"it is about to go":           {"pods", "", func(p *corev1.Pod) { p.DeletionTimestamp.Time = now.Add(1 - grace) }, 1},
		"it stays":                    {"pods", "", func(p *corev1.Pod) { p.DeletionTimestamp = nil }, 0},
		"it has all the time":         {"pods", "", func(p *corev1.Pod) { p.DeletionGracePeriodSeconds = nil }, 0},
		"it is in the scope":          {"pods", corev1.ResourceQuotaScopeNotBestEffort, nil, grace},
		"it is not in the scope":      {"pods", corev1.ResourceQuotaScopeBestEffort, nil, 0},
	} {
		p := reconciletest.Pod("p", asking(amounts("cpu", "1"), nil), reconciletest.Deleted[*corev1.Pod](now))
		p.DeletionGracePeriodSeconds = ptr.To(int64(grace / time.Second))
		later := p.DeepCopy()
		later.Name, later.DeletionGracePeriodSeconds = "later", ptr.To(int64(60))
		if c.edit != nil {
			c.edit(p)
		}
		v := View{Quota: quota(amounts(c.hard, "9")), Period: -1, Pods: []*corev1.Pod{p}}
		if c.scope != "" {
			v.Quota.Spec.Scopes = []corev1.ResourceQuotaScope{c.scope}
		}
		got, want := v.next(now), now.Add(c.want)
		if c.want == 0 {
			want = time.Time{}
		}
		if !got.Equal(want) {
			t.Errorf("%s: the next turn is at %v, want %v", what, got, want)
		}
		if v.Pods = []*corev1.Pod{later, p}; c.want == grace && !v.next(now).Equal(want) {
			t.Errorf("%s: beside one that goes later it is looked at again at %v, want %v", what, v.next(now), want)
		}
	}
}

// A request with a class and with alternatives counts as its alternatives alone.
func TestARequestThatIsBoth(t *testing.T) {
	both := exactly("gold", 2)
	both.FirstAvailable = []resourcev1.DeviceSubRequest{{DeviceClassName: "tin", AllocationMode: resourcev1.DeviceAllocationModeExactCount, Count: 3}}
	if got := atMost(both); got["gold"] != 0 || got["tin"] != 3 {
		t.Errorf("the request is for %v, want the most of its alternatives", got)
	}
	if got := atMost(resourcev1.DeviceRequest{}); len(got) != 0 {
		t.Errorf("one for nothing is for %v", got)
	}
}

// The default period is five minutes, and gates that the controller does not read are no settings.
func TestDefaults(t *testing.T) {
	if got := string(New(Config{Gates: gate.Set{gate.HPAScaleToZero: true}}).Settings); got != `{"quotaPeriod":300000000000}` {
		t.Errorf("the settings are %s", got)
	}
}

// The two classes of a claim, wanted and current, are compared without order.
func TestClassesOfAClaim(t *testing.T) {
	c := func(now, current string) *corev1.PersistentVolumeClaim {
		return &corev1.PersistentVolumeClaim{
			ObjectMeta: metav1.ObjectMeta{Name: "c"}, Spec: corev1.PersistentVolumeClaimSpec{VolumeAttributesClassName: &now},
			Status: corev1.PersistentVolumeClaimStatus{CurrentVolumeAttributesClassName: &current},
		}
	}
	if claimDiffers(c("fast", "slow"), c("slow", "fast")) || !claimDiffers(c("fast", "slow"), c("fast", "fast")) {
		t.Error("classes are compared in an order, or not at all")
	}
}
