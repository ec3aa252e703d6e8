package writer

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/cenkalti/backoff/v4"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/bus"
	"github.com/millrace/millrace/pkg/events/exemplar"
	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/pkg/events/sign"
	"github.com/millrace/millrace/pkg/events/sleep"
	"github.com/millrace/millrace/pkg/events/subject"
	"github.com/millrace/millrace/pkg/events/trace"
	"github.com/millrace/millrace/services/writer/apply/eventrecorder"
	"github.com/millrace/millrace/services/writer/claim"
	"github.com/millrace/millrace/services/writer/kindlog"
	"github.com/millrace/millrace/services/writer/limiter"
	"github.com/millrace/millrace/services/writer/plan"
)

// executor carries out the turns of one controller.
type executor struct {
	*Service
	profile *Profile
	slots   chan struct{}    // bounds the turns that are carried out at once
	limiter *limiter.Limiter // nil without limits on the controller's writes
	token   atomic.Uint64    // the fencing token of a leased controller's turns; 0 while this writer does not hold the Lease
}

func (s *Service) executor(p *Profile) *executor {
	concurrent := s.config.Concurrent[p.Name]
	if concurrent <= 0 {
		concurrent = defaultConcurrent
	}
	x := &executor{Service: s, profile: p, slots: make(chan struct{}, concurrent)}
	x.limiter = limiter.New(limiter.Config{
		Bus: s.config.Bus, Controller: p.Name, Limits: s.config.Limits, Now: s.time.now, Valid: x.checkOutcome, Log: s.config.Log,
	})
	for _, limit := range x.limiter.Names() {
		s.metrics.held.WithLabelValues(p.Name, limit) // so that the first one is an increase
	}
	return x
}

// work is the stream of the controller's turns. Its reading ends when the context does.
func (x *executor) work(reading context.Context) bus.Work {
	return bus.Work{
		Stream: subject.TurnStream(x.profile.Name), Durable: durable,
		AckWait: claim.AckWait, MaxPending: maxPending * cap(x.slots), Since: x.config.Since, Known: x.history(reading),
	}
}

// take accepts a delivery of a turn. reading ends when the writer is asked to stop, working when
// it has to.
func (x *executor) take(reading, working context.Context, d bus.Delivery) {
	at := claim.Place{Controller: x.profile.Name, Sequence: d.Message().Sequence}
	fresh := x.isFirstDelivery(d)
	x.inFlight.take(at, d, fresh, func() {
		select {
		case x.slots <- struct{}{}:
			defer func() { <-x.slots }()
		case <-reading.Done():
			x.inFlight.answer(at, func(d bus.Delivery) { d.NakWithDelay(0) }) // for another writer
			return
		}
		x.inFlight.answer(at, x.guarded(working, d, fresh))
	})
}

// isFirstDelivery reports whether this is the first delivery of a turn, as far as this writer can know.
// Another writer may have a turn that is not fresh in flight, or may have done it in part or
// completely. That also goes for an old turn: the consumer may have lost its state, and with it
// the earlier delivery.
func (x *executor) isFirstDelivery(d bus.Delivery) bool {
	return d.Attempt() <= 1 && x.age(d) <= claim.AckWait
}

// age is the time since a turn was stored, by the clock of the bus.
func (x *executor) age(d bus.Delivery) time.Duration { return x.time.now().Sub(d.Message().Time) }

// mayHaveBegun reports whether a turn that no writer has in flight may have been carried out in part. A
// turn that has only waited behind many others has not: the bus counts no earlier delivery, and
// had the bus lost that count, this writer would have heard the other writer's heartbeats.
// untouched reports whether there has been no other writer at all.
func (x *executor) mayHaveBegun(d bus.Delivery) (begun, untouched bool) {
	stored := time.Now().Add(-x.age(d))
	if d.Attempt() > 1 || !x.inFlight.watched(stored) {
		return true, false
	}
	return false, x.inFlight.alone(claim.Place{Controller: x.profile.Name, Sequence: d.Message().Sequence}, stored)
}

