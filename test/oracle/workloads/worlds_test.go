package workloads_test

import (
	"fmt"
	"strconv"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"pgregory.net/rapid"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/test/oracle/exemption"
	"github.com/millrace/millrace/test/oracle/objects"
	"github.com/millrace/millrace/test/oracle/oracletest"
)

const hashLabel = "pod-template-hash"

// deploymentKey is the key of the worlds' main objects.
var deploymentKey = events.Key{Namespace: oracletest.Namespace, Name: oracletest.Owner}

// replicaSetKey is the key of a Deployment's first ReplicaSet.
var replicaSetKey = events.Key{Namespace: oracletest.Namespace, Name: oracletest.Owner + "-hash0"}

func image(t *corev1.PodTemplateSpec) string { return t.Spec.Containers[0].Image }

// deploymentWorld is a Deployment at some point of its life, with possible ReplicaSets and pods.
func deploymentWorld(t *rapid.T) []runtime.Object {
	d := arbitraryDeployment(t)
	world := []runtime.Object{d}
	for i := range rapid.IntRange(0, 4).Draw(t, "replica sets") {
		rs := arbitraryReplicaSetOf(t, d, i)
		world = append(world, rs)
		if d.Spec.Strategy.Type == appsv1.RecreateDeploymentStrategyType {
			for j := range rapid.IntRange(0, 2).Draw(t, "pods") {
				world = append(world, podOf(t, rs, j))
			}
		}
	}
	forgetCreates(world, d)
	believe(world, d)
	return world
}

// believe corrects annotations with impossibly low numbers: if the sets have more replicas than are allowed
// now, no set can have got its size when even fewer were allowed. Upstream lets such a set grow while others
// shrink, beyond the bounds; ours does not.
func believe(world []runtime.Object, d *appsv1.Deployment) {
	surge := 0
	if r := d.Spec.Strategy.RollingUpdate; r != nil {
		surge, _ = intstr.GetScaledValueFromIntOrPercent(r.MaxSurge, int(*d.Spec.Replicas), true)
	}
	var total int32
	for _, obj := range world {
		if rs, ok := obj.(*appsv1.ReplicaSet); ok {
			total += *rs.Spec.Replicas
		}
	}
	if total <= *d.Spec.Replicas+int32(surge) {
		return
	}
	exemption.Uses("low-max-replicas")
	d.Status.Replicas = max(d.Status.Replicas, total) // stands in for a missing annotation
	for _, obj := range world {
		const note = "deployment.kubernetes.io/max-replicas"
		if rs, ok := obj.(*appsv1.ReplicaSet); ok && rs.Annotations[note] != "" {
			had, _ := strconv.Atoi(rs.Annotations[note])
			rs.Annotations[note] = strconv.Itoa(max(had, int(total)))
		}
	}
}

// forgetCreates removes the report that the new set was created if there is no such set. That happens if the
// template changes before the next report. Then upstream keeps the report about the last set for the next
// one; ours writes a new one.
func forgetCreates(world []runtime.Object, d *appsv1.Deployment) {
	for _, obj := range world {
		rs, ok := obj.(*appsv1.ReplicaSet)
		if !ok || image(&rs.Spec.Template) != image(&d.Spec.Template) {
			continue
		}
		controller := metav1.GetControllerOf(rs)
		adopted := controller == nil && rs.DeletionTimestamp == nil
		if rs.Labels["app"] == oracletest.Owner && (adopted || controller != nil && controller.UID == d.UID) {
			return
		}
	}
	for i := range d.Status.Conditions {
		if c := &d.Status.Conditions[i]; c.Reason == "NewReplicaSetCreated" {
			exemption.Uses("words-of-the-last-set")
			c.Reason = "ReplicaSetUpdated"
		}
	}
}

