package world

import (
	"fmt"
	"strconv"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/services/watcher/translate"
	"github.com/millrace/millrace/test/sim/apiserver"
	"github.com/millrace/millrace/test/sim/streams"
)

// server is one of the API servers, whose watch cache may lag.
type server struct {
	api *apiserver.API
	// stuck is the version at which its watch cache stands still; 0: it follows the storage.
	stuck int64
}

// position is the version that the watch cache has reached.
func (s *server) position() int64 {
	if s.stuck > 0 {
		return min(s.stuck, s.api.Version)
	}
	return s.api.Version
}

// watcher is one process of the watchers. To kill it, a world forgets it.
type watcher struct {
	process
	kinds []*kindWatch
}

// kindWatch watches one kind, in sessions like those of the real watcher: open the log and find
// the position; resume, or relist and compare with the state; then watch.
type kindWatch struct {
	world   *World
	watcher *watcher
	stream  *streams.Stream
	from    *apiserver.Collection
	server  *server
	open    bool
	// resting is until when it does not retry to open a session.
	resting time.Time
	last    uint64 // of the log, as far as this session knows
	stored  uint64 // the last message that this process knows to have been stored
	made    int    // how often the log had been recreated then
	cursor  translate.Cursor
	latest  events.Delta   // the newest object that it said: proof of history
	found   []events.Delta // by a relist, and not said yet
	expired bool
	marked  time.Time
	mended  uint64 // where the last relist ended
	sight   events.Sight
}

func newWatcher(w *World) *watcher {
	x := &watcher{process: process{world: w}}
	for _, c := range w.API.Kinds {
		x.kinds = append(x.kinds, &kindWatch{
			world: w, watcher: x, stream: w.Bus.Kinds[c.Kind.Name], from: c, server: w.servers[0], made: w.Bus.Kinds[c.Kind.Name].Made,
		})
	}
	return x
}

func (k *kindWatch) Ready() bool {
	switch {
	case k.watcher.stalled():
		return false
	case !k.open:
		return !k.resting.After(k.world.Now)
	default:
		return len(k.found) > 0 || k.behind() || k.outlived()
	}
}

// outlived reports whether a watcher has found out that the epoch of the kind has ended.
func (k *kindWatch) outlived() bool { return k.cursor.Epoch < k.world.epoch }

// rewinds records that the storage has gone back.
func (k *kindWatch) rewinds() {
	k.world.epoch, k.expired = max(k.world.epoch, k.cursor.Epoch+1), true
}

// behind reports whether the server has changes for it.
func (k *kindWatch) behind() bool {
	if len(k.from.Log) == 0 {
		return false
	}
	at := apiserver.Number(k.cursor.Version)
	if newest := k.from.Log[len(k.from.Log)-1].Version; newest <= at {
		return false
	}
	return k.from.Log[k.from.After(at)].Version <= k.server.position()
}

func (k *kindWatch) act() {
	switch {
	case !k.open:
		k.begin()
	case len(k.found) > 0:
		d := k.found[0]
		k.found = k.found[1:]
		if len(k.found) == 0 {
			k.sighted()
		}
		if k.append(d) && len(k.found) == 0 {
			k.expired, k.marked, k.mended = false, k.world.Now, k.last
		}
	case k.outlived():
		k.expired = true
		k.close()
	default:
		k.hear(k.from.Log[k.from.After(apiserver.Number(k.cursor.Version))])
	}
}

// begin opens a session.
func (k *kindWatch) begin() {
	k.last, k.found = k.stream.End(), nil
	switch {
	case k.made != k.stream.Made:
		k.made, k.stored, k.expired = k.stream.Made, k.last, true
	case k.stored > k.last:
		k.expired = true
		k.pad()
		return
	}
	k.stored = k.last
	if !k.resume() || k.expired || k.outlived() {
		k.relist()
		return
	}
	at := apiserver.Number(k.cursor.Version)
	switch {
	case at > k.server.position():
		// Either this server lags, or the storage has gone back.
		if k.proves() {
			k.server = k.world.servers[k.world.Roll(len(k.world.servers))]
			k.resting = k.world.Now.Add(time.Second)
		}
	case at < k.from.Compacted:
		k.expired = true
	default:
		k.open = k.proves()
	}
}

// pad makes the log as long as it was, with gaps.
func (k *kindWatch) pad() {
	for k.last < k.stored {
		if !k.append(translate.Gap(k.from.Kind.Name, "", k.stamp(false))) {
			return
		}
	}
}

// resume takes the position from the newest message of the log.
func (k *kindWatch) resume() bool {
	if k.last == 0 {
		return false
	}
	var mark events.Delta
	for i := len(k.stream.Log) - 1; i >= 0 && mark.Op == ""; i-- {
		if d := k.stream.Log[i].Delta; d.Ref.Name == "" {
			mark = d
		}
	}
	if mark.Op != events.Mark {
		return false
	}
	var ok bool
	newest := k.stream.Log[k.last-1].Delta
	k.sight = newest.Sight
	if k.cursor, ok = translate.Resume(newest); k.latest.UID == "" && newest.Op == events.Is {
		k.latest = newest
	}
	return ok
}

