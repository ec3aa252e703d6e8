package stream

import (
	"time"

	"github.com/millrace/millrace/pkg/events/bus"
)

// rhythm is how often a connection and its server check on each other when nothing happens.
// With a hundred consumers those checks are most of the cost of an idle cluster; so they are as
// rare as the faults that they would detect allow.
type rhythm struct {
	// heartbeat is the interval of the server's heartbeats for a consumer; two missing ones
	// make a session start again.
	heartbeat time.Duration
	// asking is how long a pull request stands before the reader repeats it. Until then the
	// server counts a stopped worker as asking.
	asking time.Duration
	// patrol is how often a worker compares its consumer's position with the stream.
	patrol time.Duration
	// resting is the longest interval at which an idle reader asks whether the server still has
	// messages for it. The reader detects messages that the server cannot read within that
	// time.
	resting time.Duration
}

var (
	// clustered: the other servers continue without the messages that one has lost, and the
	// leader of a consumer may be cut off.
	clustered = rhythm{heartbeat: 2 * time.Second, asking: bus.Lingering, patrol: 5 * time.Second, resting: 32 * time.Second}
	// lone: a consumer of a standalone server ends with the connection, and the server loses no
	// message while the connection lasts; a new session checks at once.
	lone = rhythm{heartbeat: bus.Lingering / 2, asking: bus.Lingering, patrol: 30 * time.Second, resting: 32 * time.Second}
	// housed: a server in this process cannot be stopped, cut off or restarted without the
	// process. The checks are for unforeseen cases.
	housed = rhythm{heartbeat: 30 * time.Second, asking: 10 * time.Minute, patrol: 5 * time.Minute, resting: 2 * time.Minute}
)

func (o Options) rhythm() rhythm {
	switch {
	case o.Replicas > 1:
		return clustered
	case o.Server != nil && !o.Server.options.clustered():
		return housed
	default:
		return lone
	}
}
