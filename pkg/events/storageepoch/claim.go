package storageepoch

import (
	"context"
	"encoding/json"
	"time"

	"github.com/millrace/millrace/pkg/events"
)

// Claim is another process's statement about the storage epoch. It proves nothing, since any
// process with the right to publish can make it: it is a reason to check. Only what this process
// finds counts, not the number in the claim. A claim goes on trial: for some seconds the process
// checks again and again, and work that a restore would make wrong waits ([Tracker.Pending]).
// After a claim that was refuted, the process checks further claims less often, and no work
// waits for them.
type Claim struct {
	Epoch uint64 `json:"epoch"`
	// By is the ID that the sender gives itself; the bus does not verify it.
	By string `json:"by,omitempty"`
}

// Verdict is the result of checking a claim.
type Verdict string

// The verdicts.
const (
	// Confirmed: the process sees the claimed epoch or a later one.
	Confirmed Verdict = "confirmed"
	// Refuted: the process has checked, and does not see the claimed epoch.
	Refuted Verdict = "refuted"
	// Impossible: the epoch is beyond [events.MaxEpoch].
	Impossible Verdict = "impossible"
	// open: the process could not check.
	open Verdict = ""
)

// Verdicts are all verdicts that can be reported.
var Verdicts = []Verdict{Confirmed, Refuted, Impossible}

const (
	// checkEvery limits how often claims make a process check at all.
	checkEvery = 5 * time.Second
	// distrust is how long after a refuted claim no work waits for further claims.
	distrust = 10 * time.Minute
	// sayImpossible limits how often impossible claims are reported.
	sayImpossible = checkEvery
	// longest limits a message, and longestName the name in it, in bytes.
	longest, longestName = 1024, 256
)

// looks are the pauses before the checks of a trial. There are several because the process that
// finds a new epoch announces it before any log has a delta of that epoch.
var looks = []time.Duration{0, 250 * time.Millisecond, 500 * time.Millisecond, time.Second, 2 * time.Second, 4 * time.Second}

// decode reads a claim; ok is false for anything else.
func decode(data []byte) (c Claim, ok bool) {
	if len(data) > longest || json.Unmarshal(data, &c) != nil || c.Epoch == 0 {
		return Claim{}, false
	}
	c.By = c.By[:min(len(c.By), longestName)]
	return c, true
}

// trial is the claim that is being checked.
type trial struct {
	claim   Claim         // zero: no trial
	holds   bool          // work waits for it
	decided chan struct{} // closed at the verdict
	begun   chan struct{} // holds a token when a trial begins

	refuted    time.Time // when a claim was last refuted
	fruitless  time.Time // when a trial last ended without confirming its claim
	impossible time.Time // when an impossible claim was last reported
}

// hear receives a claim.
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

// try checks claims until the context ends.
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

// look checks the epoch after each of the pauses, and returns the verdict.
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

// Pending is the epoch of the claim on trial, and a channel that is closed at the verdict, after
// eight seconds at most; 0 when no work has to wait.
func (e *Tracker) Pending() (epoch uint64, decided <-chan struct{}) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if !e.trial.holds {
		return 0, nil
	}
	return e.trial.claim.Epoch, e.trial.decided
}
