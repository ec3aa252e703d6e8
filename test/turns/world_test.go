package turns_test

import (
	"encoding/json"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"path"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/millrace/millrace/pkg/events/eventually"
	"github.com/millrace/millrace/pkg/events/metrictest"
	"github.com/millrace/millrace/pkg/events/stream/embedded"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/bus"
	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/pkg/events/servicetest"
	"github.com/millrace/millrace/pkg/events/sign"
	"github.com/millrace/millrace/pkg/events/stream"
	"github.com/millrace/millrace/pkg/events/subject"
	"github.com/millrace/millrace/services/reconcilers"
	"github.com/millrace/millrace/services/reconcilers/reconcile"
	"github.com/millrace/millrace/services/reconcilers/shell"
	"github.com/millrace/millrace/services/writer"
)

const copier = "copier"

// patience bounds the wait for what must happen; docs/reliability.md promises it.
const patience = 30 * time.Second

// world is a toy API server with ConfigMaps, and a bus with its files.
type world struct {
	*testing.T
	store  string
	server *embedded.Server
	bus    *stream.Bus
	api    *httptest.Server
	keys   *sign.Provided // nil: no signatures
	alarms []prometheus.Collector

	mu      sync.Mutex
	log     bus.Appender
	version int
	objects map[string]*corev1.ConfigMap
	made    map[string]int
	// undone is the copy whose next create gets no answer, and which a user deletes at once.
	// From then on the API server appends nothing; held is what it would have appended.
	undone string
	silent bool
	held   []events.Message
	asked  int // how often the API server was asked for its version
}

func newWorld(t *testing.T) *world {
	w := &world{T: t, store: t.TempDir(), objects: map[string]*corev1.ConfigMap{}, made: map[string]int{}}
	w.api = httptest.NewServer(http.HandlerFunc(w.serve))
	t.Cleanup(w.api.Close)
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
	w.mu.Lock()
	defer w.mu.Unlock()
	w.log, err = w.bus.Append(w.Context(), kinds.ConfigMaps.Name)
	w.must(err)
	w.mark(events.Mark, 0)
}

// mark appends a mark, or a gap, with the place of the last gap before it.
func (w *world) mark(op events.Op, gap uint64) {
	m := subject.Message(events.Delta{
		Kind: kinds.ConfigMaps.Name, Op: op, ResourceVersion: strconv.Itoa(w.version), At: time.Now(),
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

// put stores an object and appends its delta.
func (w *world) put(name string) *corev1.ConfigMap {
	w.version++
	version := strconv.Itoa(w.version)
	// Two objects that have a name one after the other never have the same uid: the end of the
	// first would count as the effect of the second.
	uid := types.UID("uid-" + name + "-" + version)
	object := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name, UID: uid, ResourceVersion: version}}
	w.objects[name] = object
	w.tell(events.Is, object)
	return object
}

func (w *world) tell(op events.Op, object *corev1.ConfigMap) {
	body, err := kinds.Encode(kinds.ConfigMaps.Kind, object)
	if err != nil {
		w.Errorf("encode %s: %v", object.Name, err)
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
	w.mu.Lock()
	defer w.mu.Unlock()
	w.mark(events.Gap, 0)
	w.mark(events.Mark, w.log.Last())
	w.silent, w.held = false, nil
}

// undo leaves the next create of a copy unanswered, and deletes the copy at once; then
// something else changes, and none of that is appended.
func (w *world) undo(name string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.undone = "copy-" + name
}

func (w *world) asks() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.asked
}

// remove deletes a copy, as a user does.
func (w *world) remove(name string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.drop("copy-" + name)
}

func (w *world) drop(name string) {
	object := w.objects[name]
	delete(w.objects, name)
	w.version++
	object.ResourceVersion = strconv.Itoa(w.version)
	w.tell(events.Gone, object)
}

// want asks for a copy, as a user does.
func (w *world) want(name string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.put("want-" + name)
}

func (w *world) creates(name string) int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.made["copy-"+name]
}

// serve answers creates, reads by name, and lists, also of one name.
func (w *world) serve(out http.ResponseWriter, r *http.Request) {
	w.mu.Lock()
	defer w.mu.Unlock()
	object, there := w.objects[path.Base(r.URL.Path)]
	switch {
	case r.Method == http.MethodGet && strings.HasSuffix(r.URL.Path, "/configmaps"):
		w.asked++
		answer(out, http.StatusOK, w.list(r.URL.Query().Get("fieldSelector")))
	case r.Method == http.MethodPost && strings.HasSuffix(r.URL.Path, "/configmaps"):
		var body corev1.ConfigMap
		if err := json.NewDecoder(r.Body).Decode(&body); err != nil {
			reply(out, http.StatusBadRequest, metav1.StatusReasonBadRequest)
			return
		}
		if w.objects[body.Name] != nil {
			reply(out, http.StatusConflict, metav1.StatusReasonAlreadyExists)
			return
		}
		w.made[body.Name]++
		undone := body.Name == w.undone
		w.silent = w.silent || undone
		created := w.put(body.Name)
		if undone {
			w.undone = ""
			w.drop(created.Name)
			w.put("another")
			panic(http.ErrAbortHandler)
		}
		answer(out, http.StatusCreated, created)
	case r.Method == http.MethodGet && there:
		answer(out, http.StatusOK, object)
	default:
		reply(out, http.StatusNotFound, metav1.StatusReasonNotFound)
	}
}

func (w *world) list(selector string) corev1.ConfigMapList {
	list := corev1.ConfigMapList{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "ConfigMapList"}, ListMeta: metav1.ListMeta{ResourceVersion: strconv.Itoa(w.version)},
	}
	name, one := strings.CutPrefix(selector, "metadata.name=")
	for _, object := range w.objects {
		if !one || object.Name == name {
			list.Items = append(list.Items, *object)
		}
	}
	return list
}

func reply(out http.ResponseWriter, code int, reason metav1.StatusReason) {
	answer(out, code, metav1.Status{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}, Status: metav1.StatusFailure, Code: int32(code), Reason: reason,
	})
}

func answer(out http.ResponseWriter, code int, body any) {
	out.Header().Set("Content-Type", "application/json")
	out.WriteHeader(code)
	_ = json.NewEncoder(out).Encode(body) // a client that went away is part of the tests
}

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
