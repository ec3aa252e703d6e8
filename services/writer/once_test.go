package writer_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/apiservertest"
	"github.com/millrace/millrace/pkg/events/bus"
	"github.com/millrace/millrace/pkg/events/eventually"
	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/pkg/events/metrictest"
	"github.com/millrace/millrace/pkg/events/sleep"
	"github.com/millrace/millrace/pkg/events/storageepoch"
	"github.com/millrace/millrace/pkg/events/subject"
	"github.com/millrace/millrace/services/writer"
)

// say stores a message under its own id.
func (s *scene) say(m events.Message) uint64 {
	s.Helper()
	s.said++
	sequence, err := s.bus.Put(s.Context(), m, fmt.Sprint("said ", s.said))
	s.must(err)
	return sequence
}

func turnOf(t *testing.T, key string, change func(*events.Turn), commands ...events.Command) events.Message {
	t.Helper()
	turn := events.Turn{
		Controller: controller, Key: events.Key{Namespace: "ns", Name: key}, Lane: events.LaneWrite, Now: time.Now(), Commands: commands,
	}
	turn.Pack()
	if change != nil {
		change(&turn)
	}
	m, err := events.EncodeJSON(turn, events.Trace{})
	if err != nil {
		t.Fatal(err)
	}
	m.Subject = subject.Turn(controller, turn.Lane, turn.Key)
	return m
}

// outcomeOf waits for the outcome of one turn of a key.
func (s *scene) outcomeOf(key string, turn uint64) (o events.Outcome) {
	s.Helper()
	eventually.True(s, eventually.Long, fmt.Sprintf("an outcome of turn %d", turn), func() bool {
		o = s.outcome(key)
		return o.Turn == turn
	})
	return o
}

// A turn that was stored again because it had no outcome is carried out once, in its newest place.
// The writer finds what the earlier delivery did.
func TestARepetitionTakesTheTurnsPlace(t *testing.T) {
	t.Parallel()
	const keys = 10
	s := newScene(t)
	again := map[string]uint64{}
	for i := range keys {
		key := fmt.Sprint("web", i)
		first := s.say(turnOf(t, key, nil, creates(key, 3)...))
		s.api.Put(pods+key+"-0", "uid-0", map[string]any{"metadata": map[string]any{"name": key + "-0", "ownerReferences": []any{
			map[string]any{"kind": "ReplicaSet", "name": "web", "uid": "rs", "controller": true},
		}}})
		again[key] = s.say(turnOf(t, key, func(t *events.Turn) { t.Repeats = first }, creates(key, 3)...))
	}
	s.writer()
	for key, turn := range again {
		o := s.outcomeOf(key, turn)
		for i, want := range []events.Status{events.Unchanged, events.Applied, events.Applied} {
			if o.Results[i].Status != want {
				t.Errorf("create %d of %s is %+v, want %s", i, key, o.Results[i], want)
			}
		}
	}
	eventually.True(s, eventually.Long, "answer to all", func() bool { return s.unanswered() == 0 })
	if got := s.outcomes(); got != keys {
		t.Errorf("%d outcomes, want those of the %d repetitions alone", got, keys)
	}
}

// A repetition that comes too late to be carried out still reports what was done of the turn.
func TestARepetitionThatIsTooOldIsRechecked(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	s.writer()
	at := s.say(turnOf(t, "done", nil, creates("done", 1)...))
	s.outcomeOf("done", at)
	late := func(t *events.Turn) { t.Repeats, t.Now = at, t.Now.Add(-time.Hour) }
	if r := s.outcomeOf("done", s.say(turnOf(t, "done", late, creates("done", 1)...))).Results[0]; r.Status != events.Unchanged || r.UID == "" {
		t.Errorf("a repeated turn that was carried out is answered %+v, want Unchanged with the uid", r)
	}
	if r := s.outcomeOf("not", s.say(turnOf(t, "not", late, creates("not", 1)...))).Results[0]; r.Status != events.Refused || r.Reason != "TooOld" {
		t.Errorf("an old turn that was not carried out is answered %+v, want it refused as TooOld", r)
	}
	if s.api.Created(pods+"done-0") != 1 || s.api.Created(pods+"not-0") != 0 {
		t.Error("a turn that was too old was carried out")
	}
}

// A turn that was on the bus for too long is not carried out, even if this writer's clock is an
// hour off.
func TestAgeIsThatOfTheBus(t *testing.T) {
	t.Parallel()
	for _, wrong := range []time.Duration{-time.Hour, 0, time.Hour} {
		s := newScene(t)
		old := s.say(turnOf(t, "old", nil, creates("old", 1)...))
		stored := time.Now()
		eventually.True(s, eventually.Long, "age", func() bool { return time.Since(stored) > time.Second })
		s.writer(func(c *writer.Config) {
			c.MaxAge, c.Clock = time.Second, clocktesting.NewFakePassiveClock(time.Now().Add(wrong))
		})
		if r := s.outcomeOf("old", old).Results[0]; r.Reason != "TooOld" || s.api.Created(pods+"old-0") != 0 {
			t.Errorf("%v off: %+v", wrong, r)
		}
		if o := s.young(); !o.OK() {
			t.Errorf("%v off: %+v", wrong, o)
		}
	}
}

