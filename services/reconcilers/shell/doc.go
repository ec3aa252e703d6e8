// Package shell runs the engines of the controllers (package engine) against a bus. It has all
// goroutines, clocks and I/O of the reconcilers, and passes to an engine what happened, one event after
// the other.
//
// [Loop] runs the engine of one controller: it carries out the engine's requests, tells it the
// outcomes and what writers have in flight, and compares the streams of the controller with what it
// knows of them, to find losses. [Follower] folds the log of one kind into the [cache.Cache] that all
// controllers of a process share, and tells the loops.
//
// No engine decides on damaged data. A follower compares what it has folded with the census that the
// watcher sends with each change, and verifies the checksums of each message. If they differ, the
// follower shuts the engines, forgets the kind, and asks the watchers to list again, until a census
// agrees.
//
// The goroutines are:
//
//	one follower per kind       EV_<kind>                    -> Cache.Fold -> every engine
//	one follower per engine     OUTCOME_<controller>         -> its engine
//	one listener per engine     what writers have in flight  -> its engine
//	one inspector per engine    TURN, OUTCOME, WAKE: is it all there? -> its engine
//	one goroutine per engine    its events, one after the other
//	short-lived ones            one Store, Schedule or Reach of the IO, or many Recalls
package shell
