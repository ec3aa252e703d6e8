package turns_test

import (
	"encoding/json"
	"log/slog"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/rest"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/apiservertest"
	"github.com/millrace/millrace/pkg/events/bus"
	"github.com/millrace/millrace/pkg/events/eventually"
	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/pkg/events/metrictest"
	"github.com/millrace/millrace/pkg/events/servicetest"
	"github.com/millrace/millrace/pkg/events/sign"
	"github.com/millrace/millrace/pkg/events/stream"
	"github.com/millrace/millrace/pkg/events/stream/embedded"
	"github.com/millrace/millrace/pkg/events/subject"
	"github.com/millrace/millrace/services/reconcilers"
	"github.com/millrace/millrace/services/reconcilers/reconcile"
	"github.com/millrace/millrace/services/reconcilers/shell"
	"github.com/millrace/millrace/services/writer"
)

const copier = "copier"

// patience bounds the wait for what must happen; docs/reliability.md promises it.
const patience = 30 * time.Second

// world is an API server with ConfigMaps that tells of its changes itself, and a bus with its files.
type world struct {
	*testing.T
	store  string
	server *embedded.Server
	bus    *stream.Bus
	api    *apiservertest.Server
	keys   *sign.Provided // nil: no signatures
	alarms []prometheus.Collector

	mu  sync.Mutex
	log bus.Appender
	// undone is the path of the copy whose next create gets no answer, and which a user deletes at
	// once. From then on the API server appends nothing; held is what it would have appended.
	undone string
	lost   string // the copy that was created without an answer, until it is deleted
	silent bool
	held   []events.Message
}

const configMaps = "/api/v1/namespaces/ns/configmaps"

func newWorld(t *testing.T) *world {
	w := &world{T: t, store: t.TempDir(), api: apiservertest.New(t)}
	w.api.Observe(w.tell)
	w.api.Break(w.leave)
	w.api.Hold(w.forget)
	return w
}

// open starts the bus on its files, and appends a mark.
func (w *world) open() {
	w.Helper()
	var err error
	w.server, err = embedded.Serve(embedded.Options{Dir: w.store, StartTimeout: patience, StopTimeout: patience})
	w.must(err)
	w.bus = w.connect(patience)
	w.must(w.bus.EnsureKind(w.Context(), kinds.ConfigMaps.Kind))
	w.must(w.bus.EnsureController(w.Context(), copier))
	version := w.api.Version()
	w.mu.Lock()
	defer w.mu.Unlock()
	w.log, err = w.bus.Append(w.Context(), kinds.ConfigMaps.Name)
	w.must(err)
	w.mark(events.Mark, version, 0)
}

// mark appends a mark, or a gap, of a version, with the place of the last gap before it.
func (w *world) mark(op events.Op, version string, gap uint64) {
	m := subject.Message(events.Delta{
		Kind: kinds.ConfigMaps.Name, Op: op, ResourceVersion: version, At: time.Now(),
		Before: events.Place{Known: true, Sequence: gap},
	})
	w.append(m)
}

// connect returns a connection whose requests have this time-out; 0: that of a service.
func (w *world) connect(timeout time.Duration) *stream.Bus {
	w.Helper()
	b, err := stream.Connect(w.Context(), stream.Options{Server: w.server, Timeout: timeout})
	w.must(err)
	return b
}

func (w *world) close() {
	w.Helper()
	_ = w.bus.Close()
	w.must(w.server.Close())
}

func (w *world) must(err error) {
	w.Helper()
	if err != nil {
		w.Fatal(err)
	}
}

func (w *world) append(m events.Message) {
	if err := w.log.Append(w.Context(), m); err != nil {
		w.Errorf("append a message to the log: %v", err)
	}
	if err := w.log.Flush(w.Context()); err != nil {
		w.Errorf("flush the log: %v", err)
	}
}

