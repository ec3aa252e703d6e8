// Package port finds ports for servers that must know their own or each other's before they
// start: those of a local control plane, and of a bus in tests.
package port

// Free is an unused port of 127.0.0.1. On Linux no other process gets it until this process
// ends: neither another caller of Free, nor a process that lets the system choose its port. So
// a process that is given the port finds it free, also after a restart. Until a process listens
// there, connections are refused.
//
// Errors: the system has none left.
func Free() (int, error) { return hold() }
