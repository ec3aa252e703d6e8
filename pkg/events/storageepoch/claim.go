package storageepoch

import (
	"context"
	"encoding/json"
	"time"

	"github.com/millrace/millrace/pkg/events"
)

// Claim is what another process says of the storage. It proves nothing, since anybody
// who may publish can say it: it is a reason to look. What a process finds then counts,
// and not the number in the claim. So a claim is on trial: for some seconds the process
// looks again and again, and work that a restore would make wrong waits meanwhile
// ([Tracker.Pending]). After a claim that was not borne out, further ones are looked into as
// well, seldom, and no work waits for them.
type Claim struct {
	Epoch uint64 `json:"epoch"`
	// By is who says so, as far as it says; the bus does not tell.
	By string `json:"by,omitempty"`
}

// Verdict is what came of a claim.
type Verdict string

// The verdicts.
const (
	// Confirmed: the process sees the same, or a later epoch.
	Confirmed Verdict = "confirmed"
	// Refuted: it has looked, and sees nothing of it.
	Refuted Verdict = "refuted"
	// Impossible: there is no such epoch.
	Impossible Verdict = "impossible"
	// open: it could not look.
	open Verdict = ""
)

// Verdicts are all of them.
var Verdicts = []Verdict{Confirmed, Refuted, Impossible}

const (
	// checkEvery bounds how often claims make a process look at all.
	checkEvery = 5 * time.Second
	// distrust is for how long after a claim that was refuted no work waits for others.
	distrust = 10 * time.Minute
	// sayImpossible bounds how often impossible claims are told of.
	sayImpossible = checkEvery
	// longest bounds a message, and longestName the name in it, in bytes.
	longest, longestName = 1024, 256
)

// looks are the pauses before each look of a trial. The process that found out tells of it
// before the first delta of the new epoch is in any log.
var looks = []time.Duration{0, 250 * time.Millisecond, 500 * time.Millisecond, time.Second, 2 * time.Second, 4 * time.Second}

// decode reads a claim; ok is false for anything else.
func decode(data []byte) (c Claim, ok bool) {
	if len(data) > longest || json.Unmarshal(data, &c) != nil || c.Epoch == 0 {
		return Claim{}, false
	}
	c.By = c.By[:min(len(c.By), longestName)]
	return c, true
}

// trial is the claim that is being looked into.
type trial struct {
	claim   Claim         // the zero value: there is none
	holds   bool          // work waits for it
	decided chan struct{} // closed when it has been decided
	begun   chan struct{} // holds a token when there is one

	refuted    time.Time // when one was last refuted
	fruitless  time.Time // when a trial last ended without having confirmed one
	impossible time.Time // when one that cannot be was last told of
}

// hear takes in a claim.
func (e *Tracker) hear(claim Claim, c Config) {
	e.mu.Lock()
	now, t := time.Now(), &e.trial
	verdict := open
	switch {
	case claim.Epoch > events.MaxEpoch:
		if t.impossible.IsZero() || now.Sub(t.impossible) >= sayImpossible {
			t.impossible, verdict = now, Impossible
		}
	case claim.Epoch <= e.epoch, t.claim != Claim{}, !t.fruitless.IsZero() && now.Sub(t.fruitless) < checkEvery:
	default:
		t.claim, t.decided = claim, make(chan struct{})
		t.holds = t.refuted.IsZero() || now.Sub(t.refuted) >= distrust
		t.begun <- struct{}{}
	}
	e.mu.Unlock()
	if verdict != open && c.Judged != nil {
		c.Judged(claim, verdict)
	}
}

// try looks into claims until the context ends.
func (e *Tracker) try(ctx context.Context, c Config) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-e.trial.begun:
		}
		e.mu.Lock()
		claim, pauses := e.trial.claim, looks
		if !e.trial.holds {
			pauses = looks[:1]
		}
		e.mu.Unlock()
		verdict := e.look(ctx, c, claim, pauses)
		e.decide(verdict)
		if verdict != open && c.Judged != nil {
			c.Judged(claim, verdict)
		}
	}
}

// look looks as often as pauses says, and tells what came of it.
func (e *Tracker) look(ctx context.Context, c Config, claim Claim, pauses []time.Duration) (v Verdict) {
	for i, pause := range pauses {
		_, over := e.Now()
		wait(ctx, over, pause)
		seen, err := c.Check(ctx, i == 0)
		e.Begin(seen)
		if now, _ := e.Now(); now >= claim.Epoch {
			return Confirmed
		}
		if v = Refuted; err != nil || ctx.Err() != nil {
			v = open
		}
		if ctx.Err() == nil {
			c.trouble("look which epoch the storage is in", err)
		}
	}
	return v
}

func (e *Tracker) decide(v Verdict) {
	e.mu.Lock()
	defer e.mu.Unlock()
	t := &e.trial
	if v != Confirmed {
		t.fruitless = time.Now()
	}
	if v == Refuted {
		t.refuted = t.fruitless
	}
	t.claim, t.holds = Claim{}, false
	close(t.decided)
}

// Pending is the epoch that a claim on trial says, and what is closed when it is
// decided, which takes eight seconds at most; 0 where nothing has to wait.
func (e *Tracker) Pending() (epoch uint64, decided <-chan struct{}) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if !e.trial.holds {
		return 0, nil
	}
	return e.trial.claim.Epoch, e.trial.decided
}
