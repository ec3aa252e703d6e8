package resourcequota

import (
	"encoding/json"
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"pgregory.net/rapid"

	"github.com/millrace/millrace/services/reconcilers/reconcile"
	"github.com/millrace/millrace/services/reconcilers/reconciletest"
)

var (
	now        = reconciletest.Now
	controller = New(Config{})
)

func TestStories(t *testing.T) { reconciletest.Stories(t, controller) }

func TestLaws(t *testing.T) {
	reconciletest.Laws(t, controller, rapid.Custom(anyView), now,
		reconciletest.Indifferent(func(t *rapid.T, v View) View {
			v.Pods = rapid.Permutation(v.Pods).Draw(t, "pods")
			v.Devices = rapid.Permutation(v.Devices).Draw(t, "devices")
			return v
		}),
		reconciletest.Content(2, func(v View, d reconcile.Decision, _ time.Time) View {
			told := &corev1.ResourceQuota{}
			if err := json.Unmarshal(d.Commands[0].Body, told); err != nil {
				panic(err)
			}
			v.Quota = told
			return v
		}))
}

// amounts is a list of amounts, given as pairs of names and texts.
func amounts(pairs ...string) corev1.ResourceList {
	list := corev1.ResourceList{}
	for i := 0; i < len(pairs); i += 2 {
		list[corev1.ResourceName(pairs[i])] = resource.MustParse(pairs[i+1])
	}
	return list
}

func quota(hard corev1.ResourceList, scopes ...corev1.ResourceQuotaScope) *corev1.ResourceQuota {
	return &corev1.ResourceQuota{
		ObjectMeta: metav1.ObjectMeta{Namespace: reconciletest.Namespace, Name: "limits", UID: "4f1c", ResourceVersion: "7"},
		Spec:       corev1.ResourceQuotaSpec{Hard: hard, Scopes: scopes},
	}
}

func asking(requests, limits corev1.ResourceList) reconciletest.Edit[*corev1.Pod] {
	return func(p *corev1.Pod) {
		p.Spec.Containers = []corev1.Container{{Name: "main", Resources: corev1.ResourceRequirements{Requests: requests, Limits: limits}}}
	}
}

func anyView(t *rapid.T) View {
	v := View{Quota: quota(corev1.ResourceList{}), Period: rapid.SampledFrom([]time.Duration{-1, DefaultPeriod}).Draw(t, "period")}
	for _, name := range rapid.SliceOfDistinct(rapid.SampledFrom([]corev1.ResourceName{
		"pods", "count/pods", "cpu", "requests.memory", "limits.cpu", "requests.example.com/gpu", "services.nodeports", "secrets",
		"gold.storageclass.storage.k8s.io/requests.storage", "count/resourceclaims.resource.k8s.io", "count/widgets.example.com",
	}), rapid.ID).Draw(t, "hard") {
		v.Quota.Spec.Hard[name] = resource.MustParse("10")
	}
	if rapid.Bool().Draw(t, "counted before") {
		v.Quota.Status = corev1.ResourceQuotaStatus{Hard: v.Quota.Spec.Hard, Used: amounts("pods", "1", "count/widgets.example.com", "3")}
	}
	if rapid.IntRange(0, 3).Draw(t, "scoped") == 3 {
		v.Quota.Spec.Scopes = []corev1.ResourceQuotaScope{rapid.SampledFrom([]corev1.ResourceQuotaScope{"BestEffort", "Terminating"}).Draw(t, "scope")}
	}
	for i := range rapid.IntRange(0, 4).Draw(t, "pods") {
		p := reconciletest.Pod(fmt.Sprint("p", i), asking(amounts("cpu", "100m", "example.com/gpu", "1"), amounts("cpu", "1")))
		p.Status.Phase = rapid.SampledFrom([]corev1.PodPhase{"", "Running", "Succeeded"}).Draw(t, "phase")
		if rapid.Bool().Draw(t, "leaving") {
			reconciletest.Deleted[*corev1.Pod](now.Add(-20 * time.Second))(p)
			p.DeletionGracePeriodSeconds = ptr.To(rapid.Int64Range(0, 60).Draw(t, "grace"))
		}
		v.Pods = append(v.Pods, p)
	}
	for i := range rapid.IntRange(0, 2).Draw(t, "devices") {
		v.Devices = append(v.Devices, &resourcev1.ResourceClaim{ObjectMeta: metav1.ObjectMeta{Namespace: reconciletest.Namespace, Name: fmt.Sprint("d", i)}})
	}
	if rapid.Bool().Draw(t, "exposed") {
		v.Services = []*corev1.Service{{Spec: corev1.ServiceSpec{Type: corev1.ServiceTypeNodePort, Ports: make([]corev1.ServicePort, 2)}}}
	}
	if _, limited := v.Quota.Spec.Hard["secrets"]; limited {
		v.Counts = map[corev1.ResourceName]int64{"secrets": rapid.Int64Range(0, 3).Draw(t, "secrets")}
	}
	return v
}

