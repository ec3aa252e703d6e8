package port

import (
	"cmp"
	"fmt"
	"syscall"
)

// hold binds a socket that never listens. Bound without SO_REUSEADDR, it has the port
// alone; with it from then on, it lets in who names the port and has the option too, as
// all Go programs do.
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

// bind makes all calls and gives the first error: what follows a call that fails does nothing.
func bind(socket int) (port int, err error) {
	bound := syscall.Bind(socket, &syscall.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}})
	shared := syscall.SetsockoptInt(socket, syscall.SOL_SOCKET, syscall.SO_REUSEADDR, 1)
	address, err := syscall.Getsockname(socket)
	if err := cmp.Or(bound, shared, err); err != nil {
		return 0, err
	}
	return address.(*syscall.SockaddrInet4).Port, nil
}
