package resourcequota

import (
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"

	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/services/reconcilers/kube/gate"
)

// meter measures the objects of one kind: it knows the names by which quotas limit
// their usage.
type meter struct {
	measures func(corev1.ResourceName) bool
}

// limited reports whether a quota limits anything that the meter measures.
func (m meter) limited(q *corev1.ResourceQuota) bool {
	for name := range q.Spec.Hard {
		if m.measures(name) {
			return true
		}
	}
	return false
}

// meters are the meters of the kinds with more than a count.
type meters struct{ pods, services, claims, devices meter }

func (v View) meters() meters {
	return meters{
		pods: meter{ofPods}, services: meter{ofServices}, claims: meter{ofClaims}, devices: meter{v.ofDevices},
	}
}

// counts is the prefix of the names for numbers of objects.
const counts = "count/"

func count(kind kinds.Name) corev1.ResourceName { return corev1.ResourceName(counts + string(kind)) }

// aliases are older names for numbers of objects.
var aliases = map[corev1.ResourceName]kinds.Name{
	corev1.ResourceConfigMaps:             kinds.ConfigMaps.Name,
	corev1.ResourceQuotas:                 kinds.ResourceQuotas.Name,
	corev1.ResourceReplicationControllers: kinds.ReplicationControllers.Name,
	corev1.ResourceSecrets:                "secrets",
}

// countOf is the kind of which a name limits only the number of objects; ok is false
// for every other name.
func countOf(name corev1.ResourceName) (kind kinds.Name, ok bool) {
	if kind, ok := aliases[name]; ok {
		return kind, true
	}
	text, ok := strings.CutPrefix(string(name), counts)
	kind = kinds.Name(text)
	return kind, ok && !slices.Contains(uncounted, kind)
}

// uncounted are the kinds that have a meter, and Events, which no quota limits.
var uncounted = []kinds.Name{
	kinds.Pods.Name, kinds.Services.Name, kinds.PersistentVolumeClaims.Name, kinds.ResourceClaims.Name,
	kinds.Events.Name, kinds.NameOf("events.k8s.io", "events"),
}

// Upstream: pkg/quota/v1/evaluator/core/pods.go, MatchingResources.
func ofPods(name corev1.ResourceName) bool {
	switch name {
	case count(kinds.Pods.Name), corev1.ResourcePods,
		corev1.ResourceCPU, corev1.ResourceRequestsCPU, corev1.ResourceLimitsCPU,
		corev1.ResourceMemory, corev1.ResourceRequestsMemory, corev1.ResourceLimitsMemory,
		corev1.ResourceEphemeralStorage, corev1.ResourceRequestsEphemeralStorage, corev1.ResourceLimitsEphemeralStorage:
		return true
	}
	return strings.HasPrefix(string(name), corev1.ResourceHugePagesPrefix) ||
		strings.HasPrefix(string(name), corev1.ResourceRequestsHugePagesPrefix) || extended(name)
}

// extended reports whether a name limits requests of extended resources, such as GPUs.
func extended(name corev1.ResourceName) bool {
	what, requested := strings.CutPrefix(string(name), corev1.DefaultResourceRequestsPrefix)
	return requested && (!native(name) || strings.HasPrefix(what, resourcev1.ResourceDeviceClassPrefix))
}

// native reports whether a name belongs to Kubernetes' own resources.
func native(name corev1.ResourceName) bool {
	return !strings.Contains(string(name), "/") || strings.Contains(string(name), corev1.ResourceDefaultNamespacePrefix)
}

func ofServices(name corev1.ResourceName) bool {
	switch name {
	case count(kinds.Services.Name), corev1.ResourceServices, corev1.ResourceServicesNodePorts, corev1.ResourceServicesLoadBalancers:
		return true
	}
	return false
}

// perStorageClass is between the name of a storage class and the limited resource.
const perStorageClass = ".storageclass.storage.k8s.io/"

func ofClaims(name corev1.ResourceName) bool {
	if name == count(kinds.PersistentVolumeClaims.Name) {
		return true
	}
	for _, what := range []corev1.ResourceName{corev1.ResourcePersistentVolumeClaims, corev1.ResourceRequestsStorage} {
		if name == what || strings.HasSuffix(string(name), perStorageClass+string(what)) {
			return true
		}
	}
	return false
}

// Upstream: pkg/quota/v1/evaluator/core/resource_claims.go, MatchingResources.
func (v View) ofDevices(name corev1.ResourceName) bool {
	if name == count(kinds.ResourceClaims.Name) || strings.HasSuffix(string(name), corev1.ResourceClaimsPerClass) {
		return true
	}
	if !extended(name) || !v.Gates.On(gate.DRAExtendedResource) {
		return false
	}
	what := strings.TrimPrefix(string(name), corev1.DefaultResourceRequestsPrefix)
	return slices.ContainsFunc(v.Classes, func(c *resourcev1.DeviceClass) bool {
		return what == resourcev1.ResourceDeviceClassPrefix+c.Name || what == alias(c)
	})
}

// alias is the extended resource by which pods may request a class' devices; "" if
// there is none.
func alias(c *resourcev1.DeviceClass) string {
	if c.Spec.ExtendedResourceName == nil {
		return ""
	}
	return *c.Spec.ExtendedResourceName
}
