package engine

import (
	"slices"
	"time"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/report"
	"github.com/millrace/millrace/services/reconcilers/cache"
	"github.com/millrace/millrace/services/reconcilers/shard"
)

// An engine decides about the keys of this replica's shards (package shard), and only while a
// writer holds the Lease, if its controller is leased.

func (d *Engine) owns(key events.Key) bool { return d.share.Has(shard.Of(key)) }

// Own sets the share of keys that this replica decides about. While no writer holds the Lease of a
// leased controller, the engine decides about none of them.
func (d *Engine) Own(share shard.Set) {
	d.lease.share = share
	d.decideAbout(d.mayDecide())
}

// decideAbout sets the share of keys that this engine decides about. It asks about all keys of the
// shards gained, because the changes that asked for them before may have gone to a replica that
// is gone. It releases the keys of the shards lost, and finishes only their turns in flight.
//
// Replicas may disagree for a moment about who owns a shard. A turn is stored behind the last
// one of its key, so that the bus refuses one of two replicas.
func (d *Engine) decideAbout(share shard.Set) {
	gained := share &^ d.share
	d.share = share
	for _, e := range d.sorted() {
		if !d.owns(e.key) {
			d.release(e)
		}
	}
	if gained == 0 || !d.HasOpened() {
		return // an engine that opens asks about every key
	}
	keys, unread := d.keys()
	for _, k := range keys {
		if gained.Has(shard.Of(k)) {
			d.Ask(k)
		}
	}
	d.takeChanges(cache.Changes{Unmapped: slices.DeleteFunc(unread, func(u cache.Unmapped) bool { return !gained.Has(shard.Of(events.Key(u.Ref))) })})
}

// release drops what a key wants, and the key when nothing of it is in flight.
func (d *Engine) release(e *entry) {
	e.dirty, e.Causes, e.first = false, cache.Causes{}, false
	e.invalidate()
	if e.parked != nil {
		e.parked = nil
		delete(d.parked, e.key)
	}
	d.reportGauges(e.key, nil)
	d.dropUnowned(e)
}

// dropUnowned drops a key of another replica when nothing of it is in flight here.
func (d *Engine) dropUnowned(e *entry) {
	busy := e.round != nil || e.recalling > 0 || e.parking != "" || e.write.repeating || e.status.repeating
	if !busy && d.entries[e.key] == e && !d.owns(e.key) {
		delete(d.entries, e.key)
	}
}

// A leased controller moves between Millrace and kube-controller-manager with a Lease, which a writer
// holds. The engine follows that writer's heartbeats: it folds all changes at all times, and decides
// only while the heartbeats name its controller. Its turns have the fencing token of the heartbeats,
// so that a writer refuses those of an earlier term. The heartbeats only save useless work: a forged
// one makes the engine decide, and no writer carries the turns out.

// lease is what an engine knows of the Lease of its controller.
type lease struct {
	share  shard.Set // the keys of this replica while a writer holds the Lease
	writer string    // which writer holds it; "" if none does
	token  uint64    // the fencing token of that writer's term
	heard  time.Time
	timed  bool // a timer is set that checks whether heartbeats still come
}

// mayDecide returns the keys that this engine may decide about now.
func (d *Engine) mayDecide() shard.Set {
	if d.settings.Leased && d.lease.writer == "" {
		return 0
	}
	return d.lease.share
}

// hearLease takes in whether a writer holds the Lease.
func (d *Engine) hearLease(b report.Heartbeat) {
	token, holds := b.Leads[d.name]
	switch {
	case !d.settings.Leased:
	case holds:
		if token != d.lease.token {
			d.leaveLease() // what is decided from now on is of another term
		}
		d.followLease(b.Writer, token)
	case b.Writer == d.lease.writer:
		d.leaveLease()
	}
}

// followLease decides about this replica's keys for as long as a writer holds the Lease.
func (d *Engine) followLease(writer string, token uint64) {
	began := d.lease.writer == ""
	d.lease.writer, d.lease.token, d.lease.heard = writer, token, d.now
	d.checkLease()
	if began {
		d.decideAbout(d.mayDecide())
		d.reportLease(true)
	}
}

// leaveLease decides about nothing, since no writer holds the Lease.
func (d *Engine) leaveLease() {
	if d.lease.writer == "" {
		return
	}
	d.lease.writer, d.lease.token = "", 0
	d.decideAbout(d.mayDecide())
	d.reportLease(false)
}

// checkLease leaves the Lease once no heartbeat of its holder has come for MaxHeartbeatAge.
func (d *Engine) checkLease() {
	if d.lease.timed || d.lease.writer == "" {
		return
	}
	d.lease.timed = true
	d.timers.Set(d.lease.heard.Add(MaxHeartbeatAge), func() {
		d.lease.timed = false
		if d.now.Sub(d.lease.heard) >= MaxHeartbeatAge {
			d.leaveLease()
		}
		d.checkLease()
	})
}

func (d *Engine) reportLease(held bool) {
	if d.settings.Led != nil {
		d.settings.Led(held)
	}
}
