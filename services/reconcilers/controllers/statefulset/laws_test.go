package statefulset

import (
	"fmt"
	"slices"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"pgregory.net/rapid"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/services/reconcilers/kube/gate"
	"github.com/millrace/millrace/services/reconcilers/kube/pod"
	"github.com/millrace/millrace/services/reconcilers/reconcile"
	"github.com/millrace/millrace/services/reconcilers/reconciletest"
)

// arrives: if nodes and the garbage collector do their part, the set ends with exactly the
// wanted pods, each of the right revision.
func arrives(_ *rapid.T, c reconcile.Controller[View], v View, now time.Time) error {
	if v.Set.DeletionTimestamp != nil {
		return nil
	}
	for range 60 {
		v = tended(v, now)
		d := c.Decide(v, now)
		if len(d.Commands) == 0 {
			return arrived(v)
		}
		v = applied(v, d, now)
	}
	return fmt.Errorf("after 60 turns it still wants something: %s", c.Decide(v, now).Because)
}

func arrived(v View) error {
	want := []string{}
	for at := range v.wanted() {
		want = append(want, v.name(v.start()+at))
	}
	have := []string{}
	for _, p := range v.members() {
		have = append(have, p.Name)
	}
	if slices.Sort(have); !slices.Equal(have, want) { // there are fewer than ten
		return fmt.Errorf("it ends with %v, and should have %v", have, want)
	}
	if v.Set.Spec.UpdateStrategy.Type == appsv1.OnDeleteStatefulSetStrategyType {
		return nil
	}
	h, _ := v.history()
	for _, p := range v.members() {
		if at := v.ordinal(p) - v.start(); at >= v.partition() && revisionOf(p) != h.update.Name {
			return fmt.Errorf("it ends with %s of revision %s, and the newest is %s", p.Name, revisionOf(p), h.update.Name)
		}
	}
	return nil
}

// tended returns the view after nodes have ended the deleted pods and started the others,
// and the garbage collector has deleted the claims of deleted pods. Users delete failed
// pods beyond the replicas, because several of them would wait for each other.
func tended(v View, now time.Time) View {
	there := map[string]bool{string(v.Set.UID): true}
	pods := v.Pods
	v.Pods = nil
	for _, p := range pods {
		at := v.ordinal(p) - v.start()
		if p.DeletionTimestamp != nil || pod.Terminal(p) && !v.atOnce() && (at < 0 || at >= v.wanted()) {
			continue
		}
		p = p.DeepCopy()
		if p.Status.Conditions = nil; !pod.Terminal(p) {
			p.Status.Phase = corev1.PodRunning
			reconciletest.ReadySince(now.Add(-time.Hour))(p)
		}
		v.Pods, there[string(p.UID)] = append(v.Pods, p), true
	}
	v.Claims = slices.DeleteFunc(slices.Clone(v.Claims), func(c *corev1.PersistentVolumeClaim) bool {
		return c.DeletionTimestamp != nil ||
			slices.ContainsFunc(c.OwnerReferences, func(r metav1.OwnerReference) bool { return !there[string(r.UID)] })
	})
	return v
}

// gentle: no pod is replaced by one of another revision while a pod above it is not available,
// also under the policy Parallel. With the feature gate MaxUnavailableStatefulSet, no more pods
// are unavailable than allowed.
func gentle(_ *rapid.T, c reconcile.Controller[View], v View, now time.Time) error {
	s := v.stage(v.members(), history{}, now)
	goes := map[string]bool{}
	for _, command := range c.Decide(v, now).Commands {
		if command.Kind == kinds.Pods.Name && command.Verb == events.VerbDelete {
			goes[command.Name] = true
		}
	}
	down, replaced := 0, 0
	for at := len(s.replicas) - 1; at >= 0; at-- {
		p := s.replicas[at]
		if p != nil && goes[p.Name] && !pod.Terminal(p) {
			if replaced++; down+replaced > 1 && !v.Gates.On(gate.MaxUnavailableStatefulSet) {
				return fmt.Errorf("%s is replaced while %d pods above it are not available, or are replaced, too", p.Name, down+replaced-1)
			}
		} else if p == nil || s.unavailable(p) {
			down++
		}
	}
	if limit, _ := v.maxUnavailable(); replaced > 0 && down+replaced > limit && v.Gates.On(gate.MaxUnavailableStatefulSet) {
		return fmt.Errorf("%d pods are replaced while %d others are not available, and %d may be", replaced, down, limit)
	}
	if replaced > 0 && v.Set.Spec.UpdateStrategy.Type == appsv1.OnDeleteStatefulSetStrategyType {
		return fmt.Errorf("%d pods are replaced, and users delete them", replaced)
	}
	return nil
}

// durable: no pod is created that would use a claim owned by the previous pod of its name,
// because the garbage collector is about to delete that claim.
func durable(_ *rapid.T, c reconcile.Controller[View], v View, now time.Time) error {
	_, withPod := v.retention()
	for _, command := range c.Decide(v, now).Commands {
		if command.Kind != kinds.Pods.Name || command.Verb != events.VerbCreate || !withPod {
			continue
		}
		for _, claim := range v.Claims {
			of := func(r metav1.OwnerReference) bool { return r.Kind == "Pod" && r.Name == command.Name }
			if claim.Name == "data-"+command.Name && slices.ContainsFunc(claim.OwnerReferences, of) {
				return fmt.Errorf("%s is created, and its claim goes with a pod that had the name", command.Name)
			}
		}
	}
	return nil
}