// execute carries a turn out and returns the answer to its delivery.
func (x *executor) execute(ctx context.Context, d bus.Delivery, fresh bool) (answer func(bus.Delivery)) {
	m := d.Message()
	controller, lane, key, err := subject.ParseTurn(m.Subject)
	if err == nil && controller != x.profile.Name {
		err = fmt.Errorf("the turn of %s in the stream of %s", controller, x.profile.Name)
	}
	if err != nil {
		return x.terminate(m, err) // no reconciler waits for an outcome under such a subject
	}
	if err := x.config.Turns.Turn(m, x.config.MaxAge); err != nil {
		return x.refuseMessage(ctx, m, lane, key, err)
	}
	if lane == events.LanePark {
		return bus.Delivery.Ack
	}
	begun, untouched := false, fresh
	if !fresh {
		begun, untouched = x.mayHaveBegun(d)
	}
	if !untouched {
		if answer, known := x.answerKnown(ctx, m, lane, key, begun); known {
			return answer
		}
	}
	turn, err := read(m, lane, key, controller, x.profile.Owns)
	if err != nil {
		return x.refuseMessage(ctx, m, lane, key, err)
	}
	if turn.Repeats > 0 && x.inFlight.elsewhere(claim.Place{Controller: x.profile.Name, Sequence: turn.Repeats}) {
		return func(d bus.Delivery) { d.NakWithDelay(claim.Interval) }
	}
	ctx, span := x.traced(ctx, d, turn)
	defer span.End()
	return x.executeTurn(ctx, m, turn, begun || turn.Repeats > 0)
}

// refuseMessage settles a message that no honest reconciler has written. It stores an outcome, since the
// message has its place in the order of turns; see [events.BadSignature] for what that does not
// say.
func (x *executor) refuseMessage(ctx context.Context, m events.Message, lane events.Lane, key events.Key, err error) func(bus.Delivery) {
	turn := events.Turn{Controller: x.profile.Name, Lane: lane, Key: key, Commands: make([]events.Command, 1)}
	refusal := plan.Refusal{Reason: fault(err), Message: err.Error()}
	if unsettled := x.storeOutcome(ctx, m, turn, refusal.Refuse(turn)); unsettled != nil {
		return x.handBack(m, unsettled)
	}
	return x.terminate(m, err)
}

// fault is the reason for refusing a message that is not a valid turn.
func fault(err error) string {
	switch {
	case errors.Is(err, sign.ErrUnsigned), errors.Is(err, sign.ErrUnproven):
		return events.BadSignature
	case errors.Is(err, events.ErrDamaged):
		return "Damaged"
	}
	return "Malformed"
}

// answerKnown returns the answer to a turn that is not fresh, if another writer has it in flight or
// nothing is left to do. Turns of one key and lane follow each other: if this turn or a later one
// has an outcome, this turn is settled, and if there is a later turn, that one is to be carried
// out instead.
func (x *executor) answerKnown(ctx context.Context, m events.Message, lane events.Lane, key events.Key, begun bool) (answer func(bus.Delivery), known bool) {
	at := claim.Place{Controller: x.profile.Name, Sequence: m.Sequence}
	if !x.inFlight.claim(at) || begun && !x.inFlight.awaitAnnounced(ctx, at) {
		return func(d bus.Delivery) { d.NakWithDelay(claim.Interval) }, true
	}
	settled, err := x.isSettled(ctx, m, lane, key)
	switch {
	case err != nil:
		return x.handBack(m, err), true
	case settled:
		return bus.Delivery.Ack, true
	default:
		return nil, false
	}
}

