package writer_test

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/apiservertest"
	"github.com/millrace/millrace/pkg/events/bus"
	"github.com/millrace/millrace/pkg/events/bus/bustest"
	"github.com/millrace/millrace/pkg/events/eventually"
	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/pkg/events/servicetest"
	"github.com/millrace/millrace/pkg/events/stream/memory"
	"github.com/millrace/millrace/pkg/events/subject"
	"github.com/millrace/millrace/services/writer"
	"github.com/millrace/millrace/services/writer/apply/applytest"
	"github.com/millrace/millrace/services/writer/claim"
)

const (
	controller = "replicaset-controller"
	pods       = "/api/v1/namespaces/ns/pods/"
	told       = "/api/v1/namespaces/ns/events/"
)

// scene is a bus and an API server, both in memory, with writers between them.
type scene struct {
	*testing.T
	bus bus.Bus
	api *apiservertest.Server
	// started is called with every writer that is made; may be nil.
	started func(*writer.Service)
	// service is the writer of a judged scenario, and foreseen how often its heartbeats are
	// expected to come back too late.
	service  *writer.Service
	foreseen float64
	said     int // messages
}

func newScene(t *testing.T) *scene {
	s := &scene{T: t, bus: memory.New(memory.Options{}), api: applytest.Serve(t)}
	t.Cleanup(func() { _ = s.bus.Close() })
	s.must(s.bus.EnsureController(t.Context(), controller))
	return s
}

func (s *scene) must(err error) {
	s.Helper()
	if err != nil {
		s.Fatal(err)
	}
}

// writer starts a writer and returns what stops it.
func (s *scene) writer(change ...func(*writer.Config)) (stop func()) {
	s.Helper()
	c := writer.Config{
		REST: &rest.Config{Host: s.api.URL}, Bus: s.bus, Impersonate: true, Log: slog.New(slog.DiscardHandler),
		Controllers: []writer.Profile{{Name: controller, Allowed: func(c events.Command) bool { return c.Kind != "secrets" }}},
	}
	for _, f := range change {
		f(&c)
	}
	service, err := writer.New(c)
	s.must(err)
	if s.started != nil {
		s.started(service)
	}
	return servicetest.Run(s, "writer", service.Run)
}

func creates(key string, n int) []events.Command {
	body := json.RawMessage(`{"metadata":{"ownerReferences":[{"kind":"ReplicaSet","name":"web","uid":"rs","controller":true}]}}`)
	about := corev1.ObjectReference{Kind: "ReplicaSet", APIVersion: "apps/v1", Namespace: "ns", Name: key, UID: "rs"}
	var commands []events.Command
	for i := range n {
		commands = append(commands, events.Command{
			Verb: events.VerbCreate, Kind: "pods", Version: "v1", Namespace: "ns", Name: fmt.Sprintf("%s-%d", key, i), Body: body,
			OnApplied: &events.Notice{About: about, Type: "Normal", Reason: "SuccessfulCreate", Message: "Created pod: {name}"},
			OnFailed:  &events.Notice{About: about, Type: "Warning", Reason: "FailedCreate", Message: "Error creating: {error}"},
		})
	}
	return commands
}

// store stores a turn about a key and returns its sequence.
func (s *scene) store(key string, change func(*events.Turn), commands ...events.Command) uint64 {
	s.Helper()
	turn := events.Turn{
		Controller: controller, Key: events.Key{Namespace: "ns", Name: key}, Lane: events.LaneWrite, Now: time.Now(), Commands: commands,
	}
	turn.Pack()
	at := subject.Turn(controller, turn.Lane, turn.Key)
	if change != nil {
		change(&turn)
	}
	m, err := events.EncodeJSON(turn, turn.Trace)
	s.must(err)
	m.Subject = at
	sequence, err := s.bus.Put(s.Context(), m, fmt.Sprint(m.Subject, turn.Attempt))
	s.must(err)
	return sequence
}

