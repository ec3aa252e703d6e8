package workloads

import (
	"context"
	"encoding/json"
	"regexp"
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
	"github.com/millrace/millrace/test/oracle/effect"
	"github.com/millrace/millrace/test/oracle/exemption"
	"github.com/millrace/millrace/test/oracle/frozen"
	"github.com/millrace/millrace/test/oracle/kcm"
	"github.com/millrace/millrace/test/oracle/objects"
)

// ReplicationController is the controller of ReplicationControllers.
var ReplicationController = frozen.Pair{
	Theirs: func(ctx context.Context, f informers.SharedInformerFactory, c kubernetes.Interface) (func(), error) {
		rm := replication.NewReplicationManager(ctx, kcm.OrderedPods{PodInformer: f.Core().V1().Pods()}, f.Core().V1().ReplicationControllers(), c, replication.BurstReplicas)
		return func() { rm.Run(ctx, 1) }, nil
	},
	Ours: replicationcontroller.Controller, Alone: claims, Fair: fairReplicaSet,
}

// StatefulSet is the stateful set controller.
var StatefulSet = frozen.Pair{
	Theirs: func(ctx context.Context, f informers.SharedInformerFactory, c kubernetes.Interface) (func(), error) {
		core, apps := f.Core().V1(), f.Apps().V1()
		ssc := upstream.NewStatefulSetController(ctx, core.Pods(), apps.StatefulSets(), core.PersistentVolumeClaims(), apps.ControllerRevisions(), c)
		return func() { ssc.Run(ctx, 1) }, nil
	},
	Ours: statefulset.Controller, Alone: claimsOrRevises, Fair: fairStatefulSet,
}

// revises is true for the create of a revision, and for an update that makes one the newest.
func revises(e effect.Effect) bool {
	return e.Resource == "controllerrevisions" && (e.Verb == effect.Create || e.Verb == effect.Update)
}

func claimsOrRevises(e effect.Effect) bool { return claims(e) || revises(e) }

// fairStatefulSet leaves of both the effects of the same step:
//
//   - When pods or revisions change owners, nothing else, as for replica sets.
//   - When the revision of the template is written, nothing else. Upstream goes on in the same
//     sync; ours waits until it sees the revision, and for a set that is being deleted it
//     writes none, nor a status until the set is deleted.
//   - When claims are created, nothing else. Upstream creates the pod in the same sync; ours
//     waits until it sees the claims.
//   - Of the steps that upstream takes one after the other in one sync the first, and no
//     delete a second time. Ours takes the next step when it has seen the first.
//   - When claims change owners, not the update of their pod, which changes nothing, nor
//     the Event about it; nor, in order, ours of a pod that is not available, for which
//     upstream waits.
//   - When a pod is deleted because of its revision, not the number of current pods.
//     Upstream subtracts it at once; ours when it has seen the delete.
func fairStatefulSet(world []runtime.Object, theirs, ours []effect.Effect) ([]effect.Effect, []effect.Effect) {
	either := func(is func(effect.Effect) bool) bool {
		return slices.ContainsFunc(theirs, is) || slices.ContainsFunc(ours, is)
	}
	set, ok := world[0].(*appsv1.StatefulSet)
	switch {
	case !ok:
		return theirs, ours
	case either(claims):
		exemption.Uses("change-of-hands")
		return effect.Only(theirs, claims), effect.Only(ours, claims)
	case either(revises) && set.DeletionTimestamp != nil:
		exemption.Uses("no-report-in-between")
		return nil, nil
	case either(revises):
		exemption.Uses("revision-first")
		return effect.Only(theirs, revises), effect.Only(ours, revises)
	case either(createsClaim):
		exemption.Uses("claims-first")
		return effect.Only(theirs, ofClaims), effect.Only(ours, ofClaims)
	}
	wanted := wantedOf(world, set)
	stepOf := func(e effect.Effect) step { return stepOf(wanted, e) }
	deletions := effect.Only(theirs, ends) // upstream may delete a pod for its revision that it has already deleted because it has ended
	rolled := len(effect.Unique(deletions)) < len(deletions) || either(func(e effect.Effect) bool { return stepOf(e) == roll })
	first := none
	for _, e := range theirs { // upstream repeats at every step that a claim has another owner
		if at := stepOf(e); at != none && e.Verb != effect.Event && (first == none || at < first) {
			first = at
		}
	}
	theirs = exemption.Lets("one-step", theirs, effect.Unique(effect.Only(theirs, func(e effect.Effect) bool { return first == none || stepOf(e) <= first })))
	if either(updatesClaim) {
		theirs, ours = ownersOnly(world, wanted, theirs, ours)
	}
	if rolled {
		return exemption.Lets("current-until-gone", theirs, uncounted(theirs)), uncounted(ours)
	}
	return theirs, ours
}

// step is one of upstream's steps in one sync, in their order.
type step int

const (
	none   step = iota // no pod and no claim
	fill               // writes about the wanted pods, and about their claims
	keep               // owners of the claims of other pods
	shrink             // the deletes of other pods
	roll               // the deletes of wanted pods of other revisions
)

