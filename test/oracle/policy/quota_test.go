package policy_test

import (
	"fmt"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"pgregory.net/rapid"

	"github.com/millrace/millrace/services/reconcilers/kube/gate"
	"github.com/millrace/millrace/test/oracle/exemption"
	"github.com/millrace/millrace/test/oracle/objects"
	"github.com/millrace/millrace/test/oracle/oracletest"
	"github.com/millrace/millrace/test/oracle/policy"
)

func TestQuotasAreCountedAsUpstreamDoes(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(r *rapid.T) {
		world := quotaWorld(r)
		gates := oracletest.AnyGates(r, gate.PodLevelResources, gate.DRAExtendedResource)
		diff, err := policy.CompareQuota(t, world, gates)
		if err != nil {
			r.Fatal(err)
		}
		if diff != "" {
			r.Fatalf("upstream (-) and we (+) count differently under %v:\n%s\n%s", gates, diff, oracletest.Page(r, world))
		}
	})
}

// TestQuotaWorldsAreEventful makes sure that upstream counts more than zero of every resource that a quota
// can limit.
func TestQuotaWorldsAreEventful(t *testing.T) {
	left, worlds := map[corev1.ResourceName]bool{}, rapid.Custom(quotaWorld)
	for _, name := range limitable {
		left[name] = name != "count/unheard.of"
	}
	for seed := 0; seed < oracletest.Enough && len(left) > 1; seed++ {
		counted, err := policy.QuotaOfTheirs(t, worlds.Example(seed), nil)
		if err != nil {
			t.Fatal(err)
		}
		for name, amount := range counted.Status.Used {
			if !amount.IsZero() {
				delete(left, name)
			}
		}
	}
	if delete(left, "count/unheard.of"); len(left) > 0 {
		t.Errorf("in %d worlds upstream never counted %v", oracletest.Enough, left)
	}
}

// limitable are all resources that a quota can limit, and one that it cannot.
var limitable = []corev1.ResourceName{
	"pods", "count/pods", "cpu", "memory", "ephemeral-storage", "requests.cpu", "requests.memory", "requests.ephemeral-storage",
	"limits.cpu", "limits.memory", "limits.ephemeral-storage", "hugepages-2Mi", "requests.hugepages-2Mi",
	"requests.example.com/gpu", "requests.deviceclass.resource.kubernetes.io/gold",
	"services", "count/services", "services.nodeports", "services.loadbalancers",
	"persistentvolumeclaims", "count/persistentvolumeclaims", "requests.storage",
	"fast.storageclass.storage.k8s.io/persistentvolumeclaims", "fast.storageclass.storage.k8s.io/requests.storage",
	"count/resourceclaims.resource.k8s.io", "gold.deviceclass.resource.k8s.io/devices", "tin.deviceclass.resource.k8s.io/devices",
	"configmaps", "count/configmaps", "secrets", "count/secrets", "resourcequotas", "count/resourcequotas",
	"count/deployments.apps", "count/unheard.of",
}

