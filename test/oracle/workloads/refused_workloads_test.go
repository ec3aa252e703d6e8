package workloads_test

import (
	"slices"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"pgregory.net/rapid"

	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/services/writer/plan"
	"github.com/millrace/millrace/test/oracle/exemption"
	"github.com/millrace/millrace/test/oracle/objects"
	"github.com/millrace/millrace/test/oracle/oracletest"
	"github.com/millrace/millrace/test/oracle/stage"
	"github.com/millrace/millrace/test/oracle/workloads"
)

// TestRefusedWritesOfWorkloadsEndAsUpstreams refuses writes of the controllers of Deployments, DaemonSets and
// StatefulSets.
func TestRefusedWritesOfWorkloadsEndAsUpstreams(t *testing.T) {
	oracletest.Fewer(t, 10)
	for _, c := range sets() {
		c.EndsAlike(t)
	}
}

// sets are the controllers of Deployments, DaemonSets and StatefulSets.
func sets() []oracletest.Refused {
	pods, revisions := kinds.Pods.Kind, kinds.ControllerRevisions.Kind
	return []oracletest.Refused{
		{Name: "statefulset", Pair: workloads.StatefulSet, Worlds: wellStatefulSetWorld, Kinds: []kinds.Kind{kinds.StatefulSets.Kind, revisions, pods, kinds.PersistentVolumeClaims.Kind}, Requests: statefulRequests(), Spared: sparedStateful, Fair: workloads.FairStatefulEnd},
		{Name: "daemonset", Pair: workloads.DaemonSet, Worlds: wellDaemonSetWorld, Kinds: []kinds.Kind{kinds.DaemonSets.Kind, revisions, pods, kinds.Nodes.Kind}, Requests: append(ownRequests(kinds.DaemonSets.Name), historyRequests...), Spared: sparedDaemons, Fair: workloads.FairDaemonEnd},
		{Name: "deployment", Pair: workloads.Deployment, Worlds: wellDeploymentWorld, Kinds: []kinds.Kind{kinds.Deployments.Kind, kinds.ReplicaSets.Kind, pods}, Requests: rolloutRequests, Spared: sparedDeployments, Fair: workloads.FairDeploymentEnd},
	}
}

// historyRequests are the writes about revisions.
var historyRequests = []stage.Refusal{
	{Verb: plan.Create, Kind: kinds.ControllerRevisions.Name}, {Verb: plan.Update, Kind: kinds.ControllerRevisions.Name},
	{Verb: plan.Patch, Kind: kinds.ControllerRevisions.Name}, {Verb: plan.Delete, Kind: kinds.ControllerRevisions.Name},
}

// rolloutRequests are the writes of the controller of Deployments.
var rolloutRequests = []stage.Refusal{
	{Verb: plan.Create, Kind: kinds.ReplicaSets.Name}, {Verb: plan.Update, Kind: kinds.ReplicaSets.Name}, {Verb: plan.Patch, Kind: kinds.ReplicaSets.Name},
	{Verb: plan.Delete, Kind: kinds.ReplicaSets.Name}, {Verb: plan.Update, Kind: kinds.Deployments.Name}, {Verb: plan.Update, Kind: kinds.Deployments.Name, Status: true},
}

// ownRequests are the writes about the status of a set, and about its pods.
func ownRequests(set kinds.Name) []stage.Refusal {
	return []stage.Refusal{
		{Verb: plan.Update, Kind: set, Status: true}, {Verb: plan.Create, Kind: kinds.Pods.Name}, {Verb: plan.Delete, Kind: kinds.Pods.Name}, {Verb: plan.Patch, Kind: kinds.Pods.Name},
	}
}

// statefulRequests are the writes of the controller of StatefulSets.
func statefulRequests() []stage.Refusal {
	return slices.Concat(ownRequests(kinds.StatefulSets.Name), historyRequests, []stage.Refusal{
		{Verb: plan.Update, Kind: kinds.Pods.Name}, {Verb: plan.Create, Kind: kinds.PersistentVolumeClaims.Name}, {Verb: plan.Update, Kind: kinds.PersistentVolumeClaims.Name},
	})
}

// sparedStateful is true if upstream's controller stops at a refusal and ours goes on.
func sparedStateful(world []runtime.Object, r stage.Refusal) bool {
	set := world[0].(*appsv1.StatefulSet)
	switch {
	case r.Times == 0 || r.Status:
		return false
	case r.Verb == plan.Patch && r.Kind == kinds.ControllerRevisions.Name && r.Times > 2:
		exemption.Uses("pods-claimed-first")
		return true
	case r.Verb == plan.Update && r.Kind == kinds.Pods.Name:
		exemption.Uses("pod-updated-without-effect")
		return true
	case r.Verb == plan.Update && r.Kind == kinds.PersistentVolumeClaims.Name && r.Times > 2:
		exemption.Uses("first-failure")
		return true
	case set.Spec.PodManagementPolicy != appsv1.ParallelPodManagement:
	case r.Verb == plan.Delete || r.Verb == plan.Update:
		exemption.Uses("first-failure")
		return true
	case r.Verb == plan.Create && r.Kind == kinds.Pods.Name:
		exemption.Uses("first-failure")
		return true
	}
	if r.Verb == plan.Create || r.Verb == plan.Update {
		asNewest(world, set)
	}
	return false
}

