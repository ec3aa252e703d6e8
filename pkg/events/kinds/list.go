package kinds

import (
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	apiserverinternalv1alpha1 "k8s.io/api/apiserverinternal/v1alpha1"
	appsv1 "k8s.io/api/apps/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	batchv1 "k8s.io/api/batch/v1"
	certificatesv1 "k8s.io/api/certificates/v1"
	certificatesv1beta1 "k8s.io/api/certificates/v1beta1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"
	policyv1 "k8s.io/api/policy/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	resourcev1 "k8s.io/api/resource/v1"
	resourcev1alpha3 "k8s.io/api/resource/v1alpha3"
	resourcev1beta2 "k8s.io/api/resource/v1beta2"
	schedulingv1alpha2 "k8s.io/api/scheduling/v1alpha2"
	storagev1 "k8s.io/api/storage/v1"
	storagemigrationv1beta1 "k8s.io/api/storagemigration/v1beta1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// The kinds that controllers read in full, sorted by group and name. A kind
// that only the garbage collector looks at needs no line here: discovery finds
// it, and its metadata is enough.
var (
	ConfigMaps             = Of[*corev1.ConfigMap]{core("configmaps", "ConfigMap", namespaced)}
	Endpoints              = Of[*corev1.Endpoints]{core("endpoints", "Endpoints", namespaced)}
	Namespaces             = Of[*corev1.Namespace]{core("namespaces", "Namespace", clusterScoped)}
	Nodes                  = Of[*corev1.Node]{core("nodes", "Node", clusterScoped)}
	PersistentVolumeClaims = Of[*corev1.PersistentVolumeClaim]{core("persistentvolumeclaims", "PersistentVolumeClaim", namespaced)}
	PersistentVolumes      = Of[*corev1.PersistentVolume]{core("persistentvolumes", "PersistentVolume", clusterScoped)}
	Pods                   = Of[*corev1.Pod]{core("pods", "Pod", namespaced)}
	ReplicationControllers = Of[*corev1.ReplicationController]{core("replicationcontrollers", "ReplicationController", namespaced)}
	ResourceQuotas         = Of[*corev1.ResourceQuota]{core("resourcequotas", "ResourceQuota", namespaced)}
	ServiceAccounts        = Of[*corev1.ServiceAccount]{core("serviceaccounts", "ServiceAccount", namespaced)}
	Services               = Of[*corev1.Service]{core("services", "Service", namespaced)}

	ControllerRevisions = Of[*appsv1.ControllerRevision]{apps("controllerrevisions", "ControllerRevision")}
	DaemonSets          = Of[*appsv1.DaemonSet]{apps("daemonsets", "DaemonSet")}
	Deployments         = Of[*appsv1.Deployment]{apps("deployments", "Deployment")}
	ReplicaSets         = Of[*appsv1.ReplicaSet]{apps("replicasets", "ReplicaSet")}
	StatefulSets        = Of[*appsv1.StatefulSet]{apps("statefulsets", "StatefulSet")}

	HorizontalPodAutoscalers = Of[*autoscalingv2.HorizontalPodAutoscaler]{Kind{
		Name: "horizontalpodautoscalers.autoscaling", Version: "v2", Kind: "HorizontalPodAutoscaler", Namespaced: namespaced, Form: Full,
	}}

	CronJobs = Of[*batchv1.CronJob]{inGroup("batch", "cronjobs", "CronJob", namespaced)}
	Jobs     = Of[*batchv1.Job]{inGroup("batch", "jobs", "Job", namespaced)}

	CertificateSigningRequests = Of[*certificatesv1.CertificateSigningRequest]{
		inGroup("certificates.k8s.io", "certificatesigningrequests", "CertificateSigningRequest", clusterScoped),
	}

	PodCertificateRequests = Of[*certificatesv1beta1.PodCertificateRequest]{Kind{
		Name: "podcertificaterequests.certificates.k8s.io", Version: "v1beta1", Kind: "PodCertificateRequest", Namespaced: namespaced, Form: Full,
	}}

	// ClusterTrustBundles are beta, and off by default.
	ClusterTrustBundles = Of[*certificatesv1beta1.ClusterTrustBundle]{Kind{
		Name: "clustertrustbundles.certificates.k8s.io", Version: "v1beta1", Kind: "ClusterTrustBundle", Namespaced: clusterScoped, Form: Full,
	}}

	Leases = Of[*coordinationv1.Lease]{inGroup("coordination.k8s.io", "leases", "Lease", namespaced)}

	EndpointSlices = Of[*discoveryv1.EndpointSlice]{inGroup("discovery.k8s.io", "endpointslices", "EndpointSlice", namespaced)}

	IPAddresses  = Of[*networkingv1.IPAddress]{inGroup("networking.k8s.io", "ipaddresses", "IPAddress", clusterScoped)}
	ServiceCIDRs = Of[*networkingv1.ServiceCIDR]{inGroup("networking.k8s.io", "servicecidrs", "ServiceCIDR", clusterScoped)}

	DeviceClasses          = Of[*resourcev1.DeviceClass]{inGroup("resource.k8s.io", "deviceclasses", "DeviceClass", clusterScoped)}
	ResourceClaims         = Of[*resourcev1.ResourceClaim]{inGroup("resource.k8s.io", "resourceclaims", "ResourceClaim", namespaced)}
	ResourceClaimTemplates = Of[*resourcev1.ResourceClaimTemplate]{inGroup("resource.k8s.io", "resourceclaimtemplates", "ResourceClaimTemplate", namespaced)}
	ResourceSlices         = Of[*resourcev1.ResourceSlice]{inGroup("resource.k8s.io", "resourceslices", "ResourceSlice", clusterScoped)}
	DeviceTaintRules       = Of[*resourcev1beta2.DeviceTaintRule]{Kind{
		Name: "devicetaintrules.resource.k8s.io", Version: "v1beta2", Kind: "DeviceTaintRule", Namespaced: clusterScoped, Form: Full,
	}}

	// ResourcePoolStatusRequests are alpha, and off by default.
	ResourcePoolStatusRequests = Of[*resourcev1alpha3.ResourcePoolStatusRequest]{Kind{
		Name: "resourcepoolstatusrequests.resource.k8s.io", Version: "v1alpha3", Kind: "ResourcePoolStatusRequest", Namespaced: clusterScoped, Form: Full,
	}}

	PodDisruptionBudgets = Of[*policyv1.PodDisruptionBudget]{inGroup("policy", "poddisruptionbudgets", "PodDisruptionBudget", namespaced)}

	ClusterRoles = Of[*rbacv1.ClusterRole]{inGroup("rbac.authorization.k8s.io", "clusterroles", "ClusterRole", clusterScoped)}

	PodGroups = Of[*schedulingv1alpha2.PodGroup]{Kind{
		Name: "podgroups.scheduling.k8s.io", Version: "v1alpha2", Kind: "PodGroup", Namespaced: namespaced, Form: Full,
	}}

	StorageVersions = Of[*apiserverinternalv1alpha1.StorageVersion]{Kind{
		Name: "storageversions.internal.apiserver.k8s.io", Version: "v1alpha1", Kind: "StorageVersion", Namespaced: clusterScoped, Form: Full,
	}}

	StorageVersionMigrations = Of[*storagemigrationv1beta1.StorageVersionMigration]{Kind{
		Name: "storageversionmigrations.storagemigration.k8s.io", Version: "v1beta1", Kind: "StorageVersionMigration", Namespaced: clusterScoped, Form: Full,
	}}

	ValidatingAdmissionPolicies = Of[*admissionregistrationv1.ValidatingAdmissionPolicy]{
		inGroup("admissionregistration.k8s.io", "validatingadmissionpolicies", "ValidatingAdmissionPolicy", clusterScoped),
	}

	CSIDrivers              = Of[*storagev1.CSIDriver]{inGroup("storage.k8s.io", "csidrivers", "CSIDriver", clusterScoped)}
	VolumeAttachments       = Of[*storagev1.VolumeAttachment]{inGroup("storage.k8s.io", "volumeattachments", "VolumeAttachment", clusterScoped)}
	StorageClasses          = Of[*storagev1.StorageClass]{inGroup("storage.k8s.io", "storageclasses", "StorageClass", clusterScoped)}
	VolumeAttributesClasses = Of[*storagev1.VolumeAttributesClass]{inGroup("storage.k8s.io", "volumeattributesclasses", "VolumeAttributesClass", clusterScoped)}
)

// Secrets are read as metadata only: no service receives their data.
var Secrets = Of[*metav1.PartialObjectMetadata]{Kind{Name: "secrets", Version: "v1", Kind: "Secret", Namespaced: namespaced, Form: Metadata}}

// Events is the kind of the Events that controllers record. It is written, never read.
var Events = Of[*corev1.Event]{core("events", "Event", namespaced)}

// CustomResourceDefinitions are asked for and written, but are not on the bus.
var CustomResourceDefinitions = inGroup("apiextensions.k8s.io", "customresourcedefinitions", "CustomResourceDefinition", clusterScoped)

const (
	namespaced    = true
	clusterScoped = false
)

func core(resource, kind string, namespaced bool) Kind {
	return Kind{Name: Name(resource), Version: "v1", Kind: kind, Namespaced: namespaced, Form: Full}
}

func apps(resource, kind string) Kind { return inGroup("apps", resource, kind, namespaced) }

func inGroup(group, resource, kind string, namespaced bool) Kind {
	return Kind{Name: NameOf(group, resource), Version: "v1", Kind: kind, Namespaced: namespaced, Form: Full}
}

// Lookup is a kind of this package by its name; known is false for all others.
func Lookup(name Name) (kind Kind, known bool) {
	kind, known = listed[name]
	return kind, known
}

// listed are the kinds of this package.
var listed = byName(
	ConfigMaps.Kind, Endpoints.Kind, Namespaces.Kind, Nodes.Kind, PersistentVolumeClaims.Kind, PersistentVolumes.Kind, Pods.Kind,
	ReplicationControllers.Kind, ResourceQuotas.Kind, ServiceAccounts.Kind, Services.Kind, Secrets.Kind, Events.Kind, CustomResourceDefinitions,
	ControllerRevisions.Kind, DaemonSets.Kind, Deployments.Kind, ReplicaSets.Kind, StatefulSets.Kind,
	HorizontalPodAutoscalers.Kind, CronJobs.Kind, Jobs.Kind, CertificateSigningRequests.Kind, PodCertificateRequests.Kind, ClusterTrustBundles.Kind, Leases.Kind, EndpointSlices.Kind, IPAddresses.Kind, ServiceCIDRs.Kind, DeviceClasses.Kind, ResourceClaims.Kind, ResourceClaimTemplates.Kind,
	ResourceSlices.Kind, DeviceTaintRules.Kind, ResourcePoolStatusRequests.Kind,
	PodDisruptionBudgets.Kind, ClusterRoles.Kind, PodGroups.Kind, StorageVersions.Kind, StorageVersionMigrations.Kind, ValidatingAdmissionPolicies.Kind, CSIDrivers.Kind, VolumeAttachments.Kind, VolumeAttributesClasses.Kind, StorageClasses.Kind,
)

func byName(all ...Kind) map[Name]Kind {
	named := make(map[Name]Kind, len(all))
	for _, k := range all {
		named[k.Name] = k
	}
	return named
}
