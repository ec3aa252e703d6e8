package workloads

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	upstreamdeployment "k8s.io/kubernetes/pkg/controller/deployment"
	upstreamreplicaset "k8s.io/kubernetes/pkg/controller/replicaset"

	"github.com/millrace/millrace/services/reconcilers/controllers/deployment"
	"github.com/millrace/millrace/services/reconcilers/controllers/replicaset"
	"github.com/millrace/millrace/test/oracle/effect"
	"github.com/millrace/millrace/test/oracle/exemption"
	"github.com/millrace/millrace/test/oracle/frozen"
	"github.com/millrace/millrace/test/oracle/kcm"
	"github.com/millrace/millrace/test/oracle/objects"
)

// Deployment is the deployment controller.
var Deployment = frozen.Pair{Theirs: buildDeployments, Ours: deployment.Controller, Alone: claimsOrBears, Told: toldOfCreate, Fair: fairDeployment, Strict: bearsResumed}

// ReplicaSet is the replica set controller.
var ReplicaSet = frozen.Pair{Theirs: buildReplicaSets, Ours: replicaset.Controller, Alone: claims, Fair: fairReplicaSet}

// buildDeployments makes upstream's deployment controller.
func buildDeployments(ctx context.Context, f informers.SharedInformerFactory, c kubernetes.Interface) (func(), error) {
	apps := f.Apps().V1()
	dc, err := upstreamdeployment.NewDeploymentController(ctx, apps.Deployments(), apps.ReplicaSets(), f.Core().V1().Pods(), c)
	if err != nil {
		return nil, fmt.Errorf("make the deployment controller: %w", err)
	}
	return func() { dc.Run(ctx, 1) }, nil
}

// buildReplicaSets makes upstream's replica set controller.
func buildReplicaSets(ctx context.Context, f informers.SharedInformerFactory, c kubernetes.Interface) (func(), error) {
	rsc := upstreamreplicaset.NewReplicaSetController(ctx, f.Apps().V1().ReplicaSets(), kcm.OrderedPods{PodInformer: f.Core().V1().Pods()}, c, upstreamreplicaset.BurstReplicas)
	return func() { rsc.Run(ctx, 1) }, nil
}

// claims is true for adoptions and releases, the only patches that the two controllers send.
func claims(e effect.Effect) bool { return e.Verb == effect.Patch }

// bears is true for the create of a replica set.
func bears(e effect.Effect) bool { return e.Verb == effect.Create && e.Resource == "replicasets" }

func claimsOrBears(e effect.Effect) bool { return claims(e) || bears(e) }

// fairReplicaSet leaves of both the effects of the same step:
//
//   - When pods change owners, nothing else. Upstream goes on in the same sync as if it
//     had seen its own adoption; ours waits until it sees the adoption.
func fairReplicaSet(_ []runtime.Object, theirs, ours []effect.Effect) ([]effect.Effect, []effect.Effect) {
	if slices.ContainsFunc(theirs, claims) || slices.ContainsFunc(ours, claims) {
		exemption.Uses("change-of-hands")
		return effect.Only(theirs, claims), effect.Only(ours, claims)
	}
	return theirs, ours
}

