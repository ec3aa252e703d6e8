package deployment

import (
	"fmt"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/services/reconcilers/kube/label"
	"github.com/millrace/millrace/services/reconcilers/kube/owner"
	"github.com/millrace/millrace/services/reconcilers/reconcile"
)

// decide takes the next step of the Deployment.
func decide(v View, now time.Time) reconcile.Decision {
	d := v.Deployment
	if equality.Semantic.DeepEqual(d.Spec.Selector, &metav1.LabelSelector{}) {
		return selectsAll(d)
	}
	selector, ok := label.Selector(d.Spec.Selector)
	if !ok {
		return reconcile.Nothing("the selector is invalid")
	}
	claim := owner.Claims(owner.Claimant{Kind: kinds.Deployments.Kind, Owner: d, Selector: selector}, kinds.ReplicaSets, v.Sets)
	r := newRollout(v, claim.Mine, now)
	back, goesBack := rollbackTo(d)
	switch {
	case len(claim.Commands) > 0:
		// No other command: only the outcome reports whether an orphan could be adopted.
		return reconcile.Do("ReplicaSets are adopted or released", claim.Commands...)
	case d.DeletionTimestamp != nil:
		return r.leave()
	case d.Spec.Paused:
		return r.pause()
	case goesBack:
		return r.rollBack(back)
	case r.rescaled() && r.scales():
		return r.rescale()
	case d.Spec.Strategy.Type == appsv1.RecreateDeploymentStrategyType:
		return r.recreate()
	case rolls(d):
		return r.roll()
	default:
		return reconcile.Nothing(fmt.Sprintf("the strategy %q is unknown", d.Spec.Strategy.Type))
	}
}

// leave keeps the status current while the Deployment is being deleted.
func (r *rollout) leave() reconcile.Decision {
	r.record()
	return r.done("the deployment is being deleted", r.report(false))
}

// pause applies the number of replicas and the history limit, but does not roll out.
func (r *rollout) pause() reconcile.Decision {
	r.record()
	r.scale()
	tidy := reconcile.Decision{}
	if _, goesBack := rollbackTo(r.deployment); !goesBack {
		tidy = r.forget()
	}
	return r.done("the deployment is paused", tidy, r.report(false))
}

// rescale distributes a changed number of replicas to the sets before the rollout continues.
func (r *rollout) rescale() reconcile.Decision {
	r.record()
	r.scale()
	return r.done("the number of replicas has changed", r.report(false))
}

// done returns the decision to change the sets, joined with others. because is the reason
// for the changes, or for doing nothing.
func (r *rollout) done(because string, with ...reconcile.Decision) reconcile.Decision {
	changes := reconcile.Do(because, r.changes()...)
	return reconcile.Join(append([]reconcile.Decision{changes}, with...)...)
}

// selectsAll sends one Event for each generation of a Deployment that selects everything,
// and does nothing else.
//
// Upstream: the Event is sent at every sync.
func selectsAll(d *appsv1.Deployment) reconcile.Decision {
	const because = "it selects everything"
	if d.Status.ObservedGeneration >= d.Generation {
		return reconcile.Nothing(because)
	}
	seen := reported(d)
	seen.Status.ObservedGeneration = d.Generation
	return reconcile.Do(because, reconcile.UpdateStatus(kinds.Deployments.Kind, seen, reconcile.WithEvents(
		notice(d, corev1.EventTypeWarning, "SelectingAll", "This deployment is selecting all pods. A non-empty selector is required."), nil)))
}

// notice returns an Event about the Deployment.
func notice(d *appsv1.Deployment, level, reason, message string) *events.Notice {
	return &events.Notice{About: reconcile.About(kinds.Deployments.Kind, d), Type: level, Reason: reason, Message: message}
}
