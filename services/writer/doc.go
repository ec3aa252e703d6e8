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
// Goroutines: one per controller that reads turns, one per turn in hand, one
// per request (package apply), one that keeps the turns in hand from being
// delivered to somebody else, and one that tells Kubernetes Events. When the
// context of Run ends, nothing more is taken; what is in hand has Config.Drain
// to finish, and the rest is handed back for other writers.
package writer
