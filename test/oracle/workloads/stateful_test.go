package workloads_test

import (
	"encoding/json"
	"fmt"
	"strconv"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"pgregory.net/rapid"

	"github.com/millrace/millrace/services/reconcilers/kube/gate"
	"github.com/millrace/millrace/test/oracle/exemption"
	"github.com/millrace/millrace/test/oracle/objects"
	"github.com/millrace/millrace/test/oracle/oracletest"
	"github.com/millrace/millrace/test/oracle/workloads"
)

func TestReplicationControllerDecidesAsUpstreamDoes(t *testing.T) {
	oracletest.Agree(t, workloads.ReplicationController, replicaSetKey, func(t *rapid.T) []runtime.Object { return workloads.Older(replicaSetWorld(t)) }, gate.PodDeletionCost)
}

func TestStatefulSetDecidesAsUpstreamDoes(t *testing.T) {
	oracletest.Agree(t, workloads.StatefulSet, deploymentKey, statefulSetWorld, gate.MaxUnavailableStatefulSet)
}

func TestStatefulSetRollsAsUpstreamDoes(t *testing.T) {
	oracletest.Agree(t, workloads.StatefulSet, deploymentKey, rollingWorld, gate.MaxUnavailableStatefulSet)
}

// rollingWorld is a StatefulSet between two revisions that has all its pods, some of which are not available.
func rollingWorld(t *rapid.T) []runtime.Object {
	set := arbitraryStatefulSet(t)
	set.DeletionTimestamp, set.Finalizers, set.Spec.Ordinals, set.Spec.VolumeClaimTemplates = nil, nil, nil, nil
	set.Spec.Replicas, set.Spec.Template = oracletest.Ptr(int32(rapid.IntRange(3, 6).Draw(t, "rolling"))), oracletest.Template(2)
	revisions := []string{revisionOf(set, 0).Name, revisionOf(set, 1).Name}
	set.Status.CurrentRevision, set.Status.UpdateRevision = revisions[0], revisions[1]
	world := []runtime.Object{set, revisionOf(set, 0), revisionOf(set, 1)}
	for i := range int(*set.Spec.Replicas) {
		p := memberOf(t, set, i, rapid.SampledFrom(revisions).Draw(t, "pod's revision"))
		p.Name, p.Labels["app"], p.Status.Phase = fmt.Sprintf("%s-%d", set.Name, i), oracletest.Owner, corev1.PodRunning
		world = append(world, p)
	}
	return world
}

// statefulSetWorld is a StatefulSet at some point of its life, with possible revisions and pods.
func statefulSetWorld(t *rapid.T) []runtime.Object {
	set := arbitraryStatefulSet(t)
	world := []runtime.Object{set}
	var revisions []string
	for i := range rapid.IntRange(0, 3).Draw(t, "revisions") {
		r := revisionOf(set, i)
		switch orphan := oracletest.Chance(t, 10, "orphan revision"); {
		case orphan && set.DeletionTimestamp != nil: // upstream's sync fails at one of those
			exemption.Uses("orphan-of-a-set-that-goes")
		case orphan:
			r.OwnerReferences = nil
		}
		revisions, world = append(revisions, r.Name), append(world, r)
	}
	if len(revisions) > 0 {
		set.Status.CurrentRevision = rapid.SampledFrom(revisions).Draw(t, "current revision")
		set.Status.UpdateRevision = rapid.SampledFrom(revisions).Draw(t, "update revision")
	} else {
		revisions = []string{"unknown"}
	}
	for i := range rapid.IntRange(0, 6).Draw(t, "pods") {
		if !oracletest.Chance(t, 5, "missing") {
			world = append(world, memberOf(t, set, i, rapid.SampledFrom(revisions).Draw(t, "pod's revision")))
		}
		if len(set.Spec.VolumeClaimTemplates) > 0 && !oracletest.Chance(t, 4, "without a claim") {
			world = append(world, claimOf(t, set, i))
		}
	}
	return world
}