// young returns the outcome of a turn that was not on the bus for too long. If the machine
// stalled, the turn was too old, and young tries another one.
func (s *scene) young() (o events.Outcome) {
	s.Helper()
	for n := 0; ; n++ {
		key, began := fmt.Sprint("new-", n), time.Now()
		o = s.outcomeOf(key, s.say(turnOf(s.T, key, nil, creates(key, 1)...)))
		if o.OK() || o.Results[0].Reason != "TooOld" || time.Since(began) < time.Second {
			return o
		}
	}
}

// After a restore of the API server no turn that rests on the time before is carried out; outcomes
// have their epoch.
func TestATurnOfAnOldEpochIsRefused(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	s.must(s.bus.EnsureKind(t.Context(), kinds.Pods.Kind))
	s.writer()
	tell := func(version string, epoch uint64) {
		log, err := s.bus.Append(t.Context(), kinds.Pods.Name)
		s.must(err)
		m := subject.Message(events.Delta{Kind: kinds.Pods.Name, Op: events.Mark, ResourceVersion: version, Epoch: epoch, Before: events.Place{Known: true}})
		s.must(log.Append(t.Context(), m))
		s.must(log.Flush(t.Context()))
		s.must(log.Close())
	}
	seen := func(epochs events.Epochs) func(*events.Turn) {
		return func(t *events.Turn) { t.Seen, t.Epochs = events.Position{kinds.Pods.Name: 1}, epochs }
	}
	tell("900", 0)
	before := s.outcomeOf("before", s.say(turnOf(t, "before", seen(nil), creates("before", 1)...)))
	if epoch, ok := before.Epochs[kinds.Pods.Name]; !before.OK() || !ok || epoch != 0 {
		t.Errorf("the outcome before the restore is %+v, want success in epoch 0", before)
	}
	tell("500", 1)
	tries := 0
	eventually.True(s, eventually.Long, "a turn of the old epoch refused", func() bool {
		tries++ // the writer looks once a second
		key := fmt.Sprint("old-", tries)
		r := s.outcomeOf(key, s.say(turnOf(t, key, seen(nil), creates(key, 1)...))).Results[0]
		return r.Status == events.Refused && r.Reason == "Stale" && s.api.Created(pods+key+"-0") == 0
	})
	after := s.outcomeOf("after", s.say(turnOf(t, "after", seen(events.Epochs{kinds.Pods.Name: 1}), creates("after", 1)...)))
	if !after.OK() || after.Epochs[kinds.Pods.Name] != 1 {
		t.Errorf("the outcome after the restore is %+v, want success in epoch 1", after)
	}
}

// A watcher knows that the storage went back before it has listed any kind again. From then on the
// writer delays turns that rest on the older epoch, and refuses them once a log of any kind has a
// message of the new epoch. It does neither with turns that rest on the new epoch.
func TestATurnWaitsAsSoonAsTheStorageIsSaidToHaveGoneBack(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	s.must(s.bus.EnsureKind(t.Context(), kinds.Jobs.Kind))
	s.writer()
	// A writer that only starts has made no request for a while, either.
	s.outcomeOf("started", s.say(turnOf(t, "started", nil, creates("started", 1)...)))
	var old uint64
	tries := 0
	eventually.True(s, eventually.Long, "a turn of the old epoch waiting", func() bool {
		tries++ // the writer may not be listening yet
		s.must(storageepoch.Say(s.bus, storageepoch.Claim{Epoch: 1, By: "watcher"}))
		key := fmt.Sprint("old-", tries)
		old = s.say(turnOf(t, key, nil, creates(key, 1)...))
		for end := time.Now().Add(time.Second); time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
			if s.api.Created(pods+key+"-0") > 0 {
				return false
			}
		}
		return true
	})
	log, err := s.bus.Append(t.Context(), kinds.Jobs.Name)
	s.must(err)
	m := subject.Message(events.Delta{Kind: kinds.Jobs.Name, Op: events.Gap, ResourceVersion: "1", Epoch: 1, Before: events.Place{Known: true}})
	s.must(log.Append(t.Context(), m))
	s.must(log.Flush(t.Context()))
	s.must(log.Close())
	key := fmt.Sprint("old-", tries)
	if r := s.outcomeOf(key, old).Results[0]; r.Status != events.Refused || r.Reason != "Stale" || s.api.Created(pods+key+"-0") != 0 {
		t.Errorf("the turn of the old epoch: %+v", r)
	}
	anew := func(t *events.Turn) { t.Epochs = events.Epochs{kinds.Pods.Name: 1} }
	if after := s.outcomeOf("after", s.say(turnOf(t, "after", anew, creates("after", 1)...))); !after.OK() {
		t.Errorf("the outcome after the restore is %+v, want success", after)
	}
}

