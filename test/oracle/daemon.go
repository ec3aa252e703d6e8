package oracle

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/util/flowcontrol"
	upstreamdaemon "k8s.io/kubernetes/pkg/controller/daemon"

	"github.com/millrace/millrace/services/reconcilers/controllers/daemonset"
)

// DaemonSet is the daemon set controller.
var DaemonSet = Pair{
	Theirs: func(ctx context.Context, f informers.SharedInformerFactory, c kubernetes.Interface) (func(), error) {
		core, apps := f.Core().V1(), f.Apps().V1()
		dsc, err := upstreamdaemon.NewDaemonSetsController(ctx, apps.DaemonSets(), apps.ControllerRevisions(), core.Pods(), core.Nodes(), c,
			flowcontrol.NewBackOff(time.Second, 15*time.Minute))
		if err != nil {
			return nil, fmt.Errorf("make the daemon set controller: %w", err)
		}
		return func() { dsc.Run(ctx, 1) }, nil
	},
	Ours: daemonset.Controller, Alone: claimsOrRevisions, Fair: fairDaemonSet,
}

// claimsOrRevisions does not hold for the birth of a revision: these effects are not
// written in the bytes that upstream would know it by.
func claimsOrRevisions(e Effect) bool { return claims(e) || ofRevision(e) && e.Verb != create }

func ofRevision(e Effect) bool { return e.Resource == "controllerrevisions" }

func bearsRevision(e Effect) bool { return ofRevision(e) && e.Verb == create }

// fairDaemonSet leaves of both what they do in the same step:
//
//   - What upstream does twice, once. A node makes another turn of the set; in that it
//     waits for what it has just done, and reports again, without the generation.
//   - When pods or revisions change hands, nothing else, as for replica sets.
//   - When the revision of the template is born, that; when others are put in order,
//     that. Upstream goes on in the same sync.
//   - When a pod has ended, not the birth of the next one, which upstream leaves to the
//     next sync, and what that says of the failures before it.
//   - Of old pods that are alike, and of nodes with such, how many are replaced, and not
//     which: upstream takes them in the order of a map.
func fairDaemonSet(world []runtime.Object, theirs, ours []Effect) ([]Effect, []Effect) {
	theirs, ours = once(theirs), once(ours)
	either := func(is func(Effect) bool) bool {
		return slices.ContainsFunc(theirs, is) || slices.ContainsFunc(ours, is)
	}
	switch {
	case either(claims):
		return only(theirs, claims), only(ours, claims)
	case either(bearsRevision):
		return only(theirs, bearsRevision), only(ours, bearsRevision)
	case len(ours) > 0 && len(only(ours, ofRevision)) == len(ours):
		return only(theirs, func(e Effect) bool { return slices.Contains(ours, e) }), ours
	}
	return alike(world, theirs, successors(theirs, ours))
}

// once leaves out effects that were there before, and every status but the first.
func once(effects []Effect) []Effect {
	had := map[Effect]bool{}
	return only(effects, func(e Effect) bool {
		if e.Resource == "daemonsets/status" {
			e.Body = ""
		}
		again := had[e]
		had[e] = true
		return !again
	})
}

// noted is how a pod begins that says how many failed before it.
const noted = `{"metadata":{"annotations":{"daemonset.millrace.io/failures":"1"},`

// successors leaves out the births of pods in place of those that have ended, but for
// those that upstream has, too.
func successors(theirs, ours []Effect) []Effect {
	var out []Effect
	births := false
	for _, e := range ours {
		if rest, ok := strings.CutPrefix(e.Body, noted); ok {
			if e.Body = `{"metadata":{` + rest; !slices.Contains(theirs, e) {
				continue
			}
		}
		births = births || e.Verb == create && e.Resource == "pods"
		out = append(out, e)
	}
	return only(out, func(e Effect) bool { return births || !strings.Contains(e.Body, "Created pod: ") })
}

// alike gives one name to the old pods, and the nodes of old pods, that only one of
// the two chose.
func alike(world []runtime.Object, theirs, ours []Effect) ([]Effect, []Effect) {
	names := map[string]bool{} // of available pods and their nodes
	for _, obj := range world {
		if p, ok := obj.(*corev1.Pod); ok && len(p.Status.Conditions) > 0 && p.DeletionTimestamp == nil {
			names[p.Name], names[p.Spec.NodeName] = true, true
		}
	}
	blur := func(effects, others []Effect) []Effect {
		out := slices.Clone(effects)
		for i, e := range out {
			if slices.Contains(others, e) {
				continue
			}
			for name := range names {
				switch {
				case e.Verb == remove && e.Name == name:
					out[i].Name = "one of them"
				case e.Verb == event && strings.HasSuffix(e.Body, "Deleted pod: "+name):
					out[i].Body = "one of them is deleted"
				case e.Verb == create && strings.Contains(e.Body, `["`+name+`"]`):
					out[i].Body = strings.Replace(e.Body, `["`+name+`"]`, `["one of them"]`, 1)
				}
			}
		}
		return out
	}
	if set, ok := world[0].(*appsv1.DaemonSet); !ok || set.Spec.UpdateStrategy.Type != appsv1.RollingUpdateDaemonSetStrategyType {
		return theirs, ours
	}
	return blur(theirs, ours), blur(ours, theirs)
}
