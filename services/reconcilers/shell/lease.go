package shell

import (
	"time"

	"github.com/millrace/millrace/pkg/events"
)

// A leased controller moves between Millrace and kube-controller-manager with a Lease, which a writer
// holds. The engine follows that writer's heartbeats: it folds all changes at all times, and decides
// only while the heartbeats name its controller. Its turns have the fencing token of the heartbeats,
// so that a writer refuses those of an earlier term. The heartbeats only save useless work: a forged
// one makes the engine decide, and no writer carries the turns out.

// lease is what an engine knows of the Lease of its controller.
type lease struct {
	share  Share  // the keys of this replica while a writer holds the Lease
	writer string // which writer holds it; "" if none does
	token  uint64 // the fencing token of that writer's term
	heard  time.Time
	timed  bool // a timer is set that checks whether heartbeats still come
}

// mayDecide returns the keys that this engine may decide about now.
func (d *Engine) mayDecide() Share {
	if d.settings.Leased && d.lease.writer == "" {
		return 0
	}
	return d.lease.share
}

// hearLease takes in whether a writer holds the Lease.
func (d *Engine) hearLease(b events.Heartbeat) {
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

// checkLease leaves the Lease once no heartbeat of its holder has come for maxHeartbeatAge.
func (d *Engine) checkLease() {
	if d.lease.timed || d.lease.writer == "" {
		return
	}
	d.lease.timed = true
	d.timers.set(d.lease.heard.Add(maxHeartbeatAge), func() {
		d.lease.timed = false
		if d.now.Sub(d.lease.heard) >= maxHeartbeatAge {
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
