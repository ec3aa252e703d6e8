// Package wire injects network faults on this machine: a [Wire] is a TCP proxy that
// can cut, stall, swallow, delay and throttle connections; a [Front] is a proxy before
// an API server that can refuse requests, or drop the responses to those that it has
// passed on.
//
// The program under test gets the address of a wire instead of the real one.
package wire