// tell appends the delta of a change.
func (w *world) tell(what string, changed apiservertest.Object) {
	w.mu.Lock()
	defer w.mu.Unlock()
	var object corev1.ConfigMap
	text, err := json.Marshal(changed)
	if err == nil {
		err = json.Unmarshal(text, &object)
	}
	if err != nil {
		w.Errorf("read %v: %v", changed, err)
	}
	body, err := kinds.Encode(kinds.ConfigMaps.Kind, &object)
	if err != nil {
		w.Errorf("encode %s: %v", object.Name, err)
	}
	op := events.Is
	if what == "DELETED" {
		op = events.Gone
	}
	ref := events.Ref{Kind: kinds.ConfigMaps.Name, Namespace: "ns", Name: object.Name}
	m := subject.Message(events.Delta{
		Kind: ref.Kind, Ref: ref, Op: op, UID: object.UID, ResourceVersion: object.ResourceVersion,
		At: time.Now(), ContentType: kinds.Protobuf, Form: kinds.Full, Body: body,
	})
	if w.silent {
		w.held = append(w.held, m)
		return
	}
	w.append(m)
}

// speak appends what was held back.
func (w *world) speak() {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, m := range w.held {
		w.append(m)
	}
	w.silent, w.held = false, nil
}

// relist drops what was held back, like a watcher that was away for too long.
func (w *world) relist() {
	version := w.api.Version()
	w.mu.Lock()
	defer w.mu.Unlock()
	w.mark(events.Gap, version, 0)
	w.mark(events.Mark, version, w.log.Last())
	w.silent, w.held = false, nil
}

// undo leaves the next create of a copy unanswered, and deletes the copy at once; then
// something else changes, and none of that is appended. The API server forgets it.
func (w *world) undo(name string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.undone = copyPath(name)
}

// leave loses the answer to the create that is to be undone.
func (w *world) leave(r apiservertest.Request) (f apiservertest.Fault) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.undone != "" && r.Method == http.MethodPost && configMaps+"/"+nameIn(r) == w.undone {
		w.undone, w.lost, w.silent = "", w.undone, true
		f.Lost = true
	}
	return f
}

// forget deletes the copy whose create was left unanswered, before the next request.
func (w *world) forget(apiservertest.Request) {
	w.mu.Lock()
	lost := w.lost
	w.lost = ""
	w.mu.Unlock()
	if lost != "" {
		w.api.Remove(lost)
		w.api.Put(configMaps+"/another", "", map[string]any{})
		w.api.Compact()
	}
}

// nameIn is the name of the object that a request sends.
func nameIn(r apiservertest.Request) string {
	var object struct{ Metadata struct{ Name string } }
	_ = json.Unmarshal(r.Body, &object) // a body that is none has no name
	return object.Metadata.Name
}

// asks is how often the API server was asked for its version.
func (w *world) asks() int { return w.api.Answered("GET " + configMaps) }

func copyPath(name string) string { return configMaps + "/copy-" + name }

// remove deletes a copy, as a user does.
func (w *world) remove(name string) { w.api.Remove(copyPath(name)) }

// want asks for a copy, as a user does.
func (w *world) want(name string) { w.api.Put(configMaps+"/want-"+name, "", map[string]any{}) }

func (w *world) creates(name string) int { return w.api.Created(copyPath(name)) }

// view is the copier's view of a name.
type view struct {
	name    string
	missing bool
}

// copies wants "copy-x" for every "want-x".
func copies() reconcile.Any {
	return reconcile.Controller[view]{
		Name: copier, Queue: copier,
		Inputs: []reconcile.Input{{Kind: kinds.ConfigMaps.Kind, Keys: func(_ reconcile.Snapshot, was, now reconcile.Object) []events.Key {
			if now.None() {
				now = was
			}
			_, name, _ := strings.Cut(now.GetName(), "-")
			return []events.Key{{Namespace: "ns", Name: name}}
		}}},
		Writes: reconcile.Writes{{Verb: events.VerbCreate, Kind: kinds.ConfigMaps.Name}},
		Observe: func(s reconcile.Snapshot, k events.Key) (view, bool) {
			_, wanted := s.Get(kinds.ConfigMaps.Name, k.Namespace, "want-"+k.Name)
			_, there := s.Get(kinds.ConfigMaps.Name, k.Namespace, "copy-"+k.Name)
			return view{k.Name, wanted && !there}, true
		},
		Decide: func(v view, _ time.Time) reconcile.Decision {
			if !v.missing {
				return reconcile.Nothing("there")
			}
			return reconcile.Do("missing", reconcile.Create(kinds.ConfigMaps.Kind, "ns", "copy-"+v.name, []byte(`{}`)))
		},
	}
}

