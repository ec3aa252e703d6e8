package stream

import (
	"time"

	"github.com/millrace/millrace/pkg/events/bus"
)

// rhythm is how often a connection and its server assure each other of what is at
// rest. With a hundred consumers that is most of what a cluster costs in which
// nothing happens; so it is as rare as what it would find out allows.
type rhythm struct {
	// heartbeat is how often the server says of a consumer that it is still there;
	// two missing ones make a session start anew.
	heartbeat time.Duration
	// asking is how long a request for messages stands before it is made again. A
	// worker that was stopped counts as asking until then.
	asking time.Duration
	// patrol is how often a consumer's place is compared with its stream.
	patrol time.Duration
	// resting is how often a reader asks, at the least, whether the server still has
	// something for it. What the server could not read is found by then.
	resting time.Duration
}

var (
	// clustered: the other servers go on without what one has lost, and a consumer
	// may be led by one that is cut off.
	clustered = rhythm{heartbeat: 2 * time.Second, asking: bus.Lingering, patrol: 5 * time.Second, resting: 32 * time.Second}
	// lone: of a server that stands alone a consumer goes with the connection, and
	// nothing is lost while that lasts; a new session looks at once.
	lone = rhythm{heartbeat: bus.Lingering / 2, asking: bus.Lingering, patrol: 30 * time.Second, resting: 32 * time.Second}
	// housed: a server in this process cannot be stopped, cut off or started anew
	// without it. What is asked is for cases that were not foreseen.
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
