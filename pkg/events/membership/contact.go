package membership

import (
	"context"
	"time"
)

const (
	// probeEvery is the interval of probes of the server that all replicas work on. A replica
	// without others probes only for the sake of readiness, every probeAlone.
	probeEvery = 300 * time.Millisecond
	probeAlone = 5 * time.Second
	// probeTimeout is the time-out of one probe.
	probeTimeout = 2 * time.Second
	// doubtAfter is how long an answer may take before this replica is in doubt.
	doubtAfter = 400 * time.Millisecond
	// cutOffAfter is for how long another replica must have had answers while this one waited,
	// before this one counts as cut off.
	cutOffAfter = 700 * time.Millisecond
	// regainedAfter is for how long answers must arrive again before the replica is no longer
	// cut off.
	regainedAfter = time.Second
)

// contact judges whether a replica is cut off from the server that all of them work on.
//
// A replica that waits too long for an answer is in doubt; it says so in its heartbeats, and
// keeps its work. It is cut off if another replica is not in doubt meanwhile. While all of them
// wait for answers, the server is slow or away, and moving work would not help. So the time
// limit can be short, and a server that stalls moves no work. Under load the other replicas may
// be in doubt now and then, too; so contact sums up the time, since the last answer, in which
// one of them was not.
//
// contact has no clock: the caller passes the time.
type contact struct {
	asked   time.Time     // start of the probe in flight; zero: none
	failed  bool          // the last probe failed
	judged  time.Time     // last call of lost
	envy    time.Duration // sum of the time in which another replica had answers
	steady  time.Time     // since when answers arrive again
	severed bool
}

func (c *contact) ask(now time.Time) { c.asked = now }

func (c *contact) answer(now time.Time, err error) {
	doubted := c.doubts(now)
	c.asked, c.failed = time.Time{}, err != nil
	if doubted && err == nil {
		c.steady = now
	}
}

// doubts reports whether an answer is overdue, or the last probe failed.
func (c *contact) doubts(now time.Time) bool {
	return c.failed || !c.asked.IsZero() && now.Sub(c.asked) >= doubtAfter
}

// lost reports whether this replica is cut off. Call it at every glance: a longer pause counts as
// two glances, because a suspended process cannot have seen another replica sure meanwhile.
func (c *contact) lost(now time.Time, otherSure bool) bool {
	passed := min(now.Sub(c.judged), 2*glance)
	c.judged = now
	switch {
	case !c.doubts(now):
		c.envy = 0
		c.severed = c.severed && now.Sub(c.steady) < regainedAfter
	case otherSure:
		if c.envy += passed; c.envy >= cutOffAfter {
			c.severed = true
		}
	}
	return c.severed
}

// probe probes until the context ends.
func (r *Membership) probe(ctx context.Context) {
	for r.config.Reach != nil && ctx.Err() == nil {
		r.mu.Lock()
		changed := r.changed
		r.contact.ask(time.Now())
		r.mu.Unlock()
		question, cancel := context.WithTimeout(ctx, probeTimeout)
		err := r.config.Reach(question)
		cancel()
		if ctx.Err() != nil {
			return
		}
		r.mu.Lock()
		r.contact.answer(time.Now(), err)
		alone := err == nil && r.book.fitOthers() == 0
		r.mu.Unlock()
		if r.config.Reached != nil {
			r.config.Reached(ctx, err)
		}
		r.rest(ctx, alone, changed)
	}
}

// rest waits between two probes. It ends early when a replica that is alone gets company.
func (r *Membership) rest(ctx context.Context, alone bool, changed <-chan struct{}) {
	wait := probeEvery
	if alone {
		wait = probeAlone
	} else {
		changed = nil
	}
	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-changed:
	case <-timer.C:
	}
}
