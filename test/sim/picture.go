package sim

import (
	"fmt"
	"slices"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	batchv1 "k8s.io/api/batch/v1"
	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	policyv1 "k8s.io/api/policy/v1"
	resourcev1 "k8s.io/api/resource/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/millrace/millrace/test/sim/cluster"
	"github.com/millrace/millrace/test/sim/devices"
	"github.com/millrace/millrace/test/sim/network"
	"github.com/millrace/millrace/test/sim/storage"
	"github.com/millrace/millrace/test/sim/workloads"
)

// Picture is the content of the API server at the end, without names, identities, versions,
// times and history.
func Picture(w *cluster.Cluster) string {
	var lines []string
	answering := map[string]int{} // for each Service, in all of its slices
	for _, c := range w.API.Kinds {
		for _, obj := range c.Sorted {
			if slice, ok := obj.(*discoveryv1.EndpointSlice); ok {
				answering[slice.Labels[discoveryv1.LabelServiceName]] += len(network.InSlice(slice))
				continue
			}
			if line := pictured(obj); line != "" {
				lines = append(lines, line)
			} else if _, set := obj.(*appsv1.ReplicaSet); !set {
				lines = append(lines, fmt.Sprintf("%s %s/%s", c.Kind.Name, obj.GetNamespace(), obj.GetName()))
			}
		}
	}
	for service, n := range answering {
		lines = append(lines, fmt.Sprintf("slices of %s: %d", service, n))
	}
	slices.Sort(lines)
	return strings.Join(lines, "\n")
}

// pictured is an object in the picture; empty: only its name counts, or, for an empty
// ReplicaSet, nothing.
func pictured(obj metav1.Object) string {
	switch o := obj.(type) {
	case *appsv1.Deployment:
		return fmt.Sprintf("deployment %s: %d of %s, says %d, %d updated, %d available", o.Name, *o.Spec.Replicas, cluster.ImageOf(o.Spec.Template), o.Status.Replicas, o.Status.UpdatedReplicas, o.Status.AvailableReplicas)
	case *appsv1.ReplicaSet:
		if *o.Spec.Replicas > 0 {
			return fmt.Sprintf("replica set of %s: %d of %s, says %d, %d available", cluster.OwnerOf(o), *o.Spec.Replicas, cluster.ImageOf(o.Spec.Template), o.Status.Replicas, o.Status.AvailableReplicas)
		}
		return ""
	case *corev1.Pod:
		return fmt.Sprintf("pod of a set: %v, %s, %s, labels %v, leaving %v", cluster.OwnerOf(o) != "", imageIn(o), o.Status.Phase, o.Labels["app"], o.DeletionTimestamp != nil)
	case *corev1.ConfigMap:
		return fmt.Sprintf("config map %s/%s: %v", o.Namespace, o.Name, o.Data)
	case *appsv1.StatefulSet:
		return fmt.Sprintf("stateful set %s: says %d, %d ready, %d updated", o.Name, o.Status.Replicas, o.Status.ReadyReplicas, o.Status.UpdatedReplicas)
	case *appsv1.DaemonSet:
		return fmt.Sprintf("daemon set %s: says %d, %d updated", o.Name, o.Status.NumberAvailable, o.Status.UpdatedNumberScheduled)
	case *appsv1.ControllerRevision:
		return fmt.Sprintf("revision %d of %s", o.Revision, cluster.OwnerOf(o))
	case *batchv1.Job:
		end, _ := workloads.EndOf(o)
		return fmt.Sprintf("job %s: %s %s, %d succeeded, %d failed", o.Name, end.Type, end.Reason, o.Status.Succeeded, o.Status.Failed)
	case *batchv1.CronJob:
		last := "never"
		if at := o.Status.LastScheduleTime; at != nil {
			last = at.UTC().Format(time.TimeOnly)
		}
		return fmt.Sprintf("cron job %s: %d at work, last of %s", o.Name, len(o.Status.Active), last)
	case *corev1.Endpoints:
		return fmt.Sprintf("endpoints %s: %d", o.Name, len(network.InSubsets(o)))
	case *policyv1.PodDisruptionBudget:
		return fmt.Sprintf("budget %s: %d of %d healthy, %d may go", o.Name, o.Status.CurrentHealthy, o.Status.DesiredHealthy, o.Status.DisruptionsAllowed)
	case *corev1.ResourceQuota:
		var used []string
		for name, n := range o.Status.Used {
			used = append(used, fmt.Sprint(name, "=", n.String()))
		}
		slices.Sort(used)
		return fmt.Sprintf("quota %s: %v", o.Name, used)
	case *autoscalingv2.HorizontalPodAutoscaler:
		return fmt.Sprintf("autoscaler %s: %d", o.Name, o.Status.DesiredReplicas)
	default:
		return picturedLate(obj)
	}
}

// picturedLate is pictured for volumes, devices and certificates.
func picturedLate(obj metav1.Object) string {
	switch o := obj.(type) {
	case *corev1.PersistentVolumeClaim:
		return fmt.Sprintf("claim %s: %s, has a volume %v of %d bytes", o.Name, o.Status.Phase, o.Spec.VolumeName != "", storage.SizeIn(o.Status.Capacity))
	case *corev1.PersistentVolume:
		of := ""
		if o.Spec.ClaimRef != nil {
			of = o.Spec.ClaimRef.Name
		}
		return fmt.Sprintf("volume of the class %q: %s, of %q, made %v", o.Spec.StorageClassName, o.Status.Phase, of, !storage.ByHand(o))
	case *storagev1.VolumeAttachment:
		return fmt.Sprintf("attachment to %s: %v", o.Spec.NodeName, o.Status.Attached)
	case *corev1.Node:
		return fmt.Sprintf("node %s: %d volumes, %d in use, %d ranges", o.Name, len(o.Status.VolumesAttached), len(o.Status.VolumesInUse), len(o.Spec.PodCIDRs))
	case *resourcev1.ResourceClaim:
		return fmt.Sprintf("claim to devices of a pod: %v, has %d, reserved for %d", cluster.ControllerOf(o) != "", len(devices.DevicesOf(o)), len(o.Status.ReservedFor))
	case *certificatesv1.CertificateSigningRequest:
		return fmt.Sprintf("request %s: %d conditions, signed %v", o.Name, len(o.Status.Conditions), len(o.Status.Certificate) > 0)
	default:
		return ""
	}
}

// imageIn is the image of a pod; empty if it has no container.
func imageIn(p *corev1.Pod) string {
	if len(p.Spec.Containers) == 0 {
		return ""
	}
	return cluster.ImageOfPod(p)
}
