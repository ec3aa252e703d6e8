package deployment

import (
	"github.com/millrace/millrace/services/reconcilers/reconcile"
)

// recreate waits until no old pod runs before it creates or scales the new set.
//
// Upstream: pkg/controller/deployment/recreate.go.
func (r *rollout) recreate() reconcile.Decision {
	r.record()
	stopping := active(r.old)
	for _, s := range stopping {
		r.resize(s, 0)
	}
	switch {
	case len(stopping) > 0:
		return r.done("old replica sets stop first", r.report(true))
	case r.oldRuns():
		return r.done("old pods are still running", r.report(true))
	case r.fresh == nil:
		return r.bear(true)
	default:
		r.resize(r.fresh, wanted(r.deployment))
		return r.finish("nothing old is left")
	}
}

// oldRuns reports whether an old set still has pods. A pod counts until it has ended, even
// if its state is unknown.
func (r *rollout) oldRuns() bool {
	for _, s := range r.old {
		if s.seen.Status.Replicas > 0 || r.running[s.seen.UID] > 0 {
			return true
		}
	}
	return false
}
