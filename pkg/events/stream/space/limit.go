package space

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/millrace/millrace/pkg/events/stream/natserr"
)

// Limit makes room on servers that do not do so themselves, such as stock NATS servers, by
// the same rule as the embedded server. Any number of processes may do so on one bus. It lists
// and updates streams, and deletes none.
type Limit struct {
	js      jetstream.JetStream
	log     *slog.Logger
	most    uint64
	used    atomic.Uint64
	cut     atomic.Uint64
	checked atomic.Bool
}

// NewLimit is for servers that each hold a replica of all streams and may store at most so many
// bytes.
func NewLimit(js jetstream.JetStream, log *slog.Logger, most int64) *Limit {
	return &Limit{js: js, log: log, most: uint64(max(most, 0))}
}

// freeTimeout bounds one check, with what it changes.
const freeTimeout = 30 * time.Second

// Run makes room until the context ends; it then returns nil.
func (s *Limit) Run(ctx context.Context) error {
	for {
		if err := s.freeSpace(ctx); err != nil && ctx.Err() == nil {
			s.log.Warn("cannot free space in the store", "error", err)
		}
		timer := time.NewTimer(UntilScarce(s.used.Load(), s.most))
		select {
		case <-ctx.Done():
			timer.Stop()
			return nil
		case <-timer.C:
		}
	}
}

// freeSpace bounds streams if the store is scarce.
func (s *Limit) freeSpace(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, freeTimeout)
	defer cancel()
	sizes, configs, used := map[string]uint64{}, map[string]jetstream.StreamConfig{}, uint64(0)
	list := s.js.ListStreams(ctx)
	for info := range list.Info() {
		sizes[info.Config.Name], configs[info.Config.Name] = info.State.Bytes, info.Config
		used += info.State.Bytes
	}
	if err := list.Err(); err != nil {
		return fmt.Errorf("list the streams: %w", natserr.Translate(ctx, err))
	}
	s.used.Store(used)
	s.checked.Store(true)
	if float64(used) < Scarce*float64(s.most) {
		return nil
	}
	bounds := Bounds(sizes, used, s.most)
	for _, name := range slices.Sorted(maps.Keys(bounds)) {
		c := configs[name]
		c.MaxBytes, c.Metadata = int64(bounds[name]), Note(c.Metadata, int64(bounds[name]), time.Now())
		if _, err := s.js.UpdateStream(ctx, c); err != nil {
			return fmt.Errorf("bound stream %s: %w", name, natserr.Translate(ctx, err))
		}
		s.cut.Add(1)
		s.log.Warn("the store is almost full: limited a stream, and dropped its oldest messages", "stream", name,
			"bytes", sizes[name], "keeps", bounds[name], "used", used, "store", s.most)
	}
	return nil
}

// Describe makes a Limit a [prometheus.Collector].
func (s *Limit) Describe(ch chan<- *prometheus.Desc) { Describe(ch) }

// Collect makes a Limit a [prometheus.Collector]: no metrics before the first look at the
// streams.
func (s *Limit) Collect(ch chan<- prometheus.Metric) {
	if s.checked.Load() {
		Collect(ch, s.used.Load(), s.most, s.cut.Load())
	}
}
