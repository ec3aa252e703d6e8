// Package record answers what happened, and why, from what the bus keeps: the
// logs of the kinds, the turns of the controllers, and their outcomes.
//
// Nothing is read through that need not be. The newest delta of an object is
// found by its subject, and each says where the one before it is; the newest mark
// of a kind says where its last gap is, and each gap where the one before that
// is. What a kind was at a moment is folded backwards from there, until a census
// agrees that nothing is missing. The write of ours that made a version is looked
// for under the keys that may have wanted it, around the time of the version.
//
// A gap is part of every answer that it touches: what may be missing is never
// passed over in silence.
package record
