package deployment

import (
	"cmp"
	"math"
	"slices"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/services/reconcilers/reconcile"
)

// forget deletes the oldest of the old sets beyond the history limit. It spares a set
// that may still have pods, and deletes no other instead. It also spares a set whose
// revision is not below the new set's yet: if the new set's revision could not be written
// so far, it would not rise without that set.
//
// Upstream: pkg/controller/deployment/sync.go, cleanupDeployment; sets whose
// revision is no number are put in the order of their age there, and come first
// here.
func (r *rollout) forget() reconcile.Decision {
	limit := r.deployment.Spec.RevisionHistoryLimit
	if limit == nil || *limit == math.MaxInt32 {
		return reconcile.Decision{}
	}
	past := slices.DeleteFunc(slices.Clone(r.old), func(s *set) bool { return s.seen.DeletionTimestamp != nil })
	slices.SortStableFunc(past, func(a, b *set) int { return cmp.Compare(orderOf(a), orderOf(b)) })
	surplus := max(len(past)-int(max(*limit, 0)), 0)
	var commands []events.Command
	for _, s := range past[:surplus] {
		if status := s.seen.Status; status.Replicas == 0 && s.size == 0 && !s.changed && s.seen.Generation <= status.ObservedGeneration && !r.counts(s) {
			commands = append(commands, reconcile.Delete(kinds.ReplicaSets.Kind, s.seen, reconcile.IfUnchanged(s.seen)))
		}
	}
	if len(commands) == 0 {
		return reconcile.Decision{}
	}
	return reconcile.Do("there are more old ReplicaSets than the history limit", commands...)
}

// counts reports whether the new set's next revision depends on that of an old one.
func (r *rollout) counts(s *set) bool {
	if r.fresh == nil {
		return false
	}
	had, ok := revisionOf(r.fresh.seen.Annotations)
	return ok && orderOf(s) > 0 && had <= orderOf(s)
}

func orderOf(s *set) int64 {
	revision, ok := revisionOf(s.seen.Annotations)
	if !ok {
		return 0
	}
	return revision
}
