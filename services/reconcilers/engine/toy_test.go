package engine

import (
	"maps"
	"strconv"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/services/reconcilers/cache"
	"github.com/millrace/millrace/services/reconcilers/cache/cachetest"
	"github.com/millrace/millrace/services/reconcilers/reconcile"
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
	changed = cachetest.Changed
	counted = cachetest.WithCensus
	choosy  = cachetest.Choosy
)

type object = cachetest.Object

// spread is a controller of every kind, whose keys are the pods that a changed object controls.
func spread() reconcile.Controller[bool] { return cachetest.Spread() }

// inEpoch is a message of another epoch.
func inEpoch(m events.Message, epoch uint64) events.Message {
	m.Header = maps.Clone(m.Header)
	m.Header[events.HeaderEpoch] = []string{strconv.FormatUint(epoch, 10)}
	return m
}

// disagree folds the first message of a kind, a mark that counts an object which the log does not
// have.
func disagree(c *cache.Cache, kind kinds.Kind) {
	m := said(markAt(kind, "1", 1), delta(kinds.Pods.Kind, events.Is, aPod("missing", "", 1), 1))
	c.Fold(kind.Name, []events.Message{m})
}

// follows reports whether a cache follows a kind.
func follows(c *cache.Cache, kind kinds.Name) (followed bool) {
	c.View("", nil, func(s cache.Snapshot) { _, followed = s.FollowedEpoch(kind) })
	return followed
}
