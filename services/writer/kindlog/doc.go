// Package kindlog reads from the logs of the kinds (EV_<kind>) what a writer must know before it
// makes a request: which storage epoch each kind is in ([Epochs]), what an object is now
// ([ObjectsOf]), whether a name ever had an object ([PreviousObjects]), and whether the watcher
// hides values of a kind ([Hides]).
//
// It reads single messages, the newest of a log or of an object, and follows no log. The API server
// is not asked: package apply does that where the record proves nothing.
//
// Goroutines: [Epochs.Run] and [Epochs.Share] run until their context ends; lookups of several kinds
// run concurrently.
package kindlog