func quotaWorld(t *rapid.T) []runtime.Object {
	quota := &corev1.ResourceQuota{ObjectMeta: oracletest.Meta("limits"), Spec: corev1.ResourceQuotaSpec{Hard: corev1.ResourceList{}}}
	for _, name := range rapid.SliceOfNDistinct(rapid.SampledFrom(limitable), 1, 12, rapid.ID).Draw(t, "limited") {
		quota.Spec.Hard[name] = resource.MustParse(rapid.SampledFrom([]string{"1", "2", "10", "1Gi"}).Draw(t, "at"))
	}
	scoped(t, quota)
	switch rapid.IntRange(0, 2).Draw(t, "counted before") {
	case 1:
		quota.Status = corev1.ResourceQuotaStatus{Hard: quota.Spec.Hard.DeepCopy(), Used: corev1.ResourceList{}}
	case 2:
		quota.Status.Hard = corev1.ResourceList{"pods": resource.MustParse("3")}
		quota.Status.Used = corev1.ResourceList{"pods": resource.MustParse("2"), "count/unheard.of": resource.MustParse("1")}
	}
	world := []runtime.Object{quota}
	some := func(what string, most int, add func(i int) runtime.Object) {
		for i := range rapid.IntRange(0, most).Draw(t, what) {
			world = append(world, add(i))
		}
	}
	some("classes", 2, func(i int) runtime.Object { return anyClass(t, i) })
	some("pods", 4, func(i int) runtime.Object { return chargedPod(t, i) })
	some("services", 2, func(i int) runtime.Object { return chargedService(t, i) })
	some("claims", 3, func(i int) runtime.Object { return anyClaim(t, i) })
	some("devices", 3, func(i int) runtime.Object { return anyDevices(t, i) })
	some("configmaps", 2, func(i int) runtime.Object {
		return &corev1.ConfigMap{ObjectMeta: oracletest.Meta(fmt.Sprint("c", i))}
	})
	some("secrets", 2, func(i int) runtime.Object { return &corev1.Secret{ObjectMeta: oracletest.Meta(fmt.Sprint("s", i))} })
	some("deployments", 2, func(i int) runtime.Object {
		return &appsv1.Deployment{ObjectMeta: oracletest.Meta(fmt.Sprint("d", i))}
	})
	return world
}

// scoped gives a quota valid scopes.
func scoped(t *rapid.T, q *corev1.ResourceQuota) {
	switch rapid.IntRange(0, 5).Draw(t, "scopes") {
	case 3:
		q.Spec.Scopes = rapid.SliceOfNDistinct(rapid.SampledFrom([]corev1.ResourceQuotaScope{
			"Terminating", "NotTerminating", "BestEffort", "NotBestEffort", "PriorityClass", "CrossNamespacePodAffinity", "VolumeAttributesClass",
		}), 1, 2, rapid.ID).Draw(t, "which")
	case 4, 5:
		s := corev1.ScopedResourceSelectorRequirement{
			ScopeName: rapid.SampledFrom([]corev1.ResourceQuotaScope{"PriorityClass", "VolumeAttributesClass"}).Draw(t, "class of"),
			Operator:  rapid.SampledFrom([]corev1.ScopeSelectorOperator{"In", "NotIn", "Exists", "DoesNotExist"}).Draw(t, "how"),
		}
		if s.Operator == "In" || s.Operator == "NotIn" {
			s.Values = rapid.SliceOfNDistinct(rapid.SampledFrom([]string{"low", "high", "none"}), 1, 2, rapid.ID).Draw(t, "values")
		}
		q.Spec.ScopeSelector = &corev1.ScopeSelector{MatchExpressions: []corev1.ScopedResourceSelectorRequirement{s}}
	}
}

func demand(t *rapid.T, what string) corev1.ResourceList {
	list := corev1.ResourceList{}
	for _, name := range rapid.SliceOfNDistinct(rapid.SampledFrom([]corev1.ResourceName{
		"cpu", "memory", "ephemeral-storage", "hugepages-2Mi", "example.com/gpu", "deviceclass.resource.kubernetes.io/gold", "kubernetes.io/own",
	}), 0, 4, rapid.ID).Draw(t, what) {
		list[name] = resource.MustParse(rapid.SampledFrom([]string{"0", "100m", "1", "2Gi"}).Draw(t, "amount"))
	}
	return list
}

func demands(t *rapid.T, what string) corev1.ResourceRequirements {
	return corev1.ResourceRequirements{Requests: demand(t, what+" requests"), Limits: demand(t, what+" limits")}
}