// outcome waits for the outcome of a key's turn.
func (s *scene) outcome(key string) events.Outcome {
	s.Helper()
	var found events.Outcome
	eventually.True(s, eventually.Long, "an outcome of "+key, func() bool {
		at := subject.Outcome(controller, events.LaneWrite, events.Key{Namespace: "ns", Name: key})
		m, ok, err := s.bus.Last(s.Context(), subject.OutcomeStream(controller), at)
		s.must(err)
		if ok {
			s.must(events.DecodeJSON(m, &found))
		}
		return ok
	})
	return found
}

func (s *scene) outcomes() uint64 {
	state, err := s.bus.StreamState(s.Context(), subject.OutcomeStream(controller))
	s.must(err)
	return state.Messages
}

func TestATurnIsCarriedOutAndTold(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	s.writer()
	decided := time.Now().Add(time.Hour) // by a clock that is ahead of the writer's
	sequence := s.store("web", func(t *events.Turn) { t.Now = decided }, creates("web", 3)...)
	o := s.outcome("web")
	if o.Turn != sequence || !o.OK() || len(o.Results) != 3 || !o.Decided.Equal(decided) || !o.At.Before(decided) {
		t.Fatalf("the outcome is %+v", o)
	}
	for _, r := range o.Results {
		if r.Status != events.Applied || s.api.Get(pods+r.Ref.Name) == nil {
			t.Errorf("the result is %+v, want it applied, and the pod there", r)
		}
	}
	for _, r := range s.api.Requests() {
		if as := r.Header.Get("Impersonate-User"); r.Method == http.MethodPost && as != "system:serviceaccount:kube-system:"+controller {
			t.Errorf("%s is made as %q", r.Path, as)
		}
	}
	eventually.True(s, eventually.Long, "Event for each create", func() bool { return strings.Count(strings.Join(s.api.Paths(), "\n"), told) == 3 })
	for _, path := range s.api.Paths() {
		event := s.api.Get(path)
		if source, _ := event["source"].(map[string]any); strings.HasPrefix(path, told) && source["component"] != controller {
			t.Errorf("an Event has the source %v, want the controller", source)
		}
		if strings.HasPrefix(path, told) && !strings.HasPrefix(fmt.Sprint(event["message"]), "Created pod: web-") {
			t.Errorf("an Event has the message %v, want that a pod was created", event["message"])
		}
	}
}

// Two writers share the turns; the API server loses answers; one writer is cut
// off in the middle. Every turn has one outcome, every create happens once.
func TestWritersShareAndSurviveEachOther(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	var n atomic.Int64
	s.api.Break(func(r apiservertest.Request) apiservertest.Fault {
		return apiservertest.Fault{Lost: r.Method == http.MethodPost && n.Add(1)%7 == 0}
	})
	const keys, each = 40, 3
	stop := s.writer(func(c *writer.Config) { c.Drain = time.Millisecond })
	s.writer()
	for i := range keys {
		key := fmt.Sprintf("web%d", i)
		s.store(key, nil, creates(key, each)...)
	}
	eventually.True(s, eventually.Long, "work done", func() bool { return s.outcomes() > 3 })
	stop()
	for i := range keys {
		key := fmt.Sprintf("web%d", i)
		if o := s.outcome(key); !o.OK() {
			t.Errorf("%s: the outcome is %+v, want success", key, o)
		}
		for j := range each {
			if made := s.api.Created(fmt.Sprintf("%s%s-%d", pods, key, j)); made != 1 {
				t.Errorf("pod %d of %s was made %d times", j, key, made)
			}
		}
	}
	if got := s.outcomes(); got != keys {
		t.Errorf("%d outcomes of %d turns", got, keys)
	}
}