// isSettled reports whether nothing is left to do for a turn: it or a later one of its key and lane has
// an outcome, or there is a later turn.
func (x *executor) isSettled(ctx context.Context, m events.Message, lane events.Lane, key events.Key) (bool, error) {
	settled, err := x.hasOutcome(ctx, m, lane, key)
	if err != nil || settled {
		return settled, err
	}
	return x.hasLater(ctx, m)
}

// isLost reports whether the stream lost a turn together with its end. The reconcilers then ask its
// key again and decide as if there had been no such turn.
func (x *executor) isLost(ctx context.Context, m events.Message) (bool, error) {
	there, ok, err := x.config.Bus.At(ctx, m.Stream, m.Sequence)
	if errors.Is(err, events.ErrDamaged) {
		return false, nil
	}
	return err == nil && !(ok && there.Time.Equal(m.Time)), err
}

// refuseOld refuses a turn that was stored too long ago by the clock of the bus, since the clocks of
// the reconcilers and of the writer may be wrong. The bus's time says nothing of a repetition,
// which has just been stored: only the reconcilers' time tells how old that is.
func (x *executor) refuseOld(m events.Message, turn events.Turn) plan.Refusal {
	if turn.Repeats > 0 {
		return plan.Aged(turn, x.config.Clock.Now(), x.config.MaxAge)
	}
	turn.Now = m.Time
	return plan.Aged(turn, x.time.now(), x.config.MaxAge)
}

// hasLater reports whether there is a later turn of the key and lane. It returns false if the newest
// one is damaged: that turn has its place in the order, but which one is unknown.
func (x *executor) hasLater(ctx context.Context, m events.Message) (bool, error) {
	last, ok, err := x.config.Bus.Last(ctx, m.Stream, m.Subject)
	if errors.Is(err, events.ErrDamaged) {
		return false, nil
	}
	return ok && last.Sequence > m.Sequence, err
}

// read decodes the turn in a message. The turn's own fields must agree with the subject, since the
// subject is what its sender had the right to publish on.
func read(m events.Message, lane events.Lane, key events.Key, controller string, owns kinds.Name) (turn events.Turn, err error) {
	if err := events.DecodeJSON(m, &turn); err != nil {
		return turn, err
	}
	if turn.Controller != controller || turn.Lane != lane || turn.Key != key {
		return turn, fmt.Errorf("the turn says it is %s's, lane %s, about %v; its subject is %s", turn.Controller, turn.Lane, turn.Key, m.Subject)
	}
	return turn, plan.Check(turn, owns)
}

func (x *executor) executeTurn(ctx context.Context, m events.Message, turn events.Turn, again bool) func(bus.Delivery) {
	began := x.config.Clock.Now()
	refusal, own, err := x.refusal(ctx, m, turn)
	if err != nil {
		return x.handBack(m, err)
	}
	held, err := x.held(ctx, m, turn, own, refusal)
	if err != nil {
		return x.handBack(m, err)
	}
	p := plan.New(turn, plan.Options{
		Again: again, DryRun: x.config.Mode == DryRun, Off: x.config.Mode == Off, Refused: refusal, Held: held, Promised: x.profile.Allowed, Fits: x.profile.fits(turn, own, kindlog.ObjectsOf(ctx, x.config.Bus, turn)),
	})
	holds := x.claimTurn(ctx, m, turn)
	if again {
		holds = x.untilOutcome(ctx, m, turn, holds)
	}
	results, done := x.api.Execute(ctx, x.profile.actor(), p, holds, func(command, try int) string { return auditID(m, command, try) })
	switch {
	case !holds():
		return x.dropLost(m)
	case !done:
		x.inFlight.giveUp()
		return func(d bus.Delivery) { d.NakWithDelay(x.share.redeliveryDelay()) }
	}
	if err := x.storeOutcome(ctx, m, turn, results); err != nil {
		x.inFlight.giveUp()
		return x.handBack(m, err)
	}
	x.logResult(m, turn, results)
	exemplar.Observe(x.metrics.turns.WithLabelValues(x.profile.Name, turn.Lane.String()), x.config.Clock.Since(began).Seconds(), turn.Trace)
	for _, event := range plan.Events(turn, results) {
		x.recorder.Record(eventrecorder.Event{
			Actor: x.profile.actor(), Source: x.profile.Source, ID: auditID(m, event.Command, 1), Event: event,
		})
	}
	return bus.Delivery.Ack
}

