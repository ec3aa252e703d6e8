package stream

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/millrace/millrace/pkg/events/bus"
	"github.com/millrace/millrace/pkg/events/subject"
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

var reasons = []string{ReasonReplicas, ReasonServers, ReasonSync, ReasonUnseen, ReasonVersion, ReasonPayload, ReasonClock}

const (
	// minReplicas replicas, on as many servers: the loss of one loses nothing, and the loss of the
	// next during the repair costs only time.
	minReplicas = 3
	// minPayload holds the largest object that etcd takes by default, 1.5 MiB,
	// as JSON.
	minPayload = 4 << 20
	// maxClockSkew bounds the difference of the clocks: wakes and ages go by the server's.
	maxClockSkew = 2 * time.Second
	// fetchTimeout bounds one request to a monitoring endpoint.
	fetchTimeout = 5 * time.Second
)

// minVersion is the oldest server that the tests have run against.
var minVersion = [2]int{2, 15}

// busFacts is the facts about the bus that Audit judges.
type busFacts struct {
	replicas        int // replicas of our streams
	online          int // online replicas of a stream; 0: not known
	version         string
	payload         int64
	serverTime      ClockReading
	sync            map[string]time.Duration // the sync interval by server; 0: always
	silentEndpoints []string                 // monitoring endpoints that did not answer, with the reason
	streamsExist    bool                     // our streams exist
	stores          []Store                  // of the servers that report them
	servers         int                      // servers of the cluster, if one reports the number
}

// Audit checks the bus, and returns the reasons why an audit cannot rest on its record; none
// when all is well. The metric millrace_bus_audit_grade has the last result.
//
// A server reports only to its monitoring endpoint when it syncs, so without
// [Options.Monitoring], and without a server in this process, that is unknown and a
// shortcoming.
func (b *Bus) Audit(ctx context.Context) ([]Shortcoming, error) {
	seen, err := b.collectFacts(ctx)
	if err != nil {
		return nil, fmt.Errorf("look at the bus: %w", err)
	}
	found := seen.judge()
	for _, reason := range reasons {
		good := 1.0
		if slices.ContainsFunc(found, func(s Shortcoming) bool { return s.Reason == reason }) {
			good = 0
		}
		b.stats.audit.WithLabelValues(reason).Set(good)
	}
	return found, nil
}

func (b *Bus) collectFacts(ctx context.Context) (busFacts, error) {
	seen := busFacts{
		replicas: b.options.Replicas, version: b.conn.ConnectedServerVersion(), payload: b.conn.MaxPayload(),
		sync: map[string]time.Duration{},
	}
	if s := b.options.Server; s != nil {
		v, err := s.Varz()
		if err != nil {
			return seen, err
		}
		seen.add(v)
	}
	for _, endpoint := range b.options.Monitoring {
		v, err := b.varz(ctx, endpoint)
		if err != nil {
			seen.silentEndpoints = append(seen.silentEndpoints, err.Error())
			continue
		}
		seen.add(v)
	}
	var asked time.Time
	var info *jetstream.StreamInfo
	err := b.retryPassing(ctx, "look at its settings", func() (err error) { // the servers may be electing a leader
		asked = time.Now()
		info, err = b.info(ctx, subject.WakeStream) // every installation has it
		return err
	})
	switch {
	case errors.Is(err, bus.ErrNoStream):
		return seen, nil // the streams will be created with our settings
	case err != nil:
		return seen, err
	}
	seen.streamsExist, seen.replicas = true, info.Config.Replicas
	seen.serverTime = ClockReading{At: info.TimeStamp, Asked: asked, Answered: time.Now()}
	if info.Cluster != nil && info.Config.Replicas > 1 {
		seen.online = 1
		for _, peer := range info.Cluster.Replicas {
			if peer.Current && !peer.Offline {
				seen.online++
			}
		}
	}
	return seen, nil
}

// add records the facts that a server reports about itself.
func (o *busFacts) add(v *server.Varz) {
	o.payload = min(o.payload, int64(v.MaxPayload))
	if Older(v.Version, o.version) {
		o.version = v.Version
	}
	if meta := v.JetStream.Meta; meta != nil {
		o.servers = max(o.servers, meta.Size)
	}
	if config := v.JetStream.Config; config != nil {
		o.sync[v.Name] = config.SyncInterval
		if config.SyncAlways {
			o.sync[v.Name] = 0
		}
		if used := v.JetStream.Stats; used != nil && config.MaxStore > 0 {
			o.stores = append(o.stores, Store{Server: v.Name, Used: used.Store, Most: uint64(config.MaxStore)})
		}
	}
}

// judge lists the shortcomings, the worst first.
func (o busFacts) judge() (found []Shortcoming) {
	miss := func(reason, cure, what string, args ...any) {
		found = append(found, Shortcoming{Reason: reason, What: fmt.Sprintf(what, args...), Cure: cure})
	}
	pass := func() { found[len(found)-1].Passing = true }
	if o.replicas < minReplicas {
		miss(ReasonReplicas, "run three NATS servers and set --stream-replicas=3",
			"every stream has %d copy only, so that the loss of one disk loses the record", o.replicas)
	}
	if o.online > 0 && o.online < minReplicas {
		miss(ReasonServers, "bring the missing NATS servers back",
			"%d of %d copies are there and complete, so that the loss of one more server stops the bus", o.online, o.replicas)
		pass()
	}
	for _, name := range o.lateSyncing() {
		miss(ReasonSync, "set sync_interval: always in NATS, or --sync-interval=always for millrace bus and run",
			"NATS server %s syncs every %v, so that a power failure loses what was acknowledged since", name, o.sync[name])
	}
	switch {
	case len(o.sync)+len(o.silentEndpoints) < max(o.replicas, 1):
		miss(ReasonUnseen, "set --nats-monitoring to the monitoring addresses of all NATS servers",
			"it is unknown whether all NATS servers sync every message before they acknowledge it")
	case len(o.silentEndpoints) > 0:
		miss(ReasonUnseen, "bring it back, or correct --nats-monitoring", "a NATS server does not say how often it syncs: %s", strings.Join(o.silentEndpoints, "; "))
		pass()
	}
	if o.version != "" && Older(o.version, fmt.Sprintf("%d.%d", minVersion[0], minVersion[1])) {
		miss(ReasonVersion, fmt.Sprintf("upgrade NATS to %d.%d or later", minVersion[0], minVersion[1]),
			"NATS %s is older than what Millrace was tested with", o.version)
	}
	if o.payload < minPayload {
		miss(ReasonPayload, "set max_payload: 8MB in NATS", "a message holds %d bytes only, so that large objects are not recorded whole", o.payload)
	}
	if skew := o.serverTime.Offset().Abs(); skew > maxClockSkew {
		miss(ReasonClock, "synchronise the clocks", "the clocks of NATS and of this machine differ by %v", skew.Round(time.Millisecond))
		pass()
	}
	return found
}

// lateSyncing are the servers that acknowledge messages before they are on disk.
func (o busFacts) lateSyncing() (names []string) {
	for name, every := range o.sync {
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
