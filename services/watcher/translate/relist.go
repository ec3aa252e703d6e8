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

// Resume returns where the watch goes on after the newest delta of a log. It is false after a
// relist's finding, a keyframe or a gap: the relist was interrupted there, since a Mark would
// follow otherwise.
func Resume(newest events.Delta) (Cursor, bool) {
	c := Cursor{newest.ResourceVersion, newest.Epoch}
	return c, !newest.Sync && newest.Op != events.Gap && c.Version != ""
}

// Covers reports whether a change with this version is known already. A version without an order is
// known only when it equals the cursor's.
func (c Cursor) Covers(version string) bool {
	return c.Version != "" && kinds.CompareVersions(version, c.Version) <= 0 && kinds.CompareVersions(c.Version, version) >= 0
}

// Older reports whether a version is certainly older than another one. It is false for versions that
// are unknown or have no order.
func Older(version, than string) bool {
	return version != "" && than != "" && kinds.CompareVersions(version, than) < 0 && kinds.CompareVersions(than, version) > 0
}

// known is what the log says of an object.
type known struct {
	gone     bool
	uid      types.UID
	version  string
	epoch    uint64
	sequence uint64
}

// State is what the bus knows of one kind, folded from its log without bodies.
type State struct {
	objects map[events.Ref]known
	newest  Cursor
}

// NewState returns the state of a kind of which the bus knows nothing.
func NewState() *State { return &State{objects: map[events.Ref]known{}} }

// Fold takes in the next delta of the log.
func (s *State) Fold(d events.Delta, sequence uint64) {
	version := d.ResourceVersion
	if d.Op == events.Gone && d.Sync {
		version = "" // the version of its last known state, perhaps of an older epoch: no position
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

// Forget forgets an object, whose last delta cannot be read.
func (s *State) Forget(ref events.Ref) { delete(s.objects, ref) }

// Relist compares what a list finds with the state.
type Relist struct {
	state *State
	seen  map[events.Ref]struct{}
	epoch uint64
	again bool
}

// Compare begins a relist, which uses the state up. The relist's epoch is the later one of the
// storage's known epoch and the newest one that the bus has seen. When the server's position is
// older than what the bus has seen of that epoch, as after the restore of a backup, a new epoch
// begins. The version "" means that the position is not known.
func (s *State) Compare(version string, epoch uint64) *Relist {
	r := &Relist{state: s, seen: map[events.Ref]struct{}{}, epoch: max(epoch, s.newest.Epoch)}
	if r.epoch == s.newest.Epoch && Older(version, s.newest.Version) {
		r.epoch = events.NextEpoch(r.epoch)
	}
	return r
}

// Again has every listed object recorded, also one that the bus knows.
func (r *Relist) Again() { r.again = true }

// Epoch is the epoch of everything that the relist finds.
func (r *Relist) Epoch() uint64 { return r.epoch }

// Finding is what a listed object is to the bus.
type Finding struct {
	// Changed: the object must be recorded.
	Changed bool
	// Replaced is the sequence of the object with the same name and another uid, whose end must be
	// recorded first; 0 when there is none.
	Replaced uint64
	// Rewound: the object is older than the bus knows, or the bus has recorded its end, so the
	// history is not the one that was recorded. The relist must begin again in a new epoch.
	Rewound bool
}

// See judges a listed object, which counts as recorded from then on. In a new epoch every object is
// recorded: a version that was handed out twice proves nothing.
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
		f.Changed = r.again || k.version != version || k.epoch != r.epoch
	}
	r.seen[ref] = struct{}{}
	if f.Changed {
		k.sequence = 0
	}
	r.state.objects[ref] = known{uid: uid, version: version, epoch: r.epoch, sequence: k.sequence}
	return f
}

// Lose judges an object that was deleted while the list was being read. It returns true when the
// end of the object must be recorded.
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

// Seen reports whether the list has an object of that name.
func (r *Relist) Seen(ref events.Ref) bool {
	_, found := r.seen[ref]
	return found
}

// Missing returns the sequences of the last deltas of the objects that the list did not find,
// oldest first.
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