// refusal returns why the whole turn may not be carried out, and the newest delta of its object.
func (x *executor) refusal(ctx context.Context, m events.Message, turn events.Turn) (refused plan.Refusal, own events.Delta, err error) {
	if old := x.refuseOld(m, turn); old != (plan.Refusal{}) {
		return old, own, nil
	}
	if x.profile.Leased {
		if other := plan.OtherTerm(turn, x.token.Load()); other != (plan.Refusal{}) {
			return other, own, nil
		}
	}
	if err := x.epochs.Await(ctx, turn.Epochs.Newest()); err != nil {
		return refused, own, err
	}
	now, err := x.epochs.OfKinds(ctx, slices.Collect(maps.Keys(turn.Seen)))
	if err != nil {
		return refused, own, err
	}
	if over := plan.Over(turn, now, x.epochs.Storage()); over != (plan.Refusal{}) {
		return over, own, nil
	}
	ref := events.Ref{Kind: cmp.Or(turn.Kind, turn.Key.Kind, x.profile.Owns), Namespace: turn.Key.Namespace, Name: turn.Key.Name}
	if turn.Lane != events.LaneWrite && !updatesStatus(turn) || ref.Kind == "" {
		return refused, own, nil
	}
	m, ok, err := x.config.Bus.Last(ctx, subject.LogStream(ref.Kind), subject.Delta(ref))
	if errors.Is(err, bus.ErrNoStream) {
		return refused, own, nil // the kind is not watched: the conditions of the commands must suffice
	}
	if err != nil {
		return refused, own, fmt.Errorf("look up %v: %w", ref, err)
	}
	if ok {
		if own, err = events.DecodeDelta(ref, m); err != nil {
			return refused, own, err
		}
	}
	return plan.Stale(turn, own, ok), own, nil
}

// held returns which commands of a turn the controller's write limits hold. A turn that is refused as
// a whole is not judged.
func (x *executor) held(ctx context.Context, m events.Message, turn events.Turn, own events.Delta, refused plan.Refusal) (map[int]plan.Refusal, error) {
	if refused != (plan.Refusal{}) || x.config.Mode == Off {
		return nil, nil
	}
	return x.limiter.Judge(ctx, m, turn, kindlog.ObjectOf(own))
}

// checkOutcome returns nil if a writer has stored the outcome, and else why it does not count.
func (x *executor) checkOutcome(m events.Message) error {
	if x.config.Outcomes != nil {
		return x.config.Outcomes.Outcome(m)
	}
	if x.config.Turns != nil && x.config.Turns.History(m) {
		return nil
	}
	return x.config.Sign.OwnOutcome(m)
}

// hasOutcome reports whether a turn, or a later one of its key and lane, has an outcome. An outcome
// that cannot be read, or that no writer has signed, does not count: carrying the turn out again
// will find its effects.
func (x *executor) hasOutcome(ctx context.Context, m events.Message, lane events.Lane, key events.Key) (bool, error) {
	controller := x.profile.Name
	last, ok, err := x.config.Bus.Last(ctx, subject.OutcomeStream(controller), subject.Outcome(controller, lane, key))
	if err == nil && ok {
		if err := x.checkOutcome(last); err != nil {
			x.log(m).Error("ignored an outcome without a trusted signature", "outcome", last.Sequence, "err", err)
			x.metrics.alarms.WithLabelValues(controller, "BadOutcome").Inc()
			return false, nil
		}
		var outcome events.Outcome
		if err = events.DecodeJSON(last, &outcome); err == nil {
			return outcome.Turn >= m.Sequence && !replaces(m, outcome) && !bus.Before(last, m), nil
		}
		x.log(m).Error("cannot read an outcome", "outcome", last.Sequence, "err", err)
		x.metrics.alarms.WithLabelValues(controller, "Damaged").Inc()
		return false, nil
	}
	if errors.Is(err, events.ErrDamaged) {
		return false, nil
	}
	return false, err
}

