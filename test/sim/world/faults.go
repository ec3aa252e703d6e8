package world

import (
	"slices"
	"time"

	"maps"

	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/pkg/events/subject"
	"github.com/millrace/millrace/services/reconcilers/shard"
	"github.com/millrace/millrace/test/sim/cluster"
	"github.com/millrace/millrace/test/sim/nodes"
	"github.com/millrace/millrace/test/sim/rules"
	"github.com/millrace/millrace/test/sim/storage"
	"github.com/millrace/millrace/test/sim/streams"
)

// Fault is one fault, chosen by the seed.
type Fault func(*World)

// Crashes are faults of the processes, their network and their clocks.
var Crashes = []Fault{
	killReplica, killWriter, killWatcher, killAfterEffect, leaveReplica, loseAnswers, loseAnswers, storm,
	deliverAgain, deliverAgain, loseAcks, loseRequests, timePasses, jumpClock,
}

// Stalls are processes that stop for a minute and continue where they were, or whose clocks are
// set meanwhile.
var Stalls = []Fault{stallReplica, stallWriter, stallWatcher, timePasses, jumpClock}

// Lags are stale views: a follower that reads an old copy of a stream, an API server whose
// watch cache stands still, a watcher whose position has been compacted away.
var Lags = []Fault{oldCopy, oldServer, Compact, Compact, cutWatches}

// ClockJumps set the clocks of reconcilers: an hour ahead, or right again.
var ClockJumps = []Fault{jumpClock}

// Redeliveries are consumers that the bus has forgotten, and replicas that disagree about their
// shares.
var Redeliveries = []Fault{forgetWork, deliverAgain, ownAll, ownNothing}

// Losses are what a power failure of the bus may remove from the logs of kinds.
var Losses = []Fault{loseLog, emptyKind}

// All is every fault that happens now and then, and Worst adds the disasters.
var (
	All   = slices.Concat(Crashes, Crashes, Stalls, Lags, Redeliveries, Losses)
	Worst = slices.Concat(All, Disasters)
)

func killReplica(w *World) { w.KillReplica(w.Roll(len(w.Replicas))) }
func killWriter(w *World)  { w.killWriter(w.Writers[w.Roll(len(w.Writers))]) }
func killWatcher(w *World) { w.KillWatcher(w.Roll(len(w.Watchers))) }

// KillReplica kills a process of the reconcilers and starts another one.
func (w *World) KillReplica(i int) {
	w.Note("fault: reconcilers %d killed", i)
	w.Replicas[i] = newReplica(w)
	w.actors, w.Rest.Began = nil, true
}

// KillWatcher kills a watcher and starts another one.
func (w *World) KillWatcher(i int) {
	w.Note("fault: watcher %d killed", i)
	w.Watchers[i] = newWatcher(w)
	w.actors = nil
}

// KillWriter kills a writer and starts another one.
func (w *World) KillWriter(i int) { w.killWriter(w.Writers[i]) }

func (w *World) killWriter(x *writer) {
	i := slices.Index(w.Writers, x)
	w.Note("fault: writer %d killed with %d turns in flight", i, len(x.hands))
	w.Writers[i] = w.newWriter()
	w.actors = nil
}

// killAfterEffect kills a writer when a request of it has had its effect and the
// answer is not there yet.
func killAfterEffect(w *World) {
	w.Crash = w.Writers[w.Roll(len(w.Writers))]
}

// leaveReplica stops a process gracefully, as a rolling restart does.
func leaveReplica(w *World) { w.LeaveReplica(w.Roll(len(w.Replicas))) }

// LeaveReplica stops a process of the reconcilers gracefully and starts another one.
func (w *World) LeaveReplica(i int) {
	w.Note("fault: reconcilers %d restarted", i)
	w.Replicas[i] = newReplica(w)
	w.actors = nil
}

// loseAnswers lets the next request of a writer fail, or lose its answer.
func loseAnswers(w *World) {
	f := fate(1 + w.Roll(int(fates)-1))
	w.Note("fault: %s", f)
	w.Fated = append(w.Fated, f)
}

// storm is an API server that fails for a while.
func storm(w *World) {
	f := fate(1 + w.Roll(int(fates)-1))
	n := 2 + w.Roll(10)
	w.Note("fault: %d times: %s", n, f)
	for range n {
		w.Fated = append(w.Fated, f)
	}
}

func (f fate) String() string {
	return [fates]string{
		"works", "a request fails", "a request has its effect and no answer", "a 500", "a 500 after the effect", "a 429",
	}[f]
}

