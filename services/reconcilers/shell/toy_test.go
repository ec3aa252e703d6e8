package shell

import (
	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/services/reconcilers/cache"
	"github.com/millrace/millrace/services/reconcilers/cache/cachetest"
)

var (
	toy    = cachetest.Toy
	aSet   = cachetest.Set
	aPod   = cachetest.Pod
	delta  = cachetest.Delta
	markAt = cachetest.Mark
	epoch  = cachetest.Epoch

	podOf   = cachetest.PodRef
	said    = cachetest.Counted
	counted = cachetest.WithCensus
	choosy  = cachetest.Choosy
	spread  = cachetest.Spread
)

var web = events.Key{Namespace: "default", Name: "web"}

// follows reports whether a cache follows a kind.
func follows(c *cache.Cache, kind kinds.Name) (followed bool) {
	c.View("", nil, func(s cache.Snapshot) { _, followed = s.FollowedEpoch(kind) })
	return followed
}
