package replicas

import (
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/services/reconcilers/kube/gate"
	"github.com/millrace/millrace/services/reconcilers/kube/label"
	"github.com/millrace/millrace/services/reconcilers/kube/owner"
	"github.com/millrace/millrace/services/reconcilers/kube/pod"
	"github.com/millrace/millrace/services/reconcilers/reconcile"
)

// Decide adopts and releases pods, brings their number to the wanted one, and
// reports the status.
func (s Sets[T]) Decide(v View, now time.Time) reconcile.Decision {
	selector, ok := label.Selector(v.Set.Spec.Selector)
	if !ok {
		return reconcile.Nothing("the selector is invalid or empty")
	}
	claim := owner.Claims(owner.Claimant{Kind: s.Kind.Kind, Owner: v.Set, Selector: selector},
		kinds.Pods, v.living())
	d := reconcile.Join(
		s.scale(v, claim, now),
		s.report(v, claim, selector, now),
		v.nextAvailable(claim.Mine, now),
	)
	d.StatusBlind = true // the decision counts pods and reads nothing of the status
	return d
}

// living are the pods that the set may claim.
func (v View) living() []*corev1.Pod {
	living := make([]*corev1.Pod, 0, len(v.Pods))
	for _, p := range v.Pods {
		if pod.Active(p) {
			living = append(living, p)
		}
	}
	return living
}

// scale decides about pods. Adoptions and releases come first and alone: only
// their outcome reports whether an orphan was adopted, and a pod that was not
// must neither be counted nor deleted.
//
// Upstream: a claim that fails ends the sync before anything is scaled.
func (s Sets[T]) scale(v View, claim owner.Claim[*corev1.Pod], now time.Time) reconcile.Decision {
	surplus := len(claim.Mine) - v.wanted()
	switch {
	case v.Set.DeletionTimestamp != nil:
		return reconcile.Nothing("the set is being deleted")
	case len(claim.Commands) > 0:
		return reconcile.Do("pods are adopted or released", claim.Commands[:min(len(claim.Commands), Burst)]...)
	case surplus < 0 && !v.fertile():
		return reconcile.Nothing("the template has no labels")
	case surplus < 0 && v.rest(now).After(now):
		return reconcile.Wake(v.rest(now), "too few pods, but nodes reject them as fast as they are created")
	case surplus < 0:
		return reconcile.Do("too few pods", s.creates(v, min(-surplus, Burst))...)
	case surplus > 0:
		toDelete := pod.ToDelete(claim.Mine, v.Crowd, v.Gates.On(gate.PodDeletionCost), min(surplus, Burst), now)
		d := reconcile.Do("too many pods", s.deletions(v, toDelete)...)
		d.Figures = ageRatios(claim.Mine, toDelete, now)
		return d
	default:
		return reconcile.Nothing("the number of pods is as desired")
	}
}

// nextAvailable asks for a turn when the next ready pod becomes available.
func (v View) nextAvailable(mine []*corev1.Pod, now time.Time) reconcile.Decision {
	next := pod.NextAvailable(mine, v.Set.Spec.MinReadySeconds, now)
	if next.IsZero() {
		return reconcile.Decision{}
	}
	return reconcile.Wake(next, "a ready pod is not available yet")
}
