//go:build !linux

package port

import (
	"fmt"
	"net"
)

// hold finds a port that is unused at the moment. This system cannot reserve it.
func hold() (int, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return 0, fmt.Errorf("find a free port: %w", err)
	}
	return listener.Addr().(*net.TCPAddr).Port, listener.Close()
}