// wantedOf maps the wanted pods to whether each has ended.
func wantedOf(world []runtime.Object, set *appsv1.StatefulSet) map[string]bool {
	wanted, start := map[string]bool{}, 0
	if set.Spec.Ordinals != nil {
		start = int(set.Spec.Ordinals.Start)
	}
	for at := range int(*set.Spec.Replicas) {
		wanted[set.Name+"-"+strconv.Itoa(start+at)] = false
	}
	for _, obj := range world {
		if p, ok := obj.(*corev1.Pod); ok && podutil.IsPodTerminal(p) {
			if _, is := wanted[p.Name]; is {
				wanted[p.Name] = true
			}
		}
	}
	return wanted
}

// stepOf is the step that an effect belongs to.
func stepOf(wanted map[string]bool, e effect.Effect) step {
	ended, is := wanted[podIn(e)]
	switch {
	case podIn(e) == "":
		return none
	case is && ends(e) && !ended:
		return roll
	case is:
		return fill
	case ends(e):
		return shrink
	default:
		return keep
	}
}

// whose matches the pod, or the pod of the claim, that an Event about a set names.
var whose = regexp.MustCompile(`PersistentVolumeClaim data-(\S+)|Pod (\S+)`)

// podIn is the pod that an effect is about, or about a claim of; "" if there is none.
func podIn(e effect.Effect) string {
	switch {
	case e.Resource == "pods" && e.Verb == effect.Create:
		p := &corev1.Pod{}
		if err := json.Unmarshal([]byte(e.Body), p); err != nil {
			panic(err) // it came from JSON
		}
		return p.Labels[appsv1.StatefulSetPodNameLabel]
	case e.Resource == "pods":
		return e.Name
	case e.Resource == "persistentvolumeclaims":
		return strings.TrimPrefix(e.Name, "data-")
	case e.Verb != effect.Event:
		return ""
	}
	if found := whose.FindStringSubmatch(e.Body); found != nil {
		return found[1] + found[2]
	}
	return ""
}

func createsClaim(e effect.Effect) bool {
	return e.Verb == effect.Create && e.Resource == "persistentvolumeclaims"
}

func updatesClaim(e effect.Effect) bool {
	return e.Verb == effect.Update && e.Resource == "persistentvolumeclaims"
}

// ofClaims is true for the create of a claim, and the Event about it.
func ofClaims(e effect.Effect) bool {
	return createsClaim(e) || e.Verb == effect.Event && strings.Contains(e.Body, "Create Claim ")
}

// ownersOnly leaves of both the effects of the same step when claims change owners.
func ownersOnly(world []runtime.Object, wanted map[string]bool, theirs, ours []effect.Effect) ([]effect.Effect, []effect.Effect) {
	ordered := world[0].(*appsv1.StatefulSet).Spec.PodManagementPolicy == appsv1.OrderedReadyPodManagement
	same := func(e effect.Effect) bool {
		return !(e.Verb == effect.Update && e.Resource == "pods") && !strings.Contains(e.Body, "SuccessfulUpdate")
	}
	was := theirs
	theirs = exemption.Lets("pod-updated-without-effect", theirs, effect.Only(theirs, same))
	ours = exemption.Lets("owner-at-once", ours, effect.Only(ours, func(e effect.Effect) bool {
		_, is := wanted[podIn(e)]
		early := ordered && is && (updatesClaim(e) || strings.Contains(e.Body, "ConflictingController")) && unwell(world, podIn(e))
		return same(e) && (!early || slices.Contains(was, e))
	}))
	return theirs, ours
}

// unwell reports whether a pod exists and is not available.
func unwell(world []runtime.Object, name string) bool {
	return slices.ContainsFunc(world, func(obj runtime.Object) bool {
		p, ok := obj.(*corev1.Pod)
		return ok && p.Name == name && (p.DeletionTimestamp != nil || !podutil.IsPodAvailable(p, world[0].(*appsv1.StatefulSet).Spec.MinReadySeconds, metav1.NewTime(objects.Now)))
	})
}

// ends is true for the delete of a pod, and the Event about it.
func ends(e effect.Effect) bool {
	return e.Verb == effect.Remove && e.Resource == "pods" || e.Verb == effect.Event && strings.Contains(e.Body, "Delete Pod ")
}

// uncounted are effects without the number of current pods in the status.
func uncounted(effects []effect.Effect) []effect.Effect {
	out := slices.Clone(effects)
	for i, e := range out {
		if e.Resource != "statefulsets/status" {
			continue
		}
		set := &appsv1.StatefulSet{}
		if err := json.Unmarshal([]byte(e.Body), set); err == nil {
			set.Status.CurrentReplicas = 0
			out[i] = effect.Updated(e.Resource, e.Name, []byte(effect.JSON(set)))
		}
	}
	return out
}

// Older converts a ReplicaSet with its pods to a ReplicationController with the same pods.
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