// asNewest gives a set the template of its newest revision, so that no revision is written.
func asNewest(world []runtime.Object, set *appsv1.StatefulSet) {
	for _, obj := range world {
		if r, ok := obj.(*appsv1.ControllerRevision); ok {
			exemption.Uses("history-lost")
			set.Spec.Template = oracletest.Template(int(r.Revision))
		}
	}
}

// sparedDaemons is true if upstream's controller does not reach what ours does first.
func sparedDaemons(world []runtime.Object, r stage.Refusal) bool {
	switch {
	case r.Times > 2 && (r.Verb == plan.Patch || r.Verb == plan.Create && r.Kind == kinds.ControllerRevisions.Name):
		exemption.Uses("pods-claimed-first")
		return true
	case r.Verb == plan.Delete && r.Times > 0:
		exemption.Uses("successor-at-once")
		noneHasEnded(world)
	}
	return false
}

// wellDaemonSetWorld is a DaemonSet whose pods are available as soon as they are ready.
func wellDaemonSetWorld(t *rapid.T) []runtime.Object {
	world := daemonSetWorld(t)
	exemption.Uses("available-by-the-clock")
	world[0].(*appsv1.DaemonSet).Spec.MinReadySeconds = 0
	return world
}

// noneHasEnded makes the ended pods of a world run.
func noneHasEnded(world []runtime.Object) {
	for _, obj := range world {
		if p, ok := obj.(*corev1.Pod); ok && (p.Status.Phase == corev1.PodFailed || p.Status.Phase == corev1.PodSucceeded) {
			p.Status.Phase = corev1.PodRunning
		}
	}
}

// wellStatefulSetWorld is a StatefulSet for which both come to the same end without refusals: it is not being
// deleted; without order none of its pods has ended; and with order and owned claims, its running pods are
// ready.
func wellStatefulSetWorld(t *rapid.T) []runtime.Object {
	world := statefulSetWorld(t)
	set := world[0].(*appsv1.StatefulSet)
	if set.DeletionTimestamp != nil {
		exemption.Uses("no-report-in-between")
		set.DeletionTimestamp, set.Finalizers = nil, nil
	}
	if set.Spec.MinReadySeconds > 0 {
		exemption.Uses("available-by-the-clock")
		set.Spec.MinReadySeconds = 0
	}
	if set.Spec.PodManagementPolicy == appsv1.ParallelPodManagement {
		exemption.Uses("one-step")
		noneHasEnded(world)
	}
	if u := set.Spec.UpdateStrategy.RollingUpdate; u != nil && len(set.Spec.VolumeClaimTemplates) > 0 {
		exemption.Uses("claims-first") // the status may report in between that the rollout is complete
		u.Partition = oracletest.Ptr(int32(0))
	}
	if set.Spec.PodManagementPolicy != appsv1.OrderedReadyPodManagement || len(set.Spec.VolumeClaimTemplates) == 0 {
		return world
	}
	for _, obj := range world {
		if p, ok := obj.(*corev1.Pod); ok && p.Status.Phase == corev1.PodRunning {
			exemption.Uses("owner-at-once")
			p.DeletionTimestamp, p.Finalizers = nil, nil
			since := metav1.NewTime(objects.Now.Add(-100 * time.Second).Truncate(time.Second))
			p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue, LastTransitionTime: since}}
		}
	}
	return world
}

// sparedDeployments is true if ours reports more, or if writes before a rollback matter.
func sparedDeployments(world []runtime.Object, r stage.Refusal) bool {
	switch d := world[0].(*appsv1.Deployment); {
	case r.Answer.Reason == string(metav1.StatusReasonAlreadyExists):
		exemption.Uses("taken-is-told")
		return true
	case r.Status && r.Times > 2:
		exemption.Uses("reported-all-the-same")
		return true
	case r.Verb == plan.Update:
		exemption.Uses("rolled-back-first")
		delete(d.Annotations, appsv1.DeprecatedRollbackTo)
	}
	return false
}

// wellDeploymentWorld is a Deployment without conditions, whose sets have no annotation about its size.
func wellDeploymentWorld(t *rapid.T) []runtime.Object {
	world := deploymentWorld(t)
	d := world[0].(*appsv1.Deployment)
	exemption.Uses("words-of-the-last-set")
	d.Status.Conditions, d.Status.ObservedGeneration = nil, d.Generation-1
	if d.Spec.Paused {
		exemption.Uses("kept-while-it-grows")
		*d.Spec.RevisionHistoryLimit = 4
	}
	exemption.Uses("recreates-given-sets")
	exemption.Uses("note-of-size")
	for _, obj := range world {
		if rs, ok := obj.(*appsv1.ReplicaSet); ok {
			delete(rs.Annotations, "deployment.kubernetes.io/desired-replicas")
		}
	}
	return world
}
