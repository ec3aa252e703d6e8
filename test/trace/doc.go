// Package trace runs all services in one process on a real control plane, records their spans in memory, and
// checks that every change is in the right trace.
package trace
