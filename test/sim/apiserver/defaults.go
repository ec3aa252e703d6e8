package apiserver

import (
	"reflect"

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
	rbacv1 "k8s.io/api/rbac/v1"
	resourcev1 "k8s.io/api/resource/v1"
	resourcev1alpha3 "k8s.io/api/resource/v1alpha3"
	resourcev1beta2 "k8s.io/api/resource/v1beta2"
	schedulingv1alpha2 "k8s.io/api/scheduling/v1alpha2"
	storagev1 "k8s.io/api/storage/v1"
	storagemigrationv1beta1 "k8s.io/api/storagemigration/v1beta1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/millrace/millrace/pkg/events/kinds"
)

// further are the kinds of which the simulated API server knows only whether they have a spec and a
// status.
var further = map[kinds.Name]func() metav1.Object{
	kinds.ReplicationControllers.Name: func() metav1.Object { return &corev1.ReplicationController{} },
	kinds.StatefulSets.Name:           func() metav1.Object { return &appsv1.StatefulSet{} },
	kinds.DaemonSets.Name:             func() metav1.Object { return &appsv1.DaemonSet{} },
	kinds.ControllerRevisions.Name:    func() metav1.Object { return &appsv1.ControllerRevision{} },
	kinds.Jobs.Name:                   func() metav1.Object { return &batchv1.Job{} },
	kinds.CronJobs.Name:               func() metav1.Object { return &batchv1.CronJob{} },
	kinds.Services.Name:               func() metav1.Object { return &corev1.Service{} },
	kinds.Endpoints.Name:              func() metav1.Object { return &corev1.Endpoints{} },
	kinds.EndpointSlices.Name:         func() metav1.Object { return &discoveryv1.EndpointSlice{} },
	kinds.Leases.Name:                 func() metav1.Object { return &coordinationv1.Lease{} },
	kinds.Nodes.Name:                  func() metav1.Object { return &corev1.Node{} },
	kinds.PersistentVolumes.Name:      func() metav1.Object { return &corev1.PersistentVolume{} },
	kinds.PersistentVolumeClaims.Name: func() metav1.Object { return &corev1.PersistentVolumeClaim{} },
	kinds.ClusterRoles.Name:           func() metav1.Object { return &rbacv1.ClusterRole{} },
	kinds.ResourceQuotas.Name:         func() metav1.Object { return &corev1.ResourceQuota{} },
	kinds.ResourceClaims.Name:         func() metav1.Object { return &resourcev1.ResourceClaim{} },
	kinds.ResourceClaimTemplates.Name: func() metav1.Object { return &resourcev1.ResourceClaimTemplate{} },
	kinds.ResourceSlices.Name:         func() metav1.Object { return &resourcev1.ResourceSlice{} },
	kinds.DeviceTaintRules.Name:       func() metav1.Object { return &resourcev1beta2.DeviceTaintRule{} },
	kinds.ResourcePoolStatusRequests.Name: func() metav1.Object {
		return &resourcev1alpha3.ResourcePoolStatusRequest{}
	},
	kinds.DeviceClasses.Name: func() metav1.Object { return &resourcev1.DeviceClass{} },
	kinds.Secrets.Name:       func() metav1.Object { return &corev1.Secret{} },

	kinds.StorageVersions.Name: func() metav1.Object { return &apiserverinternalv1alpha1.StorageVersion{} },
	kinds.ValidatingAdmissionPolicies.Name: func() metav1.Object {
		return &admissionregistrationv1.ValidatingAdmissionPolicy{}
	},
	kinds.HorizontalPodAutoscalers.Name: func() metav1.Object { return &autoscalingv2.HorizontalPodAutoscaler{} },

	kinds.StorageClasses.Name:    func() metav1.Object { return &storagev1.StorageClass{} },
	kinds.VolumeAttachments.Name: func() metav1.Object { return &storagev1.VolumeAttachment{} },
	kinds.CSIDrivers.Name:        func() metav1.Object { return &storagev1.CSIDriver{} },
	kinds.PodGroups.Name:         func() metav1.Object { return &schedulingv1alpha2.PodGroup{} },
	kinds.ServiceCIDRs.Name:      func() metav1.Object { return &networkingv1.ServiceCIDR{} },
	kinds.IPAddresses.Name:       func() metav1.Object { return &networkingv1.IPAddress{} },
	kinds.StorageVersionMigrations.Name: func() metav1.Object {
		return &storagemigrationv1beta1.StorageVersionMigration{}
	},
	kinds.VolumeAttributesClasses.Name: func() metav1.Object { return &storagev1.VolumeAttributesClass{} },
	kinds.VolumeAttachments.Name:       func() metav1.Object { return &storagev1.VolumeAttachment{} },
	kinds.CSIDrivers.Name:              func() metav1.Object { return &storagev1.CSIDriver{} },
	kinds.ServiceCIDRs.Name:            func() metav1.Object { return &networkingv1.ServiceCIDR{} },
	kinds.IPAddresses.Name:             func() metav1.Object { return &networkingv1.IPAddress{} },
	kinds.PodGroups.Name:               func() metav1.Object { return &schedulingv1alpha2.PodGroup{} },
	kinds.PodCertificateRequests.Name: func() metav1.Object {
		return &certificatesv1beta1.PodCertificateRequest{}
	},
	kinds.ClusterTrustBundles.Name: func() metav1.Object {
		return &certificatesv1beta1.ClusterTrustBundle{}
	},
	kinds.CertificateSigningRequests.Name: func() metav1.Object {
		return &certificatesv1.CertificateSigningRequest{}
	},
}

