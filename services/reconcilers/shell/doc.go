// Package shell is the only package of the reconcilers that deals with time, order and failure.
// Controllers decide; the shell decides when to ask them.
//
// All controllers of a process share one [cache.Cache]. [Engine] is the work queue of one
// controller: changes ask for turns of keys, the engine stores the turns, and it decides about a key
// only when everything that the key's last turn did has come back. [Loop] runs an engine against a
// bus.
//
// Every replica folds every change, and decides about the keys that it owns ([Engine.Own]). No
// store keeps which changes asked for a key: a replica that starts, or gains keys, asks about
// all of them, as an informer's first list does.
//
// A controller may move with a Lease between Millrace and kube-controller-manager. Then the engine owns
// no keys until a writer holds the Lease, and folds all changes meanwhile ([Settings].Leased).
//
// An Engine has no goroutine, clock or I/O of its own. Its caller tells it what happened, and
// the engine requests work through its [IO], so that the live loop and a simulation with
// virtual time run the same code.
//
// An engine decides nothing before its view is complete. It starts shut for each kind that its
// controller names (a controller that reads every kind: until the kinds have been discovered).
// It opens when the kind has been folded as far as its log reached at the start, and the
// watcher has reported once that it has listed the whole kind. For the same reason, the
// controller's declaration says which effects the engine awaits, never the set of kinds that
// the memory follows by now.
//
// Nor does an engine decide on damaged data. A follower compares what it has folded with the
// census that the watcher sends with each change, and verifies the checksums of each message.
// If they differ, the follower shuts the engines, forgets the kind, and asks the watchers to
// list again, until a census agrees.
//
// The goroutines are all in the loop:
//
//	one follower per kind       EV_<kind>                    -> Cache.Fold -> every engine
//	one follower per engine     OUTCOME_<controller>         -> its engine
//	one listener per engine     what writers have in flight  -> its engine
//	one inspector per engine    TURN, OUTCOME, WAKE: is it all there? -> its engine
//	one goroutine per engine    its events, one after the other
//	short-lived ones            one Store, Schedule or Reach of the IO, or many Recalls
package shell
