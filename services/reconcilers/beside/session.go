package beside

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"k8s.io/klog/v2"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/bus"
	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/pkg/events/report"
	"github.com/millrace/millrace/pkg/events/sleep"
	"github.com/millrace/millrace/pkg/events/subject"
	"github.com/millrace/millrace/services/reconcilers/cache"
	"github.com/millrace/millrace/services/reconcilers/reconcile"
	"github.com/millrace/millrace/services/reconcilers/shadow"
)

const (
	// inbox is how many messages may wait after they were read.
	inbox = 4096
	// tick is how often the session takes messages from the order.
	tick = 50 * time.Millisecond
	// search is how often the session looks for kinds.
	search = 500 * time.Millisecond
	// doubt is how long the order is doubtful after a late message or a gap.
	doubt = 30 * time.Second
)

// session is one comparison from its beginning.
type session struct {
	service *Service
	named   []kinds.Name // the kinds that its controllers name
	every   bool         // they read all kinds
	world   *world
	engines []*engine
	order   *order
	rounds  rounds
	inbox   chan arrival
	untold  map[kinds.Name]bool // kinds that the watcher has not told completely
	begun   bool
	doubted time.Time // until when the order is doubtful, by the world's clock
}

func newSession(s *Service, controllers []reconcile.Any) *session {
	named, every := names(controllers)
	x := &session{
		service: s, named: named, every: every, world: newWorld(), order: newOrder(), rounds: rounds{keep: 2 * s.config.Delay},
		inbox: make(chan arrival, inbox), untold: map[kinds.Name]bool{},
	}
	for _, c := range controllers {
		described := c.Describe()
		x.engines = append(x.engines, &engine{
			controller: c, described: described, world: x.world, wakes: map[events.Key]time.Time{},
			matcher: shadow.New(described, s.config.Settings),
			broken: func(key events.Key, p any) {
				klog.Background().Error(nil, "A shadow's turn panicked", "controller", described.Name, "key", key.String(), "panic", p)
				s.metrics.broken.WithLabelValues(described.Name).Inc()
			},
		})
	}
	return x
}

// run compares until the context ends or the session cannot go on.
func (x *session) run(parent context.Context) error {
	ctx, cancel := context.WithCancelCause(parent)
	var readers sync.WaitGroup
	defer readers.Wait()
	defer cancel(nil)
	for {
		missing, err := x.join(ctx, &readers, cancel, x.named, x.every)
		if err != nil {
			return err
		}
		if len(missing) == 0 {
			break
		}
		x.service.become(fmt.Errorf("no streams yet of %v; is the watcher running?", missing))
		sleep.For(ctx, search)
	}
	ticker := time.NewTicker(tick)
	defer ticker.Stop()
	for looked := time.Now(); ; {
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case a := <-x.inbox:
			x.order.push(a)
			continue
		case <-ticker.C:
		}
		if x.every && time.Since(looked) > 10*search {
			looked = time.Now()
			if _, err := x.join(ctx, &readers, cancel, nil, true); err != nil {
				return err
			}
		}
		if err := x.advance(ctx, time.Now()); err != nil {
			return err
		}
	}
}

// join begins with the readable kinds that have streams, and returns those that are
// missing.
func (x *session) join(ctx context.Context, readers *sync.WaitGroup, fail context.CancelCauseFunc, named []kinds.Name, every bool) (missing []kinds.Name, err error) {
	found, err := x.service.config.Bus.Kinds(ctx)
	if err != nil {
		return nil, fmt.Errorf("look for kinds: %w", err)
	}
	missing = slices.DeleteFunc(slices.Clone(named), func(name kinds.Name) bool {
		return slices.ContainsFunc(found, func(k kinds.Kind) bool { return k.Name == name })
	})
	for _, kind := range found {
		if _, known := x.world.kinds[kind.Name]; known || !every && !slices.Contains(named, kind.Name) {
			continue
		}
		from, err := x.begin(ctx, kind)
		if err != nil {
			return nil, err
		}
		readers.Go(func() { fail(x.read(ctx, kind, from)) })
	}
	return missing, nil
}

// begin reads the log of a kind up to its end, and returns where it continues.
func (x *session) begin(ctx context.Context, kind kinds.Kind) (from uint64, err error) {
	b, stream := x.service.config.Bus, subject.LogStream(kind.Name)
	since, err := bus.RecordedSince(ctx, b, kind.Name)
	if err != nil {
		return 0, err
	}
	last := map[string]events.Message{} // by subject
	listed := false
	err = b.Read(ctx, bus.Passage{Stream: stream, From: since}, func(batch []events.Message) error {
		for _, m := range batch {
			last[m.Subject], from = m, m.Sequence
			d := x.noteEpoch(kind.Name, m)
			listed = listed || d.Op == events.Mark || d.Census.Known
		}
		return nil
	})
	if err != nil {
		return 0, fmt.Errorf("read what there is of %s: %w", kind.Name, err)
	}
	var there []cache.Fact
	for _, m := range last {
		there = append(there, cache.Read(kind, m))
	}
	x.world.begin(kind, from, there)
	if !listed {
		x.untold[kind.Name] = true
	}
	return from + 1, nil
}

