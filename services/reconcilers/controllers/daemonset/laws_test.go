package daemonset

import (
	"cmp"
	"fmt"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"pgregory.net/rapid"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/services/reconcilers/kube/owner"
	"github.com/millrace/millrace/services/reconcilers/kube/pod"
	"github.com/millrace/millrace/services/reconcilers/reconcile"
	"github.com/millrace/millrace/services/reconcilers/reconciletest"
)

// staged is the view as the controller sees it, once it has claimed what is its.
func staged(v View, now time.Time) *stage {
	selector, _ := metav1.LabelSelectorAsSelector(v.Set.Spec.Selector)
	mine := owner.Claims(owner.Claimant{Kind: kinds.DaemonSets.Kind, Owner: v.Set, Selector: selector}, kinds.Pods, v.Pods).Mine
	h, _ := v.history(mine)
	return v.stage(mine, h, now)
}

// arrives: where nodes do their part, each node that should have a pod ends with one, of the
// revision that it should be of, and each that must not have one with none. No pod that is as
// it should be goes on the way.
func arrives(_ *rapid.T, c reconcile.Controller[View], v View, now time.Time) error {
	if v.Set.DeletionTimestamp != nil {
		return nil
	}
	for range 80 {
		now = now.Add(20 * time.Minute) // no rest after failures is as long
		v = tended(v, now)
		d := c.Decide(v, now)
		if err := spared(staged(v, now), d); err != nil || len(d.Commands) == 0 {
			return cmp.Or(err, arrived(staged(v, now)))
		}
		v = applied(v, d, now)
	}
	return fmt.Errorf("after 80 turns it still wants something: %s", c.Decide(v, now).Because)
}

func arrived(s *stage) error {
	for _, here := range s.places {
		switch n := len(here.pods); {
		case here.run && n != 1:
			return fmt.Errorf("%s ends with %d pods", here.name, n)
		case here.run && s.Set.Spec.UpdateStrategy.Type == appsv1.RollingUpdateDaemonSetStrategyType && !s.updated(here.pods[0]):
			return fmt.Errorf("%s ends with a pod of revision %s", here.name, hashIn(here.pods[0]))
		case !here.run && !here.stay && n > 0:
			return fmt.Errorf("%s must have no pod, and ends with %d", here.name, n)
		}
	}
	return nil
}

// tended is the view after nodes have ended the pods that are to go and started the others,
// and the pods of nodes that are gone are gone, too.
func tended(v View, now time.Time) View {
	pods := v.Pods
	v.Pods = nil
	for _, p := range pods {
		if p.DeletionTimestamp != nil || named(v.Nodes, nodeOf(p)) < 0 {
			continue
		}
		if p = p.DeepCopy(); !pod.Terminal(p) {
			p.Spec.NodeName, p.Status = nodeOf(p), corev1.PodStatus{Phase: corev1.PodRunning}
			reconciletest.ReadySince(now.Add(-time.Hour))(p)
		}
		v.Pods = append(v.Pods, p)
	}
	return v
}

// spared: a pod that is as it should be, alone on a node that should have it, stays.
func spared(s *stage, d reconcile.Decision) error {
	for _, here := range s.places {
		if !here.run || len(here.pods) != 1 || pod.Terminal(here.pods[0]) || !s.updated(here.pods[0]) {
			continue
		}
		for _, c := range d.Commands {
			if c.Verb == events.VerbDelete && c.Kind == kinds.Pods.Name && c.Name == here.pods[0].Name {
				return fmt.Errorf("%s is deleted, and is as it should be", c.Name)
			}
		}
	}
	return nil
}
