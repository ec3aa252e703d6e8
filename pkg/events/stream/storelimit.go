package stream

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/millrace/millrace/pkg/events/stream/natserr"
	"github.com/millrace/millrace/pkg/events/stream/space"
)

// StoreLimit makes room on servers that do not do so themselves, such as stock NATS servers, by
// the same rule as the embedded server: see package space. Any number of processes may do so on one
// bus. It lists and updates streams, and deletes none.
type StoreLimit struct {
	bus     *Bus
	most    uint64
	used    atomic.Uint64
	cut     atomic.Uint64
	checked atomic.Bool
}

// StoreLimit returns one for servers that each hold a replica of all streams and may store at
// most so many bytes.
func (b *Bus) StoreLimit(most int64) *StoreLimit {
	return &StoreLimit{bus: b, most: uint64(max(most, 0))}
}

// maxGrowth is the assumed greatest growth of a store in bytes a second: the less is left, the
// more often StoreLimit checks.
const maxGrowth = 100 << 20

// spaceCheckIdle is the longest interval between two checks.
const spaceCheckIdle = 5 * time.Second

// Run makes room until the context ends; it then returns nil.
func (s *StoreLimit) Run(ctx context.Context) error {
	for {
		if err := s.freeSpace(ctx); err != nil && ctx.Err() == nil {
			s.bus.options.Log.Warn("cannot free space in the store", "error", err)
		}
		timer := time.NewTimer(s.untilScarce())
		select {
		case <-ctx.Done():
			timer.Stop()
			return nil
		case <-timer.C:
		}
	}
}

// untilScarce is the time within which the store cannot become scarce.
func (s *StoreLimit) untilScarce() time.Duration {
	left := space.Scarce*float64(s.most) - float64(s.used.Load())
	return min(max(time.Duration(left/maxGrowth*float64(time.Second)), space.CheckEvery), spaceCheckIdle)
}

// freeSpace bounds streams if the store is scarce.
func (s *StoreLimit) freeSpace(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, orderTimeout)
	defer cancel()
	sizes, configs, used := map[string]uint64{}, map[string]jetstream.StreamConfig{}, uint64(0)
	list := s.bus.js.ListStreams(ctx)
	for info := range list.Info() {
		sizes[info.Config.Name], configs[info.Config.Name] = info.State.Bytes, info.Config
		used += info.State.Bytes
	}
	if err := list.Err(); err != nil {
		return fmt.Errorf("list the streams: %w", natserr.Translate(ctx, err))
	}
	s.used.Store(used)
	s.checked.Store(true)
	if float64(used) < space.Scarce*float64(s.most) {
		return nil
	}
	bounds := space.Bounds(sizes, used, s.most)
	for _, name := range slices.Sorted(maps.Keys(bounds)) {
		c := configs[name]
		c.MaxBytes, c.Metadata = int64(bounds[name]), space.Note(c.Metadata, int64(bounds[name]), time.Now())
		if _, err := s.bus.js.UpdateStream(ctx, c); err != nil {
			return fmt.Errorf("bound stream %s: %w", name, natserr.Translate(ctx, err))
		}
		s.cut.Add(1)
		s.bus.options.Log.Warn("the store is almost full: limited a stream, and dropped its oldest messages", "stream", name,
			"bytes", sizes[name], "keeps", bounds[name], "used", used, "store", s.most)
	}
	return nil
}

// Describe makes a StoreLimit a [prometheus.Collector].
func (s *StoreLimit) Describe(ch chan<- *prometheus.Desc) { space.Describe(ch) }

// Collect makes a StoreLimit a [prometheus.Collector]: no metrics before the first look at the
// streams.
func (s *StoreLimit) Collect(ch chan<- prometheus.Metric) {
	if s.checked.Load() {
		space.Collect(ch, s.used.Load(), s.most, s.cut.Load())
	}
}
