package audit

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/nats-io/nats-server/v2/server"
)

// Shortcoming is one reason why an audit cannot rest on the record: a way in which acknowledged
// messages may still be lost.
type Shortcoming struct {
	// Reason is a fixed word, for metrics.
	Reason string
	// What is what may happen, and Cure what prevents it.
	What, Cure string
	// Passing: no setting is wrong, but something is missing or off for the moment.
	Passing bool
}

// String is the shortcoming in a sentence.
func (s Shortcoming) String() string { return s.What + "; " + s.Cure }

// The reasons of shortcomings.
const (
	ReasonReplicas = "replicas" // fewer than three replicas
	ReasonServers  = "servers"  // fewer than three servers are up
	ReasonSync     = "sync"     // acknowledged messages are not on disk yet
	ReasonUnseen   = "unseen"   // the bus cannot tell whether they are
	ReasonVersion  = "version"  // the server is older than the tested versions
	ReasonPayload  = "payload"  // large objects do not fit
	ReasonClock    = "clock"    // the clocks of server and service differ
)

// Reasons are all of them.
var Reasons = []string{ReasonReplicas, ReasonServers, ReasonSync, ReasonUnseen, ReasonVersion, ReasonPayload, ReasonClock}

const (
	// minReplicas replicas, on as many servers: the loss of one loses nothing, and the loss of the
	// next during the repair costs only time.
	minReplicas = 3
	// minPayload holds the largest object that etcd takes by default, 1.5 MiB,
	// as JSON.
	minPayload = 4 << 20
	// maxClockSkew bounds the difference of the clocks: wakes and ages go by the server's.
	maxClockSkew = 2 * time.Second
)

// minVersion is the oldest server that the tests have run against.
var minVersion = [2]int{2, 15}

// Facts are what was seen of a bus.
type Facts struct {
	// Replicas of the streams, and how many of one are online; Online 0: not known.
	Replicas, Online int
	// Version of the oldest server, and Payload, the size of the largest message that all take.
	Version string
	Payload int64
	// ServerTime is a server's clock.
	ServerTime ClockReading
	// Sync is the sync interval by server; 0: always. SilentEndpoints are the monitoring endpoints that did
	// not answer, with the reason.
	Sync            map[string]time.Duration
	SilentEndpoints []string
	// StreamsExist reports whether Millrace's streams exist.
	StreamsExist bool
	// Stores are those of the servers that report them.
	Stores []Store
	// Servers of the cluster, if one reports the number.
	Servers int
}

// Add records the facts that a server reports about itself.
func (o *Facts) Add(v *server.Varz) {
	o.Payload = min(o.Payload, int64(v.MaxPayload))
	if Older(v.Version, o.Version) {
		o.Version = v.Version
	}
	if meta := v.JetStream.Meta; meta != nil {
		o.Servers = max(o.Servers, meta.Size)
	}
	if config := v.JetStream.Config; config != nil {
		o.Sync[v.Name] = config.SyncInterval
		if config.SyncAlways {
			o.Sync[v.Name] = 0
		}
		if used := v.JetStream.Stats; used != nil && config.MaxStore > 0 {
			o.Stores = append(o.Stores, Store{Server: v.Name, Used: used.Store, Most: uint64(config.MaxStore)})
		}
	}
}

// Judge lists the shortcomings, the worst first.
func (o Facts) Judge() (found []Shortcoming) {
	miss := func(reason, cure, what string, args ...any) {
		found = append(found, Shortcoming{Reason: reason, What: fmt.Sprintf(what, args...), Cure: cure})
	}
	pass := func() { found[len(found)-1].Passing = true }
	if o.Replicas < minReplicas {
		miss(ReasonReplicas, "run three NATS servers and set --stream-replicas=3",
			"every stream has %d copy only, so that the loss of one disk loses the record", o.Replicas)
	}
	if o.Online > 0 && o.Online < minReplicas {
		miss(ReasonServers, "bring the missing NATS servers back",
			"%d of %d copies are there and complete, so that the loss of one more server stops the bus", o.Online, o.Replicas)
		pass()
	}
	for _, name := range o.lateSyncing() {
		miss(ReasonSync, "set sync_interval: always in NATS, or --sync-interval=always for millrace bus and run",
			"NATS server %s syncs every %v, so that a power failure loses what was acknowledged since", name, o.Sync[name])
	}
	switch {
	case len(o.Sync)+len(o.SilentEndpoints) < max(o.Replicas, 1):
		miss(ReasonUnseen, "set --nats-monitoring to the monitoring addresses of all NATS servers",
			"it is unknown whether all NATS servers sync every message before they acknowledge it")
	case len(o.SilentEndpoints) > 0:
		miss(ReasonUnseen, "bring it back, or correct --nats-monitoring", "a NATS server does not say how often it syncs: %s", strings.Join(o.SilentEndpoints, "; "))
		pass()
	}
	if o.Version != "" && Older(o.Version, fmt.Sprintf("%d.%d", minVersion[0], minVersion[1])) {
		miss(ReasonVersion, fmt.Sprintf("upgrade NATS to %d.%d or later", minVersion[0], minVersion[1]),
			"NATS %s is older than what Millrace was tested with", o.Version)
	}
	if o.Payload < minPayload {
		miss(ReasonPayload, "set max_payload: 8MB in NATS", "a message holds %d bytes only, so that large objects are not recorded whole", o.Payload)
	}
	if skew := o.ServerTime.Offset().Abs(); skew > maxClockSkew {
		miss(ReasonClock, "synchronise the clocks", "the clocks of NATS and of this machine differ by %v", skew.Round(time.Millisecond))
		pass()
	}
	return found
}

// lateSyncing are the servers that acknowledge messages before they are on disk.
func (o Facts) lateSyncing() (names []string) {
	for name, every := range o.Sync {
		if every > 0 {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

// Older compares versions by their first two numbers; a text that is not a version is older
// than all.
func Older(a, b string) bool {
	return slices.Compare(numbers(a), numbers(b)) < 0
}

func numbers(version string) []int {
	n := make([]int, 2)
	_, _ = fmt.Sscanf(version, "%d.%d", &n[0], &n[1])
	return n
}
