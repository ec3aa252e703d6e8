package localcluster

import (
	"fmt"
	"syscall"
)

// FreePort is a port of 127.0.0.1 that nobody uses, and that nobody else is given until
// this process ends: not another one that asks here, nor one that listens or connects
// where the system chooses. So whoever is told the port finds it free, also after having
// been away for a while. Until somebody listens there, connections are refused.
//
// A socket holds it that is bound and never listens. Bound without SO_REUSEADDR, it has
// the port alone; with it from then on, it lets in who names the port and has the option
// too, as all Go programs do.
func FreePort() (int, error) {
	port, err := hold()
	if err != nil {
		return 0, fmt.Errorf("find a free port: %w", err)
	}
	return port, nil
}

func hold() (port int, err error) {
	socket, err := syscall.Socket(syscall.AF_INET, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
	if err != nil {
		return 0, err
	}
	defer func() {
		if err != nil {
			_ = syscall.Close(socket)
		}
	}()
	if err := syscall.Bind(socket, &syscall.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}); err != nil {
		return 0, err
	}
	if err := syscall.SetsockoptInt(socket, syscall.SOL_SOCKET, syscall.SO_REUSEADDR, 1); err != nil {
		return 0, err
	}
	address, err := syscall.Getsockname(socket)
	if err != nil {
		return 0, err
	}
	return address.(*syscall.SockaddrInet4).Port, nil
}