func must(t *testing.T, what string, got corev1.ResourceList, want ...string) {
	t.Helper()
	if !equal(got, amounts(want...)) {
		t.Errorf("%s uses %v, want %v", what, got, want)
	}
}

func TestWhatPodsUse(t *testing.T) {
	both := []string{"count/pods", "1", "pods", "1"}
	requests := amounts("cpu", "100m", "memory", "1Gi", "ephemeral-storage", "1", "hugepages-2Mi", "2Mi", "example.com/gpu", "2", "kubernetes.io/own", "3",
		"deviceclass.resource.kubernetes.io/gold", "4")
	full := append([]string{
		"cpu", "100m", "requests.cpu", "100m", "memory", "1Gi", "requests.memory", "1Gi", "ephemeral-storage", "1", "requests.ephemeral-storage", "1",
		"hugepages-2Mi", "2Mi", "requests.hugepages-2Mi", "2Mi", "requests.example.com/gpu", "2", "requests.deviceclass.resource.kubernetes.io/gold", "4",
		"limits.cpu", "1",
	}, both...)
	pod := reconciletest.Pod("p", asking(requests, amounts("cpu", "1", "example.com/gpu", "2")))
	must(t, "a pod", (View{}).podUsage(pod, now), full...)
	ended := pod.DeepCopy()
	ended.Status.Phase = corev1.PodSucceeded
	must(t, "one that has ended", (View{}).podUsage(ended, now), "count/pods", "1")

	leaving := reconciletest.Pod("p", reconciletest.Deleted[*corev1.Pod](now))
	leaving.DeletionGracePeriodSeconds = ptr.To(int64(30))
	must(t, "one that is leaving", (View{}).podUsage(leaving, now.Add(30*time.Second-1)), both...)
	must(t, "one that should have left", (View{}).podUsage(leaving, now.Add(30*time.Second)), "count/pods", "1")

	shrinking := reconciletest.Pod("p", asking(amounts("cpu", "1"), nil))
	shrinking.Status.ContainerStatuses = []corev1.ContainerStatus{{
		Name: "main", AllocatedResources: amounts("cpu", "3"), Resources: &corev1.ResourceRequirements{Requests: amounts("cpu", "2")},
	}}
	must(t, "one that is being resized", (View{}).podUsage(shrinking, now), append([]string{"cpu", "3", "requests.cpu", "3"}, both...)...)
	as := reconciletest.Pod("p", asking(amounts("cpu", "1"), nil))
	as.Spec.Overhead = amounts("cpu", "1")
	as.Spec.InitContainers = []corev1.Container{{Resources: corev1.ResourceRequirements{Requests: amounts("cpu", "5")}}}
	must(t, "one that needs more to begin", (View{}).podUsage(as, now), append([]string{"cpu", "6", "requests.cpu", "6"}, both...)...)
}

