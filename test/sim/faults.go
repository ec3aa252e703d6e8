package sim

import (
	"slices"
	"time"

	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/pkg/events/subject"
	"github.com/millrace/millrace/services/reconcilers/shell"
)

// Fault is one thing that goes wrong, chosen by the seed.
type Fault func(*World)

// Crashes is what the processes, their network and their clocks may do.
var Crashes = []Fault{
	killReplica, killWriter, killWatcher, killAfterEffect, leaveReplica, loseAnswers, loseAnswers, storm,
	deliverAgain, deliverAgain, loseAcks, loseRequests, timePasses, jumpClock,
}

// Stalls is processes that stand still for a minute and go on where they were, or whose clocks
// are set meanwhile.
var Stalls = []Fault{stallReplica, stallWriter, stallWatcher, timePasses, jumpClock}

// Lags is views that are behind: of a follower of a stream that is an old copy,
// of an API server whose watch cache stands still, of a watcher whose position
// has been compacted away.
var Lags = []Fault{oldCopy, oldServer, compact, compact, cutWatches}

// ClockJumps is the clocks of reconcilers that are set: an hour ahead, or right again.
var ClockJumps = []Fault{jumpClock}

// Redeliveries is consumers that the bus has forgotten, and replicas that disagree.
var Redeliveries = []Fault{forgetWork, deliverAgain, ownAll, ownNothing}

// Losses is what a power failure of the bus may take from the logs of kinds.
var Losses = []Fault{loseLog, loseLogAndState, emptyKind}

// All is everything that happens now and then, and Worst is that and disasters.
var (
	All   = slices.Concat(Crashes, Crashes, Stalls, Lags, Redeliveries, Losses)
	Worst = slices.Concat(All, Disasters)
)

func killReplica(w *World) { w.KillReplica(w.roll(len(w.replicas))) }
func killWriter(w *World)  { w.killWriter(w.writers[w.roll(len(w.writers))]) }
func killWatcher(w *World) { w.KillWatcher(w.roll(len(w.watchers))) }

// KillReplica ends a process of the reconcilers and starts another one.
func (w *World) KillReplica(i int) {
	w.note("fault: reconcilers %d killed", i)
	w.replicas[i] = newReplica(w)
	w.actors, w.began = nil, true
}

// KillWatcher ends a watcher and starts another one.
func (w *World) KillWatcher(i int) {
	w.note("fault: watcher %d killed", i)
	w.watchers[i] = newWatcher(w)
	w.actors = nil
}

// KillWriter ends a writer and starts another one.
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

// leaveReplica ends a process in good order, as a rolling restart does.
func leaveReplica(w *World) { w.LeaveReplica(w.roll(len(w.replicas))) }

// LeaveReplica ends a process of the reconcilers in good order and starts another.
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

// storm is an API server that is of no use for a while.
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

// deliverAgain redelivers something that is being worked on.
func deliverAgain(w *World) {
	if pending := w.anyBook().work.pending; len(pending) > 0 {
		p := pending[w.roll(len(pending))]
		w.note("fault: message %d delivered again", p.sequence)
		p.at = w.now
	}
}

// ownAll has a replica believe that it is alone, and ownNothing that every key is another's.
func ownAll(w *World) { w.own(shell.Everything) }

func ownNothing(w *World) { w.own(0) }