func chargedPod(t *rapid.T, i int) *corev1.Pod {
	p := &corev1.Pod{ObjectMeta: oracletest.Meta(fmt.Sprint("p", i))}
	p.Spec.Containers = []corev1.Container{{Name: "main", Resources: demands(t, "main")}}
	if rapid.Bool().Draw(t, "init") {
		p.Spec.InitContainers = []corev1.Container{{Name: "init", Resources: demands(t, "init")}}
		if rapid.Bool().Draw(t, "sidecar") {
			p.Spec.InitContainers[0].RestartPolicy = oracletest.Ptr(corev1.ContainerRestartPolicyAlways)
		}
	}
	if rapid.IntRange(0, 4).Draw(t, "of the pod") == 4 {
		p.Spec.Resources = oracletest.Ptr(demands(t, "pod"))
	}
	if rapid.IntRange(0, 4).Draw(t, "overhead") == 4 {
		p.Spec.Overhead = demand(t, "overhead")
	}
	if rapid.IntRange(0, 3).Draw(t, "resized") == 3 {
		p.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: "main", AllocatedResources: demand(t, "allocated"), Resources: oracletest.Ptr(demands(t, "actual"))}}
	}
	p.Spec.PriorityClassName = rapid.SampledFrom([]string{"", "low", "high"}).Draw(t, "priority")
	if rapid.IntRange(0, 2).Draw(t, "deadline") == 2 {
		p.Spec.ActiveDeadlineSeconds = oracletest.Ptr(int64(30))
	}
	if rapid.IntRange(0, 4).Draw(t, "affinity") == 4 {
		term := corev1.PodAffinityTerm{TopologyKey: "zone"}
		if rapid.Bool().Draw(t, "elsewhere") {
			term.Namespaces = []string{"elsewhere"}
		}
		p.Spec.Affinity = &corev1.Affinity{PodAntiAffinity: &corev1.PodAntiAffinity{
			PreferredDuringSchedulingIgnoredDuringExecution: []corev1.WeightedPodAffinityTerm{{PodAffinityTerm: term}},
		}}
	}
	p.Status.Phase = rapid.SampledFrom([]corev1.PodPhase{"Pending", "Running", "Running", "Succeeded", "Failed"}).Draw(t, "phase")
	p.Status.QOSClass = rapid.SampledFrom([]corev1.PodQOSClass{"", "", "BestEffort", "Burstable"}).Draw(t, "said")
	if rapid.IntRange(0, 3).Draw(t, "leaving") == 3 {
		p.DeletionTimestamp, p.Finalizers = oracletest.Ptr(oracletest.Before(objects.Now, rapid.SampledFrom([]int{10, 50}).Draw(t, "since"))), []string{"x"}
		p.DeletionGracePeriodSeconds = oracletest.Ptr(int64(30))
	}
	if rapid.IntRange(0, 2).Draw(t, "knows its claim") == 2 {
		p.Status.ExtendedResourceClaimStatus = &corev1.PodExtendedResourceClaimStatus{ResourceClaimName: fmt.Sprint("r", rapid.IntRange(0, 2).Draw(t, "which"))}
	}
	return p
}

func chargedService(t *rapid.T, i int) *corev1.Service {
	s := &corev1.Service{ObjectMeta: oracletest.Meta(fmt.Sprint("s", i))}
	s.Spec.Type = rapid.SampledFrom([]corev1.ServiceType{"ClusterIP", "NodePort", "LoadBalancer", "ExternalName"}).Draw(t, "type")
	for range rapid.IntRange(0, 3).Draw(t, "ports") {
		s.Spec.Ports = append(s.Spec.Ports, corev1.ServicePort{NodePort: rapid.SampledFrom([]int32{0, 30000}).Draw(t, "port")})
	}
	if rapid.Bool().Draw(t, "says") {
		s.Spec.AllocateLoadBalancerNodePorts = oracletest.Ptr(rapid.Bool().Draw(t, "allocate"))
	}
	return s
}