// fairDeployment leaves of both the effects of the same step:
//
//   - When replica sets change owners, nothing else, as for pods.
//   - When the new set is created, only that, the Event about it and the condition
//     Progressing. Upstream may scale old sets in the same sync, and counts the new
//     set as if it had seen it.
//   - When a Deployment that is to be rolled back is resumed in that step, no status: upstream
//     reports the resume, and the rest after the rollback.
//   - When the Deployment is rolled back, no status: it would be that of an object that
//     is about to change. Upstream writes some of it before.
//   - When one set alone has replicas, as many as wanted, but another number in its
//     annotation, not the annotation. Upstream leaves it, takes it for a change of size
//     ever after and never rolls out again; ours corrects it.
//   - When a Deployment with strategy Recreate has several sets with replicas, one of which
//     has another number in its annotation, nothing, unless only the new one is wanted. Upstream
//     takes that for a change of size for ever, and never recreates; ours does.
//   - When the new set gets its revision, not the deletes of old ones with a revision as high.
//     Ours waits for that.
//   - When a set is scaled up in place of the new one, which a paused Deployment
//     does not have, not its delete. Upstream deletes it in the same sync if the
//     history has no room for it.
func fairDeployment(world []runtime.Object, theirs, ours []effect.Effect) ([]effect.Effect, []effect.Effect) {
	either := func(is func(effect.Effect) bool) bool {
		return slices.ContainsFunc(theirs, is) || slices.ContainsFunc(ours, is)
	}
	switch {
	case either(claims):
		exemption.Uses("change-of-hands")
		return effect.Only(theirs, claims), effect.Only(ours, claims)
	case either(bears) && resumes(world) && asksBack(world):
		exemption.Uses("resumed-and-rolled-back")
		return effect.Only(firstWords(world, theirs), frozen.ReportsNot), effect.Only(firstWords(world, ours), frozen.ReportsNot)
	case either(bears):
		exemption.Uses("new-set-first")
		return firstWords(world, theirs), firstWords(world, ours)
	case either(rollsBack):
		exemption.Uses("rolled-back-first")
		return effect.Only(theirs, frozen.ReportsNot), effect.Only(ours, frozen.ReportsNot)
	}
	if stuck(world) {
		exemption.Uses("recreates-given-sets")
		return nil, nil
	}
	theirs = exemption.Lets("kept-while-it-grows", theirs, effect.Only(theirs, func(e effect.Effect) bool {
		return e.Verb != effect.Remove || !slices.ContainsFunc(theirs, func(o effect.Effect) bool {
			return o.Verb == effect.Update && o.Resource == e.Resource && o.Name == e.Name
		})
	}))
	if slices.ContainsFunc(theirs, func(e effect.Effect) bool { return numbers(world, e) }) {
		theirs = exemption.Lets("numbered-first", theirs, effect.Only(theirs, func(e effect.Effect) bool {
			return e.Verb != effect.Remove || slices.ContainsFunc(ours, func(o effect.Effect) bool { return o.Head() == e.Head() })
		}))
	}
	if crowd := slices.DeleteFunc(setsOf(world), func(rs *appsv1.ReplicaSet) bool { return *rs.Spec.Replicas == 0 }); len(crowd) <= 1 {
		return exemption.Lets("note-of-size", theirs, corrected(world, theirs)), exemption.Lets("note-of-size", ours, corrected(world, ours))
	}
	return theirs, ours
}

// numbers reports whether an effect gives a set another revision.
func numbers(world []runtime.Object, e effect.Effect) bool {
	const note = "deployment.kubernetes.io/revision"
	return e.Verb == effect.Update && e.Resource == "replicasets" && slices.ContainsFunc(setsOf(world), func(rs *appsv1.ReplicaSet) bool {
		var next metav1.PartialObjectMetadata
		return rs.Name == e.Name && json.Unmarshal([]byte(e.Body), &next) == nil && next.Annotations[note] != rs.Annotations[note]
	})
}

// stuck reports whether upstream takes the sets of a Deployment that recreates for a change of size, and does
// nothing about it.
func stuck(world []runtime.Object) bool {
	at := slices.IndexFunc(world, func(o runtime.Object) bool { _, ok := o.(*appsv1.Deployment); return ok })
	d := world[at].(*appsv1.Deployment)
	asked, active, changed := *d.Spec.Replicas, 0, false
	for _, rs := range setsOf(world) {
		if *rs.Spec.Replicas == 0 {
			continue
		}
		desired, err := strconv.Atoi(rs.Annotations["deployment.kubernetes.io/desired-replicas"])
		active, changed = active+1, changed || err == nil && desired >= 0 && int32(desired) != asked
		if image := rs.Spec.Template.Spec.Containers[0].Image; image == d.Spec.Template.Spec.Containers[0].Image &&
			err == nil && int32(desired) == asked && *rs.Spec.Replicas == asked && rs.Status.AvailableReplicas == asked {
			return false
		}
	}
	return d.Spec.Strategy.Type == appsv1.RecreateDeploymentStrategyType && !d.Spec.Paused && d.DeletionTimestamp == nil && active > 1 && changed
}

// corrected removes the annotations about its size from a set whose size does not change, and the whole
// update if it has no other change.
func corrected(world []runtime.Object, effects []effect.Effect) []effect.Effect {
	var out []effect.Effect
	for _, e := range effects {
		at := slices.IndexFunc(setsOf(world), func(rs *appsv1.ReplicaSet) bool {
			return e.Verb == effect.Update && e.Resource == "replicasets" && e.Name == rs.Name
		})
		if at < 0 {
			out = append(out, e)
			continue
		}
		was, next := setsOf(world)[at].DeepCopy(), &appsv1.ReplicaSet{}
		if err := json.Unmarshal([]byte(e.Body), next); err == nil && *next.Spec.Replicas == *was.Spec.Replicas {
			for _, note := range []string{"deployment.kubernetes.io/desired-replicas", "deployment.kubernetes.io/max-replicas"} {
				delete(was.Annotations, note)
				delete(next.Annotations, note)
			}
			e = effect.Updated(e.Resource, e.Name, []byte(effect.JSON(next)))
			if e == effect.Updated(e.Resource, e.Name, []byte(effect.JSON(was))) {
				continue
			}
		}
		out = append(out, e)
	}
	return out
}