// noteEpoch notes the epoch of a message, and returns its delta; the zero delta if it has none.
func (x *session) noteEpoch(kind kinds.Name, m events.Message) (d events.Delta) {
	ref, err := subject.ParseDelta(m.Subject)
	if err == nil {
		d, err = events.DecodeDelta(ref, m)
	}
	if err != nil {
		return events.Delta{}
	}
	x.world.epochs[kind] = d.Epoch
	return d
}

// read reads the log of a kind until that is impossible.
func (x *session) read(ctx context.Context, kind kinds.Kind, from uint64) error {
	err := x.service.config.Bus.Follow(ctx, subject.LogStream(kind.Name), from, func(batch []events.Message) error {
		for _, m := range batch {
			ref, err := subject.ParseDelta(m.Subject)
			if err != nil {
				continue // from another publisher
			}
			d, err := events.DecodeDelta(ref, m)
			if errors.Is(err, events.ErrDamaged) {
				return err
			}
			a := arrival{kind: kind, message: m, delta: d, came: time.Now()}
			if err != nil {
				a.delta = events.Delta{Kind: kind.Name, Op: events.Gap} // it has no content, but has its place
			}
			select {
			case x.inbox <- a:
			case <-ctx.Done():
				return nil
			}
		}
		return nil
	})
	return fmt.Errorf("follow %s: %w", kind.Name, err)
}

// advance takes in all messages that came long enough ago, and then advances the
// time.
func (x *session) advance(ctx context.Context, present time.Time) error {
	for range len(x.inbox) { // messages that were read have their places before those that are taken in now
		x.order.push(<-x.inbox)
	}
	delay := x.service.config.Delay
	x.rounds.begin(present)
	ripe, late := x.order.take(x.rounds.ago(delay))
	if late > 0 {
		x.service.metrics.late.Add(float64(late))
		x.doubt()
	}
	for _, a := range ripe {
		if err := x.take(ctx, a); err != nil {
			return err
		}
	}
	x.measure(present)
	if !x.begun {
		return x.open(ctx)
	}
	// Everything up to then had come a delay later, and has been taken in.
	past := x.rounds.ago(2 * delay)
	if err := x.wake(ctx, past); err != nil {
		return err
	}
	x.world.pass(past)
	for _, d := range x.engines {
		if err := x.tell(ctx, d, d.matcher.Advance(x.world.now, asker{d, x.world.at, x.world.now})); err != nil {
			return err
		}
	}
	return nil
}

func (x *session) measure(present time.Time) {
	lag := 0.0
	if came, waiting := x.order.oldest(); waiting {
		lag = present.Sub(came).Seconds()
	}
	x.service.metrics.lag.Set(lag)
	for _, d := range x.engines {
		x.service.metrics.open.WithLabelValues(d.described.Name).Set(float64(d.matcher.Standing()))
	}
}

// doubt marks the order as unreliable for a while.
func (x *session) doubt() { x.doubted = x.world.now.Add(doubt) }

// open asks about all keys once the watcher has told all kinds completely.
func (x *session) open(ctx context.Context) error {
	if len(x.untold) > 0 {
		x.service.become(fmt.Errorf("the watcher has not told everything of %d kinds", len(x.untold)))
		return nil
	}
	x.begun = true
	x.service.become(nil)
	if x.world.now.IsZero() {
		x.world.now = time.Now().Add(-x.service.config.Delay)
	}
	for _, d := range x.engines {
		for _, key := range d.all() {
			if err := x.ask(ctx, d, key, events.Trigger{}); err != nil {
				return err
			}
		}
	}
	return nil
}

var errEpoch = errors.New("the API server was restored to an earlier time")

// take takes in one message.
func (x *session) take(ctx context.Context, a arrival) error {
	if a.delta.Epoch > x.world.epochs[a.kind.Name] {
		return errEpoch
	}
	if x.begun && a.delta.Ref.Name != "" {
		if err := x.wake(ctx, a.delta.At); err != nil {
			return err
		}
	}
	switch a.delta.Op {
	case events.Mark:
		delete(x.untold, a.kind.Name)
	case events.Gap:
		x.doubt()
	}
	p := x.world.fold(a)
	if !x.begun || a.delta.Ref.Name == "" {
		return nil
	}
	at := events.Trigger{Stream: subject.LogStream(a.kind.Name), Sequence: a.message.Sequence, Ref: a.delta.Ref, Trace: a.delta.Trace}
	if operation, ok := shadow.OperationOf(a.delta, at, p.was, p.now); ok {
		for _, d := range x.engines {
			if err := x.tell(ctx, d, d.matcher.Happened(operation, asker{d, p.before, x.world.now})); err != nil {
				return err
			}
		}
	}
	if p.was.None() && p.now.None() {
		return nil
	}
	for _, d := range x.engines {
		for _, key := range d.keys(p.was, p.now) {
			if err := x.ask(ctx, d, key, at); err != nil {
				return err
			}
		}
	}
	return nil
}