// deliverAgain redelivers a turn that is being worked on.
func deliverAgain(w *World) {
	if pending := w.anyBook().Work.Pending; len(pending) > 0 {
		p := pending[w.Roll(len(pending))]
		w.Note("fault: message %d delivered again", p.Sequence)
		p.At = w.Now
	}
}

// ownAll makes a replica believe that it is alone, and ownNothing that others own every key.
func ownAll(w *World) { w.own(shard.All) }

func ownNothing(w *World) { w.own(0) }

func (w *World) own(share shard.Set) {
	r := w.Replicas[w.Roll(len(w.Replicas))]
	w.Note("fault: reconcilers take themselves to own %d shards", share.Size())
	r.share = share
	for _, d := range r.engines {
		d.own(share)
	}
}

func (w *World) anyBook() *streams.Book {
	return w.Bus.Books[w.controllers[w.Roll(len(w.controllers))].Describe().Name]
}

// loseAcks loses the next answers to deliveries.
func loseAcks(w *World) {
	w.Bus.LoseAcks += 1 + w.Roll(3)
	w.Note("fault: answers to deliveries get lost")
}

// loseRequests makes the bus carry out requests without an answer.
func loseRequests(w *World) {
	w.hiccups += 1 + w.Roll(3)
	w.Note("fault: the bus does not answer")
}

func timePasses(w *World) {
	w.Note("fault: time passes")
	w.advance(w.Now.Add(time.Duration(w.Roll(4000)) * time.Millisecond))
}

// stall is how long a process stands still.
const stall = time.Minute

func stallReplica(w *World) { w.StallReplica(w.Roll(len(w.Replicas))) }
func stallWriter(w *World)  { w.StallWriter(w.Roll(len(w.Writers))) }
func stallWatcher(w *World) {
	x := w.Watchers[w.Roll(len(w.Watchers))]
	w.Note("fault: a watcher stands still")
	x.Asleep = w.Now.Add(stall)
}

// StallReplica stops a process of the reconcilers for a minute.
func (w *World) StallReplica(i int) {
	w.Note("fault: reconcilers %d stand still", i)
	w.Replicas[i].Asleep = w.Now.Add(stall)
}

// StallWriter stops a writer for a minute.
func (w *World) StallWriter(i int) {
	w.Note("fault: writer %d stands still", i)
	w.Writers[i].Asleep = w.Now.Add(stall)
}

// jumpClock sets the clock of one process of the reconcilers. In a real process waits continue
// when its clock is set, since they use a monotonic clock. A simulated process has only one
// clock, so jumpClock starts a new process when it sets the clock back, or ahead while the
// process may wait for kinds to be of one epoch.
func jumpClock(w *World) {
	i, ahead := w.Roll(len(w.Replicas)), []time.Duration{0, 10 * time.Minute, cluster.FarAhead}[w.Roll(3)]
	if r := w.Replicas[i]; ahead < r.Skew || w.epoch > 0 && (w.untold() || r.behind()) {
		w.KillReplica(i)
	}
	r := w.Replicas[i]
	r.Skew = ahead
	w.Note("fault: a clock of the reconcilers is %v ahead from now on", r.Skew)
	r.Advance()
}

// setClocks corrects the clocks of reconcilers if they differ so far that a deadline has passed
// by one and not by another. Such reconcilers would write alternately for ever.
func (w *World) setClocks() {
	if !w.clocksDiffer() {
		return
	}
	w.Note("the clocks of the reconcilers are set right")
	for i, r := range w.Replicas {
		if r.Skew >= farApart {
			w.KillReplica(i)
		}
	}
}

// oldCopy kills a replica and starts it on an old copy of the streams.
func oldCopy(w *World) {
	i := w.Roll(len(w.Replicas))
	w.RestartBehind(i, w.Roll(20))
}

// RestartBehind kills a process of the reconcilers and starts one whose copy of the streams
// lacks the newest messages, until nothing else moves.
func (w *World) RestartBehind(i, behind int) {
	w.KillReplica(i)
	w.Note("fault: it reads an old copy of the streams, %d messages behind", behind)
	for _, f := range w.Replicas[i].Followers {
		if end := int(f.Stream.End()); end > 0 {
			f.old = uint64(max(end-behind, 1))
			f.goal = min(f.goal, f.old)
			f.folded = f.Stream.Begin(f.goal) - 1
			f.replica.memory.Dealt(f.Stream.Kind.Name, f.goal)
		}
	}
	w.hold()
}

