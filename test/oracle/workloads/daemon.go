package workloads

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/util/flowcontrol"
	podutil "k8s.io/kubernetes/pkg/api/v1/pod"
	upstreamdaemon "k8s.io/kubernetes/pkg/controller/daemon"
	"k8s.io/kubernetes/pkg/controller/daemon/util"

	"github.com/millrace/millrace/services/reconcilers/controllers/daemonset"
	"github.com/millrace/millrace/test/oracle/effect"
	"github.com/millrace/millrace/test/oracle/exemption"
	"github.com/millrace/millrace/test/oracle/frozen"
	"github.com/millrace/millrace/test/oracle/objects"
)

// DaemonSet is the daemon set controller.
var DaemonSet = frozen.Pair{
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

// claimsOrRevisions does not match the create of a revision, because these effects do not have the bytes by
// which upstream recognises a revision.
func claimsOrRevisions(e effect.Effect) bool {
	return claims(e) || ofRevision(e) && e.Verb != effect.Create
}

func ofRevision(e effect.Effect) bool { return e.Resource == "controllerrevisions" }

func bearsRevision(e effect.Effect) bool { return ofRevision(e) && e.Verb == effect.Create }

// fairDaemonSet leaves of both the effects of the same step:
//
//   - Upstream's repeated effects once. A node makes another turn of the set; in that it
//     waits for its own last writes, and reports again, without the generation.
//   - When pods or revisions change owners, nothing else, as for replica sets.
//   - When the revision of the template is created, only that; when others are renumbered,
//     only that. Upstream goes on in the same sync.
//   - When a pod has ended, not the create of its successor, which upstream leaves to the
//     next sync, nor the successor's note about earlier failures.
//   - Of pods of which a rollout may take any, and of nodes with such pods, the number of
//     replacements, not the choice: upstream takes them in the order of a map.
func fairDaemonSet(world []runtime.Object, theirs, ours []effect.Effect) ([]effect.Effect, []effect.Effect) {
	theirs, ours = exemption.Lets("report-again", theirs, once(theirs)), once(ours)
	either := func(is func(effect.Effect) bool) bool {
		return slices.ContainsFunc(theirs, is) || slices.ContainsFunc(ours, is)
	}
	switch {
	case either(claims):
		exemption.Uses("change-of-hands")
		return effect.Only(theirs, claims), effect.Only(ours, claims)
	case either(bearsRevision):
		exemption.Uses("daemon-revision-first")
		return effect.Only(theirs, bearsRevision), effect.Only(ours, bearsRevision)
	case len(ours) > 0 && len(effect.Only(ours, ofRevision)) == len(ours):
		exemption.Uses("revisions-in-order-first")
		return effect.Only(theirs, func(e effect.Effect) bool { return slices.Contains(ours, e) }), ours
	}
	return alike(world, theirs, exemption.Lets("successor-at-once", ours, successors(theirs, ours)))
}

// once removes repeated effects, and every status but the first.
func once(effects []effect.Effect) []effect.Effect {
	had := map[effect.Effect]bool{}
	return effect.Only(effects, func(e effect.Effect) bool {
		if e.Resource == "daemonsets/status" {
			e.Body = ""
		}
		again := had[e]
		had[e] = true
		return !again
	})
}

// noted is the beginning of a pod that notes how many failed before it.
const noted = `{"metadata":{"annotations":{"daemonset.millrace.io/failures":"1"},`

// successors removes the creates of pods that replace ended ones, except those that upstream also creates.
func successors(theirs, ours []effect.Effect) []effect.Effect {
	var out []effect.Effect
	creates := false
	for _, e := range ours {
		if rest, ok := strings.CutPrefix(e.Body, noted); ok {
			if e.Body = `{"metadata":{` + rest; !slices.Contains(theirs, e) {
				continue
			}
		}
		creates = creates || e.Verb == effect.Create && e.Resource == "pods"
		out = append(out, e)
	}
	return effect.Only(out, func(e effect.Effect) bool { return creates || !strings.Contains(e.Body, "Created pod: ") })
}

// alike gives one name to pods and nodes among which upstream chooses in the order of a map: pods of an older
// revision, each available and alone on its node. The number of chosen ones is compared, and that no others
// are chosen.
func alike(world []runtime.Object, theirs, ours []effect.Effect) ([]effect.Effect, []effect.Effect) {
	set, ok := world[0].(*appsv1.DaemonSet)
	if !ok || set.Spec.UpdateStrategy.Type != appsv1.RollingUpdateDaemonSetStrategyType {
		return theirs, ours
	}
	names := map[string]bool{}
	for _, p := range replaceable(world, set) {
		names[p.Name], names[p.Spec.NodeName] = true, true
	}
	mask := func(effects, others []effect.Effect) []effect.Effect {
		out := slices.Clone(effects)
		for i, e := range out {
			if slices.Contains(others, e) {
				continue
			}
			for name := range names {
				switch {
				case e.Verb == effect.Remove && e.Name == name:
					out[i].Name = "one of them"
				case e.Verb == effect.Event && strings.HasSuffix(e.Body, "Deleted pod: "+name):
					out[i].Body = "one of them is deleted"
				case e.Verb == effect.Create && strings.Contains(e.Body, `["`+name+`"]`):
					out[i].Body = strings.Replace(e.Body, `["`+name+`"]`, `["one of them"]`, 1)
				}
			}
		}
		return out
	}
	return exemption.Lets("any-old-daemon", theirs, mask(theirs, ours)), mask(ours, theirs)
}

// replaceable are the pods of which a rollout may take any: each is of an older revision and available, and
// its node has no other pod that stays.
func replaceable(world []runtime.Object, set *appsv1.DaemonSet) (found []*corev1.Pod) {
	hash, generation := hashOf(world, set), (*int64)(nil)
	if g, err := util.GetTemplateGeneration(set); err == nil {
		generation = g
	}
	nodes := map[string]int{}
	var pods []*corev1.Pod
	for _, obj := range world {
		p, ok := obj.(*corev1.Pod)
		if !ok || p.DeletionTimestamp != nil || !metav1.IsControlledBy(p, set) {
			continue
		}
		if node, err := util.GetTargetNodeName(p); err == nil {
			nodes[node]++
		}
		pods = append(pods, p)
	}
	for _, p := range pods {
		if nodes[p.Spec.NodeName] == 1 && !util.IsPodUpdated(p, hash, generation) && podutil.IsPodAvailable(p, set.Spec.MinReadySeconds, metav1.NewTime(objects.Now)) {
			found = append(found, p)
		}
	}
	return found
}

// hashOf is the label value by which upstream recognises the pods of a set's template: that of the template's
// newest revision.
func hashOf(world []runtime.Object, set *appsv1.DaemonSet) string {
	hash, newest := "", int64(-1)
	for _, obj := range world {
		r, ok := obj.(*appsv1.ControllerRevision)
		if !ok || r.Revision <= newest {
			continue
		}
		if match, err := upstreamdaemon.Match(set, r); err == nil && match {
			hash, newest = r.Labels[appsv1.DefaultDaemonSetUniqueLabelKey], r.Revision
		}
	}
	return hash
}
