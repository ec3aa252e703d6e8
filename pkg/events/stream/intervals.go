package stream

import (
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/millrace/millrace/pkg/events/bus"
	"github.com/millrace/millrace/pkg/events/stream/delivery"
)

// intervals is how often a connection and its server check on each other when nothing happens.
// With a hundred consumers those checks are most of the cost of an idle cluster; so they are as
// rare as the faults that they would detect allow.
type intervals struct {
	// heartbeat is the interval of the server's heartbeats for a consumer; two missing ones
	// make a session start again.
	heartbeat time.Duration
	// pullExpiry is how long a pull request stands before the reader repeats it. Until then the
	// server counts a stopped worker as asking.
	pullExpiry time.Duration
	// consumerChecks is how often a worker compares its consumer's position with the stream.
	consumerChecks time.Duration
	// consumerChecksIdle is the longest interval at which an idle reader asks whether the server still has
	// messages for it. The reader detects messages that the server cannot read within that
	// time.
	consumerChecksIdle time.Duration
}

var (
	// clustered: the other servers continue without the messages that one has lost, and the
	// leader of a consumer may be cut off.
	clustered = intervals{heartbeat: 2 * time.Second, pullExpiry: bus.Lingering, consumerChecks: 5 * time.Second, consumerChecksIdle: 32 * time.Second}
	// standalone: a consumer of a standalone server ends with the connection, and the server loses no
	// message while the connection lasts; a new session checks at once.
	standalone = intervals{heartbeat: bus.Lingering / 2, pullExpiry: bus.Lingering, consumerChecks: 30 * time.Second, consumerChecksIdle: 32 * time.Second}
	// inProcess: a server in this process cannot be stopped, cut off or restarted without the
	// process. The checks are for unforeseen cases.
	inProcess = intervals{heartbeat: 30 * time.Second, pullExpiry: 10 * time.Minute, consumerChecks: 5 * time.Minute, consumerChecksIdle: 2 * time.Minute}
)

func (o Options) intervals() intervals {
	return intervalsOf(o.Replicas, o.Server != nil, o.Server != nil && o.Server.Clustered())
}

// intervalsOf are those of streams with so many replicas, by where their server is.
func intervalsOf(replicas int, here, several bool) intervals {
	switch {
	case replicas > 1:
		return clustered
	case here && !several:
		return inProcess
	default:
		return standalone
	}
}

// pulling is the options of a reader's pull requests.
func (i intervals) pulling(feed *delivery.Prefetch) []jetstream.PullConsumeOpt {
	return feed.Pulling(i.heartbeat, max(i.pullExpiry, jetstream.DefaultExpires))
}
