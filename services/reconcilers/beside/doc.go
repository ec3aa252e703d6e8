// Package beside runs controllers beside the real kube-controller-manager (KCM)
// without doing anything: it decides on what KCM sees, and compares what it would
// have done with what KCM does. No write can be made through it: it holds no
// Kubernetes credential, and it publishes on subjects of its own, which no writer
// reads.
//
// # The world in its order
//
// A reconciler that acts must decide at once, on what there is. A shadow only compares,
// and can wait until everything of a moment is there. So the logs of all kinds are
// merged here, a second behind, in the order of the API server's versions, which is the order in
// which things happened; each controller is asked behind each change, with the time
// of that change. What it then wants is what KCM would do that saw everything at
// once; how KCM may come to something else, package shadow knows.
//
// That second is one in which this process ran: while it stands still it reads nothing,
// and what happened meanwhile comes after it. Clocks of controllers go a second more
// behind, when everything that had happened by then has been taken in.
//
// What comes too late for its place in the order, because a watcher was away for
// longer than that second, makes the order doubtful. What is unexplained then counts
// as unseen for a while, and so it does behind a gap of the record.
//
// # Replicas
//
// All compare, and one tells. A finding has the same id at each, so two that both
// believe to be first for a moment tell it once. The others keep for a few seconds what
// they find: when the first one goes away, what was due until another one knows of that
// is told by that one. A session that begins anew has kept nothing.
//
// # Goroutines
//
//	one reader per kind   EV_<kind>  -> arrivals
//	one for everything    arrivals and the clock -> the order -> asks, findings -> SHADOW_<controller>
//
// A session ends, and everything begins anew, when a stream cannot be read any more,
// is made anew, or tells of another epoch.
package beside
