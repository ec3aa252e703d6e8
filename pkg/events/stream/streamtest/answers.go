package streamtest

import (
	"fmt"
	"testing"
	"time"

	"github.com/millrace/millrace/pkg/events/bus"
	"github.com/millrace/millrace/pkg/events/subject"
)

// answerRounds bounds the attempts of testWorkAnswers.
const answerRounds = 5

// testWorkAnswers: the answer to a delivery decides whether it comes again. The bus redelivers
// everything to a worker that answers late; so when this machine has stalled for half of
// AckWait, the test judges nothing and starts again.
func testWorkAnswers(t *testing.T, b bus.Bus) {
	k := newKit(t, b)
	for round := 0; ; round++ {
		a := &answering{kit: k, wait: time.Second << min(round, 3), stream: subject.TurnStream(controller), again: map[string]int{}}
		a.answer(round)
		if !a.late {
			for _, complaint := range a.wrong {
				t.Error(complaint)
			}
			return
		}
		if round+1 == answerRounds {
			t.Fatalf("in each of %d rounds this machine stood still, or the bus: %v", answerRounds, a.wrong)
		}
		t.Logf("once more, after %d of at most %d rounds: this machine stood still (%v)", round+1, answerRounds, a.wrong)
	}
}

// answering is one round of deliveries, which are answered in every way.
type answering struct {
	*kit
	wait   time.Duration
	stream string
	worker *working
	step   time.Time // when the last step was done
	late   bool      // too much time passed between two steps
	wrong  []string

	begun map[string]time.Time // the times before which they cannot have been delivered or postponed
	again map[string]int
}

// did records that a step was done, and that the bus still answers.
func (a *answering) did() {
	a.Helper()
	a.state(a.stream)
	a.late = a.late || time.Since(a.step) > a.wait/2
	a.step = time.Now()
}

func (a *answering) answer(round int) {
	a.Helper()
	job := bus.Work{Stream: a.stream, Durable: fmt.Sprint("writer-", round), AckWait: a.wait, Since: time.Nanosecond}
	a.worker = a.work(job)
	defer a.stop(a.worker)
	a.made(job.Stream, job.Durable)
	a.step, a.begun = time.Now(), map[string]time.Time{}
	for _, name := range []string{"unanswered", "later", "term", "working", "done"} {
		a.begun[name] = time.Now()
		_, err := a.bus.Store(a.ctx, turn(fmt.Sprint(name, "-", round), name), 0)
		a.must(err)
		a.did()
	}
	held := a.first()
	a.hear(held)
	for name, want := range map[string]int{"unanswered": 1, "later": 1} {
		if a.again[name] != want {
			a.wrong = append(a.wrong, fmt.Sprintf("%s came again %d times, want %d", name, a.again[name], want))
		}
		delete(a.again, name)
	}
	if len(a.again) > 0 {
		a.wrong = append(a.wrong, fmt.Sprintf("these came again: %v", a.again))
	}
	if a.late || a.again["working"] > 0 { // the one that was held is answered
		return
	}
	held.NakWithDelay(0)
	if d := a.next(a.worker); string(d.Message().Data) != "working" {
		a.wrong = append(a.wrong, fmt.Sprintf("after Later(0) came %s", d.Message().Data))
	}
	a.did()
}

// first answers each first delivery, and returns the one that is being worked on.
func (a *answering) first() (held bus.Delivery) {
	a.Helper()
	for range a.begun {
		d := a.next(a.worker)
		switch name := string(d.Message().Data); name {
		case "later":
			a.begun[name] = time.Now()
			d.NakWithDelay(300 * time.Millisecond)
		case "term":
			d.Term("cannot be\nread")
		case "working":
			held = d
		case "done":
			d.Ack()
		}
		a.did()
	}
	if held == nil { // a redelivery came already
		a.late = true
		held = a.next(a.worker)
	}
	return held
}

// hear sends InProgress at intervals, for three times AckWait, and counts the redeliveries. It is
// late when AckWait has gone by half since the held delivery, or since the last InProgress: many
// short steps can add up to that.
func (a *answering) hear(held bus.Delivery) {
	tick := time.NewTicker(a.wait / 5)
	defer tick.Stop()
	reported := a.begun["working"]
	for deadline := time.After(3 * a.wait); deadline != nil; {
		select {
		case <-tick.C:
			held.InProgress()
			a.late = a.late || time.Since(reported) > a.wait/2
			reported = time.Now()
		case <-deadline:
			deadline = nil
		case d := <-a.worker.deliveries:
			name := string(d.Message().Data)
			a.again[name]++
			least := map[string]time.Duration{"unanswered": a.wait, "later": 300 * time.Millisecond}[name]
			if took := time.Since(a.begun[name]); d.Attempt() != 2 || took < least-50*time.Millisecond {
				a.wrong = append(a.wrong, fmt.Sprintf("%s came again after %v, attempt %d", name, took, d.Attempt()))
			}
			d.Ack()
		}
		a.did()
	}
}
