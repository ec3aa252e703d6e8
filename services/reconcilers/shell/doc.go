// Package shell is the only place of the reconcilers where time, order and
// failure exist. Controllers judge; the shell sees to it that they are asked.
//
// [Memory] is the folded world, shared by all controllers of a process. [Desk]
// is one controller's desk: tickets come in, turns go out, and nothing is
// decided before what was decided last has come back. [Loop] runs desks against
// a bus.
//
// A Desk has no goroutine, clock or I/O of its own. It is fed what happened and
// says through its [Door] what is to be done, so that the live loop and a
// simulation with virtual time drive the very same code.
//
// The goroutines are all in the loop:
//
//	one follower per kind       STATE_<kind>          -> Memory.Fold -> every desk
//	one worker per desk, kind   STATE_<kind> durable  -> tickets     -> its desk
//	three readers per desk      OUTCOME (followed and durable), WAKE -> its desk
//	one goroutine per desk      its events, one after the other
//	short-lived ones            one Store, Recall, Schedule or Reach of a Door
//
// Locks: Memory has one RWMutex; the keys owed to each desk have a mutex of
// their own that is taken inside it, never around it.
package shell
