// Package sim runs the whole system in one goroutine and in virtual time: a toy API server, a
// toy bus, toy nodes, and a watcher made of the real package translate. Everything else is
// real: memory, engines, controllers, plans.
//
// # Worlds
//
// A world is a seed. The seed decides which of all possible steps happens next: a watcher
// receives a change, a replica folds a delta, the bus delivers (or redelivers) a turn, a writer
// makes a request, an answer is lost, a process is killed, stopped for a minute or started on
// an old copy of the streams, or a log loses its end. Whenever a step could break an invariant,
// the guard checks it. When inputs and faults have stopped, the world must come to rest in the
// state of the last specs, with streams that agree with the API server, and must then stay
// silent. A world in which a controller asks again and again never sleeps; it is at rest when
// no client writes. A failure prints the seed, the transcript, and the command that repeats it.
//
// # The sieve
//
// A scenario is a script in which the actors take turns, with nothing left to chance. The sieve
// plays it again with one fault, for every fault and every point: a crash between any two steps
// and around any request, a view that is any number of versions behind, a change that is
// overwritten before it is read, alone and in pairs (the three patterns of Sieve, OSDI 2022),
// every loss that the bus may suffer, and a restore of the API server. Each run must end as the
// run without a fault did.
//
// # Files
//
//	world.go  what happens next        guard.go, rest.go  what must hold
//	api.go    the API server           bus.go             streams and consumers
//	watcher.go, replica.go, writer.go, nodes.go           the processes and nodes
//	user.go   what users do            faults.go          what goes wrong
//	disasters.go                       restores, and permanent losses of the bus
//	judge.go, rollouts.go              rules for decisions, by the view that they rest on
//	counts.go, pace.go, crons.go       rules for the real state, for rates and for times
//	storage.go, drivers.go             volumes: users, and drivers and kubelets
//	bindings.go, attachments.go        rules for bound and attached volumes
//	devices.go, reservations.go        the same for devices
//	ranges.go, requests.go             ranges of nodes, certificates
//	joins.go, groups.go                bootstrap tokens, groups of pods, ranges of Services
//	migrations.go                      objects that are stored in another encoding
//	labels.go, pools.go                labels of volumes, and numbers of devices
//	exceptions.go                      what is not judged, and why
//	scenario.go, scripts.go, sieve.go  scripts, and faults at every point of them
//
// Not modelled: time between a process's last check of its claim and its request on the wire (a
// writer that stops exactly there), damaged messages, expiry, a restore while the watchers have
// not yet heard of something that the API server had done, and, in worlds, turns that the bus
// loses.
package sim
