// Package space decides which streams of an almost full store to bound, and to how many bytes. The embedded
// server acts by it, and a [Limit] does for servers elsewhere; both have its metrics.
//
// A full store refuses every message, so one tenant that rewrites one large object would stop
// every controller. A limit on each stream does not help: the server reserves the limit of
// every stream at its creation, which would divide the store among all kinds in advance, busy
// or not. Instead, all streams share the store. When it becomes scarce, the largest
// streams are bounded, all to the same size, until there is room again: first the logs, and turns and
// outcomes only when no log is larger than [minKept]. So a busy kind cannot take what the
// others have. Wakes and signatures are never bounded: their messages are not lost.
//
// A bounded log drops its oldest messages at once, as a log does whose retention is shortened;
// its watcher says again what still exists.
package space

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/millrace/millrace/pkg/events/bus"
)

const (
	// Scarce is the used part of a store from which streams are bounded, and ample the part to
	// which they are bounded.
	Scarce, ample = 0.80, 0.75
	// minKept is the number of bytes that every stream keeps.
	minKept = 16 << 20
	// checkEvery is the least interval of two checks, and checkIdle the greatest.
	checkEvery, checkIdle = 200 * time.Millisecond, 5 * time.Second
	// maxGrowth is the assumed greatest growth of a store in bytes a second.
	maxGrowth = 100 << 20
)

// UntilScarce is the time until the next check of a store: it cannot become scarce within that time. At least
// 200 ms, at most 5 s.
func UntilScarce(used, most uint64) time.Duration {
	left := Scarce*float64(most) - float64(used)
	return min(max(time.Duration(left/maxGrowth*float64(time.Second)), checkEvery), checkIdle)
}

// boundKey is the metadata key of a stream for the least limit that was set for space, and when. A
// service that begins later may raise the limit before a notary has looked.
const boundKey = "millrace.bounded"

// boundCounts is for how long an earlier, lower limit counts when another one is set.
const boundCounts = 24 * time.Hour

// Note adds a limit to a stream's metadata, with the time.
func Note(metadata map[string]string, bytes int64, now time.Time) map[string]string {
	if was := BoundOf(metadata); !was.At.IsZero() && now.Sub(was.At) < boundCounts {
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

// BoundOf reads the limit that [Note] wrote; the zero value: there is none.
func BoundOf(metadata map[string]string) (b bus.Bound) {
	bytes, at, _ := strings.Cut(metadata[boundKey], " ")
	var err, wrong error
	b.Bytes, err = strconv.ParseInt(bytes, 10, 64)
	b.At, wrong = time.Parse(time.RFC3339Nano, at)
	if err != nil || wrong != nil {
		return bus.Bound{}
	}
	return b
}

// Bounds computes which streams to bound to how many bytes, so that at most the ample part of the store is
// used. Sizes are the bytes of the streams; used and most are those of the store.
func Bounds(sizes map[string]uint64, used, most uint64) map[string]uint64 {
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

// Describe sends what the metrics of a store are.
func Describe(ch chan<- *prometheus.Desc) {
	ch <- storeUsed
	ch <- storeMost
	ch <- storeCuts
}

// Collect sends the metrics of a store: its bytes in use, its limit, and how often a stream was bounded.
func Collect(ch chan<- prometheus.Metric, used, most, cuts uint64) {
	ch <- prometheus.MustNewConstMetric(storeUsed, prometheus.GaugeValue, float64(used))
	ch <- prometheus.MustNewConstMetric(storeMost, prometheus.GaugeValue, float64(most))
	ch <- prometheus.MustNewConstMetric(storeCuts, prometheus.CounterValue, float64(cuts))
}
