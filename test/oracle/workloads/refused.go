package workloads

import (
	"fmt"
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/kubernetes/pkg/controller/daemon/util"

	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/services/writer/plan"
	"github.com/millrace/millrace/test/oracle/effect"
	"github.com/millrace/millrace/test/oracle/exemption"
	"github.com/millrace/millrace/test/oracle/stage"
)

// FairStatefulEnd leaves of the ends of a StatefulSet what both report:
//
//   - Not the Event about a pod update that changes nothing.
//   - Not the Event about the same claim a second time, as one about its pod.
//   - Of a pod that was created and whose claim's owner could not be written, not the create,
//     about which upstream emits nothing; and not the claim of a pod that is to be deleted.
//   - Not that a name is taken, about which upstream emits nothing.
//   - Of several similar failures, those that both report: upstream may reach another one
//     first, and stops there.
func FairStatefulEnd(world []runtime.Object, r stage.Refusal, theirs, ours []effect.Effect) ([]effect.Effect, []effect.Effect) {
	theirs, ours = exemption.Lets("pod-updated-without-effect", theirs, effect.Only(theirs, not("SuccessfulUpdate"))), effect.Only(ours, not("SuccessfulUpdate"))
	theirs = exemption.Lets("claim-told-twice", theirs, effect.Only(theirs, not("failed to create PVC")))
	set := world[0].(*appsv1.StatefulSet)
	wanted, refused := wantedOf(world, set), r.Verb == plan.Update && r.Kind == kinds.PersistentVolumeClaims.Name
	leftOut := func(id string, which func(effect.Effect) bool) {
		ours = exemption.Lets(id, ours, effect.Only(ours, func(e effect.Effect) bool { return slices.Contains(theirs, e) || !which(e) }))
	}
	leftOut("owner-refused", func(e effect.Effect) bool {
		_, stays := wanted[podIn(e)]
		return refused && stage.Says("SuccessfulCreate Create Pod ")(e) || stage.Says(ownerFailed)(e) && !stays
	})
	if r.Answer.Reason == string(metav1.StatusReasonAlreadyExists) {
		leftOut("taken-is-told", stage.Says("FailedCreate"))
	}
	if slices.ContainsFunc(theirs, stage.Says(ownerFailed)) {
		leftOut("first-failure", stage.Says(ownerFailed))
	}
	if set.Spec.PodManagementPolicy == appsv1.ParallelPodManagement && slices.ContainsFunc(ours, stage.Says("FailedCreate")) {
		theirs = exemption.Lets("first-failure", theirs, effect.Only(theirs, func(e effect.Effect) bool { return slices.Contains(ours, e) || !stage.Says("FailedCreate")(e) }))
	}
	return theirs, ours
}

// ownerFailed is in Events about a claim whose owner could not be written.
const ownerFailed = "could not update claim"

func not(what string) func(effect.Effect) bool {
	return func(e effect.Effect) bool { return !stage.Says(what)(e) }
}

// FairDaemonEnd leaves of the ends of a DaemonSet what both do:
//
//   - Not a pod's note about earlier failures.
//   - Not the choice of replaced old pods, if upstream makes it in the order of a map.
//   - Not old revisions that upstream keeps during a refusal, nor those of which only one of
//     both still has an old pod.
func FairDaemonEnd(world []runtime.Object, _ stage.Refusal, theirs, ours []effect.Effect) ([]effect.Effect, []effect.Effect) {
	ours = exemption.Lets("successor-at-once", ours, effect.Rewritten(ours, func(e effect.Effect) effect.Effect {
		e.Body = strings.Replace(e.Body, strings.TrimPrefix(noted, `{"metadata":{`), "", 1)
		return e
	}))
	also := func(others []effect.Effect) func(effect.Effect) bool {
		return func(e effect.Effect) bool {
			return e.Resource != "controllerrevisions" || slices.ContainsFunc(others, func(o effect.Effect) bool { return o.Head() == e.Head() })
		}
	}
	theirs, ours = exemption.Lets("old-revisions-go", theirs, effect.Only(theirs, also(ours))), exemption.Lets("any-old-daemon", ours, effect.Only(ours, also(theirs)))
	names := namesOfOld(world)
	return exemption.Lets("any-old-daemon", theirs, alikeEnds(names, theirs, ours)), alikeEnds(names, ours, theirs)
}

// namesOfOld are the names of the old pods of a set that rolls out, and of their nodes.
func namesOfOld(world []runtime.Object) map[string]bool {
	set, names := world[0].(*appsv1.DaemonSet), map[string]bool{}
	for _, obj := range world {
		p, ok := obj.(*corev1.Pod)
		if !ok || set.Spec.UpdateStrategy.Type != appsv1.RollingUpdateDaemonSetStrategyType {
			continue
		}
		if node, err := util.GetTargetNodeName(p); err == nil {
			names[p.Name], names[node] = true, true
		}
	}
	return names
}

