package kinds

import (
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
)

// The kinds that controllers read in full, sorted by group and name. A kind
// that only the garbage collector looks at needs no line here: discovery finds
// it, and its metadata is enough.
var (
	ConfigMaps      = Of[*corev1.ConfigMap]{core("configmaps", "ConfigMap", namespaced)}
	Namespaces      = Of[*corev1.Namespace]{core("namespaces", "Namespace", clusterScoped)}
	Pods            = Of[*corev1.Pod]{core("pods", "Pod", namespaced)}
	ServiceAccounts = Of[*corev1.ServiceAccount]{core("serviceaccounts", "ServiceAccount", namespaced)}

	Deployments = Of[*appsv1.Deployment]{apps("deployments", "Deployment")}
	ReplicaSets = Of[*appsv1.ReplicaSet]{apps("replicasets", "ReplicaSet")}
)

// Events is the kind that controllers record what they did in. It is written,
// never read.
var Events = Of[*corev1.Event]{core("events", "Event", namespaced)}

const (
	namespaced    = true
	clusterScoped = false
)

func core(resource, kind string, namespaced bool) Kind {
	return Kind{Name: Name(resource), Version: "v1", Kind: kind, Namespaced: namespaced, Form: Full}
}

func apps(resource, kind string) Kind {
	return Kind{Name: NameOf("apps", resource), Version: "v1", Kind: kind, Namespaced: true, Form: Full}
}
