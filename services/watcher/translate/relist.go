package translate

import (
	"cmp"
	"slices"

	"k8s.io/apimachinery/pkg/types"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/kinds"
)

// Cursor is how far a kind has been watched.
type Cursor struct {
	Version string
	Epoch   uint64
}

// Resume is where the watch goes on after the newest delta of a log. It is
// false after the finding of a relist, a keyframe or a gap: a relist was cut
// short there, and a Mark would follow if it had been finished.
func Resume(newest events.Delta) (Cursor, bool) {
	c := Cursor{newest.ResourceVersion, newest.Epoch}
	return c, !newest.Sync && newest.Op != events.Gap && c.Version != ""
}

// Covers tells whether a change with this version is known already. Versions
// without an order are only known when they are equal.
func (c Cursor) Covers(version string) bool {
	return c.Version != "" && kinds.CompareVersions(version, c.Version) <= 0 && kinds.CompareVersions(c.Version, version) >= 0
}

// Older tells whether a version is certainly older than another one: versions
// that are not known, or have no order, are not.
func Older(version, than string) bool {
	return version != "" && than != "" && kinds.CompareVersions(version, than) < 0 && kinds.CompareVersions(than, version) > 0
}

// known is what the state stream holds of an object, or the log where that holds nothing.
type known struct {
	gone     bool
	lost     bool // the state stream lacks it
	uid      types.UID
	version  string
	epoch    uint64
	sequence uint64
}

// State is what the bus knows of one kind: folded from its state stream,
// without bodies.
type State struct {
	objects map[events.Ref]known
	newest  Cursor
}

// NewState is the state of a kind of which the bus knows nothing.
func NewState() *State { return &State{objects: map[events.Ref]known{}} }

// Fold takes in the next delta of the state stream.
func (s *State) Fold(d events.Delta, sequence uint64) {
	version := d.ResourceVersion
	if d.Op == events.Gone && d.Sync {
		version = "" // of its last known state, perhaps of an older epoch: no position
	}
	switch {
	case d.Epoch > s.newest.Epoch:
		s.newest = Cursor{version, d.Epoch}
	case version != "" && d.Epoch == s.newest.Epoch && kinds.CompareVersions(version, s.newest.Version) > 0:
		s.newest.Version = version
	}
	switch d.Op {
	case events.Is, events.Gone:
		s.objects[d.Ref] = known{gone: d.Op == events.Gone, uid: d.UID, version: version, epoch: d.Epoch, sequence: sequence}
	case events.Mark, events.Gap: // about no object
	}
}

// Recall takes in the next delta of the log, once the state stream has been folded, which
// has lost something. Of an object that it says nothing of the log counts: what is
// there is to be said again, and what is not has an end that is to be said.
func (s *State) Recall(d events.Delta, sequence uint64) {
	if d.Op != events.Is && d.Op != events.Gone {
		return
	}
	if k, there := s.objects[d.Ref]; there && !k.lost {
		return
	}
	s.objects[d.Ref] = known{d.Op == events.Gone, true, d.UID, d.ResourceVersion, d.Epoch, sequence}
}

// Empty is true when the state holds no object that is there.
func (s *State) Empty() bool {
	for _, k := range s.objects {
		if !k.gone {
			return false
		}
	}
	return true
}

// Relist compares what a list finds with the state.
type Relist struct {
	state *State
	seen  map[events.Ref]struct{}
	epoch uint64
}

// Compare begins a relist, which uses the state up. What it finds is of the epoch
// that the storage is known to be in, or of a later one that the bus has seen. When the
// server's position is older than what the bus has seen of that, as after the restore
// of a backup, a new one begins. A version of "" says that the position is not known.
func (s *State) Compare(version string, epoch uint64) *Relist {
	r := &Relist{state: s, seen: map[events.Ref]struct{}{}, epoch: max(epoch, s.newest.Epoch)}
	if r.epoch == s.newest.Epoch && Older(version, s.newest.Version) {
		r.epoch = events.NextEpoch(r.epoch)
	}
	return r
}

// Epoch is the epoch of everything that the relist finds.
func (r *Relist) Epoch() uint64 { return r.epoch }

// Finding is what a listed object is to the bus.
type Finding struct {
	// Changed: it must be said.
	Changed bool
	// Replaced is the sequence of the object of that name with another uid,
	// whose end must be said first; 0 when there is none.
	Replaced uint64
	// Rewound: what has that name is older than the bus knows, or has been
	// reported gone, so the history is not the one that was told. The relist must
	// begin anew in a new epoch.
	Rewound bool
}

// See judges a listed object, which counts as said from then on. In a new epoch
// everything is said: a version that was handed out twice proves nothing.
func (r *Relist) See(ref events.Ref, uid types.UID, version string) (f Finding) {
	k, there := r.state.objects[ref]
	switch {
	case !there:
		f.Changed = true
	case k.epoch == r.epoch && (Older(version, k.version) || k.gone && k.uid == uid):
		return Finding{Rewound: true}
	case k.gone:
		f.Changed = true
	case k.uid != uid:
		f.Changed, f.Replaced = true, k.sequence
	default:
		f.Changed = k.lost || k.version != version || k.epoch != r.epoch
	}
	r.seen[ref] = struct{}{}
	if f.Changed {
		k.sequence = 0
	}
	r.state.objects[ref] = known{uid: uid, version: version, epoch: r.epoch, sequence: k.sequence}
	return f
}

// Lose judges an object that went while the list was being read: true when its
// end must be said.
func (r *Relist) Lose(ref events.Ref, uid types.UID) bool {
	delete(r.seen, ref)
	k, there := r.state.objects[ref]
	if !there || k.gone || k.uid != uid {
		return false
	}
	k.gone = true
	r.state.objects[ref] = k
	return true
}

// Seen tells whether the list has an object of that name.
func (r *Relist) Seen(ref events.Ref) bool {
	_, found := r.seen[ref]
	return found
}

// Missing are the sequences of the last deltas of the objects that the list
// did not find, oldest first.
func (r *Relist) Missing() []uint64 {
	var lost []uint64
	for ref, k := range r.state.objects {
		if _, found := r.seen[ref]; !found && !k.gone {
			lost = append(lost, k.sequence)
		}
	}
	slices.SortFunc(lost, cmp.Compare[uint64])
	return lost
}