func (w *World) own(share shell.Share) {
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

// loseRequests is a bus that does what it is asked and does not answer.
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

// jumpClock sets the clock of one process of the reconcilers. What a process waits for goes on
// when its clock is set, since waits go by a clock that never is. Here there is but one, so
// one begins with a new process that is set back, or ahead while it may wait for kinds to be
// of one epoch.
func jumpClock(w *World) {
	i, ahead := w.roll(len(w.replicas)), []time.Duration{0, 10 * time.Minute, time.Hour}[w.roll(3)]
	if r := w.replicas[i]; ahead < r.skew || w.epoch > 0 && (w.untold() || r.behind()) {
		w.KillReplica(i)
	}
	r := w.replicas[i]
	r.skew = ahead
	w.note("fault: a clock of the reconcilers is %v ahead from now on", r.skew)
	r.advance()
}

// setClocks sets the clocks of reconcilers right, where they differ so far that one says that a
// deadline is over and another that it is not. Those would write in turn for ever.
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

// RestartBehind kills a process of the reconcilers and starts one whose copy of
// the streams lacks the newest messages, until nothing else moves.
func (w *World) RestartBehind(i, behind int) {
	w.KillReplica(i)
	w.note("fault: it reads an old copy of the streams, %d messages behind", behind)
	for _, f := range w.replicas[i].followers {
		if end := int(f.stream.end()); end > 0 {
			f.old = uint64(max(end-behind, 1))
			f.copied, f.goal = f.stream.copy(f.old), min(f.goal, f.old)
			f.replica.memory.Dealt(f.stream.kind.Name, f.goal)
		}
	}
	w.hold()
}

// oldServer lets the watch cache of one API server stand still.
func oldServer(w *World) {
	s := w.servers[w.roll(len(w.servers))]
	w.note("fault: the watch cache of an API server stands still")
	s.stuck = w.api.version
	w.hold()
}

// WatchBehind kills a watcher and starts it at an API server whose watch cache
// is behind, until nothing else moves.
func (w *World) WatchBehind(behind int64) {
	w.KillWatcher(0)
	w.note("fault: its API server is %d versions behind", behind)
	w.servers[0].stuck = max(w.api.version-behind, 1)
	w.hold()
}

// Silence has the watchers hear nothing of a kind for a while.
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

// Restore brings the API server's storage back to an earlier version. That takes
// long: what it had done before has been heard, what writers had in flight they have
// given up, and a watcher has found out before anybody writes. But only one kind has
// been told anew by then; each of the others takes its time.
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

// noticed has one kind, the first that can, find out that the storage has gone back, and
// be told anew.
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

// forgetWork loses the consumer of the turns, which is made anew at the start of its stream.
func forgetWork(w *World) {
	w.note("fault: the consumer of the turns is lost")
	w.anyBook().work.again(0)
}

// Redeliver makes every consumer of turns anew: all of it is delivered again.
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

// LoseTurns takes the last turns of every controller. What they have done has been told, where a
// watcher runs: of what is in no record and told by nothing yet, none can know.
func (w *World) LoseTurns(n int) {
	w.tell()
	w.note("fault: the last %d turns of each controller are lost", n)
	for _, b := range w.bus.books {
		b.loseTurns(n)
	}
	clear(w.guard.act) // those may be other turns from now on
	w.inspect(subject.TurnStream)
	w.restart()
}

// restart is the time that a server takes to come back without what it has lost. Every
// connection breaks: engines doubt what they know, what was on its way to the bus is lost, and
// writers hear nothing meanwhile.
func (w *World) restart() {
	for _, r := range w.replicas {
		for _, d := range r.engines {
			d.connection++
			d.Doubt()
		}
	}
	w.pulse = w.now.Add(2 * skew)
	w.advance(w.pulse)
}

// inspect has every engine find out in time what its streams have lost.
func (w *World) inspect(stream func(controller string) string) {
	for _, r := range w.replicas {
		for _, d := range r.engines {
			d.losses = append(d.losses, stream(d.Name()))
		}
	}
}

// LoseOutcomes takes the last outcomes of every controller.
func (w *World) LoseOutcomes(n int) {
	w.note("fault: the last %d outcomes of each controller are lost", n)
	for _, b := range w.bus.books {
		b.loseOutcomes(n)
	}
	clear(w.guard.act) // some had an outcome, which was heard
	w.inspect(subject.OutcomeStream)
	w.restart()
}

func (w *World) anyStream() *stream { return w.bus.kinds[w.served[w.roll(len(w.served))].Name] }

// loseLog takes the end of a log that its state has kept.
func loseLog(w *World) { w.LoseTail(w.anyStream(), 1+w.roll(5), false) }

// loseLogAndState takes the end of both.
func loseLogAndState(w *World) { w.LoseTail(w.anyStream(), 1+w.roll(5), true) }

// LoseTail takes the last messages of a kind.
func (w *World) LoseTail(s *stream, n int, state bool) {
	w.note("fault: the log of %s loses its last %d messages; its state too: %v", s.kind.Name, n, state)
	s.lose(n, state)
	w.guard.lost(s.kind.Name, s.end())
	w.reopen(s)
}

func emptyKind(w *World) { w.EmptyKind(w.anyStream()) }

// EmptyKind makes the streams of a kind anew behind everybody's back.
func (w *World) EmptyKind(s *stream) {
	w.note("fault: the streams of %s are made anew", s.kind.Name)
	w.guard.lost(s.kind.Name, 0)
	s.empty(w.now.Add(time.Nanosecond * time.Duration(s.breaks+1)))
	w.reopen(s)
}

// reopen is what watches of a stream meet when its server starts again: they find the log
// open no more.
func (w *World) reopen(s *stream) {
	for _, x := range w.watchers {
		for _, k := range x.kinds {
			if k.stream == s {
				k.close()
			}
		}
	}
}
