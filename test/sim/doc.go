// Package sim runs the whole system in one goroutine and in virtual time: a toy
// API server, a toy bus, toy nodes, a watcher made of the real translate, and
// everything else for real - memory, engines, controllers, plans.
//
// # Worlds
//
// A world is a seed. The seed decides which of all possible next steps happens:
// a change is heard, a delta folded, a turn delivered (or delivered again), a
// request made, an answer lost, a process killed, stopped for a minute or started
// on an old copy of the streams, the end of a log lost. Whenever something happens
// that could break an invariant, the guard looks; when inputs and faults have
// stopped, the world must come to rest in the state that the last specs ask for,
// with streams that agree with the API server, and stay silent; a world in which a controller asks
// again and again never sleeps, and is at rest when no client writes. A failure prints
// the seed, the transcript, and the command that plays it again.
//
// # The sieve
//
// A scenario is a script that is played by turns, with nothing left to chance.
// Then it is played again with one thing that goes wrong, for every thing and every
// point: a crash between any two steps and around any request, a view that is any
// number of versions behind, a change that is overtaken before it is read, alone
// and in pairs (the three patterns of Sieve, OSDI 2022), whatever the bus may lose,
// and a restore of the API server. It must end as it did without.
//
// # Files
//
//	world.go  what happens next        guard.go, rest.go  what must hold
//	api.go    the API server           bus.go             streams and consumers
//	watcher.go, replica.go, writer.go, nodes.go           who is there
//	user.go   what users do            faults.go          what goes wrong
//	disasters.go                       restores, and what the bus loses for good
//	judge.go, rollouts.go              what a decision may be, by what it was shown
//	counts.go, pace.go, crons.go       what is so, how often and when
//	storage.go, drivers.go             volumes: users, and drivers and kubelets
//	bindings.go, attachments.go        who has which volume, and where it is attached
//	devices.go, reservations.go        the same of devices
//	ranges.go, requests.go             ranges of nodes, certificates
//	joins.go, groups.go                bootstrap tokens, groups of pods, ranges of Services
//	migrations.go                      objects that are stored otherwise
//	labels.go, pools.go                labels of volumes, and how many devices there are
//	exceptions.go                      what is not judged, and why
//	scenario.go, scripts.go, sieve.go  scripts, and blows at every point of them
//
// What is not modelled: time between a process' last look at its claim and its
// request on the wire (a writer that is stopped exactly there), damage of messages,
// expiry, a restore while something that the API server had done was not yet
// heard of, and, in worlds, turns that the bus loses.
package sim
