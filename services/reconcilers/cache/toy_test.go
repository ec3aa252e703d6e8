package cache

import "github.com/millrace/millrace/services/reconcilers/cache/cachetest"

var (
	toy    = cachetest.Toy
	aSet   = cachetest.Set
	aPod   = cachetest.Pod
	delta  = cachetest.Delta
	markAt = cachetest.Mark
	epoch  = cachetest.Epoch

	podOf   = cachetest.PodRef
	said    = cachetest.Counted
	changed = cachetest.Changed
)