// proves checks whether the API server still has the history that was watched.
func (k *kindWatch) proves() bool {
	if translate.Older(strconv.FormatInt(k.world.API.Version, 10), k.cursor.Version) {
		k.rewinds()
		return false
	}
	obj := k.from.Objects[k.latest.Ref]
	if obj == nil || k.latest.Epoch != k.cursor.Epoch || obj.GetUID() != k.latest.UID {
		return true
	}
	if translate.Older(obj.GetResourceVersion(), k.latest.ResourceVersion) {
		k.rewinds()
		return false
	}
	return true
}

// relist compares all listed objects with all known ones. The following steps say the
// differences.
func (k *kindWatch) relist() {
	first := k.last == 0 && k.cursor.Version == ""
	state := translate.NewState()
	for _, m := range k.stream.Log[k.stream.Begin(k.last)-1:] {
		state.Fold(m.Delta, m.Sequence)
	}
	version := strconv.FormatInt(k.world.API.Version, 10)
	r := state.Compare(version, k.world.epoch)
	k.world.epoch = r.Epoch()
	k.cursor, k.latest = translate.Cursor{Version: version, Epoch: r.Epoch()}, events.Delta{}
	for _, obj := range k.from.Sorted {
		ref := events.Ref{Kind: k.from.Kind.Name, Namespace: obj.GetNamespace(), Name: obj.GetName()}
		finding := r.See(ref, obj.GetUID(), obj.GetResourceVersion())
		switch {
		case finding.Rewound:
			k.rewinds()
			k.found = nil
			return // the next session begins a new epoch
		case !finding.Changed:
			continue
		case finding.Replaced != 0:
			k.bury(finding.Replaced)
		}
		k.found = append(k.found, k.object(events.Is, obj, true))
	}
	for _, sequence := range r.Missing() {
		k.bury(sequence)
	}
	if !first {
		k.found = append(k.found, translate.Gap(k.from.Kind.Name, version, k.stamp(false)))
	}
	k.found = append(k.found, translate.Mark(k.from.Kind.Name, version, k.stamp(false)))
	k.open = true
}

func (k *kindWatch) bury(sequence uint64) {
	k.found = append(k.found, translate.Tombstone(k.stream.Log[sequence-1].Delta, k.stamp(true)))
}

// hear says the next change.
func (k *kindWatch) hear(c apiserver.Change) {
	version := strconv.FormatInt(c.Version, 10)
	k.sighted()
	if k.cursor.Covers(version) {
		return
	}
	d := k.object(c.Op, c.Object, false)
	if !k.append(d) {
		return
	}
	if k.cursor.Version = version; c.Op == events.Is {
		k.latest = d
	}
}

// sighted records that a kind of heartbeats was heard.
func (k *kindWatch) sighted() {
	if kinds.IsHeartbeat(k.from.Kind.Name) {
		k.sight = k.sight.Heard(k.watcher.clock())
	}
}

func (k *kindWatch) object(op events.Op, obj metav1.Object, sync bool) events.Delta {
	d, err := translate.Object(k.from.Kind, op, obj.(runtime.Object), k.stamp(sync))
	if err != nil {
		panic(fmt.Sprintf("an object of the simulated API server cannot be said: %v", err))
	}
	return d
}

// append says a delta, unless another watcher has appended: then this session is over.
func (k *kindWatch) append(d events.Delta) bool {
	d.Sight = k.sight
	if err := k.world.Bus.Append(d, k.last); err != nil {
		k.close()
		return false
	}
	k.last++
	k.stored = k.last
	k.world.said(k.stream, d)
	return true
}

// ask has the watchers of a kind list and compare everything, unless they have done so since.
func (w *World) ask(s *streams.Stream) {
	for _, x := range w.Watchers {
		for _, k := range x.kinds {
			if k.stream == s && !x.stalled() && k.open && len(k.found) == 0 && s.End() >= k.mended {
				k.expired = true
				k.close()
			}
		}
	}
}

func (k *kindWatch) close() { k.open, k.found = false, nil }

// bookmark marks the log once a minute, as the watcher does at a bookmark of the API server.
func (k *kindWatch) bookmark() {
	if !k.open || len(k.found) > 0 || k.watcher.stalled() || k.behind() || k.world.Now.Sub(k.marked) < time.Minute {
		return
	}
	k.cursor.Version = strconv.FormatInt(max(k.server.position(), apiserver.Number(k.cursor.Version)), 10)
	if k.append(translate.Mark(k.from.Kind.Name, k.cursor.Version, k.stamp(false))) {
		k.marked = k.world.Now
	}
}

func (k *kindWatch) stamp(sync bool) translate.Stamp {
	return translate.Stamp{At: k.watcher.clock(), Epoch: k.cursor.Epoch, Sync: sync}
}
