//go:build !linux

package localcluster

import (
	"fmt"
	"net"
)

// FreePort is a port of 127.0.0.1 that nobody uses at the moment. That it is kept for us
// cannot be asked for here.
func FreePort() (int, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return 0, fmt.Errorf("find a free port: %w", err)
	}
	return listener.Addr().(*net.TCPAddr).Port, listener.Close()
}
