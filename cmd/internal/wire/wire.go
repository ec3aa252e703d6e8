package wire

import (
	"fmt"
	"net"
	"sync"
	"time"
)

// Condition is the state of a wire. The zero value has no fault.
type Condition struct {
	// Cut resets existing and new connections.
	Cut bool
	// Dead swallows all bytes, in both directions, and closes nothing: existing and new
	// connections look alive and never carry a byte again, not even when the wire is
	// healed. A peer whose machine is gone looks the same.
	Dead bool
	// Stall holds back all bytes until the wire is healed. Nothing is lost.
	Stall bool
	// Delay is the latency added to all bytes.
	Delay time.Duration
	// Rate is the limit in bytes per second of each connection and direction; 0 is no
	// limit.
	Rate int
}

// Wire forwards connections from an address of its own to another one.
type Wire struct {
	target   string
	listener net.Listener

	mu      sync.Mutex
	state   Condition
	changed chan struct{} // closed and replaced with each condition
	links   map[*link]struct{}
	closed  bool
	running sync.WaitGroup
}

// New opens a wire from a free port of 127.0.0.1 to the target.
//
// Errors: no port can be listened on.
func New(target string) (*Wire, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("lay a wire to %s: %w", target, err)
	}
	w := &Wire{target: target, listener: listener, changed: make(chan struct{}), links: map[*link]struct{}{}}
	w.running.Go(w.accept)
	return w, nil
}

// Address is the address on which the wire listens.
func (w *Wire) Address() string { return w.listener.Addr().String() }

// Set changes the condition of the wire, for existing connections too. The zero
// Condition heals it.
func (w *Wire) Set(c Condition) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.state = c
	close(w.changed)
	w.changed = make(chan struct{})
	for l := range w.links {
		switch {
		case c.Cut:
			l.reset()
		case c.Dead:
			l.dead.Do(func() { close(l.silent) })
		}
	}
}

// Close closes the wire and every connection on it.
func (w *Wire) Close() error {
	w.Set(Condition{Cut: true})
	w.mu.Lock()
	w.closed = true
	w.mu.Unlock()
	err := w.listener.Close()
	w.running.Wait()
	return err
}

func (w *Wire) condition() (now Condition, changed <-chan struct{}) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.state, w.changed
}

func (w *Wire) accept() {
	for {
		near, err := w.listener.Accept()
		if err != nil {
			return // closed
		}
		w.running.Go(func() { w.connect(near.(*net.TCPConn)) })
	}
}

// connect forwards one connection until it ends. It resets the connection if the target
// does not answer.
func (w *Wire) connect(near *net.TCPConn) {
	l := &link{wire: w, near: near, silent: make(chan struct{}), gone: make(chan struct{})}
	defer l.reset()
	if now, _ := w.condition(); now.Cut {
		return
	}
	far, err := net.DialTimeout("tcp", w.target, 10*time.Second)
	if err != nil {
		return
	}
	l.far = far.(*net.TCPConn)
	if !w.keep(l) {
		return
	}
	defer w.forget(l)
	var both sync.WaitGroup
	both.Go(func() { l.carry(l.near, l.far) })
	both.Go(func() { l.carry(l.far, l.near) })
	both.Wait()
}

func (w *Wire) keep(l *link) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.closed || w.state.Cut {
		return false
	}
	if w.state.Dead {
		l.dead.Do(func() { close(l.silent) })
	}
	w.links[l] = struct{}{}
	return true
}

func (w *Wire) forget(l *link) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.links, l)
}