// A turn that was damaged in the stream is refused with an outcome and an alarm, and its key goes
// on.
func TestADamagedTurnIsRefused(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	registry := prometheus.NewRegistry()
	s.serve(registry)
	m := events.Seal(turnOf(t, "web", nil, creates("web", 1)...))
	m.Data[len(m.Data)/2] ^= 1
	at := s.say(m)
	if r := s.outcomeOf("web", at).Results[0]; r.Status != events.Refused || r.Reason != "Damaged" {
		t.Errorf("the result of a damaged turn is %+v, want it refused as Damaged", r)
	}
	if made := s.api.Created(pods + "web-0"); made != 0 {
		t.Errorf("made %d times", made)
	}
	eventually.True(s, eventually.Long, "alarm", func() bool { return alarms(t, registry, "Damaged") == 1 })
}

// An outcome that cannot be read proves nothing: the writer checks the redelivered turn.
func TestADamagedOutcomeIsNone(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	at := s.say(turnOf(t, "web", nil, creates("web", 1)...))
	m, err := events.EncodeJSON(events.Outcome{Controller: controller, Turn: at, Lane: events.LaneWrite, Key: events.Key{Namespace: "ns", Name: "web"}}, events.Trace{})
	s.must(err)
	m.Subject = subject.Outcome(controller, events.LaneWrite, events.Key{Namespace: "ns", Name: "web"})
	m = events.Seal(m)
	m.Data[0] ^= 1
	s.say(m)
	s.writer()
	eventually.True(s, eventually.Long, "pod", func() bool { return s.api.Created(pods+"web-0") == 1 })
	eventually.True(s, eventually.Long, "readable outcome", func() bool { return s.outcomes() == 2 })
	if o := s.outcome("web"); o.Turn != at || !o.OK() {
		t.Errorf("the outcome is %+v, want success of the newest turn", o)
	}
}

// serve starts a writer whose metrics are gathered.
func (s *scene) serve(registry *prometheus.Registry) {
	s.Helper()
	s.started = func(service *writer.Service) { registry.MustRegister(service.Collectors()...) }
	s.writer()
}

func alarms(t *testing.T, registry *prometheus.Registry, reason string) float64 {
	t.Helper()
	return metrictest.Read(t, registry).Sum("millrace_writer_alarms_total", "reason="+reason)
}

// tether is a bus from which one writer can be cut off while its requests still reach the API
// server.
type tether struct {
	bus.Bus
	cut atomic.Bool
}

var errCut = errors.New("cut off")

func (c *tether) Broadcast(topic string, data []byte) error {
	if c.cut.Load() {
		return errCut
	}
	return c.Bus.Broadcast(topic, data)
}

func (c *tether) Put(ctx context.Context, m events.Message, id string) (uint64, error) {
	if c.cut.Load() {
		return 0, errCut
	}
	return c.Bus.Put(ctx, m, id)
}

// Work drops deliveries to a worker that is cut off, and requests no more until the connection is
// back: a server drops the pull requests of an ended connection.
func (c *tether) Work(ctx context.Context, w bus.Work, handle func(bus.Delivery)) error {
	for ctx.Err() == nil {
		working, leave := context.WithCancel(ctx)
		err := c.Bus.Work(working, w, func(d bus.Delivery) {
			if c.cut.Load() { // a lost delivery is redelivered
				leave()
				return
			}
			handle(loose{d, c})
		})
		leave()
		if err != nil {
			return err
		}
		for c.cut.Load() && ctx.Err() == nil {
			sleep.For(ctx, 10*time.Millisecond)
		}
	}
	return nil
}

// loose is a delivery whose answers are lost while its holder is cut off.
type loose struct {
	bus.Delivery
	by *tether
}

func (l loose) InProgress() {
	if !l.by.cut.Load() {
		l.Delivery.InProgress()
	}
}

// A writer that is cut off from the bus in the middle of a turn gives the turn up, even if it
// still reaches the API server. Another writer has the turn by then, and an object that the first
// one would create again may have been deleted since.
func TestAWriterThatIsCutOffLetsGo(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	line := &tether{Bus: s.bus}
	arrived, goOn := make(chan struct{}), make(chan struct{})
	var posts atomic.Int64
	s.api.Hold(func(r apiservertest.Request) {
		if r.Method == http.MethodPost && posts.Add(1) == 1 {
			close(arrived)
			<-goOn
		}
	})
	s.writer(func(c *writer.Config) { c.Bus = line })
	at := s.say(turnOf(t, "web", nil, creates("web", 3)...))
	<-arrived
	line.cut.Store(true)
	s.writer() // the other one
	if o := s.outcomeOf("web", at); !o.OK() {
		t.Fatalf("the second writer: %+v", o)
	}
	s.api.Remove(pods + "web-2") // by a user
	close(goOn)
	eventually.True(s, eventually.Long, "answer to the first writer", func() bool { return s.api.Answered("POST /api/v1/namespaces/ns/pods") >= 4 })
	held := time.Now()
	eventually.True(s, eventually.Long, "long enough for more requests", func() bool { return time.Since(held) > time.Second })
	for i := range 3 {
		if made := s.api.Created(fmt.Sprint(pods, "web-", i)); made != 1 {
			t.Errorf("pod %d was made %d times", i, made)
		}
	}
}