func TestWhatServicesUse(t *testing.T) {
	ports := []corev1.ServicePort{{}, {NodePort: 30000}, {}}
	for what, c := range map[string]struct {
		spec corev1.ServiceSpec
		want []string
	}{
		"a service":              {corev1.ServiceSpec{Ports: ports}, nil},
		"one with node ports":    {corev1.ServiceSpec{Ports: ports, Type: "NodePort"}, []string{"services.nodeports", "3"}},
		"one with a balancer":    {corev1.ServiceSpec{Ports: ports, Type: "LoadBalancer"}, []string{"services.nodeports", "3", "services.loadbalancers", "1"}},
		"one with that alone":    {corev1.ServiceSpec{Ports: ports, Type: "LoadBalancer", AllocateLoadBalancerNodePorts: ptr.To(false)}, []string{"services.nodeports", "1", "services.loadbalancers", "1"}},
		"one that is a name":     {corev1.ServiceSpec{Type: "ExternalName"}, nil},
		"one with no ports left": {corev1.ServiceSpec{Type: "NodePort"}, nil},
	} {
		must(t, what, serviceUsage(&corev1.Service{Spec: c.spec}), append(c.want, "services", "1", "count/services", "1")...)
	}
}

func TestWhatClaimsUse(t *testing.T) {
	c := &corev1.PersistentVolumeClaim{Spec: corev1.PersistentVolumeClaimSpec{Resources: corev1.VolumeResourceRequirements{Requests: amounts("storage", "1500m")}}}
	count := []string{"persistentvolumeclaims", "1", "count/persistentvolumeclaims", "1"}
	must(t, "a claim", claimUsage(c), append([]string{"requests.storage", "2"}, count...)...)
	c.Status.AllocatedResources = amounts("storage", "1")
	must(t, "one that got less", claimUsage(c), append([]string{"requests.storage", "2"}, count...)...)
	c.Status.AllocatedResources = amounts("storage", "7500m")
	must(t, "one that got more", claimUsage(c), append([]string{"requests.storage", "8"}, count...)...)
	c.Spec.StorageClassName = ptr.To("gold")
	gold := append([]string{"gold.storageclass.storage.k8s.io/persistentvolumeclaims", "1", "gold.storageclass.storage.k8s.io/requests.storage", "8"}, count...)
	must(t, "one of a class", claimUsage(c), append([]string{"requests.storage", "8"}, gold...)...)
	c.Annotations = map[string]string{corev1.BetaStorageClassAnnotation: ""}
	must(t, "one of no class", claimUsage(c), append([]string{"requests.storage", "8"}, count...)...)
	must(t, "one that asks for nothing", claimUsage(&corev1.PersistentVolumeClaim{}), count...)
}

// gold returns a class whose devices pods may ask for as an extended resource.
func gold() *resourcev1.DeviceClass {
	return &resourcev1.DeviceClass{
		ObjectMeta: metav1.ObjectMeta{Name: "gold"}, Spec: resourcev1.DeviceClassSpec{ExtendedResourceName: ptr.To("example.com/gpu")},
	}
}

func devices(name string, requests ...resourcev1.DeviceRequest) *resourcev1.ResourceClaim {
	return &resourcev1.ResourceClaim{
		ObjectMeta: metav1.ObjectMeta{Namespace: reconciletest.Namespace, Name: name},
		Spec:       resourcev1.ResourceClaimSpec{Devices: resourcev1.DeviceClaim{Requests: requests}},
	}
}

func exactly(class string, n int64) resourcev1.DeviceRequest {
	return resourcev1.DeviceRequest{Exactly: &resourcev1.ExactDeviceRequest{DeviceClassName: class, AllocationMode: resourcev1.DeviceAllocationModeExactCount, Count: n}}
}

