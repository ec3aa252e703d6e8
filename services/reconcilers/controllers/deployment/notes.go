package deployment

import (
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"

	"github.com/millrace/millrace/services/reconcilers/kube/replicas"
)

// The annotations that store the state of a rollout.
const (
	// revisionNote is the number of a set's template in the order of rollouts. The
	// Deployment carries the number of its new set.
	revisionNote = "deployment.kubernetes.io/revision"
	// historyNote has the earlier revisions of a set, comma-separated.
	historyNote = "deployment.kubernetes.io/revision-history"
	// desiredNote is how many replicas the Deployment wanted, and mostNote how
	// many it allowed, when the set was last scaled.
	desiredNote = replicas.DesiredNote
	mostNote    = "deployment.kubernetes.io/max-replicas"

	// historyLength bounds historyNote, in characters.
	historyLength = 2000
)

// ownNotes are the annotations that describe one object only, so they are not copied
// between a Deployment and its sets.
var ownNotes = []string{
	corev1.LastAppliedConfigAnnotation, revisionNote, historyNote, desiredNote, mostNote, appsv1.DeprecatedRollbackTo,
}

// record brings the new set's annotations and minReadySeconds up to date. The set gets
// the highest revision, and an earlier one moves to its history. Annotations that the
// Deployment no longer has stay on the set.
//
// Upstream: pkg/controller/deployment/util, SetNewReplicaSetAnnotations. A
// revision that is no number stays as it is for ever.
func (r *rollout) record() {
	s := r.fresh
	if s == nil {
		return
	}
	defer func() { s.recorded = s.changed }() // no size has changed yet
	if s.minReady != r.deployment.Spec.MinReadySeconds {
		s.minReady, s.changed = r.deployment.Spec.MinReadySeconds, true
	}
	for _, key := range slices.Sorted(maps.Keys(r.deployment.Annotations)) {
		if !slices.Contains(ownNotes, key) {
			s.note(key, r.deployment.Annotations[key])
		}
	}
	had, there := s.notes[revisionNote]
	revision, ok := revisionOf(s.notes)
	next := r.nextRevision()
	if (!ok && had != "") || revision >= next {
		return
	}
	s.note(revisionNote, strconv.FormatInt(next, 10))
	if there {
		s.note(historyNote, remember(s.notes[historyNote], had))
	}
}

// nextRevision returns the revision of the new set: one more than the highest of the others.
func (r *rollout) nextRevision() int64 {
	var highest int64
	for _, s := range r.old {
		if revision, ok := revisionOf(s.notes); ok {
			highest = max(highest, revision)
		}
	}
	return highest + 1
}

// revisionOf returns the revision in the annotations, 0 if there is none; ok is false if
// it is not a number.
func revisionOf(notes map[string]string) (revision int64, ok bool) {
	text, there := notes[revisionNote]
	if !there {
		return 0, true
	}
	revision, err := strconv.ParseInt(text, 10, 64)
	return revision, err == nil
}

// remember adds a revision to a history and drops the oldest ones beyond historyLength.
func remember(history, revision string) string {
	if strings.Split(history, ",")[0] == "" {
		return revision
	}
	longer := history + "," + revision
	for len(longer) > historyLength {
		_, rest, more := strings.Cut(longer, ",")
		if !more {
			return history // Upstream: what does not fit alone is left out
		}
		longer = rest
	}
	return longer
}

// number returns the number in an annotation; ok is false if it cannot be a number of replicas.
func number(notes map[string]string, key string) (n int32, ok bool) {
	parsed, err := strconv.ParseUint(notes[key], 10, 32)
	if err != nil || parsed > math.MaxInt32 {
		return 0, false
	}
	return int32(parsed), true
}