func arbitraryDeployment(t *rapid.T) *appsv1.Deployment {
	replicas := oracletest.Small(t, 12, "replicas")
	d := &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Name: oracletest.Owner, Namespace: oracletest.Namespace, UID: "deployment", ResourceVersion: "100",
			Generation: 4, CreationTimestamp: oracletest.Ago(t, 5000, "created"), Annotations: map[string]string{"note": "kept"}},
		Spec: appsv1.DeploymentSpec{
			Replicas: &replicas, Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": oracletest.Owner}},
			Template:             oracletest.Template(rapid.IntRange(1, 3).Draw(t, "image")),
			RevisionHistoryLimit: oracletest.Ptr(oracletest.Small(t, 3, "history limit")),
			MinReadySeconds:      oracletest.Small(t, 1, "min ready") * 10,
			Paused:               oracletest.Chance(t, 5, "paused"),
		},
		Status: appsv1.DeploymentStatus{
			ObservedGeneration: int64(rapid.IntRange(3, 4).Draw(t, "observed")),
			Replicas:           oracletest.Small(t, 12, "status replicas"), UpdatedReplicas: oracletest.Small(t, 12, "status updated"),
			ReadyReplicas: oracletest.Small(t, 12, "status ready"), AvailableReplicas: oracletest.Small(t, 12, "status available"),
		},
	}
	if s := &d.Status; oracletest.Chance(t, 4, "complete") {
		s.Replicas, s.UpdatedReplicas, s.ReadyReplicas, s.AvailableReplicas = replicas, replicas, replicas, replicas
		s.ObservedGeneration = d.Generation
	}
	if oracletest.Chance(t, 3, "has revision") {
		d.Annotations["deployment.kubernetes.io/revision"] = strconv.Itoa(rapid.IntRange(1, 4).Draw(t, "revision"))
	}
	if oracletest.Chance(t, 8, "rolls back") {
		d.Annotations["deprecated.deployment.rollback.to"] = rapid.SampledFrom([]string{"0", "1", "2", "9", "x"}).Draw(t, "rollback to")
	}
	if !oracletest.Chance(t, 3, "no deadline") {
		d.Spec.ProgressDeadlineSeconds = oracletest.Ptr(int32(600))
	}
	if oracletest.Chance(t, 3, "collided") {
		d.Status.CollisionCount = oracletest.Ptr(oracletest.Small(t, 2, "collisions"))
	}
	if oracletest.Chance(t, 12, "going away") {
		d.DeletionTimestamp, d.Finalizers = oracletest.Ptr(oracletest.Ago(t, 60, "deleted")), []string{"example.com/hold"}
	}
	d.Spec.Strategy = arbitraryStrategy(t)
	if d.Spec.Strategy.Type == appsv1.RecreateDeploymentStrategyType {
		// If a rollback needs a set that does not exist, upstream creates it with all its replicas beside the
		// old sets; ours waits until those have ended.
		exemption.Uses("rollback-and-recreate")
		delete(d.Annotations, appsv1.DeprecatedRollbackTo)
	}
	d.Status.Conditions = arbitraryConditions(t)
	return d
}

func arbitraryStrategy(t *rapid.T) appsv1.DeploymentStrategy {
	if oracletest.Chance(t, 4, "recreate") {
		return appsv1.DeploymentStrategy{Type: appsv1.RecreateDeploymentStrategyType}
	}
	amounts := []intstr.IntOrString{intstr.FromString("25%"), intstr.FromInt32(0), intstr.FromInt32(1), intstr.FromInt32(3), intstr.FromString("50%"), intstr.FromString("100%")}
	return appsv1.DeploymentStrategy{Type: appsv1.RollingUpdateDeploymentStrategyType, RollingUpdate: &appsv1.RollingUpdateDeployment{
		MaxSurge:       oracletest.Ptr(rapid.SampledFrom(amounts).Draw(t, "surge")),
		MaxUnavailable: oracletest.Ptr(rapid.SampledFrom(amounts).Draw(t, "unavailable")),
	}}
}

func arbitraryConditions(t *rapid.T) []appsv1.DeploymentCondition {
	var out []appsv1.DeploymentCondition
	condition := func(kind appsv1.DeploymentConditionType, status corev1.ConditionStatus, reason string) {
		out = append(out, appsv1.DeploymentCondition{Type: kind, Status: status, Reason: reason,
			LastUpdateTime: oracletest.Ago(t, 1200, "updated"), LastTransitionTime: oracletest.Ago(t, 1200, "transition")})
	}
	if oracletest.Chance(t, 2, "has progressing") {
		reason := rapid.SampledFrom([]string{"ReplicaSetUpdated", "NewReplicaSetAvailable", "ProgressDeadlineExceeded", "DeploymentPaused", "DeploymentResumed", "NewReplicaSetCreated", "FoundNewReplicaSet"}).Draw(t, "progressing")
		status := corev1.ConditionTrue
		switch reason {
		case "ProgressDeadlineExceeded":
			status = corev1.ConditionFalse
		case "DeploymentPaused", "DeploymentResumed":
			status = corev1.ConditionUnknown
		}
		condition(appsv1.DeploymentProgressing, status, reason)
	}
	if oracletest.Chance(t, 2, "has available") {
		condition(appsv1.DeploymentAvailable, corev1.ConditionTrue, "MinimumReplicasAvailable")
	}
	return out
}

