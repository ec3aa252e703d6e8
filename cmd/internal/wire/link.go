package wire

import (
	"net"
	"sync"
	"time"
)

const (
	// pieceSize is the size of a read, and piecesUnderWay how many pieces a wire with a delay
	// buffers: beyond that the sender has to wait.
	pieceSize      = 16 << 10
	piecesUnderWay = 256
)

// link is one connection.
type link struct {
	wire      *Wire
	near, far *net.TCPConn

	dead   sync.Once
	silent chan struct{} // closed when the link is dead
	over   sync.Once
	gone   chan struct{} // closed when both ends are closed
}

// piece is some bytes in transit.
type piece struct {
	data []byte
	due  time.Time
}

// reset resets both ends at once (RST instead of FIN).
func (l *link) reset() {
	l.over.Do(func() {
		close(l.gone)
		for _, end := range []*net.TCPConn{l.near, l.far} {
			if end != nil {
				_ = end.SetLinger(0)
				_ = end.Close()
			}
		}
	})
}

// carry forwards bytes from one end to the other, until one of them is closed.
func (l *link) carry(from, to *net.TCPConn) {
	defer l.reset()
	pieces := make(chan piece, piecesUnderWay)
	var delivering sync.WaitGroup
	delivering.Go(func() { l.deliver(pieces, to) })
	defer delivering.Wait()
	defer close(pieces)
	for {
		data := make([]byte, pieceSize)
		n, err := from.Read(data)
		now, _ := l.wire.condition()
		if n > 0 {
			select {
			case pieces <- piece{data[:n], time.Now().Add(now.Delay)}:
			case <-l.gone:
				return
			}
		}
		if err != nil {
			return
		}
	}
}

// deliver writes pieces when they are due. After an error it goes on receiving them, so
// that the sender does not block.
func (l *link) deliver(pieces <-chan piece, to *net.TCPConn) {
	broken := false
	for p := range pieces {
		if broken || !l.arrives(p) {
			continue
		}
		if _, err := to.Write(p.data); err != nil {
			broken = true
			go l.reset()
		}
	}
}

// arrives waits until a piece is due; false if it never arrives.
func (l *link) arrives(p piece) bool {
	if !l.rest(time.Until(p.due)) {
		return false
	}
	for {
		now, changed := l.wire.condition()
		if now.Rate > 0 && !l.rest(time.Duration(len(p.data))*time.Second/time.Duration(now.Rate)) {
			return false
		}
		if !now.Stall {
			break
		}
		select {
		case <-changed:
		case <-l.gone:
			return false
		}
	}
	select {
	case <-l.silent:
		return false
	default:
		return true
	}
}

// rest waits; false if the link ends before.
func (l *link) rest(d time.Duration) bool {
	if d <= 0 {
		return true
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-l.gone:
		return false
	}
}