// oldServer stops the watch cache of one API server.
func oldServer(w *World) {
	s := w.servers[w.Roll(len(w.servers))]
	w.Note("fault: the watch cache of an API server stands still")
	s.stuck = w.API.Version
	w.hold()
}

// WatchBehind kills a watcher and starts it at an API server whose watch cache is behind, until
// nothing else moves.
func (w *World) WatchBehind(behind int64) {
	w.KillWatcher(0)
	w.Note("fault: its API server is %d versions behind", behind)
	w.servers[0].stuck = max(w.API.Version-behind, 1)
	w.hold()
}

// Silence keeps all changes of a kind from the watchers for a while.
func (w *World) Silence(kind kinds.Name, d time.Duration) {
	w.Note("fault: nothing is heard of %s for %v", kind, d)
	for _, x := range w.Watchers {
		for _, k := range x.kinds {
			if k.from.Kind.Name == kind {
				k.close()
				k.resting = w.Now.Add(d)
			}
		}
	}
}

// Compact forgets the API server's history and ends its watches.
func Compact(w *World) {
	w.Note("fault: the history of the API server is compacted")
	w.API.Compact()
	w.cut()
}

func cutWatches(w *World) {
	w.Note("fault: the API server ends its watches")
	w.cut()
}

// cut ends every watch.
func (w *World) cut() {
	for _, x := range w.Watchers {
		for _, k := range x.kinds {
			k.close()
			k.server = w.servers[w.Roll(len(w.servers))]
		}
	}
}

// Restore brings the API server's storage back to an earlier version. That takes long: the
// watchers have heard everything that it had done before, the writers have given up their turns
// in flight, and a watcher has detected the restore before any client writes. But only one kind
// has been said again by then; each of the others takes its time.
func (w *World) Restore(versions int64) {
	w.tell()
	at := max(w.API.Version-versions, w.first)
	w.Note("fault: the API server is restored from %d to %d", w.API.Version, at)
	rules.Restore(w.Guard, at, func() { w.API.Restore(at) })
	nodes.Remember(w.Cluster)
	storage.Restored(w.Store)
	w.Dirty = true
	for _, x := range w.Writers {
		for _, c := range x.hands {
			x.claims.Release(c.At())
		}
		x.hands = nil
	}
	var watches []*kindWatch
	for _, x := range w.Watchers {
		for _, k := range x.kinds {
			k.close()
			k.resting = w.Now.Add(time.Duration(w.Roll(3)) * time.Second)
			watches = append(watches, k)
		}
	}
	w.Random.Shuffle(len(watches), func(i, j int) { watches[i], watches[j] = watches[j], watches[i] })
	w.noticed(watches)
}

// tell has the watchers say everything that they can have heard.
func (w *World) tell() {
	for _, x := range w.Watchers {
		for _, k := range x.kinds {
			for k.Ready() {
				k.act()
			}
		}
	}
}

// noticed has one kind, the first that can, detect that the storage has gone back, and be said
// again.
func (w *World) noticed(watches []*kindWatch) {
	for _, k := range watches {
		if k.watcher.stalled() {
			continue
		}
		before := w.epoch
		if k.begin(); w.epoch == before {
			continue
		}
		k.begin()
		for len(k.found) > 0 {
			k.act()
		}
		return
	}
}

// forgetWork recreates the consumer of the turns at the start of its stream.
func forgetWork(w *World) {
	w.Note("fault: the consumer of the turns is lost")
	w.anyBook().Work.Again(0)
}

// Redeliver recreates every consumer of turns: the bus delivers all turns again.
func (w *World) Redeliver() {
	w.Note("fault: everything is delivered again")
	for _, b := range w.Bus.Books {
		b.Work.Again(0)
	}
}

// SkipAhead has every consumer jump to the end of its stream.
func (w *World) SkipAhead() {
	w.Note("fault: the consumers jump ahead")
	for _, b := range w.Bus.Books {
		b.Work.Again(uint64(b.Work.Length()))
	}
}

