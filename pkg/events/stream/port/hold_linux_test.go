package port

import (
	"errors"
	"fmt"
	"net"
	"strings"
	"syscall"
	"testing"
)

// TestAPortThatWasChosenIsKept: a process that is told of it listens there, again and again; to
// one that is not, it is in use, also while none listens.
func TestAPortThatWasChosenIsKept(t *testing.T) {
	port, err := Free()
	if err != nil {
		t.Fatal(err)
	}
	address := fmt.Sprintf("127.0.0.1:%d", port)
	stranger := net.ListenConfig{Control: func(_, _ string, c syscall.RawConn) (err error) {
		return errors.Join(c.Control(func(socket uintptr) {
			err = syscall.SetsockoptInt(int(socket), syscall.SOL_SOCKET, syscall.SO_REUSEADDR, 0)
		}), err)
	}}
	for range 3 {
		if c, err := net.Dial("tcp", address); !errors.Is(err, syscall.ECONNREFUSED) {
			t.Errorf("the port answers before a process listens: %v, %v", c, err)
		}
		if l, err := stranger.Listen(t.Context(), "tcp", address); !errors.Is(err, syscall.EADDRINUSE) {
			t.Errorf("a stranger was given the port: %v, %v", l, err)
		}
		listener, err := net.Listen("tcp", address)
		if err != nil {
			t.Fatalf("the owner of the port cannot listen on it: %v", err)
		}
		if err := listener.Close(); err != nil {
			t.Error(err)
		}
	}
}

// TestWithoutAPortThereIsAnError: a process that may open no more files is told so, as is the
// caller that binds what is no socket.
func TestWithoutAPortThereIsAnError(t *testing.T) {
	var before syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &before); err != nil {
		t.Fatal(err)
	}
	none := before
	none.Cur = 0
	if err := syscall.Setrlimit(syscall.RLIMIT_NOFILE, &none); err != nil {
		t.Fatal(err)
	}
	port, err := Free()
	if restored := syscall.Setrlimit(syscall.RLIMIT_NOFILE, &before); restored != nil {
		t.Fatal(restored)
	}
	if !errors.Is(err, syscall.EMFILE) || !strings.Contains(err.Error(), "find a free port") || port != 0 {
		t.Errorf("bind with no file descriptor left: port %d, %v; want EMFILE", port, err)
	}
	if port, err := bind(-1); !errors.Is(err, syscall.EBADF) || port != 0 {
		t.Errorf("bind without a socket: port %d, %v; want EBADF", port, err)
	}
}
