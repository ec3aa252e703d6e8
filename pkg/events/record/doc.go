// Package record answers what happened to an object, and why, from what the bus stores: the logs
// of the kinds, the turns of the controllers, and their outcomes.
//
// It reads as little as possible. It finds the newest delta of an object by its subject, and
// each delta names the one before it; the newest mark of a kind names the kind's last gap, and
// each gap names the one before it. It folds the state of a kind at a moment backwards from
// there, until a census confirms that nothing is missing. It looks for the write of ours that
// made a version under the keys that may have wanted it, around the time of the version.
//
// Every answer names the gaps that affect it: it never hides that changes may be missing.
package record
