package conn

import (
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/millrace/millrace/pkg/events/bus"
	"github.com/millrace/millrace/pkg/events/stream/delivery"
)

// Intervals is how often a connection and its server check on each other when nothing happens.
// With a hundred consumers those checks are most of the cost of an idle cluster; so they are as
// rare as the faults that they would detect allow.
type Intervals struct {
	// Heartbeat is the interval of the server's heartbeats for a consumer; two missing ones
	// make a session start again.
	Heartbeat time.Duration
	// PullExpiry is how long a pull request stands before the reader repeats it. Until then the
	// server counts a stopped worker as asking.
	PullExpiry time.Duration
	// ConsumerChecks is how often a worker compares its consumer's position with the stream.
	ConsumerChecks time.Duration
	// ConsumerChecksIdle is the longest interval at which an idle reader asks whether the server still has
	// messages for it. The reader detects messages that the server cannot read within that
	// time.
	ConsumerChecksIdle time.Duration
}

var (
	// clustered: the other servers continue without the messages that one has lost, and the
	// leader of a consumer may be cut off.
	clustered = Intervals{Heartbeat: 2 * time.Second, PullExpiry: bus.Lingering, ConsumerChecks: 5 * time.Second, ConsumerChecksIdle: 32 * time.Second}
	// standalone: a consumer of a standalone server ends with the connection, and the server loses no
	// message while the connection lasts; a new session checks at once.
	standalone = Intervals{Heartbeat: bus.Lingering / 2, PullExpiry: bus.Lingering, ConsumerChecks: 30 * time.Second, ConsumerChecksIdle: 32 * time.Second}
	// inProcess: a server in this process cannot be stopped, cut off or restarted without the
	// process. The checks are for unforeseen cases.
	inProcess = Intervals{Heartbeat: 30 * time.Second, PullExpiry: 10 * time.Minute, ConsumerChecks: 5 * time.Minute, ConsumerChecksIdle: 2 * time.Minute}
)

// IntervalsOf are those of streams with so many replicas, by where their server is.
func IntervalsOf(replicas int, here, several bool) Intervals {
	switch {
	case replicas > 1:
		return clustered
	case here && !several:
		return inProcess
	default:
		return standalone
	}
}

// Pulling is the options of a reader's pull requests.
func (i Intervals) Pulling(feed *delivery.Prefetch) []jetstream.PullConsumeOpt {
	return feed.Pulling(i.Heartbeat, max(i.PullExpiry, jetstream.DefaultExpires))
}
