package sim

import (
	"slices"
	"time"

	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/pkg/events/subject"
	"github.com/millrace/millrace/services/reconcilers/shard"
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
var Lags = []Fault{oldCopy, oldServer, compact, compact, cutWatches}

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

func killReplica(w *World) { w.KillReplica(w.roll(len(w.replicas))) }
func killWriter(w *World)  { w.killWriter(w.writers[w.roll(len(w.writers))]) }
func killWatcher(w *World) { w.KillWatcher(w.roll(len(w.watchers))) }

// KillReplica kills a process of the reconcilers and starts another one.
func (w *World) KillReplica(i int) {
	w.note("fault: reconcilers %d killed", i)
	w.replicas[i] = newReplica(w)
	w.actors, w.began = nil, true
}

// KillWatcher kills a watcher and starts another one.
func (w *World) KillWatcher(i int) {
	w.note("fault: watcher %d killed", i)
	w.watchers[i] = newWatcher(w)
	w.actors = nil
}

// KillWriter kills a writer and starts another one.
func (w *World) KillWriter(i int) { w.killWriter(w.writers[i]) }

func (w *World) killWriter(x *writer) {
	i := slices.Index(w.writers, x)
	w.note("fault: writer %d killed with %d turns in flight", i, len(x.hands))
	w.writers[i] = w.newWriter()
	w.actors = nil
}

// killAfterEffect kills a writer when a request of it has had its effect and the
// answer is not there yet.
func killAfterEffect(w *World) {
	w.crash = w.writers[w.roll(len(w.writers))]
}

// leaveReplica stops a process gracefully, as a rolling restart does.
func leaveReplica(w *World) { w.LeaveReplica(w.roll(len(w.replicas))) }

// LeaveReplica stops a process of the reconcilers gracefully and starts another one.
func (w *World) LeaveReplica(i int) {
	w.note("fault: reconcilers %d restarted", i)
	w.replicas[i] = newReplica(w)
	w.actors = nil
}

// loseAnswers lets the next request of a writer fail, or lose its answer.
func loseAnswers(w *World) {
	f := fate(1 + w.roll(int(fates)-1))
	w.note("fault: %s", f)
	w.fated = append(w.fated, f)
}

// storm is an API server that fails for a while.
func storm(w *World) {
	f := fate(1 + w.roll(int(fates)-1))
	n := 2 + w.roll(10)
	w.note("fault: %d times: %s", n, f)
	for range n {
		w.fated = append(w.fated, f)
	}
}

func (f fate) String() string {
	return [fates]string{
		"works", "a request fails", "a request has its effect and no answer", "a 500", "a 500 after the effect", "a 429",
	}[f]
}

// deliverAgain redelivers a turn that is being worked on.
func deliverAgain(w *World) {
	if pending := w.anyBook().work.pending; len(pending) > 0 {
		p := pending[w.roll(len(pending))]
		w.note("fault: message %d delivered again", p.sequence)
		p.at = w.now
	}
}

// ownAll makes a replica believe that it is alone, and ownNothing that others own every key.
func ownAll(w *World) { w.own(shard.All) }

func ownNothing(w *World) { w.own(0) }

func (w *World) own(share shard.Set) {
	r := w.replicas[w.roll(len(w.replicas))]
	w.note("fault: reconcilers take themselves to own %d shards", share.Size())
	r.share = share
	for _, d := range r.engines {
		d.own(share)
	}
}

func (w *World) anyBook() *book {
	return w.bus.books[w.controllers[w.roll(len(w.controllers))].Describe().Name]
}

// loseAcks loses the next answers to deliveries.
func loseAcks(w *World) {
	w.bus.loseAcks += 1 + w.roll(3)
	w.note("fault: answers to deliveries get lost")
}

// loseRequests makes the bus carry out requests without an answer.
func loseRequests(w *World) {
	w.hiccups += 1 + w.roll(3)
	w.note("fault: the bus does not answer")
}

func timePasses(w *World) {
	w.note("fault: time passes")
	w.advance(w.now.Add(time.Duration(w.roll(4000)) * time.Millisecond))
}

// stall is how long a process stands still.
const stall = time.Minute

func stallReplica(w *World) { w.StallReplica(w.roll(len(w.replicas))) }
func stallWriter(w *World)  { w.StallWriter(w.roll(len(w.writers))) }
func stallWatcher(w *World) {
	x := w.watchers[w.roll(len(w.watchers))]
	w.note("fault: a watcher stands still")
	x.asleep = w.now.Add(stall)
}

// StallReplica stops a process of the reconcilers for a minute.
func (w *World) StallReplica(i int) {
	w.note("fault: reconcilers %d stand still", i)
	w.replicas[i].asleep = w.now.Add(stall)
}

// StallWriter stops a writer for a minute.
func (w *World) StallWriter(i int) {
	w.note("fault: writer %d stands still", i)
	w.writers[i].asleep = w.now.Add(stall)
}

// farAhead is how far a clock of the reconcilers is ahead at most.
const farAhead = time.Hour

// jumpClock sets the clock of one process of the reconcilers. In a real process waits continue
// when its clock is set, since they use a monotonic clock. A simulated process has only one
// clock, so jumpClock starts a new process when it sets the clock back, or ahead while the
// process may wait for kinds to be of one epoch.
func jumpClock(w *World) {
	i, ahead := w.roll(len(w.replicas)), []time.Duration{0, 10 * time.Minute, farAhead}[w.roll(3)]
	if r := w.replicas[i]; ahead < r.skew || w.epoch > 0 && (w.untold() || r.behind()) {
		w.KillReplica(i)
	}
	r := w.replicas[i]
	r.skew = ahead
	w.note("fault: a clock of the reconcilers is %v ahead from now on", r.skew)
	r.advance()
}

// setClocks corrects the clocks of reconcilers if they differ so far that a deadline has passed
// by one and not by another. Such reconcilers would write alternately for ever.
func (w *World) setClocks() {
	if !w.clocksDiffer() {
		return
	}
	w.note("the clocks of the reconcilers are set right")
	for i, r := range w.replicas {
		if r.skew >= farApart {
			w.KillReplica(i)
		}
	}
}

// oldCopy kills a replica and starts it on an old copy of the streams.
func oldCopy(w *World) {
	i := w.roll(len(w.replicas))
	w.RestartBehind(i, w.roll(20))
}

// RestartBehind kills a process of the reconcilers and starts one whose copy of the streams
// lacks the newest messages, until nothing else moves.
func (w *World) RestartBehind(i, behind int) {
	w.KillReplica(i)
	w.note("fault: it reads an old copy of the streams, %d messages behind", behind)
	for _, f := range w.replicas[i].followers {
		if end := int(f.stream.end()); end > 0 {
			f.old = uint64(max(end-behind, 1))
			f.goal = min(f.goal, f.old)
			f.folded = f.stream.begin(f.goal) - 1
			f.replica.memory.Dealt(f.stream.kind.Name, f.goal)
		}
	}
	w.hold()
}

// oldServer stops the watch cache of one API server.
func oldServer(w *World) {
	s := w.servers[w.roll(len(w.servers))]
	w.note("fault: the watch cache of an API server stands still")
	s.stuck = w.api.version
	w.hold()
}

// WatchBehind kills a watcher and starts it at an API server whose watch cache is behind, until
// nothing else moves.
func (w *World) WatchBehind(behind int64) {
	w.KillWatcher(0)
	w.note("fault: its API server is %d versions behind", behind)
	w.servers[0].stuck = max(w.api.version-behind, 1)
	w.hold()
}

// Silence keeps all changes of a kind from the watchers for a while.
func (w *World) Silence(kind kinds.Name, d time.Duration) {
	w.note("fault: nothing is heard of %s for %v", kind, d)
	for _, x := range w.watchers {
		for _, k := range x.kinds {
			if k.from.kind.Name == kind {
				k.close()
				k.resting = w.now.Add(d)
			}
		}
	}
}

// compact forgets the API server's history and ends its watches.
func compact(w *World) {
	w.note("fault: the history of the API server is compacted")
	w.api.Compact()
	w.cut()
}

func cutWatches(w *World) {
	w.note("fault: the API server ends its watches")
	w.cut()
}

// cut ends every watch.
func (w *World) cut() {
	for _, x := range w.watchers {
		for _, k := range x.kinds {
			k.close()
			k.server = w.servers[w.roll(len(w.servers))]
		}
	}
}

// Restore brings the API server's storage back to an earlier version. That takes long: the
// watchers have heard everything that it had done before, the writers have given up their turns
// in flight, and a watcher has detected the restore before any client writes. But only one kind
// has been said again by then; each of the others takes its time.
func (w *World) Restore(versions int64) {
	w.tell()
	at := max(w.api.version-versions, w.first)
	w.note("fault: the API server is restored from %d to %d", w.api.version, at)
	w.guard.restore(at, func() { w.api.Restore(at) })
	w.remember()
	w.store.restored()
	w.dirty = true
	for _, x := range w.writers {
		for _, c := range x.hands {
			x.claims.Release(c.at())
		}
		x.hands = nil
	}
	var watches []*kindWatch
	for _, x := range w.watchers {
		for _, k := range x.kinds {
			k.close()
			k.resting = w.now.Add(time.Duration(w.roll(3)) * time.Second)
			watches = append(watches, k)
		}
	}
	w.random.Shuffle(len(watches), func(i, j int) { watches[i], watches[j] = watches[j], watches[i] })
	w.noticed(watches)
}

// tell has the watchers say everything that they can have heard.
func (w *World) tell() {
	for _, x := range w.watchers {
		for _, k := range x.kinds {
			for k.ready() {
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
	w.note("fault: the consumer of the turns is lost")
	w.anyBook().work.again(0)
}

// Redeliver recreates every consumer of turns: the bus delivers all turns again.
func (w *World) Redeliver() {
	w.note("fault: everything is delivered again")
	for _, b := range w.bus.books {
		b.work.again(0)
	}
}

// SkipAhead has every consumer jump to the end of its stream.
func (w *World) SkipAhead() {
	w.note("fault: the consumers jump ahead")
	for _, b := range w.bus.books {
		b.work.again(uint64(b.work.length()))
	}
}

// LoseTurns removes the last turns of every controller, after the watchers have said their
// effects. It does nothing while a watcher, or the watch cache of an API server, stands still: no
// process could know of an effect that no record and no delta has (docs/doubled-or-lost.md).
func (w *World) LoseTurns(n int) {
	if slices.ContainsFunc(w.watchers, func(x *watcher) bool { return x.stalled() }) ||
		slices.ContainsFunc(w.servers, func(s *server) bool { return s.stuck > 0 }) {
		return
	}
	w.tell()
	w.note("fault: the last %d turns of each controller are lost", n)
	for _, b := range w.bus.books {
		b.loseTurns(n)
	}
	clear(w.guard.act) // the same sequences may be other turns from now on
	w.inspect(subject.TurnStream)
	w.restart()
}

// restart is the time that a bus server needs to come back after a loss. Every connection
// breaks: engines doubt what they know, messages on their way to the bus are lost, and writers
// receive nothing meanwhile.
func (w *World) restart() {
	for _, r := range w.replicas {
		for _, d := range r.engines {
			d.connection++
			d.Invalidate()
		}
	}
	w.pulse = w.now.Add(2 * skew)
	w.advance(w.pulse)
}

// inspect has every engine notice in time what its streams have lost.
func (w *World) inspect(stream func(controller string) string) {
	for _, r := range w.replicas {
		for _, d := range r.engines {
			d.losses = append(d.losses, stream(d.Name()))
		}
	}
}

// LoseOutcomes removes the last outcomes of every controller.
func (w *World) LoseOutcomes(n int) {
	w.note("fault: the last %d outcomes of each controller are lost", n)
	for _, b := range w.bus.books {
		b.loseOutcomes(n)
	}
	clear(w.guard.act) // some turns had an outcome that engines have heard
	w.inspect(subject.OutcomeStream)
	w.restart()
}

func (w *World) anyStream() *stream { return w.bus.kinds[w.served[w.roll(len(w.served))].Name] }

// loseLog removes the end of a log.
func loseLog(w *World) { w.LoseTail(w.anyStream(), 1+w.roll(5)) }

// LoseTail removes the last messages of a kind.
func (w *World) LoseTail(s *stream, n int) {
	w.note("fault: the log of %s loses its last %d messages", s.kind.Name, n)
	s.lose(n)
	w.guard.lost(s.kind.Name, s.end())
	w.reopen(s)
}

func emptyKind(w *World) { w.EmptyKind(w.anyStream()) }

// EmptyKind recreates the log of a kind while processes use them.
func (w *World) EmptyKind(s *stream) {
	w.note("fault: the log of %s is made anew", s.kind.Name)
	w.guard.lost(s.kind.Name, 0)
	s.empty()
	w.reopen(s)
}

// reopen is the restart of a stream's server for its watches: their logs are no longer open.
func (w *World) reopen(s *stream) {
	for _, x := range w.watchers {
		for _, k := range x.kinds {
			if k.stream == s {
				k.close()
			}
		}
	}
}
