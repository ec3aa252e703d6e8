package cache

import (
	"k8s.io/apimachinery/pkg/types"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/kinds"
)

// Effect is an applied result of a turn that has to come back from the watcher before the key is
// decided about again, or a position that the cache has to reach.
type Effect struct {
	Result events.Result
	// Epoch is the epoch of the kind when the effect was made, if Dated.
	Dated bool
	Epoch uint64
	// Goal is the end of the kind's log plus 1, looked up after the effect was made; 0: not known.
	Goal uint64
	// Seen, if set, is a position in the kind's log that the last turn had seen. Then Result has
	// only the kind, and the newest version of the last turn's outcome.
	Seen uint64
}

// HasReturned reports whether the cache has seen an effect, or something later. It has seen nothing
// of a kind that is not followed yet, nor an effect of an epoch that has not reached it.
func (s Snapshot) HasReturned(u Effect) bool {
	r := u.Result
	k, ok := s.cache.kinds[r.Ref.Kind]
	switch {
	case ok && u.Seen > 0:
		return k.position >= u.Seen
	case !ok || u.Dated && k.epoch < u.Epoch:
		return false
	}
	at := nameOf(r.Ref)
	if t, dead := k.gone[r.UID]; dead && r.UID != "" && !u.precedes(t.epoch) {
		return true
	}
	h, there := k.objects[at]
	if t, ended := k.gone[k.last[at]]; !there && ended && r.Version != "" && u.reached(t.epoch, t.version) {
		return true // a later object of that name was deleted, so this one was too
	}
	if r.Removed || r.Version == "" {
		return !there || h.object.GetDeletionTimestamp() != nil || r.UID != "" && h.uid != r.UID || u.Dated && h.epoch > u.Epoch
	}
	if d, ok := k.damaged[at]; ok && kinds.CompareVersions(d.version, r.Version) >= 0 {
		return true
	}
	return there && u.reached(h.epoch, h.version)
}

// precedes reports whether an epoch had ended when the effect was made.
func (u Effect) precedes(epoch uint64) bool { return u.Dated && epoch < u.Epoch }

// reached reports whether a state is the one that the effect made, or a later one. Versions of
// different epochs cannot be compared.
func (u Effect) reached(epoch uint64, version string) bool {
	if u.Dated && epoch != u.Epoch {
		return epoch > u.Epoch
	}
	return kinds.CompareVersions(version, u.Result.Version) >= 0
}

// Lost reports whether an effect cannot come back any more: it was made and undone while the
// streams kept no trace of it. The kind's log has been folded beyond the effect's version, and
// up to its end as looked up after that.
func (s Snapshot) Lost(u Effect) bool {
	k, ok := s.cache.kinds[u.Result.Ref.Kind]
	return ok && u.Goal > 0 && k.position >= u.Goal-1 && k.reportedBeyond(u) && (u.Seen == 0 || k.reportedAgain(u))
}

// ReportedBeyond reports whether the watcher has reported everything up to the time of an effect.
func (s Snapshot) ReportedBeyond(u Effect) bool {
	k, ok := s.cache.kinds[u.Result.Ref.Kind]
	return ok && k.reportedBeyond(u)
}

func (k *kindCache) reportedBeyond(u Effect) bool {
	switch {
	case u.Seen > 0:
		return true
	case u.Dated && k.epoch > u.Epoch:
		return true // the API server was restored to a time before the effect
	case u.Result.Removed || u.Result.Version == "":
		// A deletion has no version of its own to compare with: while the object exists in the
		// cache, its deletion is still to come.
		if _, there := k.objects[nameOf(u.Result.Ref)]; there {
			return false
		}
	}
	return k.mark != "" && kinds.CompareVersions(k.mark, u.Result.Version) >= 0
}

// reportedAgain reports whether a log that had lost a position has everything again: it has a mark
// behind its end, or one that is not older than the effects of the last turn.
func (k *kindCache) reportedAgain(u Effect) bool {
	return k.markAt >= u.Goal || u.Result.Version != "" && k.mark != "" && kinds.CompareVersions(k.mark, u.Result.Version) >= 0
}

// IsAsLeft reports whether an object that the controller reads is now as a result left it.
func (s Snapshot) IsAsLeft(r events.Result) bool {
	k, ok := s.kind(r.Ref.Kind)
	if !ok || !r.OK() {
		return false
	}
	h, there := k.objects[nameOf(r.Ref)]
	if r.Removed || r.Version == "" {
		return !there || h.uid == r.UID && h.object.GetDeletionTimestamp() != nil
	}
	return there && h.version == r.Version
}

// Contradicts reports whether the cache contradicts a result about whether its object exists.
func (s Snapshot) Contradicts(r events.Result) bool {
	k, ok := s.cache.kinds[r.Ref.Kind]
	if !ok || r.UID == "" {
		return false
	}
	h, there := k.objects[nameOf(r.Ref)]
	if r.Removed || r.Status == events.Absent {
		return there && h.uid == r.UID
	}
	return r.Status == events.Unchanged && r.Version != "" && !there
}

func nameOf(r events.Ref) types.NamespacedName {
	return types.NamespacedName{Namespace: r.Namespace, Name: r.Name}
}
