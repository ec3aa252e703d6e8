// Package world plays the processes of Millrace in one goroutine and in virtual time, on a simulated
// cluster. A world is a seed: the seed decides which of all possible steps happens next.
//
// A step is an act of an actor (actors.go): a watcher receives a change, a replica folds a delta or decides
// about a key, the bus delivers a turn, a writer makes a request, a node does something with a pod. Between
// them users do their operations, and faults happen (faults.go): a process is killed, stopped or started on
// old copies of the streams, an answer is lost, a stream loses its end, the API server is restored. With a
// script the actors take turns instead, and nothing is left to chance (scene.go). When nothing can happen,
// time passes until something is due.
//
// The processes tell the rules what they do (guard.go), and a world that comes to rest is checked
// (rest.go). The watcher has the real package translate; engines, controllers, claims, plans and write
// limits are the real ones.
package world
