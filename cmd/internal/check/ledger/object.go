package ledger

import (
	"strconv"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/millrace/millrace/cmd/internal/check"
	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/pkg/events/query"
)

// objectOf has the fields of an object that the rules use.
func objectOf(kind kinds.Kind, object metav1.Object) check.Object {
	o := check.Object{
		Ref: events.Ref{Kind: kind.Name, Namespace: object.GetNamespace(), Name: object.GetName()}, UID: object.GetUID(),
		Deleting: object.GetDeletionTimestamp() != nil, Finalizers: object.GetFinalizers(), Owners: object.GetOwnerReferences(),
		Generation: object.GetGeneration(),
	}
	switch object := object.(type) {
	case *corev1.Pod:
		pod(&o, object)
	case *appsv1.ReplicaSet:
		o.Replicas, o.Observed, o.Total, o.Available = *object.Spec.Replicas, object.Status.ObservedGeneration, object.Status.Replicas, object.Status.AvailableReplicas
	case *corev1.ReplicationController:
		o.Replicas, o.Observed, o.Total, o.Available = *object.Spec.Replicas, object.Status.ObservedGeneration, object.Status.Replicas, object.Status.AvailableReplicas
	case *appsv1.Deployment:
		deployment(&o, object)
	case *appsv1.StatefulSet:
		o.Replicas, o.Observed, o.Total, o.Available = *object.Spec.Replicas, object.Status.ObservedGeneration, object.Status.Replicas, object.Status.AvailableReplicas
		o.Ordered = object.Spec.PodManagementPolicy != appsv1.ParallelPodManagement
		if object.Spec.Ordinals != nil {
			o.Start = object.Spec.Ordinals.Start
		}
	case *appsv1.DaemonSet:
		daemonSet(&o, object)
	case *batchv1.Job:
		job(&o, object)
	case *batchv1.CronJob:
		o.Forbids = object.Spec.ConcurrencyPolicy == batchv1.ForbidConcurrent
	case *policyv1.PodDisruptionBudget:
		o.App, o.Observed = object.Spec.Selector.MatchLabels["app"], object.Status.ObservedGeneration
		o.Healthy, o.Desired, o.Allowed = object.Status.CurrentHealthy, object.Status.DesiredHealthy, object.Status.DisruptionsAllowed
	case *corev1.ConfigMap:
		o.Empty = object.Name == "kube-root-ca.crt" && object.Data["ca.crt"] == ""
	}
	return o
}

func pod(o *check.Object, p *corev1.Pod) {
	o.EndedWell = p.Status.Phase == corev1.PodSucceeded
	o.Active = !o.Deleting && p.Status.Phase != corev1.PodFailed && !o.EndedWell
	for _, c := range p.Status.Conditions {
		if c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue {
			o.Ready = o.Active
		}
	}
	if o.Active && p.Spec.NodeName != "" {
		for i := range p.Spec.Volumes {
			if name, _ := query.ClaimOf(p, &p.Spec.Volumes[i]); name != "" {
				o.Claims = append(o.Claims, name)
			}
		}
	}
	o.App, o.Node, o.Index = p.Labels["app"], node(p), -1
	for _, text := range []string{p.Labels[appsv1.PodIndexLabel], p.Annotations[batchv1.JobCompletionIndexAnnotation]} {
		if n, err := strconv.ParseInt(text, 10, 32); err == nil {
			o.Index = int32(n)
		}
	}
}

// node is the node of a pod, or the one to which its DaemonSet's node affinity binds it.
func node(p *corev1.Pod) string {
	if p.Spec.NodeName != "" || p.Spec.Affinity == nil || p.Spec.Affinity.NodeAffinity == nil ||
		p.Spec.Affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution == nil {
		return p.Spec.NodeName
	}
	for _, term := range p.Spec.Affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution.NodeSelectorTerms {
		for _, field := range term.MatchFields {
			if field.Key == metav1.ObjectNameField && len(field.Values) == 1 {
				return field.Values[0]
			}
		}
	}
	return ""
}

func deployment(o *check.Object, d *appsv1.Deployment) {
	o.Replicas, o.Unavailable = *d.Spec.Replicas, *d.Spec.Replicas
	if r := d.Spec.Strategy.RollingUpdate; r != nil {
		o.Surge, o.Unavailable = scaled(r.MaxSurge, o.Replicas, true), scaled(r.MaxUnavailable, o.Replicas, false)
		if o.Surge == 0 && o.Unavailable == 0 {
			o.Unavailable = 1 // the documented default of the API
		}
	}
	status := d.Status
	o.Observed, o.Total, o.Updated, o.Available = status.ObservedGeneration, status.Replicas, status.UpdatedReplicas, status.AvailableReplicas
}

func daemonSet(o *check.Object, d *appsv1.DaemonSet) {
	status := d.Status
	o.Replicas, o.Observed, o.Total, o.Updated, o.Available = status.DesiredNumberScheduled, status.ObservedGeneration,
		status.CurrentNumberScheduled, status.UpdatedNumberScheduled, status.NumberAvailable
	o.Unavailable = o.Replicas
	if r := d.Spec.UpdateStrategy.RollingUpdate; r != nil {
		o.Surge, o.Unavailable = scaled(r.MaxSurge, o.Replicas, true), scaled(r.MaxUnavailable, o.Replicas, true)
	}
}

func job(o *check.Object, j *batchv1.Job) {
	o.Replicas, o.Succeeded = *j.Spec.Parallelism, j.Status.Succeeded
	if o.Completions = o.Replicas; j.Spec.Completions != nil {
		o.Completions = *j.Spec.Completions
	}
	if j.Spec.BackoffLimit != nil {
		o.Retries = *j.Spec.BackoffLimit
	}
	o.Idle = j.Spec.Suspend != nil && *j.Spec.Suspend
	for _, c := range j.Status.Conditions {
		o.Done = o.Done || (c.Type == batchv1.JobComplete || c.Type == batchv1.JobFailed) && c.Status == corev1.ConditionTrue
	}
	o.Moment = strings.TrimSpace(j.Annotations[batchv1.CronJobScheduledTimestampAnnotation])
}

// scaled is a number, or a percentage of whole, rounded up or down.
func scaled(of *intstr.IntOrString, whole int32, up bool) int32 {
	if of == nil {
		return 0
	}
	n, err := intstr.GetScaledValueFromIntOrPercent(of, int(whole), up)
	if err != nil {
		return 0 // cannot happen: the API server refuses such an object
	}
	return int32(n)
}
