package daemonset

import (
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"
	"pgregory.net/rapid"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/services/reconcilers/kube/owner"
	"github.com/millrace/millrace/services/reconcilers/kube/pod"
	"github.com/millrace/millrace/services/reconcilers/kube/revision"
	"github.com/millrace/millrace/services/reconcilers/reconcile"
	"github.com/millrace/millrace/services/reconcilers/reconciletest"
)

func TestStories(t *testing.T) { reconciletest.Stories(t, Controller) }

func TestLaws(t *testing.T) {
	reconciletest.Laws(t, Controller, rapid.Custom(anyView), now,
		reconciletest.Indifferent(shuffled),
		reconciletest.Content(60, applied),
		reconciletest.Law[View]{Name: "careful", Holds: careful},
		reconciletest.Law[View]{Name: "sparing", Holds: sparing},
		reconciletest.Law[View]{Name: "considerate", Holds: considerate},
		reconciletest.Law[View]{Name: "arrives", Holds: arrives},
	)
}

// careful checks that only the set's own pods are deleted, that none is created on a node
// that must not have one, and that each created pod is bound to its node alone.
func careful(_ *rapid.T, c reconcile.Controller[View], v View, now time.Time) error {
	f := fits(&v.Set.Spec.Template.Spec, v.Gates)
	for _, command := range c.Decide(v, now).Commands {
		if command.Kind != kinds.Pods.Name {
			continue
		}
		at := slices.IndexFunc(v.Pods, func(p *corev1.Pod) bool { return p.Name == command.Name })
		switch command.Verb {
		case events.VerbDelete:
			if !owner.Controls(v.Set, v.Pods[at]) || v.Pods[at].DeletionTimestamp != nil {
				return fmt.Errorf("%s is not there to be deleted by the set", command.Name)
			}
		case events.VerbCreate:
			node := nodeOf(parsed[corev1.Pod](command.Body))
			on := slices.IndexFunc(v.Nodes, func(n *corev1.Node) bool { return n.Name == node })
			if at >= 0 || on < 0 || !f.verdict(v.Nodes[on]).run {
				return fmt.Errorf("%s is created for %q", command.Name, node)
			}
		}
	}
	return nil
}

// sparing checks that no node gets a second live pod, or a third one where surge allows two.
func sparing(_ *rapid.T, c reconcile.Controller[View], v View, now time.Time) error {
	most := 1
	if s := (&stage{View: v}); s.surges() {
		most = 2
	}
	live := map[string]int{}
	for _, p := range v.Pods {
		if pod.Active(p) && owner.Controls(v.Set, p) {
			live[nodeOf(p)]++
		}
	}
	for _, command := range c.Decide(v, now).Commands {
		if command.Verb == events.VerbCreate && command.Kind == kinds.Pods.Name {
			node := nodeOf(parsed[corev1.Pod](command.Body))
			if live[node]++; live[node] > most {
				return fmt.Errorf("%s gets its pod number %d", node, live[node])
			}
		}
	}
	return nil
}

// considerate checks that a rolling update removes the available pod of no more nodes
// than allowed, including those that have none already.
func considerate(_ *rapid.T, c reconcile.Controller[View], v View, now time.Time) error {
	d := c.Decide(v, now)
	selector, _ := metav1.LabelSelectorAsSelector(v.Set.Spec.Selector)
	mine := owner.Claims(owner.Claimant{Kind: kinds.DaemonSets.Kind, Owner: v.Set, Selector: selector}, kinds.Pods, v.Pods).Mine
	h, _ := v.history(mine)
	s := v.stage(mine, h, now)
	_, unavailable, ok := s.limits()
	if !ok || s.surges() || v.Set.Spec.UpdateStrategy.Type == appsv1.OnDeleteDaemonSetStrategyType {
		unavailable = 0
	}
	missing, lost := 0, 0
	for _, here := range s.places {
		if !here.run {
			continue
		}
		had, has := false, false
		for _, p := range here.pods {
			well := pod.Active(p) && s.available(p)
			deleted := slices.ContainsFunc(d.Commands, func(c events.Command) bool {
				return c.Verb == events.VerbDelete && c.Kind == kinds.Pods.Name && c.Name == p.Name
			})
			had, has = had || well, has || well && !deleted
		}
		if !had {
			missing++
		} else if !has {
			lost++
		}
	}
	// Of several running pods the first is kept, whether it is available or not.
	if slack := several(s); lost > slack && missing+lost > unavailable+slack {
		return fmt.Errorf("%d nodes lose their pod while %d have none, and %d may", lost, missing, unavailable)
	}
	return nil
}