// LoseTurns removes the last turns of every controller, after the watchers have said their
// effects. It does nothing while a watcher, or the watch cache of an API server, stands still: no
// process could know of an effect that no record and no delta has (docs/doubled-or-lost.md).
func (w *World) LoseTurns(n int) {
	if slices.ContainsFunc(w.Watchers, func(x *watcher) bool { return x.stalled() }) ||
		slices.ContainsFunc(w.servers, func(s *server) bool { return s.stuck > 0 }) {
		return
	}
	w.tell()
	w.Note("fault: the last %d turns of each controller are lost", n)
	for _, b := range w.Bus.Books {
		b.LoseTurns(n)
	}
	clear(w.Guard.Turns.Act) // the same sequences may be other turns from now on
	w.inspect(subject.TurnStream)
	w.restart()
}

// restart is the time that a bus server needs to come back after a loss. Every connection
// breaks: engines doubt what they know, messages on their way to the bus are lost, and writers
// receive nothing meanwhile.
func (w *World) restart() {
	for _, r := range w.Replicas {
		for _, d := range r.engines {
			d.connection++
			d.Invalidate()
		}
	}
	w.pulse = w.Now.Add(2 * streams.Skew)
	w.advance(w.pulse)
}

// inspect has every engine notice in time what its streams have lost.
func (w *World) inspect(stream func(controller string) string) {
	for _, r := range w.Replicas {
		for _, d := range r.engines {
			d.losses = append(d.losses, stream(d.Name()))
		}
	}
}

// LoseOutcomes removes the last outcomes of every controller.
func (w *World) LoseOutcomes(n int) {
	w.Note("fault: the last %d outcomes of each controller are lost", n)
	for _, b := range w.Bus.Books {
		b.LoseOutcomes(n)
	}
	clear(w.Guard.Turns.Act) // some turns had an outcome that engines have heard
	w.inspect(subject.OutcomeStream)
	w.restart()
}

func (w *World) anyStream() *streams.Stream { return w.Bus.Kinds[w.Served[w.Roll(len(w.Served))].Name] }

// loseLog removes the end of a log.
func loseLog(w *World) { w.LoseTail(w.anyStream(), 1+w.Roll(5)) }

// LoseTail removes the last messages of a kind.
func (w *World) LoseTail(s *streams.Stream, n int) {
	w.Note("fault: the log of %s loses its last %d messages", s.Kind.Name, n)
	s.Lose(n)
	w.Guard.Lost(s.Kind.Name, s.End())
	w.reopen(s)
}

func emptyKind(w *World) { w.EmptyKind(w.anyStream()) }

// EmptyKind recreates the log of a kind while processes use them.
func (w *World) EmptyKind(s *streams.Stream) {
	w.Note("fault: the log of %s is made anew", s.Kind.Name)
	w.Guard.Lost(s.Kind.Name, 0)
	s.Empty()
	w.reopen(s)
}

// reopen is the restart of a stream's server for its watches: their logs are no longer open.
func (w *World) reopen(s *streams.Stream) {
	for _, x := range w.Watchers {
		for _, k := range x.kinds {
			if k.stream == s {
				k.close()
			}
		}
	}
}

// Disasters are rare faults that are worse than a crash: a restore of the API server's storage,
// the loss of turns, outcomes or positions, and a pause of the whole cluster.
var Disasters = []Fault{restoreSome, restoreSome, loseSomeTurns, loseSomeOutcomes, skipSome, suspend}

// restoreSome restores the storage, if a watcher runs that detects it before anything is
// written.
func restoreSome(w *World) {
	if slices.ContainsFunc(w.Watchers, func(x *watcher) bool { return !x.stalled() }) {
		w.Restore(int64(1 + w.Roll(12)))
		if w.Changes == 0 && w.options.Last != nil {
			w.options.Last(w.Cluster) // once more, if the restore reverted it
		}
	}
}

func loseSomeTurns(w *World) { w.LoseTurns(1 + w.Roll(3)) }

func loseSomeOutcomes(w *World) { w.LoseOutcomes(1 + w.Roll(3)) }

func skipSome(w *World) { w.SkipAhead() }

// untold reports whether a restore was noticed and some kinds have not been said again yet. That
// must not take long: reconcilers do not wait for kinds that are not said within half a minute
// after it (docs/reliability.md).
func (w *World) untold() bool {
	for _, epoch := range w.Bus.Epochs(maps.Keys(w.Bus.Kinds)) {
		if epoch < w.epoch {
			return true
		}
	}
	return false
}

// suspend stops everything for a while, like machines that are suspended together.
func suspend(w *World) {
	if w.untold() {
		return
	}
	long := time.Duration(1+w.Roll(30)) * time.Minute
	w.Note("fault: everything is suspended for %v", long)
	w.advance(w.Now.Add(long))
	w.Rest.Stirred = w.Now
}
