package resourcequota

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/millrace/millrace/services/reconcilers/reconciletest"
)

func of(scope corev1.ResourceQuotaScope, how corev1.ScopeSelectorOperator, values ...string) corev1.ScopedResourceSelectorRequirement {
	return corev1.ScopedResourceSelectorRequirement{ScopeName: scope, Operator: how, Values: values}
}

func TestScopesOfPods(t *testing.T) {
	plain := reconciletest.Pod("p")
	ends := reconciletest.Pod("p", func(p *corev1.Pod) { p.Spec.ActiveDeadlineSeconds = ptr.To(int64(0)) })
	asks := reconciletest.Pod("p", asking(nil, amounts("memory", "1")))
	zero := reconciletest.Pod("p", asking(amounts("cpu", "0", "example.com/gpu", "1"), nil))
	whole := reconciletest.Pod("p", func(p *corev1.Pod) {
		p.Spec.Resources = &corev1.ResourceRequirements{Requests: amounts("cpu", "1")}
	})
	first := reconciletest.Pod("p", func(p *corev1.Pod) {
		p.Spec.InitContainers = []corev1.Container{{Resources: corev1.ResourceRequirements{Requests: amounts("cpu", "1")}}}
	})
	said := reconciletest.Pod("p", asking(amounts("cpu", "1"), nil), func(p *corev1.Pod) { p.Status.QOSClass = corev1.PodQOSBestEffort })
	vip := reconciletest.Pod("p", func(p *corev1.Pod) { p.Spec.PriorityClassName = "vip" })
	near := reconciletest.Pod("p", func(p *corev1.Pod) {
		p.Spec.Affinity = &corev1.Affinity{PodAffinity: &corev1.PodAffinity{
			PreferredDuringSchedulingIgnoredDuringExecution: []corev1.WeightedPodAffinityTerm{{PodAffinityTerm: corev1.PodAffinityTerm{Namespaces: []string{"x"}}}},
		}}
	})
	far := reconciletest.Pod("p", func(p *corev1.Pod) {
		p.Spec.Affinity = &corev1.Affinity{PodAntiAffinity: &corev1.PodAntiAffinity{
			RequiredDuringSchedulingIgnoredDuringExecution: []corev1.PodAffinityTerm{{}, {NamespaceSelector: &metav1.LabelSelector{}}},
		}}
	})
	here := reconciletest.Pod("p", func(p *corev1.Pod) {
		p.Spec.Affinity = &corev1.Affinity{PodAffinity: &corev1.PodAffinity{RequiredDuringSchedulingIgnoredDuringExecution: []corev1.PodAffinityTerm{{}}}}
	})
	for _, c := range []struct {
		scope   corev1.ScopedResourceSelectorRequirement
		in, out []*corev1.Pod
	}{
		{of("Terminating", "Exists"), []*corev1.Pod{ends}, []*corev1.Pod{plain}},
		{of("NotTerminating", "Exists"), []*corev1.Pod{plain}, []*corev1.Pod{ends}},
		{of("BestEffort", "Exists"), []*corev1.Pod{plain, zero, said}, []*corev1.Pod{asks, whole, first}},
		{of("NotBestEffort", "Exists"), []*corev1.Pod{asks, whole, first}, []*corev1.Pod{plain, zero, said}},
		{of("PriorityClass", "Exists"), []*corev1.Pod{vip}, []*corev1.Pod{plain}},
		{of("PriorityClass", "DoesNotExist"), []*corev1.Pod{plain}, []*corev1.Pod{vip}},
		{of("PriorityClass", "In", "low", "vip"), []*corev1.Pod{vip}, []*corev1.Pod{plain}},
		{of("PriorityClass", "NotIn", "vip"), []*corev1.Pod{plain}, []*corev1.Pod{vip}},
		{of("PriorityClass", "Nonsense", "vip"), nil, []*corev1.Pod{plain, vip}},
		{of("CrossNamespacePodAffinity", "Exists"), []*corev1.Pod{near, far}, []*corev1.Pod{plain, here}},
		{of("VolumeAttributesClass", "Exists"), nil, []*corev1.Pod{plain}},
	} {
		for _, p := range c.in {
			if !(View{}).inScope(p, c.scope) {
				t.Errorf("%+v is not in %v", p.Spec, c.scope)
			}
		}
		for _, p := range c.out {
			if (View{}).inScope(p, c.scope) {
				t.Errorf("%+v is in %v", p.Spec, c.scope)
			}
		}
	}
}

func TestScopesOfClaims(t *testing.T) {
	c := &corev1.PersistentVolumeClaim{
		Spec: corev1.PersistentVolumeClaimSpec{VolumeAttributesClassName: ptr.To("fast")},
		Status: corev1.PersistentVolumeClaimStatus{
			CurrentVolumeAttributesClassName: ptr.To("slow"),
			ModifyVolumeStatus:               &corev1.ModifyVolumeStatus{TargetVolumeAttributesClassName: "fast"},
		},
	}
	for _, s := range []struct {
		scope       corev1.ScopedResourceSelectorRequirement
		some, plain bool
	}{
		{of("VolumeAttributesClass", "Exists"), true, false},
		{of("VolumeAttributesClass", "DoesNotExist"), false, true},
		{of("VolumeAttributesClass", "In", "slow"), true, false},
		{of("VolumeAttributesClass", "In", "other"), false, false},
		{of("VolumeAttributesClass", "NotIn", "slow"), true, true},
		{of("VolumeAttributesClass", "NotIn", "slow", "fast"), false, true},
		{of("BestEffort", "Exists"), false, false},
	} {
		if got := claimInScope(c, s.scope); got != s.some {
			t.Errorf("a claim is in %v: %t", s.scope, got)
		}
		if got := claimInScope(&corev1.PersistentVolumeClaim{}, s.scope); got != s.plain {
			t.Errorf("a claim without a class is in %v: %t", s.scope, got)
		}
	}
}

// In a quota with scopes, only pods and claims count.
func TestOnlyWhatCanBeInAScopeCounts(t *testing.T) {
	hard := amounts("pods", "9", "services", "9", "secrets", "9")
	v := View{
		Quota: quota(hard, corev1.ResourceQuotaScopeBestEffort), Pods: []*corev1.Pod{reconciletest.Pod("p")},
		Services: []*corev1.Service{{}}, Counts: map[corev1.ResourceName]int64{"secrets": 3},
	}
	must(t, "a scope", v.used(now), "pods", "1", "services", "0", "secrets", "0")
	v.Quota = quota(hard)
	must(t, "no scope", v.used(now), "pods", "1", "services", "1", "secrets", "3")
}
