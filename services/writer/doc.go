// Package writer carries out what controllers decided. It reads turns from the
// bus, makes their requests of the API server with each controller's own
// identity, and stores one outcome for every turn.
//
//	TURN_<controller> ──Work "writer"──► hand ──► plan ⇄ apply ──► API server
//	                                      │               └──► Kubernetes Events
//	                                      └──► OUTCOME_<controller>, then Done
//
// Any number of writers may run; all of them are active. A turn that a writer
// took and did not finish (it died, it was cut off) comes to another one, which
// carries it out again: what is done already is then found done, so a turn has
// one effect however often it is delivered. The outcome is stored before the
// turn is answered, for the same reason.
//
// A turn is in one writer's hand at a time. Writers tell each other, and the engines
// that wait, several times a second what they have in flight; a writer that does not
// hear itself on the bus makes no more requests until it knows that no other writer has
// had its turns, and else lets go. What does not come fresh is looked into before it
// is carried out. A turn that rests on an epoch of the API server that has ended is
// refused, and so is one that is too old by the clock of the bus.
//
// Goroutines: one per controller that reads turns, one per turn in flight, one
// per request (package apply), two that say what is in flight and hear what
// the others have, two that keep the epochs and the clock of the bus at hand, and one
// that tells Kubernetes Events. When the
// context of Run ends, nothing more is taken; what is in flight has Config.Drain
// to finish, and the rest is handed back for other writers.
package writer
