// Package writer carries out the decisions of the controllers. It reads turns from the bus, makes
// their requests of the API server with each controller's own identity, and stores one outcome for
// every turn.
//
//	TURN_<controller> ──Work "writer"──► hand ──► plan ⇄ apply ──► API server
//	                                      │               └──► Kubernetes Events
//	                                      └──► OUTCOME_<controller>, then Done
//
// Any number of writers may run, all active. The bus redelivers a turn that a writer took and did
// not finish (it died, it was cut off), and another writer carries the turn out again. That writer
// finds out which effects are there already, so a turn has one effect however often it is
// delivered. For the same reason a writer stores the outcome before it acknowledges the turn.
//
// At most one writer has a turn in flight at a time. Several times a second each writer tells the
// other writers and the waiting reconcilers what it has in flight. A writer that does not hear its
// own heartbeats on the bus makes no more requests until it knows that no other writer has had its
// turns; otherwise it gives the turns up. A writer looks up what became of a redelivered or old
// turn before it carries that turn out. It refuses a turn that rests on an ended epoch of the API
// server, and a turn that is too old by the clock of the bus.
//
// Controllers that move with a Lease ([Config].Lease) are carried out by the writer that holds it, and
// by no other. Its heartbeats name them, and reconcilers decide about them only while they hear that.
//
// Before it makes a plan (package plan), a writer reads what the record has about the turn (package
// kindlog), and holds the commands that exceed a write limit (package limiter). Package apply makes
// the requests; package announce tells the watchers of each.
//
// Goroutines: one per controller that reads turns, one per turn in flight, one per request
// (package apply), two that send and receive heartbeats, two that keep the epochs and the clock of
// the bus up to date, and one that writes Kubernetes Events. When the context of Run ends, the
// writer takes no more turns. The turns in flight have Config.Drain to finish; the writer hands
// the rest back for other writers.
package writer