// alikeEnds gives one name to those of which a rollout may take any, if only one of both has taken them: in
// the pod's deletion state, in the Event about it, and in the pod in its place.
func alikeEnds(names map[string]bool, effects, others []effect.Effect) []effect.Effect {
	return effect.Rewritten(effects, func(e effect.Effect) effect.Effect {
		if slices.Contains(others, e) {
			return e
		}
		for name := range names {
			switch {
			case e.Resource == "pods" && e.Name == name:
				e.Name, e.Body = "one of them", fmt.Sprintf(`{"leaves": %t}`, strings.Contains(e.Body, "deletionTimestamp"))
			case e.Verb == effect.Event && strings.HasSuffix(e.Body, "Deleted pod: "+name):
				e.Body = "one of them is deleted"
			case e.Resource == "pods":
				e.Body = strings.Replace(e.Body, `["`+name+`"]`, `["one of them"]`, 1)
			}
		}
		return e
	})
}

// FairDeploymentEnd leaves of the ends of a Deployment what both do:
//
//   - One Event about several steps of a set.
//   - If writes of sets are refused, no status, which upstream does not report then; if they
//     cannot be created and the namespace is not being terminated, only the progress.
//   - Of the condition Progressing, only its status, if one reports that there is a new set and
//     the other has gone on, or could not report it.
func FairDeploymentEnd(_ []runtime.Object, r stage.Refusal, theirs, ours []effect.Effect) ([]effect.Effect, []effect.Effect) {
	theirs, ours = exemption.Lets("scaled-in-one-event", theirs, effect.Joined(theirs)), effect.Joined(ours)
	theirs, ours = effect.Rewritten(theirs, conditionsInOrder), effect.Rewritten(ours, conditionsInOrder)
	isNew := func(e effect.Effect) bool {
		return e.Resource == "deployments" && (strings.Contains(e.Body, `"reason":"NewReplicaSetCreated"`) || strings.Contains(e.Body, `"reason":"FoundNewReplicaSet"`))
	}
	if slices.ContainsFunc(ours, isNew) || slices.ContainsFunc(theirs, isNew) {
		theirs, ours = exemption.Lets("told-of-new-set", theirs, effect.Rewritten(theirs, progressing)), effect.Rewritten(ours, progressing)
	}
	if r.Kind == kinds.ReplicaSets.Name && r.Times > 0 {
		of := progressOnly(r.Verb == plan.Create && r.Answer.Cause == "")
		theirs, ours = exemption.Lets("reported-all-the-same", theirs, effect.Rewritten(theirs, of)), effect.Rewritten(ours, of)
	}
	return theirs, ours
}

// progressOnly reduces the status of Deployments to the condition Progressing, or to nothing.
func progressOnly(kept bool) func(effect.Effect) effect.Effect {
	return func(e effect.Effect) effect.Effect {
		if e.Resource != "deployments" {
			return e
		}
		left := []any{}
		withConditions(e, func(conditions []any) []any {
			for _, c := range conditions {
				if kept && typeOf(c) == string(appsv1.DeploymentProgressing) {
					left = append(left, c)
				}
			}
			return conditions
		})
		d := effect.Tree(e.Body).(map[string]any)
		d["status"] = left
		e.Body = effect.JSON(d)
		return e
	}
}

// conditionsInOrder is a Deployment with sorted conditions: their order depends on which was changed last.
func conditionsInOrder(e effect.Effect) effect.Effect {
	return withConditions(e, func(conditions []any) []any {
		slices.SortFunc(conditions, func(a, b any) int { return strings.Compare(typeOf(a), typeOf(b)) })
		return conditions
	})
}

// progressing is a Deployment with only the status of its condition Progressing.
func progressing(e effect.Effect) effect.Effect {
	return withConditions(e, func(conditions []any) []any {
		for i, c := range conditions {
			if typeOf(c) == string(appsv1.DeploymentProgressing) {
				conditions[i] = map[string]any{"type": typeOf(c), "status": c.(map[string]any)["status"]}
			}
		}
		return conditions
	})
}

func typeOf(condition any) string { return fmt.Sprint(condition.(map[string]any)["type"]) }

// withConditions is a Deployment with other conditions.
func withConditions(e effect.Effect, as func([]any) []any) effect.Effect {
	if e.Resource != "deployments" {
		return e
	}
	d := effect.Tree(e.Body).(map[string]any)
	if status, ok := d["status"].(map[string]any); ok {
		if conditions, ok := status["conditions"].([]any); ok {
			status["conditions"] = as(conditions)
		}
	}
	e.Body = effect.JSON(d)
	return e
}
