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

// The annotations in which a rollout remembers.
const (
	// revisionNote is the number of a set's template in the order of rollouts,
	// and on the Deployment that of the new set.
	revisionNote = "deployment.kubernetes.io/revision"
	// historyNote is the revisions that a set was before, comma-separated.
	historyNote = "deployment.kubernetes.io/revision-history"
	// desiredNote is how many replicas the Deployment wanted, and mostNote how
	// many it allowed, when the set was last scaled.
	desiredNote = replicas.DesiredNote
	mostNote    = "deployment.kubernetes.io/max-replicas"

	// historyLength bounds historyNote, in characters.
	historyLength = 2000
)

// ownNotes are annotations that say something of one object only and are not
// copied from a Deployment to its sets or back.
var ownNotes = []string{
	corev1.LastAppliedConfigAnnotation, revisionNote, historyNote, desiredNote, mostNote, appsv1.DeprecatedRollbackTo,
}

// record brings the new set's annotations and minReadySeconds up to date. Its
// revision becomes the highest; if it had one before, it goes to the history.
// Annotations that the Deployment lost stay.
//
// Upstream: pkg/controller/deployment/util, SetNewReplicaSetAnnotations. A
// revision that is no number stays as it is for ever.
func (r *rollout) record() {
	s := r.fresh
	if s == nil {
		return
	}
	defer func() { s.recorded = s.changed }() // nothing has changed a size yet
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

// nextRevision is the revision of the new set: one more than those of all others.
func (r *rollout) nextRevision() int64 {
	var highest int64
	for _, s := range r.old {
		if revision, ok := revisionOf(s.notes); ok {
			highest = max(highest, revision)
		}
	}
	return highest + 1
}

// revisionOf is the revision that annotations tell, 0 when they tell none; ok is
// false when it is no number.
func revisionOf(notes map[string]string) (revision int64, ok bool) {
	text, there := notes[revisionNote]
	if !there {
		return 0, true
	}
	revision, err := strconv.ParseInt(text, 10, 64)
	return revision, err == nil
}

// remember adds a revision to a history, and forgets the oldest when that gets
// too long.
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

// number is the number in an annotation; ok is false when there is none that
// could be a number of replicas.
func number(notes map[string]string, key string) (n int32, ok bool) {
	parsed, err := strconv.ParseUint(notes[key], 10, 32)
	if err != nil || parsed > math.MaxInt32 {
		return 0, false
	}
	return int32(parsed), true
}
