// Package sim runs the whole system in one goroutine and in virtual time: a simulated API
// server, bus and nodes, and a watcher made of the real package translate. Everything else is
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
// # Packages
//
//	apiserver   the API server                streams    streams and consumers
//	cluster     what all of the following share, and the record that rules read
//	nodes       nodes, kubelets and pods      workloads  Deployments, sets, Jobs, budgets
//	storage     volumes and their drivers     devices    devices and their claims
//	network     endpoints and ranges          access     certificates and tokens
//	metadata    namespaces, quotas, roles, migrations
//	rules       which rule is asked when      world      the processes, the faults, what happens next
//
// Each of those from nodes to metadata has what users do, what must hold, and what is simulated of the
// group. This package has the scripts (scenario.go, scripts.go), the sieve (sieve.go), and operations
// of several groups; its tests play the worlds.
//
// Not modelled: time between a process's last check of its claim and its request on the wire (a
// writer that stops exactly there), damaged messages, expiry, a restore while the watchers have
// not yet heard of something that the API server had done, and, in worlds, turns that the bus
// loses.
package sim