// replaces reports whether a message is another turn than the one that an outcome belongs to. The
// stream lost that earlier turn with its end, and gave its sequence to this one.
func replaces(m events.Message, outcome events.Outcome) bool {
	var turn events.Turn
	if outcome.Turn != m.Sequence || outcome.Decided.IsZero() || events.DecodeJSON(m, &turn) != nil {
		return false
	}
	return !outcome.IsOf(m.Sequence, turn.Now)
}

// history returns a function that reports whether an old turn, met on the way to newer ones, has its
// outcome.
func (x *executor) history(ctx context.Context) func(events.Message) bool {
	return func(m events.Message) bool {
		_, lane, key, err := subject.ParseTurn(m.Subject)
		if err != nil || lane == events.LanePark {
			return err == nil
		}
		settled, err := x.hasOutcome(ctx, m, lane, key)
		return err == nil && settled
	}
}

// claimTurn returns the claim on a turn. While another writer may have the turn, the claim waits until
// no writer has it or the claim is lost.
func (x *executor) claimTurn(ctx context.Context, m events.Message, turn events.Turn) func() bool {
	at := claim.Place{Controller: x.profile.Name, Sequence: m.Sequence}
	return func() bool {
		for {
			switch x.inFlight.standing(at) {
			case claim.Held:
				return true
			case claim.Lost:
				return false
			case claim.Free:
				over, err := x.isSettled(ctx, m, turn.Lane, turn.Key)
				if err == nil && !over {
					over, err = x.isLost(ctx, m)
				}
				switch {
				case err == nil && over:
					return false
				case err == nil:
					x.inFlight.regain(at)
					continue
				}
			case claim.Uncertain:
			}
			if sleep.For(ctx, claim.Interval/8); ctx.Err() != nil {
				return false
			}
		}
	}
}

// outcomeCheckEvery is how often a writer checks whether another one has settled a turn. A turn of many
// commands must not query the bus before each of them.
const outcomeCheckEvery = 50 * time.Millisecond

// untilOutcome returns the claim on a turn that another writer may have had. The claim ends soon after
// the turn has an outcome.
func (x *executor) untilOutcome(ctx context.Context, m events.Message, turn events.Turn, holds func() bool) func() bool {
	settled, looked := false, time.Time{}
	return func() bool {
		if settled || !holds() {
			return false
		}
		if time.Since(looked) >= outcomeCheckEvery {
			found, err := x.hasOutcome(ctx, m, turn.Lane, turn.Key)
			settled, looked = err == nil && found, time.Now()
		}
		return !settled
	}
}

// dropLost drops a turn whose claim was lost. The writer does not answer it: the bus might take that
// for the answer of the writer that has the turn now.
func (x *executor) dropLost(m events.Message) func(bus.Delivery) {
	x.inFlight.giveUp()
	x.log(m).Warn("let go of a turn that another writer may have")
	return func(bus.Delivery) {}
}

// outcomePatience bounds how long a writer retries to store an outcome. The bus deduplicates outcomes for
// longer than that, so it still knows of one that another writer stored meanwhile.
const outcomePatience = 90 * time.Second

