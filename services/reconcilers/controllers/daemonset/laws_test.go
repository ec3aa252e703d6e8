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

// staged returns the stage of a view after adoption.
func staged(v View, now time.Time) *stage {
	selector, _ := metav1.LabelSelectorAsSelector(v.Set.Spec.Selector)
	mine := owner.Claims(owner.Claimant{Kind: kinds.DaemonSets.Kind, Owner: v.Set, Selector: selector}, kinds.Pods, v.Pods).Mine
	h, _ := v.history(mine)
	return v.stage(mine, h, now)
}

// arrives checks that, if nodes do their part, each eligible node ends with one pod of
// the right revision, and every other node with none. No pod that is right is deleted on the way.
func arrives(_ *rapid.T, c reconcile.Controller[View], v View, now time.Time) error {
	if v.Set.DeletionTimestamp != nil {
		return nil
	}
	for range 80 {
		now = now.Add(20 * time.Minute) // longer than any back-off
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

// tended returns the view after nodes have ended terminating pods and started the others;
// pods of deleted nodes are gone.
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

// spared checks that the only pod of an eligible node stays if it is right.
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