// maker makes the objects of a kind; for an unknown kind, their metadata only.
func maker(kind kinds.Name) func() metav1.Object {
	if fresh, ok := makers[kind]; ok {
		return fresh
	}
	if fresh, ok := further[kind]; ok {
		return fresh
	}
	return func() metav1.Object { return &metav1.PartialObjectMetadata{} }
}

// atOnceAsked reports whether a delete has no grace period.
func atOnceAsked(o *metav1.DeleteOptions) bool {
	return o != nil && o.GracePeriodSeconds != nil && *o.GracePeriodSeconds == 0
}

// part is the spec or the status of an object; the zero value if it has none.
func part(obj metav1.Object, name string) reflect.Value {
	return reflect.ValueOf(obj).Elem().FieldByName(name)
}

// keepPart copies a part of another object of the kind.
func keepPart(next, old metav1.Object, name string) {
	if p := part(next, name); p.IsValid() {
		p.Set(part(old, name))
	}
}

// samePart compares a part of two objects of a kind.
func samePart(a, b metav1.Object, name string) bool {
	x := part(a, name)
	return !x.IsValid() || Same(x.Addr().Interface().(wire), part(b, name).Addr().Interface().(wire))
}

// defaulted applies the API server's defaults, as far as they matter here. It removes the
// status of a new object, except for a node, which reports its own.
func defaulted(obj metav1.Object) {
	switch o := obj.(type) {
	case *batchv1.Job:
		defaultJob(o)
	case *batchv1.CronJob:
		o.Status = batchv1.CronJobStatus{}
	case *corev1.PersistentVolumeClaim:
		o.Status = corev1.PersistentVolumeClaimStatus{Phase: corev1.ClaimPending}
	case *corev1.PersistentVolume:
		o.Status = corev1.PersistentVolumeStatus{Phase: corev1.VolumePending}
	}
}

// defaultJob gives a Job a selector that no other Job has.
func defaultJob(job *batchv1.Job) {
	job.Status = batchv1.JobStatus{}
	s := &job.Spec
	if s.Parallelism == nil {
		s.Parallelism = new(int32(1))
	}
	if s.BackoffLimit == nil {
		s.BackoffLimit = new(int32(2))
	}
	if s.CompletionMode == nil {
		s.CompletionMode = new(batchv1.NonIndexedCompletion)
	}
	if s.PodReplacementPolicy == nil {
		s.PodReplacementPolicy = new(batchv1.TerminatingOrFailed)
	}
	if s.Suspend == nil {
		s.Suspend = new(false)
	}
	labels := map[string]string{batchv1.ControllerUidLabel: string(job.UID), batchv1.JobNameLabel: job.Name}
	s.Selector = &metav1.LabelSelector{MatchLabels: map[string]string{batchv1.ControllerUidLabel: string(job.UID)}}
	s.Template.Labels = labels
}
