package stream

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/millrace/millrace/pkg/events/bus"
)

// A full store refuses every message, so one tenant that rewrites one large object would stop
// every controller. A limit on each stream does not help: the server reserves the limit of
// every stream at its creation, which would divide the store among all kinds in advance, busy
// or not. Instead, all streams share the store. When it becomes scarce, room bounds the largest
// streams, all to the same size, until there is room again: first the logs, and turns and
// outcomes only when no log is larger than [minKept]. So a busy kind cannot take what the
// others have. Room never bounds wakes and signatures: their messages are not lost.
//
// A bounded log drops its oldest messages at once, as a log does whose retention is shortened;
// its watcher says again what still exists.
const (
	// scarce is the used part of the store from which room bounds streams, and ample the part
	// to which it bounds them.
	scarce, ample = 0.80, 0.75
	// minKept is the number of bytes that every stream keeps.
	minKept = 16 << 20
	// spaceCheckEvery is the interval of the checks.
	spaceCheckEvery = 200 * time.Millisecond
	// For logOthersAfter checks in a row, a server of a cluster leaves it to a stream's leader to
	// bound the stream: the leader's store may be larger.
	logOthersAfter = 10
	// spaceUser changes the limits on a server with users.
	spaceUser = "millrace-room"
)

// storeSpace keeps a server's store from filling up.
type storeSpace struct {
	server   *server.Server
	options  ServerOptions
	password string
	cancel   context.CancelFunc
	done     chan struct{}
	bounds   atomic.Uint64 // how often a stream was bounded
	scarce   int           // for how many checks in a row the store has been scarce
}

// addUser adds the user that changes the limits, if the server has accounts and so admits no
// anonymous client.
func (r *storeSpace) addUser(settings *server.Options) {
	i := slices.IndexFunc(settings.Accounts, func(a *server.Account) bool { return a.Name == r.options.account() })
	if i < 0 {
		return
	}
	r.password = rand.Text()
	settings.Users = append(settings.Users, &server.User{Username: spaceUser, Password: r.password, Account: settings.Accounts[i], Permissions: &server.Permissions{
		Publish:   &server.SubjectPermission{Allow: []string{api + "STREAM.UPDATE.*"}},
		Subscribe: &server.SubjectPermission{Allow: []string{nats.InboxPrefix + ">"}},
	}})
}

// start checks the store until the server stops.
func (r *storeSpace) start(s *server.Server) {
	ctx, end := context.WithCancel(context.Background())
	r.server, r.cancel, r.done = s, end, make(chan struct{})
	go func() {
		defer close(r.done)
		tick := time.NewTicker(spaceCheckEvery)
		defer tick.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
				if err := r.freeSpace(ctx); err != nil && ctx.Err() == nil {
					r.options.Log.Warn("cannot free space in the store", "error", err)
				}
			}
		}
	}()
}

func (r *storeSpace) stop() {
	if r.cancel != nil {
		r.cancel()
		<-r.done
	}
}

// freeSpace bounds streams if the store is scarce.
func (r *storeSpace) freeSpace(ctx context.Context) error {
	used, most, err := r.store()
	if err != nil || float64(used) < scarce*float64(most) {
		r.scarce = 0
		return err
	}
	r.scarce++
	account, err := r.server.JszAccount(&server.JSzOptions{Account: r.options.account(), Streams: true, Config: true})
	if err != nil {
		return fmt.Errorf("list the streams: %w", err)
	}
	sizes, configs := map[string]uint64{}, map[string]server.StreamConfig{}
	for _, d := range account.Streams {
		sizes[d.Name] = d.State.Bytes
		if d.Config != nil && (d.Cluster == nil || d.Cluster.Leader == r.server.Name() || r.scarce > logOthersAfter) {
			configs[d.Name] = *d.Config
		}
	}
	bounds := boundsFor(sizes, used, most)
	if len(bounds) == 0 {
		return nil
	}
	conn, err := r.connect()
	if err != nil {
		return err
	}
	defer conn.Close()
	for _, name := range slices.Sorted(maps.Keys(bounds)) {
		if c, mine := configs[name]; mine {
			if err := r.bound(ctx, conn, c, bounds[name]); err != nil {
				return err
			}
			r.options.Log.Warn("the store is almost full: limited a stream, and dropped its oldest messages", "stream", name,
				"bytes", sizes[name], "keeps", bounds[name], "used", used, "store", most)
		}
	}
	return nil
}

// store is the used size of the store, and its limit.
func (r *storeSpace) store() (used, most uint64, err error) {
	info, err := r.server.Jsz(&server.JSzOptions{})
	if err != nil {
		return 0, 0, fmt.Errorf("look at the store: %w", err)
	}
	return info.Store, uint64(max(info.Config.MaxStore, 0)), nil
}

func (r *storeSpace) connect() (*nats.Conn, error) {
	options := []nats.Option{nats.InProcessServer(r.server), nats.NoReconnect(), nats.Name("room")}
	if r.password != "" {
		options = append(options, nats.UserInfo(spaceUser, r.password))
	}
	conn, err := nats.Connect("", options...)
	if err != nil {
		return nil, fmt.Errorf("connect to bound streams: %w", err)
	}
	return conn, nil
}

