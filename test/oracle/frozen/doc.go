// Package frozen compares one decision of ours with one sync of upstream's in a world that stands still
// ([Pair]).
//
// Upstream's controller sees a frozen world: its writes are recorded and acknowledged but never come back, so
// that the record is exactly one sync. Ours makes one decision. Both are converted to effects and must be equal.
package frozen
