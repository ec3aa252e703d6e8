package stream

import (
	"errors"

	"github.com/nats-io/nats-server/v2/server"
)

// Compact has a server of a cluster forget how a stream came to be what it is: it
// cannot mend it from its own journal afterwards.
func (s *Server) Compact(stream string) error {
	return s.nats.JetStreamSnapshotStream(server.DEFAULT_GLOBAL_ACCOUNT, stream)
}

// Shake has readers believe that deliveries may be missing, as after a reconnect.
func (b *Bus) Shake() { b.shake() }

// Absent is why no server listens at an address, as far as an error tells.
var Absent = absent

// What bounds streams, for tests.
var (
	Bounded   = bounded
	NoteBound = noteBound
	BoundOf   = boundOf
)

// Passing tells the errors that end by themselves when a cluster has chosen a leader.
func Passing(err error) bool { return passing(err) || errors.Is(err, errShaken) }