func arbitraryReplicaSetOf(t *rapid.T, d *appsv1.Deployment, i int) *appsv1.ReplicaSet {
	hash := fmt.Sprintf("hash%d", i)
	tmpl := oracletest.Template(i%3 + 1)
	labels := map[string]string{"app": oracletest.Owner, hashLabel: hash}
	tmpl.Labels = labels
	replicas := oracletest.Small(t, 8, "rs replicas")
	ready := min(oracletest.Small(t, 8, "rs ready"), replicas)
	rs := &appsv1.ReplicaSet{
		ObjectMeta: metav1.ObjectMeta{Name: oracletest.Owner + "-" + hash, Namespace: oracletest.Namespace, UID: types.UID("rs-" + hash), ResourceVersion: strconv.Itoa(10 + i),
			Generation: 2, Labels: labels, CreationTimestamp: oracletest.Ago(t, 4000, "rs created"), Annotations: map[string]string{}},
		Spec: appsv1.ReplicaSetSpec{Replicas: &replicas, Selector: &metav1.LabelSelector{MatchLabels: labels}, Template: tmpl, MinReadySeconds: d.Spec.MinReadySeconds},
		Status: appsv1.ReplicaSetStatus{Replicas: oracletest.Small(t, 8, "rs status"), ReadyReplicas: ready, AvailableReplicas: min(oracletest.Small(t, 8, "rs available"), ready),
			ObservedGeneration: int64(rapid.IntRange(1, 2).Draw(t, "rs observed"))},
	}
	if oracletest.Chance(t, 3, "emptied") {
		*rs.Spec.Replicas, rs.Status = 0, appsv1.ReplicaSetStatus{ObservedGeneration: rs.Generation}
	}
	if oracletest.Chance(t, 4, "rs min ready differs") {
		rs.Spec.MinReadySeconds = 7
	}
	if !oracletest.Chance(t, 4, "no terminating") {
		rs.Status.TerminatingReplicas = oracletest.Ptr(oracletest.Small(t, 2, "terminating"))
	}
	if !oracletest.Chance(t, 5, "no rs revision") {
		rs.Annotations["deployment.kubernetes.io/revision"] = strconv.Itoa(i + 1)
		if oracletest.Chance(t, 10, "odd revision") {
			// Always a number. Another text accidentally keeps upstream from copying annotations to the new
			// set, and makes the order of its history arbitrary.
			exemption.Uses("revision-is-no-number")
			odd := []string{"-1", "1", "7"}
			rs.Annotations["deployment.kubernetes.io/revision"] = rapid.SampledFrom(odd).Draw(t, "rs revision")
		}
	}
	if oracletest.Chance(t, 6, "rs history") {
		rs.Annotations["deployment.kubernetes.io/revision-history"] = rapid.SampledFrom([]string{"1", "1,3", ""}).Draw(t, "rs past")
	}
	if oracletest.Chance(t, 10, "rs deleted") {
		rs.DeletionTimestamp, rs.Finalizers = oracletest.Ptr(oracletest.Ago(t, 60, "rs deleted at")), []string{"example.com/hold"}
	}
	if !oracletest.Chance(t, 4, "no desired") {
		desired := *d.Spec.Replicas
		if oracletest.Chance(t, 4, "scaled meanwhile") {
			desired = oracletest.Small(t, 12, "desired")
		}
		rs.Annotations["deployment.kubernetes.io/desired-replicas"] = strconv.Itoa(int(desired))
		rs.Annotations["deployment.kubernetes.io/max-replicas"] = strconv.Itoa(int(desired + oracletest.Small(t, 3, "max")))
	}
	if oracletest.Chance(t, 8, "failing") {
		rs.Status.Conditions = []appsv1.ReplicaSetCondition{{Type: appsv1.ReplicaSetReplicaFailure, Status: corev1.ConditionTrue, Reason: "FailedCreate", Message: "quota", LastTransitionTime: oracletest.Ago(t, 100, "failed")}}
	}
	own(t, rs, d)
	return rs
}

// own makes the ReplicaSet the Deployment's own, an orphan, one whose labels no longer match, or another
// owner's.
func own(t *rapid.T, rs *appsv1.ReplicaSet, d *appsv1.Deployment) {
	reference := metav1.OwnerReference{APIVersion: "apps/v1", Kind: "Deployment", Name: d.Name, UID: d.UID, Controller: oracletest.Ptr(true), BlockOwnerDeletion: oracletest.Ptr(true)}
	switch rapid.IntRange(1, 12).Draw(t, "ownership") {
	case 1: // an orphan that matches
	case 2:
		rs.OwnerReferences = []metav1.OwnerReference{reference}
		rs.Labels = map[string]string{"app": "else"}
	case 3:
		reference.UID = "another-owner"
		rs.OwnerReferences = []metav1.OwnerReference{reference}
	default:
		rs.OwnerReferences = []metav1.OwnerReference{reference}
	}
}

