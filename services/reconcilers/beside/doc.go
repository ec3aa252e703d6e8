// Package beside runs controllers beside the real kube-controller-manager (KCM) without acting: it
// decides on what KCM sees, and compares its decisions with what KCM does. It cannot write to the
// cluster: it holds no Kubernetes credential, and it publishes on its own subjects, which no writer
// reads.
//
// # One order of all changes
//
// A reconciler that acts must decide at once. A shadow only compares, so it can wait until all
// messages up to a moment have arrived. This package merges the logs of all kinds, a second behind,
// in the order of the API server's versions, which is the order of the changes. It asks each
// controller after each change, with the time of that change. The answer is what KCM would do if it
// saw everything at once; package shadow handles the ways in which KCM may decide otherwise.
//
// That second counts only time in which this process ran: while it stands still it reads nothing,
// and the messages of that time arrive later. The clocks of controllers are another second behind,
// when everything up to then has been taken in.
//
// A message that arrives too late for its place in the order, because a watcher was away for longer
// than that second, makes the order doubtful. An unexplained finding then counts as unseen for a
// while. The same holds after a gap in the record.
//
// # Replicas
//
// All replicas compare, and one reports. A finding has the same id at each, so if two replicas both
// believe to be first for a moment, the bus still stores it once. The others keep their findings
// for a few seconds. When the first replica goes away, the next one reports what was found in the
// meantime. A new session has kept nothing.
//
// # Goroutines
//
//	one reader per kind   EV_<kind>  -> arrivals
//	one for everything    arrivals and the clock -> the order -> asks, findings -> SHADOW_<controller>
//
// A session ends, and a new one begins, when a stream cannot be read any more, was created anew, or
// has another epoch, or when other controllers are to be compared: a controller that moves with a Lease
// is left out while Millrace runs it.
package beside
