package port

import (
	"cmp"
	"fmt"
	"syscall"
)

// hold binds a socket that never listens. Since it binds without SO_REUSEADDR, the socket has
// the port alone; since it sets the option afterwards, other sockets may bind the port if they
// name it and have the option too, as all Go programs do.
func hold() (port int, err error) {
	socket, err := syscall.Socket(syscall.AF_INET, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
	if err == nil {
		port, err = bind(socket)
	}
	if err != nil {
		_ = syscall.Close(socket) // where there is none nothing is closed
		return 0, fmt.Errorf("find a free port: %w", err)
	}
	return port, nil
}

// bind makes all calls and returns the first error: the calls after a failed one have no
// effect.
func bind(socket int) (port int, err error) {
	bound := syscall.Bind(socket, &syscall.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}})
	shared := syscall.SetsockoptInt(socket, syscall.SOL_SOCKET, syscall.SO_REUSEADDR, 1)
	address, err := syscall.Getsockname(socket)
	if err := cmp.Or(bound, shared, err); err != nil {
		return 0, err
	}
	return address.(*syscall.SockaddrInet4).Port, nil
}
