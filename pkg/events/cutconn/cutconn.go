// Package cutconn has connections that a test cuts without a FIN or RST: no data passes, and neither
// end notices, as when a cable is pulled. Only a time-out of the program under test ends them.
package cutconn

import (
	"context"
	"net"
	"sync/atomic"
)

// Dialer dials connections that are cut and mended together. The zero value is ready.
type Dialer struct{ cut atomic.Bool }

// Dial connects to an address.
func (d *Dialer) Dial(ctx context.Context, network, address string) (net.Conn, error) {
	c, err := new(net.Dialer).DialContext(ctx, network, address)
	if err != nil {
		return nil, err
	}
	return &conn{c, &d.cut}, nil
}

// Cut lets no more data pass. What is written and what arrives meanwhile is lost.
func (d *Dialer) Cut() { d.cut.Store(true) }

// Mend lets data pass again.
func (d *Dialer) Mend() { d.cut.Store(false) }

type conn struct {
	net.Conn
	cut *atomic.Bool
}

func (c *conn) Read(p []byte) (int, error) {
	for {
		n, err := c.Conn.Read(p)
		if err != nil || !c.cut.Load() {
			return n, err
		}
	}
}

func (c *conn) Write(p []byte) (int, error) {
	if c.cut.Load() {
		return len(p), nil
	}
	return c.Conn.Write(p)
}
