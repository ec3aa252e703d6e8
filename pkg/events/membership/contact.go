package membership

import (
	"context"
	"time"
)

const (
	// probeEvery is how often what all replicas work on is asked whether it answers. A
	// replica without others asks for the sake of readiness alone, every probeAlone.
	probeEvery = 300 * time.Millisecond
	probeAlone = 5 * time.Second
	// probeTimeout is when one question is given up and the next one asked.
	probeTimeout = 2 * time.Second
	// doubtAfter is how long an answer may take.
	doubtAfter = 400 * time.Millisecond
	// cutOffAfter is for how long another replica must have had its answers while this
	// one waited.
	cutOffAfter = 700 * time.Millisecond
	// regainedAfter is for how long the answers must have come again.
	regainedAfter = time.Second
)

// contact judges whether a replica is cut off from what all of them work on.
//
// A replica without an answer is in doubt and says so, and keeps its work. It is cut off
// if another replica is not in doubt meanwhile. While all of them wait for their
// answers, the server is slow or away, and to move work would not help. So the time
// without an answer can be short and a server that stands still moves nothing. Under load
// the other replicas may be in doubt now and then, too: what counts is the sum of the
// time for which one of them was not, since the last answer.
//
// It has no clock: the caller says what time it is.
type contact struct {
	asked   time.Time     // when the question under way was asked; zero: there is none
	failed  bool          // the newest answer was none
	judged  time.Time     // when it was last judged
	envy    time.Duration // for how long another replica had its answers meanwhile
	steady  time.Time     // since when the answers come
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

// doubts tells whether an answer should have come and has not.
func (c *contact) doubts(now time.Time) bool {
	return c.failed || !c.asked.IsZero() && now.Sub(c.asked) >= doubtAfter
}

// lost tells whether this replica is cut off. It is to be asked at every glance: a
// process that stood still has not seen another one be sure meanwhile.
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

// probe asks until the context ends.
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

// rest is between two questions. It is over when a replica that is alone has company.
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