func TestTurnsThatMayNotAct(t *testing.T) {
	t.Parallel()
	for _, story := range []struct {
		name   string
		live   *events.Delta
		change func(*events.Turn)
		reason string
	}{
		{"newer generation", &events.Delta{Op: events.Is, UID: "rs", ResourceVersion: "9", Generation: 3}, seen("rs", "5", 2), "Stale"},
		{"only a newer status", &events.Delta{Op: events.Is, UID: "rs", ResourceVersion: "9", Generation: 2}, seen("rs", "5", 2), ""},
		{"gone", &events.Delta{Op: events.Gone, UID: "rs", ResourceVersion: "9", Generation: 2}, seen("rs", "5", 2), "Stale"},
		{"another", &events.Delta{Op: events.Is, UID: "new", ResourceVersion: "9", Generation: 1}, seen("rs", "5", 2), "Stale"},
		{"unknown", nil, seen("rs", "5", 2), "Stale"},
		{"old, by a clock that is wrong", nil, func(t *events.Turn) { t.Now = t.Now.Add(-time.Hour) }, ""},
		{"of tomorrow, by a clock that is wrong", nil, func(t *events.Turn) { t.Now = t.Now.Add(24 * time.Hour) }, ""},
		{"a promise broken", nil, func(t *events.Turn) { t.Commands[0].Kind = "secrets" }, "NotPromised"},
		{"another's turn", nil, func(t *events.Turn) { t.Controller = "deployment-controller" }, "Malformed"},
		{"another key's", nil, func(t *events.Turn) { t.Key.Name = "db" }, "Malformed"},
	} {
		t.Run(story.name, func(t *testing.T) {
			s := newScene(t)
			s.must(s.bus.EnsureKind(t.Context(), kinds.ReplicaSets.Kind))
			if story.live != nil {
				s.delta(*story.live)
			}
			s.store("web", story.change, creates("web", 1)...)
			s.writer()
			o := s.outcome("web")
			if r := o.Results[0]; r.Reason != story.reason || r.OK() != (story.reason == "") {
				t.Errorf("the result is %+v, want the reason %q", r, story.reason)
			}
			if created := s.api.Created(pods+"web-0") == 1; created != (story.reason == "") {
				t.Errorf("created: %v", created)
			}
		})
	}
}

func seen(uid types.UID, version string, generation int64) func(*events.Turn) {
	return func(t *events.Turn) {
		t.Kind, t.UID, t.ResourceVersion, t.Generation = kinds.ReplicaSets.Name, uid, version, generation
	}
}

func (s *scene) delta(d events.Delta) {
	s.Helper()
	d.Kind = kinds.ReplicaSets.Name
	d.Ref = events.Ref{Kind: d.Kind, Namespace: "ns", Name: cmp.Or(d.Ref.Name, "web")}
	log, err := s.bus.Append(s.Context(), d.Kind)
	s.must(err)
	s.must(log.Append(s.Context(), subject.Message(d)))
	s.must(log.Flush(s.Context()))
	s.must(log.Close())
}

// The writer carries out neither parked turns nor turns that another writer has settled.
func TestWhatIsNotCarriedOut(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	parked, err := events.EncodeJSON(events.Turn{Controller: controller, Lane: events.LanePark}, events.Trace{})
	s.must(err)
	parked.Subject = subject.Turn(controller, events.LanePark, events.Key{Namespace: "ns", Name: "poison"})
	_, err = s.bus.Put(t.Context(), parked, "parked")
	s.must(err)

	old := s.store("settled", func(t *events.Turn) { t.Now = t.Now.Add(-time.Hour) }, creates("settled", 1)...)
	done, err := events.EncodeJSON(events.Outcome{Controller: controller, Turn: old}, events.Trace{})
	s.must(err)
	done.Subject = subject.Outcome(controller, events.LaneWrite, events.Key{Namespace: "ns", Name: "settled"})
	_, err = s.bus.Put(t.Context(), done, "done")
	s.must(err)
	s.redeliver(2)

	s.store("web", nil, creates("web", 1)...)
	s.writer()
	s.outcome("web")
	eventually.True(s, eventually.Long, "answer to what was redelivered", func() bool { return s.unanswered() == 0 })
	if got := s.outcomes(); got != 2 {
		t.Errorf("%d outcomes, want one for the settled turn and one for the new one", got)
	}
}

