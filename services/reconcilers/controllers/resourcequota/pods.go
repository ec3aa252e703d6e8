package resourcequota

import (
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/util/validation"
	podresource "k8s.io/component-helpers/resource"

	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/services/reconcilers/kube/gate"
)

var one = *resource.NewQuantity(1, resource.DecimalSI)

// podUsage is the usage of a pod. A pod that has ended, or is overdue, counts as an
// object and uses nothing.
//
// Upstream: pkg/quota/v1/evaluator/core/pods.go, PodUsageFunc.
func (v View) podUsage(p *corev1.Pod, now time.Time) corev1.ResourceList {
	used := corev1.ResourceList{count(kinds.Pods.Name): one}
	if ended(p) || overdue(p, now) {
		return used
	}
	how := podresource.PodResourcesOptions{
		UseStatusResources:    true, // a resize in progress counts, too
		SkipPodLevelResources: !v.Gates.On(gate.PodLevelResources),
	}
	requests, limits := podresource.PodRequests(p, how), podresource.PodLimits(p, how)
	used[corev1.ResourcePods] = one
	for name, amount := range requests {
		switch {
		case name == corev1.ResourceCPU, name == corev1.ResourceMemory, name == corev1.ResourceEphemeralStorage,
			strings.HasPrefix(string(name), corev1.ResourceHugePagesPrefix):
			used[name], used[requested(name)] = amount, amount
		}
		if countsAsExtended(name) {
			used[requested(name)] = amount
		}
	}
	for _, name := range []corev1.ResourceName{corev1.ResourceCPU, corev1.ResourceMemory, corev1.ResourceEphemeralStorage} {
		if amount, ok := limits[name]; ok {
			used["limits."+name] = amount
		}
	}
	return used
}

func requested(name corev1.ResourceName) corev1.ResourceName {
	return corev1.DefaultResourceRequestsPrefix + name
}

// countsAsExtended reports whether a quota can limit a pod's requests of a name as an
// extended resource.
//
// Upstream: pkg/scheduler/util, IsDRAExtendedResourceName.
func countsAsExtended(name corev1.ResourceName) bool {
	if strings.HasPrefix(string(name), resourcev1.ResourceDeviceClassPrefix) {
		return true
	}
	return !native(name) && !strings.HasPrefix(string(name), corev1.DefaultResourceRequestsPrefix) &&
		len(validation.IsQualifiedName(string(requested(name)))) == 0
}

func ended(p *corev1.Pod) bool {
	return p.Status.Phase == corev1.PodFailed || p.Status.Phase == corev1.PodSucceeded
}

// overdue reports whether a terminating pod has used up its grace period. Its node is
// lost, and no quota should be charged for it.
func overdue(p *corev1.Pod, now time.Time) bool {
	at, leaving := due(p)
	return leaving && !now.Before(at)
}

// due is when a terminating pod should have gone.
func due(p *corev1.Pod) (at time.Time, leaving bool) {
	if p.DeletionTimestamp == nil || p.DeletionGracePeriodSeconds == nil {
		return time.Time{}, false
	}
	return p.DeletionTimestamp.Add(time.Duration(*p.DeletionGracePeriodSeconds) * time.Second), true
}

// inScope reports whether a pod is in one scope of a quota.
func (v View) inScope(p *corev1.Pod, scope corev1.ScopedResourceSelectorRequirement) bool {
	switch scope.ScopeName {
	case corev1.ResourceQuotaScopeTerminating:
		return terminating(p)
	case corev1.ResourceQuotaScopeNotTerminating:
		return !terminating(p)
	case corev1.ResourceQuotaScopeBestEffort:
		return v.bestEffort(p)
	case corev1.ResourceQuotaScopeNotBestEffort:
		return !v.bestEffort(p)
	case corev1.ResourceQuotaScopePriorityClass:
		return selects(scope, classesOf(p.Spec.PriorityClassName))
	case corev1.ResourceQuotaScopeCrossNamespacePodAffinity:
		return crossesNamespaces(p)
	default:
		return false
	}
}

// terminating reports whether a pod has an active deadline.
func terminating(p *corev1.Pod) bool {
	return p.Spec.ActiveDeadlineSeconds != nil && *p.Spec.ActiveDeadlineSeconds >= 0
}

// bestEffort reports whether a pod has the QoS class BestEffort.
func (v View) bestEffort(p *corev1.Pod) bool {
	if p.Status.QOSClass != "" {
		return p.Status.QOSClass == corev1.PodQOSBestEffort
	}
	if p.Spec.Resources != nil && v.Gates.On(gate.PodLevelResources) {
		return !promises(*p.Spec.Resources)
	}
	asks := func(c corev1.Container) bool { return promises(c.Resources) }
	return !slices.ContainsFunc(p.Spec.Containers, asks) && !slices.ContainsFunc(p.Spec.InitContainers, asks)
}

// promises reports whether a container or pod requests, or is limited in, CPU or
// memory.
func promises(r corev1.ResourceRequirements) bool {
	for _, list := range []corev1.ResourceList{r.Requests, r.Limits} {
		for _, name := range []corev1.ResourceName{corev1.ResourceCPU, corev1.ResourceMemory} {
			if amount, ok := list[name]; ok && amount.Sign() > 0 {
				return true
			}
		}
	}
	return false
}

// crossesNamespaces reports whether a pod has affinity or anti-affinity terms about
// other namespaces.
func crossesNamespaces(p *corev1.Pod) bool {
	if p.Spec.Affinity == nil {
		return false
	}
	var terms []corev1.PodAffinityTerm
	weighted := func(all []corev1.WeightedPodAffinityTerm) {
		for _, t := range all {
			terms = append(terms, t.PodAffinityTerm)
		}
	}
	if near := p.Spec.Affinity.PodAffinity; near != nil {
		terms = append(terms, near.RequiredDuringSchedulingIgnoredDuringExecution...)
		weighted(near.PreferredDuringSchedulingIgnoredDuringExecution)
	}
	if far := p.Spec.Affinity.PodAntiAffinity; far != nil {
		terms = append(terms, far.RequiredDuringSchedulingIgnoredDuringExecution...)
		weighted(far.PreferredDuringSchedulingIgnoredDuringExecution)
	}
	return slices.ContainsFunc(terms, func(t corev1.PodAffinityTerm) bool { return len(t.Namespaces) > 0 || t.NamespaceSelector != nil })
}
