// Package claim keeps two writers from carrying out one turn at a time. It is the state machine of
// one writer, without a clock, a lock or a bus: its methods take the messages and their times as
// arguments, so that the writer and the simulation run the same code.
//
// With every heartbeat a writer first marks each turn in flight as in progress on the bus. Then it
// tells the other writers and itself, on the same connection, which turns these are. A heartbeat
// that comes back proves that the bus has received what was sent before it: for a while after it
// was sent, the bus delivers no turn in flight to another writer. A writer that does not hear
// itself for [Expiry], because it was stopped, starved or cut off, makes no more requests
// ([Uncertain]) until it knows whether another writer has had its turns ([Free], [Lost]).
//
// A writer first claims a delivered turn that may be in flight elsewhere ([Claims.Claim]). If
// another writer may have begun the turn, this one begins nothing before its own heartbeat with
// the claim has come back, after what it had heard from the others ([Claims.Announced]). So of two
// writers that have a turn at least one hears the other, and gives the turn up.
//
// A writer believes the claims of others for a bounded time, and remembers a bounded number of
// writers and turns: where there are no keys, every process that may publish on the writers' topic
// can make one up.
package claim