// storeOutcome stores the outcome of a turn.
func (x *executor) storeOutcome(ctx context.Context, m events.Message, turn events.Turn, results []events.Result) error {
	span := trace.From(ctx)
	outcome := events.Outcome{
		Controller: turn.Controller, Key: turn.Key, Lane: turn.Lane, Turn: m.Sequence, Decided: turn.Now,
		Results: results, Epochs: x.epochsOf(ctx, turn, results), At: x.config.Clock.Now().UTC(), Trace: span.Or(turn.Trace),
		WriteCounts: x.limiter.Written(m, results),
	}
	if outcome.Epochs[turn.Kind] == turn.Epochs[turn.Kind] {
		outcome.UID, outcome.ResourceVersion = turn.UID, turn.ResourceVersion
	}
	message, err := events.EncodeJSON(outcome, outcome.Trace)
	if err != nil {
		return err
	}
	message.Subject = subject.Outcome(turn.Controller, turn.Lane, turn.Key)
	// The timestamp distinguishes the turn from one that had its sequence before the stream lost
	// its end.
	id := m.Stream + ":" + strconv.FormatUint(m.Sequence, 10) + ":" + strconv.FormatInt(m.Time.UnixNano(), 10)
	put := func() error {
		x.config.Sign.Outcome(message, id, x.time.now())
		_, err := x.config.Bus.Put(ctx, message, id)
		if errors.Is(err, bus.ErrTooLarge) || errors.Is(err, bus.ErrClosed) {
			return backoff.Permanent(err)
		}
		return err
	}
	pauses := backoff.WithContext(backoff.NewExponentialBackOff(
		backoff.WithInitialInterval(50*time.Millisecond), backoff.WithMaxInterval(2*time.Second), backoff.WithMaxElapsedTime(outcomePatience),
	), ctx)
	if err := backoff.Retry(put, pauses); err != nil {
		return fmt.Errorf("store the outcome of turn %d of %s: %w", m.Sequence, turn.Controller, err)
	}
	recordOutcome(span, outcome)
	for _, r := range results {
		verb := plan.VerbOf(verbAt(turn, r.Command))
		status := string(r.Status)
		if r.Held() {
			status = "held"
			x.metrics.held.WithLabelValues(x.profile.Name, r.Cause).Inc()
		}
		x.metrics.results.WithLabelValues(x.profile.Name, verb, status).Inc()
		if r.Reason == plan.NotPromised || r.Reason == plan.Redacted {
			x.metrics.alarms.WithLabelValues(x.profile.Name, r.Reason).Inc()
		}
	}
	return nil
}

// epochsOf returns the epochs of the kinds that a turn and its results are about. It returns none
// if they cannot be looked up; the reader then has to go by the time.
func (x *executor) epochsOf(ctx context.Context, turn events.Turn, results []events.Result) events.Epochs {
	found, err := x.epochs.OfKinds(ctx, events.Concerns(turn.Kind, results))
	if err != nil {
		x.config.Log.Warn("cannot determine the epoch of an outcome", "controller", x.profile.Name, "err", err)
	}
	return turn.Dated(results, found)
}

// terminate terminates a message that no honest reconciler writes.
func (x *executor) terminate(m events.Message, err error) func(bus.Delivery) {
	x.metrics.alarms.WithLabelValues(x.profile.Name, fault(err)).Inc()
	x.log(m).Error("refused a message that is no turn", "err", err)
	return func(d bus.Delivery) { d.Term(err.Error()) }
}

// handBack hands a turn back if the bus does not answer, or if the turn was interrupted before its
// first request.
func (x *executor) handBack(m events.Message, err error) func(bus.Delivery) {
	if errors.Is(err, context.Canceled) {
		return func(d bus.Delivery) { d.NakWithDelay(x.share.redeliveryDelay()) }
	}
	x.log(m).Warn("handed a turn back", "err", err)
	return func(d bus.Delivery) { d.NakWithDelay(time.Second) }
}

// auditID names a request of a command: the stream and sequence of its turn, the command's
// position, and the try from the second on.
func auditID(m events.Message, command, try int) string {
	id := m.Stream + "." + strconv.FormatUint(m.Sequence, 10) + "." + strconv.Itoa(command)
	if try > 1 {
		id += "." + strconv.Itoa(try)
	}
	return id
}
