package wire

import (
	"fmt"
	"net"
	"sync"
	"time"
)

// Condition is the state of a wire. The zero value carries everything at once.
type Condition struct {
	// Cut resets what is connected and whatever connects.
	Cut bool
	// Dead swallows everything, both ways, and closes nothing: the connections that
	// are open, and those that are opened meanwhile, look alive and never carry a
	// byte again, not even when the wire is healed. So does a peer whose machine is
	// gone.
	Dead bool
	// Stall holds everything back until the wire is healed. Nothing is lost.
	Stall bool
	// Delay is how much later everything arrives.
	Delay time.Duration
	// Rate is how many bytes a second each connection carries each way; 0 is no
	// limit.
	Rate int
}

// Wire carries connections from an address of its own to another one.
type Wire struct {
	target   string
	listener net.Listener

	mu      sync.Mutex
	state   Condition
	changed chan struct{} // closed and made anew with each condition
	links   map[*link]struct{}
	closed  bool
	running sync.WaitGroup
}

// New lays a wire from a free port of 127.0.0.1 to the target.
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

// Address is where the wire begins.
func (w *Wire) Address() string { return w.listener.Addr().String() }

// Set changes the condition of the wire, for what is connected too. The zero
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

// Close ends the wire and every connection on it.
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

// connect carries one connection until it ends. A connection to a wire whose
// other end does not answer is reset.
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