// redeliver takes n messages and does not answer them, as a writer that then dies.
func (s *scene) redeliver(n int) {
	s.Helper()
	ctx, cancel := context.WithCancel(s.Context())
	taken := 0
	s.must(s.bus.Work(ctx, bus.Work{Stream: subject.TurnStream(controller), Durable: "writer", AckWait: claim.AckWait}, func(d bus.Delivery) {
		d.NakWithDelay(0)
		if taken++; taken == n {
			cancel()
		}
	}))
}

// unanswered returns how many turns would be redelivered: a probe beside the writers gets none.
func (s *scene) unanswered() int {
	ctx, cancel := context.WithTimeout(s.Context(), 50*time.Millisecond)
	defer cancel()
	n := 0
	s.must(s.bus.Work(ctx, bus.Work{Stream: subject.TurnStream(controller), Durable: "writer", AckWait: claim.AckWait}, func(d bus.Delivery) {
		n++
		d.NakWithDelay(0)
	}))
	return n
}

func TestSwitchedOff(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	s.writer(func(c *writer.Config) { c.Mode = writer.Off })
	s.store("web", nil, creates("web", 2)...)
	for _, r := range s.outcome("web").Results {
		if r.Status != events.Refused || r.Reason != "Off" {
			t.Errorf("with the mode off the result is %+v, want it refused as Off", r)
		}
	}
	if requests := s.api.Requests(); len(requests) != 0 {
		t.Errorf("asked %v", requests)
	}
}

func TestChecksTellWhetherTurnsAreTaken(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	service, err := writer.New(writer.Config{REST: &rest.Config{Host: s.api.URL}, Bus: s.bus, Controllers: []writer.Profile{{Name: controller}}})
	s.must(err)
	checks := service.Checks()
	if checks["writer"]() == nil {
		t.Error("a writer that was never started takes turns")
	}
	s.must(checks["writer-bus"]())
	eventually.True(s, eventually.Long, "answer of the API server", func() bool { return checks["writer-api"]() == nil })
	s.api.Close()
	if checks["writer-api"]() == nil {
		t.Error("an API server that is not there is healthy")
	}
}

func TestConfigurationsThatCannotBe(t *testing.T) {
	t.Parallel()
	b := memory.New(memory.Options{})
	for name, c := range map[string]writer.Config{
		"no bus":     {REST: &rest.Config{Host: "127.0.0.1"}},
		"no address": {Bus: b},
		"mode":       {REST: &rest.Config{Host: "127.0.0.1"}, Bus: b, Mode: "never"},
		"nameless":   {REST: &rest.Config{Host: "127.0.0.1"}, Bus: b, Controllers: []writer.Profile{{}}},
		"twice":      {REST: &rest.Config{Host: "127.0.0.1"}, Bus: b, Controllers: []writer.Profile{{Name: "a"}, {Name: "a"}}},
	} {
		if _, err := writer.New(c); err == nil {
			t.Errorf("%s: accepted", name)
		}
	}
	for _, mode := range []writer.Mode{"", writer.Apply, writer.DryRun, writer.Off} {
		if _, err := writer.New(writer.Config{REST: &rest.Config{Host: "127.0.0.1"}, Bus: b, Mode: mode}); err != nil {
			t.Errorf("mode %q: %v", mode, err)
		}
	}
}

var errDown = errors.New("the disk is full")