func anyClaim(t *rapid.T, i int) *corev1.PersistentVolumeClaim {
	c := &corev1.PersistentVolumeClaim{ObjectMeta: oracletest.Meta(fmt.Sprint("v", i))}
	amount := func(what string) corev1.ResourceList {
		return corev1.ResourceList{"storage": resource.MustParse(rapid.SampledFrom([]string{"1", "1500m", "1Gi"}).Draw(t, what))}
	}
	class := func(what string) *string {
		return oracletest.Ptr(rapid.SampledFrom([]string{"", "low", "high"}).Draw(t, what))
	}
	if rapid.IntRange(0, 3).Draw(t, "asks") > 0 {
		c.Spec.Resources.Requests = amount("for")
	}
	if rapid.Bool().Draw(t, "was given") {
		c.Status.AllocatedResources = amount("given")
	}
	if rapid.Bool().Draw(t, "class") {
		c.Spec.StorageClassName = oracletest.Ptr(rapid.SampledFrom([]string{"", "fast"}).Draw(t, "storage class"))
	}
	if rapid.IntRange(0, 3).Draw(t, "old class") == 3 {
		c.Annotations = map[string]string{corev1.BetaStorageClassAnnotation: rapid.SampledFrom([]string{"", "fast", "slow"}).Draw(t, "note")}
	}
	if rapid.Bool().Draw(t, "attributes") {
		c.Spec.VolumeAttributesClassName, c.Status.CurrentVolumeAttributesClassName = class("wanted"), class("current")
		c.Status.ModifyVolumeStatus = &corev1.ModifyVolumeStatus{TargetVolumeAttributesClassName: *class("target")}
	}
	return c
}

// anyClass is one of two device classes, one of which may have an extended resource name. If two had the same
// name, upstream would pick one by chance.
func anyClass(t *rapid.T, i int) *resourcev1.DeviceClass {
	c := &resourcev1.DeviceClass{ObjectMeta: metav1.ObjectMeta{Name: []string{"gold", "tin"}[i], UID: types.UID(fmt.Sprint("class-", i))}}
	exemption.Uses("device-classes-of-one-name")
	if i == 0 && rapid.Bool().Draw(t, "extended") {
		c.Spec.ExtendedResourceName = oracletest.Ptr("example.com/gpu")
	}
	return c
}

func anyDevices(t *rapid.T, i int) *resourcev1.ResourceClaim {
	c := &resourcev1.ResourceClaim{ObjectMeta: oracletest.Meta(fmt.Sprint("r", i))}
	c.CreationTimestamp = metav1.NewTime(objects.Now.Add(-time.Duration(rapid.IntRange(1, 2).Draw(t, "age")) * time.Hour).Truncate(time.Second))
	if rapid.Bool().Draw(t, "for a pod") {
		c.Annotations = map[string]string{resourcev1.ExtendedResourceClaimAnnotation: "true"}
		pod := rapid.SampledFrom([]string{"p0", "p0", "p1"}).Draw(t, "whose")
		c.OwnerReferences = []metav1.OwnerReference{{APIVersion: "v1", Kind: "Pod", Name: pod, UID: types.UID("uid-" + pod), Controller: oracletest.Ptr(true)}}
	}
	how := func() (string, resourcev1.DeviceAllocationMode, int64) {
		return rapid.SampledFrom([]string{"gold", "tin"}).Draw(t, "class"),
			rapid.SampledFrom([]resourcev1.DeviceAllocationMode{"ExactCount", "ExactCount", "All", "New"}).Draw(t, "mode"),
			rapid.Int64Range(1, 4).Draw(t, "count")
	}
	for range rapid.IntRange(0, 2).Draw(t, "requests") {
		var r resourcev1.DeviceRequest
		if rapid.Bool().Draw(t, "exactly") {
			class, mode, n := how()
			r.Exactly = &resourcev1.ExactDeviceRequest{DeviceClassName: class, AllocationMode: mode, Count: n}
		} else {
			for range rapid.IntRange(1, 3).Draw(t, "options") {
				class, mode, n := how()
				r.FirstAvailable = append(r.FirstAvailable, resourcev1.DeviceSubRequest{DeviceClassName: class, AllocationMode: mode, Count: n})
			}
		}
		c.Spec.Devices.Requests = append(c.Spec.Devices.Requests, r)
	}
	return c
}
