package oracle

import (
	"context"
	"encoding/json"
	"slices"
	"strconv"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	podutil "k8s.io/kubernetes/pkg/api/v1/pod"
	"k8s.io/kubernetes/pkg/controller/replication"
	upstream "k8s.io/kubernetes/pkg/controller/statefulset"

	"github.com/millrace/millrace/services/reconcilers/controllers/replicationcontroller"
	"github.com/millrace/millrace/services/reconcilers/controllers/statefulset"
)

// ReplicationController is the controller of the older kind of sets.
var ReplicationController = Pair{
	Theirs: func(ctx context.Context, f informers.SharedInformerFactory, c kubernetes.Interface) (func(), error) {
		rm := replication.NewReplicationManager(ctx, orderedPods{f.Core().V1().Pods()}, f.Core().V1().ReplicationControllers(), c, replication.BurstReplicas)
		return func() { rm.Run(ctx, 1) }, nil
	},
	Ours: replicationcontroller.Controller, Alone: claims, Fair: fairReplicaSet,
}

// StatefulSet is the stateful set controller.
var StatefulSet = Pair{
	Theirs: func(ctx context.Context, f informers.SharedInformerFactory, c kubernetes.Interface) (func(), error) {
		core, apps := f.Core().V1(), f.Apps().V1()
		ssc := upstream.NewStatefulSetController(ctx, core.Pods(), apps.StatefulSets(), core.PersistentVolumeClaims(), apps.ControllerRevisions(), c)
		return func() { ssc.Run(ctx, 1) }, nil
	},
	Ours: statefulset.Controller, Alone: claimsOrRevises, Fair: fairStatefulSet,
}

// revises is true for the birth of a revision, and for one that becomes the newest.
func revises(e Effect) bool {
	return e.Resource == "controllerrevisions" && (e.Verb == create || e.Verb == update)
}

func claimsOrRevises(e Effect) bool { return claims(e) || revises(e) }

// fairStatefulSet leaves of both what they do in the same step:
//
//   - When pods or revisions change hands, nothing else, as for replica sets.
//   - When the revision of the template is written, nothing else. Upstream goes on in
//     the same sync; we wait until it is seen, and of a set that is being deleted we
//     write none, nor report on it until it goes.
//   - When claims are created, nothing else. Upstream creates the pod in the same sync; we
//     wait until the claims are seen.
//   - When claims change owners, not the update of their pod, which changes nothing, nor
//     that it is told; nor what upstream goes on to when the pods that there should be
//     have been gone through; nor ours of a pod that is not available, for which upstream
//     waits.
//   - When a set without order does anything else than roll, not the deletes that upstream
//     goes on to, nor the second of one pod.
//   - When a pod is deleted because of its revision, not how many are current.
//     Upstream takes it away at once; we report it when it is seen.
func fairStatefulSet(world []runtime.Object, theirs, ours []Effect) ([]Effect, []Effect) {
	either := func(is func(Effect) bool) bool {
		return slices.ContainsFunc(theirs, is) || slices.ContainsFunc(ours, is)
	}
	set, ok := world[0].(*appsv1.StatefulSet)
	switch {
	case either(claims):
		return only(theirs, claims), only(ours, claims)
	case either(revises) && ok && set.DeletionTimestamp != nil:
		return nil, nil
	case either(revises):
		return only(theirs, revises), only(ours, revises)
	}
	if either(createsClaim) {
		return only(theirs, ofClaims), only(ours, ofClaims)
	}
	if either(updatesClaim) {
		theirs, ours = ownersOnly(world, theirs, ours)
	}
	died := either(ends)
	if ok && set.Spec.PodManagementPolicy == appsv1.ParallelPodManagement && !rolls(world, set, ours) {
		once := map[Effect]bool{}
		theirs = only(theirs, func(e Effect) bool {
			again := once[e]
			once[e] = true
			return !ends(e) || slices.Contains(ours, e) && !again
		})
	}
	if died {
		return uncounted(theirs), uncounted(ours)
	}
	return theirs, ours
}

// rolls tells whether ours does nothing to pods and claims but delete pods that there should
// be, and that have not ended.
func rolls(world []runtime.Object, set *appsv1.StatefulSet, ours []Effect) bool {
	wanted := map[string]bool{}
	for at := range int(*set.Spec.Replicas) {
		start := 0
		if set.Spec.Ordinals != nil {
			start = int(set.Spec.Ordinals.Start)
		}
		wanted[set.Name+"-"+strconv.Itoa(start+at)] = true
	}
	for _, obj := range world {
		if p, ok := obj.(*corev1.Pod); ok && podutil.IsPodTerminal(p) {
			delete(wanted, p.Name)
		}
	}
	return !slices.ContainsFunc(ours, func(e Effect) bool {
		touches := e.Resource == "pods" || e.Resource == "persistentvolumeclaims"
		return touches && (e.Verb != remove || !wanted[e.Name])
	})
}