// decides runs reconcilers until stop is called.
func (w *world) decides() (stop func()) {
	w.Helper()
	b := w.connect(0)
	c := reconcilers.Config{Bus: b, Controllers: []reconcile.Any{copies()}}
	if w.keys != nil {
		c.Settings.Signatures = shell.Signatures{Sign: w.signer(w.keys.Turns), Outcomes: w.trust(w.keys.Outcomes)}
	}
	s, err := reconcilers.New(c)
	w.must(err)
	w.alarms = append(w.alarms, s.Collectors()...)
	return servicetest.Run(w, "reconcilers", s.Run, b)
}

// writes runs a writer until stop is called.
func (w *world) writes() (stop func()) {
	w.Helper()
	b := w.connect(0)
	c := writer.Config{
		REST: &rest.Config{Host: w.api.URL}, Bus: b, Log: slog.New(slog.DiscardHandler),
		Controllers: []writer.Profile{{Name: copier, Allowed: func(events.Command) bool { return true }}},
	}
	if w.keys != nil {
		c.Sign, c.Turns = w.signer(w.keys.Outcomes), w.trust(w.keys.Turns)
	}
	s, err := writer.New(c)
	w.must(err)
	w.alarms = append(w.alarms, s.Collectors()...)
	return servicetest.Run(w, "writer", s.Run, b)
}

func (w *world) signer(p sign.Pair) *sign.Signer {
	w.Helper()
	s, err := sign.SignerFile(p.Private, w.warned)
	w.must(err)
	return s
}

func (w *world) trust(p sign.Pair) *sign.Trust {
	w.Helper()
	t, err := sign.TrustFile(p.Public, w.warned)
	w.must(err)
	return t
}

func (w *world) warned(err error) { w.Errorf("read a file of keys: %v", err) }

// alarmed is the sum of a counter over all services, of those series that have a label's value.
func (w *world) alarmed(counter, value string) (sum int) {
	w.Helper()
	for _, c := range w.alarms {
		sum += int(metrictest.Collect(w, c).Sum(counter, value))
	}
	return sum
}

// eventually waits until a condition holds, and measures how long that takes.
func (w *world) eventually(what string, holds func() bool) (took time.Duration) {
	w.Helper()
	began := time.Now()
	eventually.True(w, patience, what, holds)
	return time.Since(began)
}

// messages is the number of messages in a stream.
func (w *world) messages(stream string) uint64 {
	w.Helper()
	s, err := w.bus.StreamState(w.Context(), stream)
	w.must(err)
	return s.Messages
}

// last is the newest turn and the newest outcome about a name.
func (w *world) last(name string) (turn events.Turn, sequence uint64, outcome events.Outcome) {
	w.Helper()
	key := events.Key{Namespace: "ns", Name: name}
	m, ok, err := w.bus.Last(w.Context(), subject.TurnStream(copier), subject.Turn(copier, events.LaneWrite, key))
	if w.must(err); ok {
		w.must(events.DecodeJSON(m, &turn))
	}
	sequence = m.Sequence
	m, ok, err = w.bus.Last(w.Context(), subject.OutcomeStream(copier), subject.Outcome(copier, events.LaneWrite, key))
	if w.must(err); ok {
		w.must(events.DecodeJSON(m, &outcome))
	}
	return turn, sequence, outcome
}