// setsOf are a Deployment's own replica sets.
func setsOf(world []runtime.Object) []*appsv1.ReplicaSet {
	var deployment *appsv1.Deployment
	var sets []*appsv1.ReplicaSet
	for _, obj := range world {
		switch obj := obj.(type) {
		case *appsv1.Deployment:
			deployment = obj
		case *appsv1.ReplicaSet:
			if metav1.IsControlledBy(obj, deployment) {
				sets = append(sets, obj)
			}
		}
	}
	return sets
}

// bearsResumed is true if a Deployment that was paused creates a set when it is resumed. Upstream writes that
// it is resumed, and then, with the same version, another status.
func bearsResumed(world []runtime.Object, theirs []effect.Effect) bool {
	return slices.ContainsFunc(theirs, bears) && resumes(world)
}

// resumes reports whether the status of a Deployment says that it is paused, and it no longer is. A
// Deployment without a deadline never has that status.
func resumes(world []runtime.Object) bool {
	for _, obj := range world {
		if d, ok := obj.(*appsv1.Deployment); ok && !d.Spec.Paused && d.Spec.ProgressDeadlineSeconds != nil {
			return slices.ContainsFunc(d.Status.Conditions, func(c appsv1.DeploymentCondition) bool {
				return c.Type == appsv1.DeploymentProgressing && c.Reason == "DeploymentPaused"
			})
		}
	}
	return false
}

// asksBack reports whether a Deployment is to be rolled back.
func asksBack(world []runtime.Object) bool {
	return slices.ContainsFunc(world, func(obj runtime.Object) bool {
		d, ok := obj.(*appsv1.Deployment)
		return ok && d.Annotations[appsv1.DeprecatedRollbackTo] != ""
	})
}

func rollsBack(e effect.Effect) bool { return e.Verb == effect.Update && e.Resource == "deployments" }

// firstWords are a create, the Event about it and the condition Progressing after the step.
func firstWords(world []runtime.Object, effects []effect.Effect) []effect.Effect {
	at := slices.IndexFunc(effects, bears)
	if at < 0 {
		return effects
	}
	kept := effect.Only(effects, func(e effect.Effect) bool {
		return bears(e) || e.Verb == effect.Event && strings.Contains(e.Body, effects[at].Name+" from 0 to ")
	})
	var after *appsv1.Deployment
	for _, obj := range world {
		if d, ok := obj.(*appsv1.Deployment); ok {
			after = d
		}
	}
	for _, e := range effects {
		if obj, err := objects.Decoded("deployments", e.Body); !frozen.ReportsNot(e) && err == nil {
			after = obj.(*appsv1.Deployment)
		}
	}
	for _, c := range after.Status.Conditions {
		if c.Type == appsv1.DeploymentProgressing {
			kept = append(kept, effect.Effect{Verb: effect.Update, Resource: "deployments/status", Name: after.Name, Body: effect.JSON(c)})
		}
	}
	return kept
}

// toldOfCreate writes [firstWords] about the new set into the Deployment. Ours reports a created set whenever
// that has not been reported; upstream does not, if its report met a conflict.
func toldOfCreate(world []runtime.Object, theirs []effect.Effect) ([]runtime.Object, error) {
	if !slices.ContainsFunc(theirs, bears) {
		return world, nil
	}
	at := slices.IndexFunc(theirs, func(e effect.Effect) bool { return !frozen.ReportsNot(e) })
	if at < 0 {
		return world, nil
	}
	var said appsv1.DeploymentCondition
	if err := json.Unmarshal([]byte(theirs[at].Body), &said); err != nil {
		return nil, fmt.Errorf("read a condition: %w", err)
	}
	exemption.Uses("told-of-new-set")
	for _, obj := range world { // a copy
		if d, ok := obj.(*appsv1.Deployment); ok {
			d.Status.Conditions = slices.DeleteFunc(d.Status.Conditions, func(c appsv1.DeploymentCondition) bool { return c.Type == said.Type })
			d.Status.Conditions = append(d.Status.Conditions, said)
		}
	}
	return world, nil
}
