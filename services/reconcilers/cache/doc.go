// Package cache holds the newest state of every object of the kinds that a process follows, and
// maps each change to the keys of the controllers that it concerns, as an informer with its indexes
// does.
//
// [Cache] folds the messages of the kinds' logs, in order. It is disposable, because the logs
// rebuild it. A [Snapshot] is the cache at one moment as one controller may see it; with it an
// engine answers what a view must answer before a turn is decided: has an [Effect] of the last turn
// come back, do all kinds have the objects that the log counts, and are they of one epoch? [History]
// is a cache that can go back to an earlier position, for replay and for shadow mode.
//
// The package has no goroutine, clock or I/O. Locks: Cache has one RWMutex. The changes that a
// controller has not taken yet have a mutex of their own, which is taken while the RWMutex is held,
// never the other way round.
package cache