// several returns how many nodes have more than one pod.
func several(s *stage) (n int) {
	for _, here := range s.places {
		if len(here.pods) > 1 {
			n++
		}
	}
	return n
}

// anyView returns a set in any state.
func anyView(t *rapid.T) View {
	set := daemons("web")
	v := View{Set: set}
	set.Spec.MinReadySeconds = rapid.SampledFrom([]int32{0, 0, 20}).Draw(t, "min ready")
	set.Spec.UpdateStrategy = anyStrategy(t)
	set.Status.ObservedGeneration = int64(rapid.IntRange(0, 1).Draw(t, "observed"))
	for i := range rapid.IntRange(0, 3).Draw(t, "revisions") {
		r := revisionOf(set, fmt.Sprintf("nginx:%d", i+1))
		r.Revision = int64(rapid.IntRange(1, 4).Draw(t, "number"))
		if rapid.IntRange(0, 9).Draw(t, "unlabelled") == 0 {
			delete(r.Labels, hashLabel)
		}
		v.Revisions = append(v.Revisions, r)
		if rapid.IntRange(0, 5).Draw(t, "twin") == 0 {
			twin := r.DeepCopy()
			twin.Name, twin.UID, twin.Labels = r.Name+"-twin", r.UID+"-twin", map[string]string{"app": "web", hashLabel: r.Name + "-twin"}
			v.Revisions = append(v.Revisions, twin)
		}
	}
	set.Spec.RevisionHistoryLimit = ptr.To(int32(rapid.IntRange(0, 2).Draw(t, "history")))
	for i := range rapid.IntRange(0, 5).Draw(t, "nodes") {
		v.Nodes = append(v.Nodes, anyNode(t, i))
	}
	for i := range rapid.IntRange(0, 8).Draw(t, "pods") {
		v.Pods = append(v.Pods, anyPod(t, i, v))
	}
	if rapid.IntRange(0, 9).Draw(t, "deleted") == 0 {
		reconciletest.Deleted[*appsv1.DaemonSet](now)(set)
	}
	return v
}

func anyStrategy(t *rapid.T) appsv1.DaemonSetUpdateStrategy {
	switch n := intstr.FromInt32(int32(rapid.IntRange(1, 3).Draw(t, "limit"))); rapid.IntRange(0, 4).Draw(t, "strategy") {
	case 0:
		return appsv1.DaemonSetUpdateStrategy{Type: appsv1.OnDeleteDaemonSetStrategyType}
	case 1, 2:
		return appsv1.DaemonSetUpdateStrategy{Type: appsv1.RollingUpdateDaemonSetStrategyType, RollingUpdate: &appsv1.RollingUpdateDaemonSet{
			MaxSurge: &n, MaxUnavailable: ptr.To(intstr.FromInt32(0)),
		}}
	default:
		return appsv1.DaemonSetUpdateStrategy{Type: appsv1.RollingUpdateDaemonSetStrategyType, RollingUpdate: &appsv1.RollingUpdateDaemonSet{
			MaxSurge: ptr.To(intstr.FromInt32(0)), MaxUnavailable: &n,
		}}
	}
}

func anyNode(t *rapid.T, i int) *corev1.Node {
	n := node(fmt.Sprintf("n%d", i))
	switch rapid.IntRange(0, 7).Draw(t, "odd node") {
	case 0:
		n.Spec.Taints = []corev1.Taint{{Key: "example.com/shut", Effect: corev1.TaintEffectNoSchedule}}
	case 1:
		n.Spec.Taints = []corev1.Taint{{Key: "example.com/away", Effect: corev1.TaintEffectNoExecute}}
	case 2:
		n.Spec.Taints = []corev1.Taint{{Key: corev1.TaintNodeNotReady, Effect: corev1.TaintEffectNoExecute}}
	}
	return n
}