// wake asks about the keys whose wake time has come.
func (x *session) wake(ctx context.Context, until time.Time) error {
	for _, d := range x.engines {
		for _, key := range d.due(until) {
			x.world.pass(d.wakes[key])
			delete(d.wakes, key)
			if err := x.ask(ctx, d, key, events.Trigger{}); err != nil {
				return err
			}
		}
	}
	return nil
}

// retry is when a key is asked again whose decision has Retry set.
const retry = time.Second

// ask asks a controller about a key on the present view, and records the answer if
// it is new.
func (x *session) ask(ctx context.Context, d *engine, key events.Key, at events.Trigger) error {
	a, ok := d.ask(x.world.at, key, x.world.now, d.matcher.Last)
	if !ok {
		return nil
	}
	delete(d.wakes, key)
	switch wake := a.decision.WakeAt; {
	case wake.After(x.world.now):
		d.wakes[key] = wake
	case a.decision.Retry:
		d.wakes[key] = x.world.now.Add(retry)
	}
	is := shadow.Answer{Key: key, Because: a.decision.Because, Wants: a.wants, By: at, At: x.world.now}
	if d.matcher.News(key, a.wants) {
		var err error
		if is.Writes, err = x.record(ctx, d, a, key, events.LaneWrite, at); err != nil {
			return err
		}
		if is.Reports, err = x.record(ctx, d, a, key, events.LaneStatus, at); err != nil {
			return err
		}
	}
	return x.tell(ctx, d, d.matcher.Decided(is))
}

// mine reports whether this replica reports the findings about a controller.
func (x *session) mine(d *engine) bool { return x.service.first(d.described.Name) }

// record stores a turn, if it has commands, and returns its sequence.
func (x *session) record(ctx context.Context, d *engine, a answer, key events.Key, lane events.Lane, at events.Trigger) (uint64, error) {
	t, wants := d.turn(a, key, lane, at, x.service.config.Code)
	if !wants || !x.mine(d) {
		return 0, nil
	}
	m, err := events.EncodeJSON(t, events.Trace{})
	if err != nil {
		return 0, fmt.Errorf("record a turn of the %v for %v: %w", d, key, err)
	}
	m.Subject = subject.ShadowTurn(d.described.Name, lane, key)
	x.service.metrics.turns.WithLabelValues(d.described.Name).Inc()
	return x.put(ctx, m, fmt.Sprintf("shadow/%s/%s/%v/%s/%d/%d", d.described.Name, string(lane), key, at.Stream, at.Sequence, t.Now.UnixNano()))
}

// handover is for how long a replica keeps findings that another should report. When
// that replica goes away, the others do not learn it at once.
const handover = 5 * time.Second

// tell stores the findings. It includes those of the time before the work fell to
// this replica; the bus drops those that the earlier replica has stored. While the
// order is doubtful, no finding is unexplained.
func (x *session) tell(ctx context.Context, d *engine, found []shadow.Found) error {
	now := x.rounds.ago(0)
	for _, f := range found {
		if !f.Agreement.Explained() && x.world.now.Before(x.doubted) {
			f.Agreement, f.Note = report.Unseen, "the record has a gap here, or was not in order: "+f.Note
		}
		d.kept = append(d.kept, kept{f, now})
	}
	if !x.mine(d) {
		for len(d.kept) > 0 && now.Sub(d.kept[0].since) > handover {
			d.kept = d.kept[1:]
		}
		return nil
	}
	for _, f := range d.kept {
		m, err := events.EncodeJSON(f.Finding, events.Trace{})
		if err != nil {
			return fmt.Errorf("record a finding about %v: %w", f.Key, err)
		}
		m.Subject = subject.Finding(d.described.Name, f.Key)
		if _, err := x.put(ctx, m, fmt.Sprintf("finding/%s/%s", d.described.Name, f.ID)); err != nil {
			return err
		}
		x.service.metrics.findings.WithLabelValues(d.described.Name, string(f.Agreement)).Inc()
	}
	d.kept = nil
	return nil
}

// attempts is how often the session publishes a message before it ends.
const attempts = 20

// put publishes, and waits while the bus is unavailable.
func (x *session) put(ctx context.Context, m events.Message, id string) (sequence uint64, err error) {
	for range attempts {
		if sequence, err = x.service.config.Bus.Put(ctx, m, id); err == nil || ctx.Err() != nil {
			return sequence, err
		}
		if errors.Is(err, bus.ErrTooLarge) {
			klog.FromContext(ctx).Error(err, "Dropped a shadow's message that is too large for the bus", "subject", m.Subject)
			return 0, nil
		}
		sleep.For(ctx, again)
	}
	return 0, err
}
