package resourcequota

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/millrace/millrace/pkg/events/kinds"
)

// exposure is the type of a Service that is reachable from outside; "" for one
// that is not.
func exposure(s *corev1.Service) corev1.ServiceType {
	switch s.Spec.Type {
	case corev1.ServiceTypeNodePort, corev1.ServiceTypeLoadBalancer:
		return s.Spec.Type
	default:
		return ""
	}
}

// Upstream: pkg/quota/v1/evaluator/core/services.go.
func serviceUsage(s *corev1.Service) corev1.ResourceList {
	used := corev1.ResourceList{count(kinds.Services.Name): one, corev1.ResourceServices: one}
	if ports := nodePorts(s); ports > 0 {
		used[corev1.ResourceServicesNodePorts] = *resource.NewQuantity(ports, resource.DecimalSI)
	}
	if exposure(s) == corev1.ServiceTypeLoadBalancer {
		used[corev1.ResourceServicesLoadBalancers] = one
	}
	return used
}

// nodePorts is how many ports of every node a Service uses or will use.
func nodePorts(s *corev1.Service) (ports int64) {
	switch allocate := s.Spec.AllocateLoadBalancerNodePorts; {
	case exposure(s) == "":
		return 0
	case exposure(s) == corev1.ServiceTypeNodePort, allocate == nil, *allocate:
		return int64(len(s.Spec.Ports))
	}
	for _, p := range s.Spec.Ports {
		if p.NodePort != 0 {
			ports++
		}
	}
	return ports
}