// claimOf is the claim of an ordinal, with any possible owner.
func claimOf(t *rapid.T, set *appsv1.StatefulSet, i int) *corev1.PersistentVolumeClaim {
	name := fmt.Sprintf("%s-%d", set.Name, i)
	c := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{
		Name: "data-" + name, Namespace: oracletest.Namespace, UID: types.UID("claim-" + name), ResourceVersion: strconv.Itoa(2000 + i),
	}}
	by := func(version, kind, name, uid string, controls bool) {
		c.OwnerReferences = append(c.OwnerReferences, metav1.OwnerReference{
			APIVersion: version, Kind: kind, Name: name, UID: types.UID(uid), Controller: oracletest.Ptr(controls), BlockOwnerDeletion: oracletest.Ptr(true),
		})
	}
	switch rapid.IntRange(0, 9).Draw(t, "owner of a claim") {
	case 0, 1:
		by("apps/v1", "StatefulSet", set.Name, string(set.UID), true)
	case 2:
		by("apps/v1", "StatefulSet", set.Name, string(set.UID), false)
	case 3:
		by("apps/v1", "StatefulSet", set.Name, "before", true)
	case 4:
		by("v1", "Pod", name, "pod-"+name, true)
	case 5:
		by("v1", "Pod", name, "before", true)
	case 6:
		by("v1", "Service", "else", "else", true)
	case 7:
		by("v1", "Service", "else", "else", true)
		by("apps/v1", "StatefulSet", set.Name, string(set.UID), false)
	}
	// Without order, upstream stops all but a few replicas at its first failure; ours go on.
	exemption.Uses("claim-that-leaves")
	if set.Spec.PodManagementPolicy == appsv1.OrderedReadyPodManagement && oracletest.Chance(t, 8, "claim deleted") {
		c.DeletionTimestamp, c.Finalizers = oracletest.Ptr(oracletest.Ago(t, 20, "claim deleted since")), []string{"kubernetes.io/pvc-protection"}
	}
	return c
}

func arbitraryStatefulSet(t *rapid.T) *appsv1.StatefulSet {
	set := &appsv1.StatefulSet{
		ObjectMeta: metav1.ObjectMeta{Name: oracletest.Owner, Namespace: oracletest.Namespace, UID: "set", ResourceVersion: "10", Generation: 2, CreationTimestamp: oracletest.Ago(t, 4000, "created")},
		Spec: appsv1.StatefulSetSpec{
			Replicas: oracletest.Ptr(oracletest.Small(t, 5, "replicas")), Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": oracletest.Owner}},
			Template: oracletest.Template(rapid.IntRange(1, 3).Draw(t, "image")), ServiceName: oracletest.Owner, RevisionHistoryLimit: oracletest.Ptr(oracletest.Small(t, 2, "history")),
			PodManagementPolicy: rapid.SampledFrom([]appsv1.PodManagementPolicyType{appsv1.OrderedReadyPodManagement, appsv1.OrderedReadyPodManagement, appsv1.ParallelPodManagement}).Draw(t, "policy"),
			MinReadySeconds:     rapid.SampledFrom([]int32{0, 0, 30}).Draw(t, "min ready"),
			UpdateStrategy:      appsv1.StatefulSetUpdateStrategy{Type: appsv1.RollingUpdateStatefulSetStrategyType, RollingUpdate: &appsv1.RollingUpdateStatefulSetStrategy{Partition: oracletest.Ptr(int32(0))}},
		},
		Status: appsv1.StatefulSetStatus{
			Replicas: oracletest.Small(t, 5, "said"), CurrentReplicas: oracletest.Small(t, 5, "said current"), ReadyReplicas: oracletest.Small(t, 5, "said ready"),
			ObservedGeneration: int64(rapid.IntRange(1, 2).Draw(t, "observed")), CollisionCount: oracletest.Ptr(int32(0)),
		},
	}
	if rapid.Bool().Draw(t, "claims") {
		set.Spec.VolumeClaimTemplates = []corev1.PersistentVolumeClaim{{ObjectMeta: metav1.ObjectMeta{
			Name: "data", GenerateName: rapid.SampledFrom([]string{"", "data-"}).Draw(t, "generate name"),
		}}}
		when := rapid.SampledFrom([]appsv1.PersistentVolumeClaimRetentionPolicyType{appsv1.RetainPersistentVolumeClaimRetentionPolicyType, appsv1.DeletePersistentVolumeClaimRetentionPolicyType})
		set.Spec.PersistentVolumeClaimRetentionPolicy = &appsv1.StatefulSetPersistentVolumeClaimRetentionPolicy{
			WhenDeleted: when.Draw(t, "when deleted"), WhenScaled: when.Draw(t, "when scaled"),
		}
	}
	if rapid.Bool().Draw(t, "several may be unavailable") {
		most := rapid.SampledFrom([]intstr.IntOrString{intstr.FromInt32(2), intstr.FromInt32(3), intstr.FromString("67%"), intstr.FromString("1%")})
		set.Spec.UpdateStrategy.RollingUpdate.MaxUnavailable = oracletest.Ptr(most.Draw(t, "max unavailable"))
	}
	switch rapid.IntRange(0, 9).Draw(t, "odd set") {
	case 0:
		set.Spec.UpdateStrategy = appsv1.StatefulSetUpdateStrategy{Type: appsv1.OnDeleteStatefulSetStrategyType}
	case 1, 2:
		set.Spec.UpdateStrategy.RollingUpdate.Partition = oracletest.Ptr(oracletest.Small(t, 4, "partition"))
	case 3:
		set.Spec.Ordinals = &appsv1.StatefulSetOrdinals{Start: oracletest.Small(t, 2, "start")}
	case 4:
		set.DeletionTimestamp, set.Finalizers = oracletest.Ptr(oracletest.Ago(t, 60, "deleted")), []string{"example.com/hold"}
	}
	return set
}