func anyPod(t *rapid.T, i int, v View) *corev1.Pod {
	p := reconciletest.Pod(fmt.Sprintf("web-%d", i), reconciletest.On(fmt.Sprintf("n%d", rapid.IntRange(0, 5).Draw(t, "node"))))
	p.Labels[hashLabel] = "before"
	if len(v.Revisions) > 0 {
		p.Labels[hashLabel] = rapid.SampledFrom(v.Revisions).Draw(t, "revision").Labels[hashLabel]
	}
	p.CreationTimestamp = metav1.NewTime(now.Add(-time.Duration(rapid.SampledFrom([]int{1, 3, 50, 4000}).Draw(t, "age")) * time.Second))
	if rapid.IntRange(0, 7).Draw(t, "orphan") > 0 {
		of(v.Set)(p)
	}
	if rapid.IntRange(0, 3).Draw(t, "ready") > 0 {
		reconciletest.ReadySince(now.Add(-time.Duration(rapid.IntRange(0, 40).Draw(t, "since")) * time.Second))(p)
	}
	switch rapid.IntRange(0, 9).Draw(t, "odd pod") {
	case 0, 1:
		p.Status = corev1.PodStatus{Phase: corev1.PodFailed}
		p.Annotations = map[string]string{failuresNote: strconv.Itoa(rapid.IntRange(0, 12).Draw(t, "failures"))}
	case 2:
		p.Spec = corev1.PodSpec{Affinity: bound(nil, p.Spec.NodeName)}
		p.Status = corev1.PodStatus{Phase: corev1.PodPending}
	case 3:
		reconciletest.Deleted[*corev1.Pod](now)(p)
	case 4:
		p.Status = corev1.PodStatus{Phase: corev1.PodSucceeded}
	}
	return p
}

func shuffled(t *rapid.T, v View) View {
	v.Pods = rapid.Permutation(v.Pods).Draw(t, "pods in another order")
	v.Nodes = rapid.Permutation(v.Nodes).Draw(t, "nodes in another order")
	v.Revisions = rapid.Permutation(v.Revisions).Draw(t, "revisions in another order")
	return v
}

// applied returns the view after every command succeeded and new pods have been ready for long.
func applied(v View, d reconcile.Decision, _ time.Time) View {
	v.Pods, v.Revisions = slices.Clone(v.Pods), slices.Clone(v.Revisions)
	for _, c := range d.Commands {
		switch c.Kind {
		case kinds.Pods.Name:
			v.Pods = changed(v.Pods, c)
			if at := named(v.Pods, c.Name); c.Verb == events.VerbPatch {
				p := v.Pods[at].DeepCopy()
				if p.OwnerReferences == nil {
					of(v.Set)(p)
				} else {
					p.Labels[hashLabel] = parsed[corev1.Pod](c.Body).Labels[hashLabel]
				}
				v.Pods[at] = p
			}
		case kinds.ControllerRevisions.Name:
			v.Revisions = changed(v.Revisions, c)
		case kinds.DaemonSets.Name:
			v.Set = parsed[appsv1.DaemonSet](c.Body)
		}
	}
	return v
}

func changed[T any, P interface {
	*T
	metav1.Object
}](all []P, c events.Command) []P {
	at := named(all, c.Name)
	switch c.Verb {
	case events.VerbCreate:
		created := P(parsed[T](c.Body))
		created.SetName(c.Name)
		created.SetUID(types.UID("uid-" + c.Name))
		created.SetResourceVersion("1")
		if p, ok := any(created).(*corev1.Pod); ok {
			p.Status.Phase, p.Spec.NodeName = corev1.PodRunning, nodeOf(p)
			reconciletest.ReadySince(now.Add(-time.Hour))(p)
		}
		return append(all, created)
	case events.VerbUpdate:
		all[at] = parsed[T](c.Body)
	case events.VerbDelete:
		return slices.Delete(all, at, at+1)
	}
	return all
}

func named[P metav1.Object](all []P, name string) int {
	return slices.IndexFunc(all, func(o P) bool { return o.GetName() == name })
}

func parsed[T any](body json.RawMessage) *T {
	var value T
	if err := json.Unmarshal(body, &value); err != nil {
		panic(err)
	}
	return &value
}

// revisionOf returns a revision of the set with an image, under a name without a hash.
func revisionOf(set *appsv1.DaemonSet, image string) *appsv1.ControllerRevision {
	t := set.Spec.Template.DeepCopy()
	t.Spec.Containers[0].Image = image
	name := "web-" + image[len("nginx:"):]
	r := &appsv1.ControllerRevision{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: set.Namespace, Name: name, UID: types.UID("uid-" + name), ResourceVersion: "1", Labels: map[string]string{"app": "web", hashLabel: name},
		},
		Data: runtime.RawExtension{Raw: revision.Patch(t)}, Revision: 1,
	}
	reconciletest.OwnedBy[*appsv1.ControllerRevision](kinds.DaemonSets.Kind, set)(r)
	return r
}
