// Package wire is network that can be broken on purpose, on this machine: a
// [Wire] carries TCP connections and can cut, stall, swallow, delay and throttle
// them; a [Front] stands before an API server and can refuse requests, or lose
// the answers to those that it has passed on.
//
// The program under test is told the address of a wire instead of the real one, and
// knows nothing of it.
package wire