// A writer that cannot use the bus ends with the reason, and its health check reports it.
func TestAWriterEndsWithoutItsBus(t *testing.T) {
	t.Parallel()
	for want, fails := range map[string]bustest.Call{
		"make the streams of " + controller: bustest.EnsureController, "read the clock of the bus": bustest.StreamState, "read turns": bustest.Work,
	} {
		f := bustest.Wrap(memory.New(memory.Options{})).Fail(fails, errDown)
		service, err := writer.New(writer.Config{REST: &rest.Config{Host: "http://api.invalid"}, Bus: f, Mode: writer.Off, Controllers: []writer.Profile{{Name: controller}}, Log: slog.New(slog.DiscardHandler)})
		if err != nil {
			t.Fatal(err)
		}
		if err := service.Run(t.Context()); !errors.Is(err, errDown) || !strings.Contains(err.Error(), want) {
			t.Errorf("the writer ends with %v, want %q", err, want)
		}
		if err := service.Checks()["writer"](); err == nil || want != "read turns" && !errors.Is(err, errDown) {
			t.Errorf("%s: and then it is ready, or says %v", want, err)
		}
		_ = f.Close()
	}
}

// A writer is ready while it takes turns.
func TestAWriterIsReadyWhileItTakesTurns(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	s.started = func(w *writer.Service) { s.service = w }
	stop := s.writer()
	ready := s.service.Checks()["writer"]
	eventually.True(s, eventually.Long, "ready writer", func() bool { return ready() == nil })
	stop()
	if err := ready(); err == nil || err.Error() != "stopped" {
		t.Errorf("the check of a stopped writer: %v, want \"stopped\"", err)
	}
}

// The writer takes twice as many turns as it carries out at a time, and keeps the epochs that they
// rest on up to date.
func TestHowTurnsAreTaken(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	line, works := bustest.Wrap(s.bus), make(chan bus.Work, 1)
	line.OnWork = func(ctx context.Context, w bus.Work, handle func(bus.Delivery)) error {
		select {
		case works <- w:
		default:
		}
		return s.bus.Work(ctx, w, handle)
	}
	s.writer(func(c *writer.Config) {
		c.Bus, c.Since, c.Concurrent = line, time.Minute, map[string]int{controller: 3}
	})
	if w := <-works; w.Stream != subject.TurnStream(controller) || w.Durable != "writer" || w.AckWait != claim.AckWait || w.MaxPending != 6 || w.Since != time.Minute || w.Known == nil {
		t.Errorf("turns are asked for as %+v", w)
	}
	s.must(s.bus.EnsureKind(t.Context(), kinds.Pods.Kind))
	s.store("web", func(t *events.Turn) { t.Seen = events.Position{kinds.Pods.Name: 1} }, creates("web", 1)...)
	s.outcome("web")
	log := subject.LogStream(kinds.Pods.Name)
	before := line.Count(bustest.StreamState, log)
	eventually.True(s, eventually.Long, "look at the epoch of pods", func() bool { return line.Count(bustest.StreamState, log) > before+1 })
}

// The writer finishes its turns in flight when it stops, if that does not take too long.
func TestAWriterFinishesWhatItHas(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	arrived, goOn := make(chan struct{}), make(chan struct{})
	var posts atomic.Int64
	s.api.Hold(func(r apiservertest.Request) {
		if r.Method == http.MethodPost && posts.Add(1) == 1 {
			close(arrived)
			<-goOn
		}
	})
	s.started = func(w *writer.Service) { s.service = w }
	stop := s.writer(func(c *writer.Config) { c.Drain = 5 * time.Minute })
	s.store("web", nil, creates("web", 1)...)
	<-arrived
	ended := make(chan struct{})
	go func() { stop(); close(ended) }()
	ready := s.service.Checks()["writer"]
	eventually.True(s, eventually.Long, "end of taking turns", func() bool { return ready() != nil })
	close(goOn)
	<-ended
	if outcomes := s.outcomes(); outcomes != 1 || s.api.Created(pods+"web-0") != 1 {
		t.Errorf("%d outcomes, and the pod was made %d times", outcomes, s.api.Created(pods+"web-0"))
	}
}