// revisionOf is the revision of the i-th template, under a name without hash.
func revisionOf(set *appsv1.StatefulSet, i int) *appsv1.ControllerRevision {
	var body map[string]any
	raw, _ := json.Marshal(oracletest.Template(i + 1))
	_ = json.Unmarshal(raw, &body)
	body["$patch"] = "replace"
	raw, _ = json.Marshal(map[string]any{"spec": map[string]any{"template": body}})
	return &appsv1.ControllerRevision{
		ObjectMeta: metav1.ObjectMeta{
			Name: fmt.Sprintf("%s-r%d", oracletest.Owner, i), Namespace: oracletest.Namespace, UID: types.UID(fmt.Sprintf("r%d", i)), ResourceVersion: strconv.Itoa(20 + i), Labels: map[string]string{"app": oracletest.Owner},
			OwnerReferences: []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "StatefulSet", Name: set.Name, UID: set.UID, Controller: oracletest.Ptr(true), BlockOwnerDeletion: oracletest.Ptr(true)}},
		},
		Data: runtime.RawExtension{Raw: raw}, Revision: int64(i + 1),
	}
}

// memberOf is the pod with an ordinal, at some point of its life.
func memberOf(t *rapid.T, set *appsv1.StatefulSet, i int, revision string) *corev1.Pod {
	name := fmt.Sprintf("%s-%d", set.Name, i)
	p := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Name: name, Namespace: oracletest.Namespace, UID: types.UID("pod-" + name), ResourceVersion: strconv.Itoa(1000 + i), CreationTimestamp: oracletest.Ago(t, 3000, "pod created"),
			Labels:          map[string]string{"app": oracletest.Owner, appsv1.StatefulSetPodNameLabel: name, appsv1.PodIndexLabel: strconv.Itoa(i), appsv1.StatefulSetRevisionLabel: revision},
			OwnerReferences: []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "StatefulSet", Name: set.Name, UID: set.UID, Controller: oracletest.Ptr(true), BlockOwnerDeletion: oracletest.Ptr(true)}},
		},
		Spec:   set.Spec.Template.Spec,
		Status: corev1.PodStatus{Phase: corev1.PodRunning},
	}
	for _, c := range set.Spec.VolumeClaimTemplates {
		p.Spec.Volumes = []corev1.Volume{{Name: c.Name, VolumeSource: corev1.VolumeSource{
			PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: c.Name + "-" + name},
		}}}
	}
	if !oracletest.Chance(t, 5, "unready") {
		since := metav1.NewTime(objects.Now.Add(-time.Duration(rapid.SampledFrom([]int{10, 100}).Draw(t, "ready since")) * time.Second).Truncate(time.Second))
		p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue, LastTransitionTime: since}}
	}
	switch rapid.IntRange(1, 20).Draw(t, "odd pod") {
	case 1:
		p.Status.Phase = corev1.PodFailed
	case 2:
		p.Status.Phase = corev1.PodPending
	case 3:
		p.DeletionTimestamp, p.Finalizers = oracletest.Ptr(oracletest.Ago(t, 20, "pod deleted")), []string{"example.com/hold"}
	case 4:
		p.OwnerReferences = nil
	case 5:
		// Beyond the other ordinals: if a name is taken, upstream tries to use it again and ours waits.
		exemption.Uses("name-is-taken")
		p.Name, p.Labels["app"] = fmt.Sprintf("%s-%d", set.Name, i+50), "else"
	}
	return p
}
