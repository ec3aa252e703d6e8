// Package beside runs controllers beside the real kube-controller-manager (KCM)
// without doing anything: it decides on what KCM sees, and compares what it would
// have done with what KCM does. Nobody can have anything done through it: it holds no
// Kubernetes credential, and it publishes on subjects of its own, which no writer
// reads.
//
// # The world in its order
//
// Whoever acts must decide at once, on what there is. Whoever only compares can wait
// until everything of a moment is there. So the logs of all kinds are merged here, a
// second behind, in the order of the API server's versions, which is the order in
// which things happened; each controller is asked behind each change, with the time
// of that change. What it then wants is what KCM would do that saw everything at
// once; how KCM may come to something else, package shadow knows.
//
// What comes too late for its place in the order, because a watcher was away for
// longer than that second, makes the order doubtful. What is unexplained then counts
// as unseen for a while, and so it does behind a gap of the record.
//
// # Goroutines
//
//	one reader per kind   EV_<kind>  -> arrivals
//	one for everything    arrivals and the clock -> the order -> asks, findings -> SHADOW_<controller>
//
// A session ends, and everything begins anew, when a stream cannot be read any more,
// is made anew, or tells of another epoch.
package beside
