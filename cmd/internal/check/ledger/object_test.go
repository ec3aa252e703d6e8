package ledger

import (
	"reflect"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"

	"github.com/millrace/millrace/cmd/internal/check"
	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/kinds"
)

// TestWorkloads: objectOf has the right fields for each kind of the API.
func TestWorkloads(t *testing.T) {
	one := intstr.FromInt32(1)
	ready := []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}
	claims := []corev1.Volume{{Name: "data", VolumeSource: corev1.VolumeSource{
		PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "data-db-2"}}}, {Name: "none"}}
	on := func(node string) *corev1.Affinity {
		return &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{RequiredDuringSchedulingIgnoredDuringExecution: &corev1.NodeSelector{
			NodeSelectorTerms: []corev1.NodeSelectorTerm{{MatchFields: []corev1.NodeSelectorRequirement{{Key: "metadata.name", Operator: "In", Values: []string{node}}}}}}}}
	}
	for name, c := range map[string]struct {
		kind   kinds.Kind
		object metav1.Object
		want   check.Object
	}{
		"a ready member": {kinds.Pods.Kind, &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"app": "db", appsv1.PodIndexLabel: "2"}},
			Spec:       corev1.PodSpec{NodeName: "n", Volumes: claims}, Status: corev1.PodStatus{Phase: corev1.PodRunning, Conditions: ready},
		}, check.Object{Active: true, Ready: true, App: "db", Index: 2, Node: "n", Claims: []string{"data-db-2"}}},
		"a completion": {kinds.Pods.Kind, &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{batchv1.JobCompletionIndexAnnotation: "1"}},
			Spec:       corev1.PodSpec{NodeName: "n", Volumes: claims}, Status: corev1.PodStatus{Phase: corev1.PodSucceeded, Conditions: ready},
		}, check.Object{EndedWell: true, Index: 1, Node: "n"}},
		"a daemon's pod": {kinds.Pods.Kind, &corev1.Pod{Spec: corev1.PodSpec{Affinity: on("n")}}, check.Object{Active: true, Node: "n", Index: -1}},
		"a StatefulSet": {kinds.StatefulSets.Kind, &appsv1.StatefulSet{
			Spec:   appsv1.StatefulSetSpec{Replicas: ptr.To(int32(3)), Ordinals: &appsv1.StatefulSetOrdinals{Start: 2}},
			Status: appsv1.StatefulSetStatus{ObservedGeneration: 4, Replicas: 2, AvailableReplicas: 1},
		}, check.Object{Replicas: 3, Start: 2, Ordered: true, Observed: 4, Total: 2, Available: 1}},
		"a parallel StatefulSet": {kinds.StatefulSets.Kind, &appsv1.StatefulSet{
			Spec: appsv1.StatefulSetSpec{Replicas: ptr.To(int32(3)), PodManagementPolicy: appsv1.ParallelPodManagement},
		}, check.Object{Replicas: 3}},
		"a DaemonSet": {kinds.DaemonSets.Kind, &appsv1.DaemonSet{
			Spec:   appsv1.DaemonSetSpec{UpdateStrategy: appsv1.DaemonSetUpdateStrategy{RollingUpdate: &appsv1.RollingUpdateDaemonSet{MaxUnavailable: &one}}},
			Status: appsv1.DaemonSetStatus{DesiredNumberScheduled: 4, ObservedGeneration: 2, CurrentNumberScheduled: 3, UpdatedNumberScheduled: 2, NumberAvailable: 1},
		}, check.Object{Replicas: 4, Unavailable: 1, Observed: 2, Total: 3, Updated: 2, Available: 1}},
		"a Job": {kinds.Jobs.Kind, &batchv1.Job{
			ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{batchv1.CronJobScheduledTimestampAnnotation: "noon"}},
			Spec:       batchv1.JobSpec{Parallelism: ptr.To(int32(2)), Completions: ptr.To(int32(5)), BackoffLimit: ptr.To(int32(3)), Suspend: ptr.To(true)},
			Status:     batchv1.JobStatus{Succeeded: 4, Conditions: []batchv1.JobCondition{{Type: batchv1.JobComplete, Status: corev1.ConditionTrue}}},
		}, check.Object{Replicas: 2, Completions: 5, Retries: 3, Succeeded: 4, Idle: true, Done: true, Moment: "noon"}},
		"a CronJob": {kinds.CronJobs.Kind, &batchv1.CronJob{Spec: batchv1.CronJobSpec{ConcurrencyPolicy: batchv1.ForbidConcurrent}}, check.Object{Forbids: true}},
		"a budget": {kinds.PodDisruptionBudgets.Kind, &policyv1.PodDisruptionBudget{
			Spec:   policyv1.PodDisruptionBudgetSpec{Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "db"}}},
			Status: policyv1.PodDisruptionBudgetStatus{CurrentHealthy: 3, DesiredHealthy: 2, DisruptionsAllowed: 1},
		}, check.Object{App: "db", Healthy: 3, Desired: 2, Allowed: 1}},
	} {
		c.want.Ref = events.Ref{Kind: c.kind.Name}
		if got := objectOf(c.kind, c.object); !reflect.DeepEqual(got, c.want) {
			t.Errorf("%s is %+v, want %+v", name, got, c.want)
		}
	}
}
