package cache

import (
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/kinds"
)

// BenchmarkFoldWhileManyRead folds updates, a thousand a second, while each of 64 readers lists
// all of 150,000 pods ten times a second: readers must not keep the memory from folding. It
// reports how far the memory lags behind.
//
//	go test ./services/reconcilers/cache -run '^$' -bench FoldWhileManyRead -benchtime 10000x
func BenchmarkFoldWhileManyRead(b *testing.B) {
	const pods, readers, every, pause = 150_000, 64, time.Millisecond, 100 * time.Millisecond
	m, name := New(), toy().Describe().Name
	m.Register(toy().Describe())
	m.Follow(kinds.Pods.Kind)
	told := 0
	tell := func(n int) {
		batch := make([]events.Message, n)
		for i := range batch {
			told++
			batch[i] = delta(kinds.Pods.Kind, events.Is, aPod(fmt.Sprint("p", told%pods), "web", told), uint64(told))
		}
		m.Fold(kinds.Pods.Name, batch)
	}
	tell(pods)
	stop := make(chan struct{})
	var reading sync.WaitGroup
	for range readers {
		reading.Go(func() {
			for {
				select {
				case <-stop:
					return
				case <-time.After(pause):
					m.View(name, nil, func(s Snapshot) { s.List(kinds.Pods.Name, "") })
				}
			}
		})
	}
	lags := make([]time.Duration, 0, b.N)
	b.ResetTimer()
	began := time.Now()
	for len(lags) < b.N { // what has come meanwhile is folded at once, as a follower does
		due := int(time.Since(began)/every) + 1 - len(lags)
		if due <= 0 {
			time.Sleep(every)
			continue
		}
		due = min(due, b.N-len(lags))
		tell(due)
		for range due {
			lags = append(lags, time.Since(began)-time.Duration(len(lags))*every)
		}
	}
	b.StopTimer()
	close(stop)
	reading.Wait()
	slices.Sort(lags)
	b.ReportMetric(float64(lags[len(lags)*99/100].Microseconds())/1000, "p99-lag-ms")
	b.ReportMetric(float64(lags[len(lags)-1].Microseconds())/1000, "worst-lag-ms")
}
