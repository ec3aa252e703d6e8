// Package sim runs the whole system in one goroutine and in virtual time: a toy
// API server, a toy bus, toy nodes, and everything else for real - translate,
// memory, desks, controllers, plans.
//
// A world is a seed. The seed decides which of all possible next steps happens:
// a delta is read, a ticket delivered (or delivered again), a request made, an
// answer lost, a service killed and started anew. After every step the
// invariants are checked; when inputs and faults have stopped, the world must
// come to rest in the state that the last specs ask for, and stay silent. A
// failure prints the seed and the transcript.
package sim
