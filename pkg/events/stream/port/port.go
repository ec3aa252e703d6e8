// Package port finds ports for servers that must know each other's, or their own, before
// they start: those of a local control plane, and of a bus in tests.
package port

// Free is a port of 127.0.0.1 that is unused. On Linux no other process is given it until
// this process ends: not another one that asks here, nor one that listens or connects
// where the system chooses. So a process that is told the port finds it free, also after having
// been away for a while. Until a process listens there, connections are refused.
//
// Errors: the system has none left.
func Free() (int, error) { return hold() }