func createsClaim(e Effect) bool {
	return e.Verb == create && e.Resource == "persistentvolumeclaims"
}

func updatesClaim(e Effect) bool {
	return e.Verb == update && e.Resource == "persistentvolumeclaims"
}

// ofClaims is true for the create of a claim, and the Event about it.
func ofClaims(e Effect) bool {
	return createsClaim(e) || e.Verb == event && strings.Contains(e.Body, "Create Claim ")
}

// ownersOnly leaves of both what they do in the same step when claims change owners.
func ownersOnly(world []runtime.Object, theirs, ours []Effect) ([]Effect, []Effect) {
	same := func(e Effect) bool {
		return !ends(e) && !(e.Verb == update && e.Resource == "pods") && !strings.Contains(e.Body, "SuccessfulUpdate")
	}
	acts := slices.ContainsFunc(ours, func(e Effect) bool { return updatesClaim(e) || e.Resource == "pods" })
	was := theirs
	theirs = only(theirs, func(e Effect) bool {
		return same(e) && (!acts || !(updatesClaim(e) || strings.Contains(e.Body, "ConflictingController")) || slices.Contains(ours, e))
	})
	ours = only(ours, func(e Effect) bool {
		claim := e.Name
		if _, of, told := strings.Cut(e.Body, "ConflictingController PersistentVolumeClaim "); told {
			claim, _, _ = strings.Cut(of, " ")
		}
		return same(e) && (slices.Contains(was, e) || !unwell(world, claim))
	})
	return uncounted(theirs), uncounted(ours)
}

// unwell tells whether the pod of a claim is there and not available.
func unwell(world []runtime.Object, claim string) bool {
	return slices.ContainsFunc(world, func(obj runtime.Object) bool {
		p, ok := obj.(*corev1.Pod)
		return ok && "data-"+p.Name == claim && (p.DeletionTimestamp != nil || !podutil.IsPodAvailable(p, world[0].(*appsv1.StatefulSet).Spec.MinReadySeconds, metav1.NewTime(Now)))
	})
}

// ends is true for the death of a pod, and the Event about it.
func ends(e Effect) bool {
	return e.Verb == remove && e.Resource == "pods" || e.Verb == event && strings.Contains(e.Body, "Delete Pod ")
}

// uncounted are effects without the number of current pods in the status.
func uncounted(effects []Effect) []Effect {
	out := slices.Clone(effects)
	for i, e := range out {
		if e.Resource != "statefulsets/status" {
			continue
		}
		set := &appsv1.StatefulSet{}
		if err := json.Unmarshal([]byte(e.Body), set); err == nil {
			set.Status.CurrentReplicas = 0
			out[i] = updated(e.Resource, e.Name, []byte(text(set)))
		}
	}
	return out
}

// Older is a ReplicaSet with its pods as a ReplicationController with the same.
func Older(world []runtime.Object) []runtime.Object {
	out := make([]runtime.Object, 0, len(world))
	for _, obj := range world {
		switch o := obj.(type) {
		case *appsv1.ReplicaSet:
			out = append(out, olderSet(o))
		case *corev1.Pod:
			p := o.DeepCopy()
			for i := range p.OwnerReferences {
				p.OwnerReferences[i].APIVersion, p.OwnerReferences[i].Kind = "v1", "ReplicationController"
			}
			out = append(out, p)
		}
	}
	return out
}

func olderSet(rs *appsv1.ReplicaSet) *corev1.ReplicationController {
	rc := &corev1.ReplicationController{
		ObjectMeta: *rs.ObjectMeta.DeepCopy(),
		Spec: corev1.ReplicationControllerSpec{
			Replicas: rs.Spec.Replicas, MinReadySeconds: rs.Spec.MinReadySeconds, Selector: rs.Spec.Selector.MatchLabels, Template: &rs.Spec.Template,
		},
		Status: corev1.ReplicationControllerStatus{
			Replicas: rs.Status.Replicas, FullyLabeledReplicas: rs.Status.FullyLabeledReplicas, ReadyReplicas: rs.Status.ReadyReplicas,
			AvailableReplicas: rs.Status.AvailableReplicas, ObservedGeneration: rs.Status.ObservedGeneration,
		},
	}
	for _, c := range rs.Status.Conditions {
		rc.Status.Conditions = append(rc.Status.Conditions, corev1.ReplicationControllerCondition{
			Type: corev1.ReplicationControllerConditionType(c.Type), Status: c.Status, LastTransitionTime: c.LastTransitionTime, Reason: c.Reason, Message: c.Message,
		})
	}
	return rc
}