// podOf is a pod of a ReplicaSet, at some point of its life.
func podOf(t *rapid.T, rs *appsv1.ReplicaSet, i int) *corev1.Pod {
	name := fmt.Sprintf("%s-%c", rs.Name, 'a'+i)
	// No two at once: of pods that are equal in everything, upstream picks any.
	exemption.Uses("twins-among-pods")
	made := oracletest.Ago(t, 3000, "pod created").Truncate(32 * time.Second).Add(time.Duration(i) * time.Second)
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: oracletest.Namespace, UID: types.UID("pod-" + name), ResourceVersion: strconv.Itoa(1000 + i),
			Labels: rs.Spec.Template.Labels, CreationTimestamp: metav1.NewTime(made),
			OwnerReferences: []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "ReplicaSet", Name: rs.Name, UID: rs.UID, Controller: oracletest.Ptr(true), BlockOwnerDeletion: oracletest.Ptr(true)}}},
		Spec:   rs.Spec.Template.Spec,
		Status: corev1.PodStatus{Phase: rapid.SampledFrom([]corev1.PodPhase{corev1.PodPending, corev1.PodRunning, corev1.PodRunning, corev1.PodRunning, corev1.PodSucceeded, corev1.PodFailed, corev1.PodUnknown}).Draw(t, "phase")},
	}
	if !oracletest.Chance(t, 4, "unassigned") {
		pod.Spec.NodeName = rapid.SampledFrom([]string{"node-1", "node-2"}).Draw(t, "node")
	}
	if pod.Status.Phase == corev1.PodRunning && !oracletest.Chance(t, 3, "unready") {
		since := oracletest.Ago(t, 2000, "ready since")
		if !oracletest.Chance(t, 3, "alone") {
			since = metav1.NewTime(objects.Now.Add(-time.Minute).Truncate(time.Second))
		}
		pod.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue, LastTransitionTime: since}}
		pod.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: "main", RestartCount: oracletest.Small(t, 2, "restarts")}}
	}
	if oracletest.Chance(t, 6, "costly") {
		pod.Annotations = map[string]string{"controller.kubernetes.io/pod-deletion-cost": rapid.SampledFrom([]string{"-5", "0", "10", "x"}).Draw(t, "cost")}
	}
	if oracletest.Chance(t, 6, "terminating") {
		pod.DeletionTimestamp = oracletest.Ptr(oracletest.Ago(t, 20, "pod deleted"))
		pod.Finalizers = []string{"example.com/hold"}
	}
	return pod
}

// replicaSetWorld is a ReplicaSet with its own pods, orphans and pods of other owners.
func replicaSetWorld(t *rapid.T) []runtime.Object {
	d := arbitraryDeployment(t)
	d.UID = "a-deployment"
	rs := arbitraryReplicaSetOf(t, d, 0)
	rs.Status.FullyLabeledReplicas = oracletest.Small(t, 4, "fully labeled")
	if oracletest.Chance(t, 8, "rs going away") {
		rs.DeletionTimestamp, rs.Finalizers = oracletest.Ptr(oracletest.Ago(t, 60, "rs deleted")), []string{"example.com/hold"}
	}
	world := []runtime.Object{rs}
	// At most nine: of ten similar Events, upstream's recorder combines some.
	for i := range rapid.IntRange(0, 9).Draw(t, "pods") {
		pod := podOf(t, rs, i)
		switch rapid.IntRange(1, 10).Draw(t, "pod's ownership") {
		case 1:
			pod.OwnerReferences = nil
		case 2:
			pod.Labels = map[string]string{"app": "else"}
		case 3:
			pod.OwnerReferences[0].UID = "another-owner"
		}
		world = append(world, pod)
	}
	return append(world, sibling(t, d)...)
}

// sibling is sometimes another set of the same Deployment with its pods, which share nodes with the pods of
// the first.
func sibling(t *rapid.T, d *appsv1.Deployment) []runtime.Object {
	if !oracletest.Chance(t, 3, "has a sibling") {
		return nil
	}
	rs := arbitraryReplicaSetOf(t, d, 1)
	rs.Name, rs.UID = oracletest.Owner+"-other", "rs-other"
	rs.OwnerReferences = []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "Deployment", Name: d.Name, UID: d.UID, Controller: oracletest.Ptr(true), BlockOwnerDeletion: oracletest.Ptr(true)}}
	// It is being deleted, so that its own number of pods does not matter.
	rs.DeletionTimestamp, rs.Finalizers = oracletest.Ptr(oracletest.Ago(t, 60, "sibling deleted")), []string{"example.com/hold"}
	rs.Labels = map[string]string{"app": oracletest.Owner, hashLabel: "hash1"}
	world := []runtime.Object{rs}
	for i := range rapid.IntRange(0, 4).Draw(t, "pods of the sibling") {
		world = append(world, podOf(t, rs, i))
	}
	return world
}
