module github.com/millrace/millrace/bad

require (
	k8s.io/api v0.36.3
	k8s.io/client-go v0.35.1 // want: one binary speaks one version of the API
	k8s.io/klog/v2 v2.140.0
	k8s.io/kubernetes v1.36.2 // want: k8s.io/kubernetes is of Kubernetes 36.2
	sigs.k8s.io/yaml v1.6.0
)
