// Package watcher turns what the API server reports into the logs on the bus:
// one list and watch per kind, however many read the log.
//
//	Run ── membership.Run    heartbeats, and whether the API server answers: which kinds
//	  │                  fall to this watcher
//	  ├─── discover      which kinds there are
//	  ├─── reconcile     starts and stops, as the other two say, one of these
//	  └─── kindWatch.run   per kind: session after session
//	         └ session     open the log, find the position; resume, or relist
//	                       and compare with the state; then watch
//
// # What a log promises
//
// The log of a kind is in the order of the API server's watch, without a gap
// and with each (uid, resourceVersion) once, but for what is marked as said
// again (Sync). The position to go on from is in the log itself. Where it is
// lost (the API server has forgotten what came after it, the bus has lost its
// end, or the state stream was made anew and may lack objects) a relist is
// compared with the state stream: what changed is said, what is missing is
// reported gone, and a Gap marks that changes before it may not be in the
// record. Where the API server's storage has gone back, as after the restore of
// a backup, a new epoch begins, in which everything is said again; a version
// means something only within its epoch. That is so for all kinds at once: who finds
// out tells the others, of every watcher, and the writers.
//
// # Damage
//
// Every delta says how many objects there are behind it and what their hashes
// come to, and which message it was stored behind. The watcher holds log and state
// against that when a session begins, and their ends every ten seconds, or every two
// minutes where nothing has been appended; readers who find that something does not fit say so, and it looks again. What is wrong
// is mended by a relist: the state is told what it lacks or has wrong, or is made
// anew where it cannot be read, and the Gap says why and which messages were lost.
// Slowly the whole log is read through. See docs/adr/0009.
//
// # Where readers begin
//
// The state has the ends of a day, and readers need none of them. Every mark says
// since which message everything that is there has been said, and when too much
// has ended behind that, the oldest objects are said again (keyframe.go). What
// lies before it is read through when a session has begun (ghosts.go). See
// docs/adr/0013.
//
// # More than one watcher
//
// Any number may run, all of them active: each kind falls to one of them (package
// membership), and when one comes or goes only the kinds move that have to. The
// watcher that gets a kind goes on where its log ends. Its former watcher ends when
// it hears of that, or finds its next append refused: if two believe a kind to be
// theirs, the log takes one of them at its word. A watcher that cannot reach the API server
// leaves its kinds to those that can.
//
// # Large objects
//
// An object whose whole body is larger than a message may be is reported in
// metadata form, and its delta's Form says so. If even its metadata is too
// large, its name, identity and dates are left. Nothing is dropped, and a
// reader that needs the rest knows that it is not there.
//
// # Form and version
//
// A kind that is on the bus in full stays so for who asks for its metadata.
// The other way about, and when a kind that is wanted in full is there in
// another version, its streams are made anew; their readers begin again.
package watcher