// bound sets a stream's limit in bytes.
func (r *storeSpace) bound(ctx context.Context, conn *nats.Conn, c server.StreamConfig, bytes uint64) error {
	c.MaxBytes, c.Metadata = int64(bytes), noteBound(c.Metadata, int64(bytes), time.Now())
	request, err := json.Marshal(c)
	if err != nil {
		return fmt.Errorf("write the settings of stream %s: %w", c.Name, err)
	}
	ctx, cancel := context.WithTimeout(ctx, defaultTimeout)
	defer cancel()
	answer, err := conn.RequestWithContext(ctx, api+"STREAM.UPDATE."+c.Name, request)
	if err != nil {
		return fmt.Errorf("bound stream %s: %w", c.Name, err)
	}
	var said server.JSApiStreamUpdateResponse
	if err := json.Unmarshal(answer.Data, &said); err != nil {
		return fmt.Errorf("bound stream %s: read the answer: %w", c.Name, err)
	}
	if said.Error != nil {
		return fmt.Errorf("bound stream %s: %w", c.Name, said.Error)
	}
	r.bounds.Add(1)
	return nil
}

// boundKey is the metadata key of a stream for the least limit that room has set, and when. A
// service that begins later may raise the limit before a notary has looked.
const boundKey = "millrace.bounded"

// boundCounts is for how long an earlier, lower limit counts when room sets another one.
const boundCounts = 24 * time.Hour

// noteBound adds a limit that room sets to a stream's metadata.
func noteBound(metadata map[string]string, bytes int64, now time.Time) map[string]string {
	if was := boundOf(metadata); !was.At.IsZero() && now.Sub(was.At) < boundCounts {
		bytes = min(bytes, was.Bytes)
	}
	out := map[string]string{boundKey: fmt.Sprintf("%d %s", bytes, now.UTC().Format(time.RFC3339Nano))}
	for key, value := range metadata {
		if key != boundKey {
			out[key] = value
		}
	}
	return out
}

// boundOf reads the limit that noteBound wrote.
func boundOf(metadata map[string]string) (b bus.Bound) {
	bytes, at, _ := strings.Cut(metadata[boundKey], " ")
	var err, wrong error
	b.Bytes, err = strconv.ParseInt(bytes, 10, 64)
	b.At, wrong = time.Parse(time.RFC3339Nano, at)
	if err != nil || wrong != nil {
		return bus.Bound{}
	}
	return b
}

// boundsFor computes which streams to bound to how many bytes, so that at most the ample part of
// the store is used.
func boundsFor(sizes map[string]uint64, used, most uint64) map[string]uint64 {
	goal := uint64(ample * float64(most))
	if used <= goal {
		return nil
	}
	over, bounds := used-goal, map[string]uint64{}
	for _, prefixes := range [][]string{{"EV_"}, {"TURN_", "OUTCOME_"}} {
		var some []string
		for name := range sizes {
			if slices.ContainsFunc(prefixes, func(p string) bool { return strings.HasPrefix(name, p) }) {
				some = append(some, name)
			}
		}
		level, freed := levelTo(some, sizes, over)
		for _, name := range some {
			if sizes[name] > level {
				bounds[name] = level
			}
		}
		if over -= min(freed, over); over == 0 {
			break
		}
	}
	return bounds
}

// levelTo is the size to which to cut the largest of some streams, so that together they shrink
// by over, and the number of bytes that this frees.
func levelTo(some []string, sizes map[string]uint64, over uint64) (level, freed uint64) {
	slices.SortFunc(some, func(a, b string) int { return cmp.Compare(sizes[b], sizes[a]) })
	var total uint64
	for i, name := range some {
		total += sizes[name]
		next := uint64(minKept)
		if i+1 < len(some) {
			next = max(next, sizes[some[i+1]])
		}
		n := uint64(i + 1)
		if reach := n * next; total > reach && total-reach >= over {
			level = (total - over) / n
			return level, total - n*level
		}
		if next == minKept {
			break
		}
	}
	for _, name := range some {
		freed += sizes[name] - min(sizes[name], minKept)
	}
	return minKept, freed
}

var (
	storeUsed = prometheus.NewDesc("millrace_bus_store_bytes", "Bytes that the streams of this server use, before compression.", nil, nil)
	storeMost = prometheus.NewDesc("millrace_bus_store_limit_bytes", "Bytes that the streams of this server may use.", nil, nil)
	storeCuts = prometheus.NewDesc("millrace_bus_store_cuts_total", "Times that this server limited a stream because its store was almost full.", nil, nil)
)

// Describe makes a Server a [prometheus.Collector].
func (s *Server) Describe(ch chan<- *prometheus.Desc) { describeStore(ch) }

// Collect makes a Server a [prometheus.Collector].
func (s *Server) Collect(ch chan<- prometheus.Metric) {
	used, most, err := s.space.store()
	if err != nil {
		return
	}
	collectStore(ch, used, most, s.space.bounds.Load())
}

func describeStore(ch chan<- *prometheus.Desc) {
	ch <- storeUsed
	ch <- storeMost
	ch <- storeCuts
}

func collectStore(ch chan<- prometheus.Metric, used, most, cuts uint64) {
	ch <- prometheus.MustNewConstMetric(storeUsed, prometheus.GaugeValue, float64(used))
	ch <- prometheus.MustNewConstMetric(storeMost, prometheus.GaugeValue, float64(most))
	ch <- prometheus.MustNewConstMetric(storeCuts, prometheus.CounterValue, float64(cuts))
}
