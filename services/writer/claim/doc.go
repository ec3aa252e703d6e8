// Package claim keeps two writers from carrying out one turn at a time. It is the state
// machine of one writer, without a clock, a lock or a bus: what it is told, and when, is in
// its methods' arguments, so that the writer and the simulation drive the same code.
//
// With every heartbeat a writer says to the bus, turn by turn, that it works on what it has
// in flight, and then to the other writers and to itself, on the same connection, which turns
// these are. A heartbeat that comes back proves that the bus has heard what went before it:
// for a while after it was said no turn in flight is delivered to another writer. A writer
// that does not hear itself for [Expiry], because it was stopped, starved or cut off, makes no
// more requests ([Uncertain]) until it knows whether another writer has had its turns
// ([Free], [Lost]).
//
// A turn that is delivered and may be in flight elsewhere is claimed first ([Claims.Claim]).
// If another writer may have begun it, this one begins nothing before it has heard itself
// say that it has the turn, after what it had heard from others ([Claims.Announced]). So of
// two writers that have a turn at least one hears the other, and lets go.
//
// Other writers are believed for a bounded time, and the number of writers and turns that
// are remembered is bounded: where there are no keys, every process that may publish on
// their topic can make one up.
package claim
