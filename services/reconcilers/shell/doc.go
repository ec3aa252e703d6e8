// Package shell is the only place of the reconcilers where time, order and
// failure exist. Controllers judge; the shell sees to it that they are asked.
//
// [Memory] is the folded world, shared by all controllers of a process. [Engine]
// is one controller's work queue: changes ask for turns of keys, turns go out, and
// nothing is decided before what was decided last has come back. [Loop] runs an engine
// against a bus.
//
// Every replica folds every change, and decides about the keys that it owns
// ([Engine.Own]). What asked for a key is kept in no other place: a replica that
// begins, or comes to own keys, asks about all of them, as an informer's first list
// does.
//
// An Engine has no goroutine, clock or I/O of its own. It is fed what happened and
// says through its [Door] what is to be done, so that the live loop and a
// simulation with virtual time drive the very same code.
//
// An engine decides nothing before it can see everything. It is shut from the start
// for each kind that its controller names (a controller that reads every kind:
// until it is known which there are), and opened when the kind has been folded as
// far as its log reached, and the watcher has said once that all of it was told.
// For the same reason it is what a controller declares, and never what the memory
// follows by now, that says which effects are awaited.
//
// Nor does it decide on what is damaged. A follower holds what it has folded
// against the census that the watcher says with each change, and a message against
// its sums. If they differ, the engines are shut, the kind is forgotten, and the
// watchers are asked to look again, until a census agrees.
//
// The goroutines are all in the loop:
//
//	one follower per kind       STATE_<kind>, EV_<kind>      -> Memory.Fold -> every engine
//	one follower per engine     OUTCOME_<controller>         -> its engine
//	one listener per engine     what writers have in flight  -> its engine
//	one inspector per engine    TURN, OUTCOME, WAKE: is it all there? -> its engine
//	one goroutine per engine    its events, one after the other
//	short-lived ones            one Store, Schedule or Reach of a Door, or many Recalls
//
// Locks: Memory has one RWMutex; what changes ask of each engine has a mutex of
// its own that is taken inside it, never around it.
package shell