func TestWhatDevicesUse(t *testing.T) {
	v := View{Classes: []*resourcev1.DeviceClass{gold()}}
	own := []string{"count/resourceclaims.resource.k8s.io", "1"}
	must(t, "a claim to nothing", v.deviceUsage(devices("d"), now), own...)
	all := resourcev1.DeviceRequest{Exactly: &resourcev1.ExactDeviceRequest{DeviceClassName: "tin", AllocationMode: resourcev1.DeviceAllocationModeAll}}
	newer := resourcev1.DeviceRequest{Exactly: &resourcev1.ExactDeviceRequest{DeviceClassName: "tin", AllocationMode: "Some", Count: 9}}
	must(t, "a claim to all", v.deviceUsage(devices("d", all, newer), now), append([]string{
		"tin.deviceclass.resource.k8s.io/devices", "32", "requests.deviceclass.resource.kubernetes.io/tin", "32",
	}, own...)...)
	must(t, "two requests", v.deviceUsage(devices("d", exactly("gold", 2), exactly("gold", 3)), now), append([]string{
		"gold.deviceclass.resource.k8s.io/devices", "5", "requests.deviceclass.resource.kubernetes.io/gold", "5", "requests.example.com/gpu", "5",
	}, own...)...)
	option := func(n int64) resourcev1.DeviceSubRequest {
		return resourcev1.DeviceSubRequest{DeviceClassName: "tin", AllocationMode: resourcev1.DeviceAllocationModeExactCount, Count: n}
	}
	either := resourcev1.DeviceRequest{FirstAvailable: []resourcev1.DeviceSubRequest{option(1), option(4), option(2)}}
	must(t, "one of several", v.deviceUsage(devices("d", either), now), append([]string{
		"tin.deviceclass.resource.k8s.io/devices", "4", "requests.deviceclass.resource.kubernetes.io/tin", "4",
	}, own...)...)
}

// The extended resource that a pod's request pays is not counted again in the pod's own claim.
// Every other claim counts in full.
func TestWhatAPodHasPaid(t *testing.T) {
	pod := reconciletest.Pod("p", asking(amounts("example.com/gpu", "2"), nil))
	claim := func(name string) *resourcev1.ResourceClaim {
		c := devices(name, exactly("gold", 3))
		c.Annotations = map[string]string{resourcev1.ExtendedResourceClaimAnnotation: "true"}
		c.OwnerReferences = []metav1.OwnerReference{{APIVersion: "v1", Kind: "Pod", Name: "p", UID: pod.UID, Controller: ptr.To(true)}}
		return c
	}
	older := claim("z")
	older.CreationTimestamp = metav1.NewTime(time.Unix(1, 0))
	mine := claim("b")
	mine.CreationTimestamp = metav1.NewTime(time.Unix(2, 0))
	sibling := claim("a")
	sibling.CreationTimestamp = mine.CreationTimestamp
	known := func(name string) *corev1.Pod {
		p := pod.DeepCopy()
		p.Status.ExtendedResourceClaimStatus = &corev1.PodExtendedResourceClaimStatus{ResourceClaimName: name}
		return p
	}
	with := func(edit func(*resourcev1.ResourceClaim)) *resourcev1.ResourceClaim {
		c := mine.DeepCopy()
		edit(c)
		return c
	}
	for what, c := range map[string]struct {
		pod   *corev1.Pod
		all   []*resourcev1.ResourceClaim
		claim *resourcev1.ResourceClaim
		want  string
	}{
		"the pod's only claim":       {pod, []*resourcev1.ResourceClaim{mine}, mine, "1"},
		"the one that the pod names": {known("b"), []*resourcev1.ResourceClaim{older, mine}, mine, "1"},
		"another than it names":      {known("z"), []*resourcev1.ResourceClaim{mine}, mine, "3"},
		"a younger one":              {pod, []*resourcev1.ResourceClaim{older, mine}, mine, "3"},
		"the second by name":         {pod, []*resourcev1.ResourceClaim{sibling, mine}, mine, "3"},
		"the oldest":                 {pod, []*resourcev1.ResourceClaim{older, mine}, older, "1"},
		"one without the note":       {pod, nil, with(func(c *resourcev1.ResourceClaim) { c.Annotations = nil }), "3"},
		"a pod of another uid":       {pod, nil, with(func(c *resourcev1.ResourceClaim) { c.OwnerReferences[0].UID = "other" }), "3"},
		"no pod's":                   {pod, nil, with(func(c *resourcev1.ResourceClaim) { c.OwnerReferences[0].Kind = "Job" }), "3"},
		"a pod's that has gone":      {reconciletest.Pod("q"), nil, mine, "3"},
	} {
		v := View{Classes: []*resourcev1.DeviceClass{gold()}, Devices: c.all, Pods: []*corev1.Pod{c.pod}}
		got := v.deviceUsage(c.claim, now)["requests.example.com/gpu"]
		if got.String() != c.want {
			t.Errorf("%s uses %s of the extended resource, want %s", what, got.String(), c.want)
		}
	}
}
