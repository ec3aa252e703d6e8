package watcher

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/pkg/events/stream/memory"
	"github.com/millrace/millrace/pkg/events/subject"
)

type change struct {
	what string
	pod  corev1.Pod
}

// server is an API server of pods only, whose history can be forgotten.
type server struct {
	*httptest.Server
	mu       sync.Mutex
	version  int
	pods     map[string]corev1.Pod
	history  []change
	oldest   int // watches from before it are answered with 410
	lists    int
	refuse   int // answer everything with this status
	watchers map[chan struct{}]bool
}

func serve(t *testing.T) *server {
	s := &server{pods: map[string]corev1.Pod{}, version: 1, watchers: map[chan struct{}]bool{}}
	s.Server = httptest.NewServer(s)
	t.Cleanup(s.Server.Close)
	t.Cleanup(s.cut) // before the server closes, which waits for its requests
	return s
}

func (s *server) change(what, name string, padding int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.version++
	pod, there := s.pods[name]
	if !there {
		pod.Namespace, pod.Name, pod.UID = "default", name, types.UID(fmt.Sprint("uid-", s.version))
	}
	pod.ResourceVersion = strconv.Itoa(s.version)
	pod.Spec.NodeName = strings.Repeat("n", padding)
	s.history = append(s.history, change{what, pod})
	s.pods[name] = pod
	if what == "DELETED" {
		delete(s.pods, name)
	}
	s.wake()
}

func (s *server) wake() {
	for w := range s.watchers {
		select {
		case w <- struct{}{}:
		default:
		}
	}
}

// cut ends every watch.
func (s *server) cut() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for w := range s.watchers {
		delete(s.watchers, w)
		close(w)
	}
}

// forget compacts the history away.
func (s *server) forget() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.oldest = s.version
}

func (s *server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	refuse := s.refuse
	s.mu.Unlock()
	w.Header().Set("Content-Type", kinds.JSON)
	switch {
	case refuse != 0:
		w.WriteHeader(refuse)
		fmt.Fprintf(w, `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"Unauthorized","code":%d}`, refuse)
	case r.URL.Path == "/api":
		fmt.Fprint(w, `{"kind":"APIVersions","versions":["v1"]}`)
	case r.URL.Query().Get("watch") != "":
		s.watch(w, r)
	default:
		s.list(w)
	}
}

func (s *server) list(w http.ResponseWriter) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.lists++
	list := corev1.PodList{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "PodList"}}
	list.ResourceVersion = strconv.Itoa(s.version)
	for _, p := range s.pods {
		list.Items = append(list.Items, p)
	}
	_ = json.NewEncoder(w).Encode(list)
}

func (s *server) watch(w http.ResponseWriter, r *http.Request) {
	from, _ := strconv.Atoi(r.URL.Query().Get("resourceVersion"))
	wake := make(chan struct{}, 1)
	wake <- struct{}{}
	s.mu.Lock()
	expired := from < s.oldest
	if !expired {
		s.watchers[wake] = true
	}
	s.mu.Unlock()
	if expired {
		http.Error(w, `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"Expired","code":410}`, http.StatusGone)
		return
	}
	w.WriteHeader(http.StatusOK)
	for {
		w.(http.Flusher).Flush()
		select {
		case <-r.Context().Done():
			return
		case _, open := <-wake:
			if !open {
				return
			}
		}
		s.mu.Lock()
		for _, c := range s.history {
			if v, _ := strconv.Atoi(c.pod.ResourceVersion); v > from {
				from = v
				c.pod.TypeMeta = metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"}
				_ = json.NewEncoder(w).Encode(map[string]any{"type": c.what, "object": c.pod})
			}
		}
		s.mu.Unlock()
	}
}

// start runs a watcher until the test ends or stop is called.
func start(t *testing.T, s *server, b *memory.Bus, id string) (service *Service, stop func()) {
	service, err := New(Config{REST: &rest.Config{Host: s.URL}, Bus: b, Kinds: []kinds.Kind{kinds.Pods.Kind}, ID: id})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- service.Run(ctx) }()
	stop = sync.OnceFunc(func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("run: %v", err)
		}
	})
	t.Cleanup(stop)
	return service, stop
}

func logOf(t *testing.T, b *memory.Bus) (log []events.Delta) {
	at, err := b.StreamState(t.Context(), subject.LogStream("pods"))
	if err != nil {
		return nil // not there yet
	}
	for sequence := at.First; sequence <= at.Last; sequence++ {
		d, there, err := stored(t.Context(), b, subject.LogStream("pods"), sequence)
		if err != nil || !there {
			t.Fatalf("message %d: there is %t, %v", sequence, there, err)
		}
		log = append(log, d)
	}
	return log
}

// eventually waits until the log tells this, marks left out.
func eventually(t *testing.T, b *memory.Bus, want ...string) {
	t.Helper()
	var got []string
	for end := time.Now().Add(10 * time.Second); time.Now().Before(end); time.Sleep(5 * time.Millisecond) {
		got = got[:0]
		for _, d := range logOf(t, b) {
			if d.Op != events.Mark {
				got = append(got, strings.TrimSpace(string(d.Op)+" "+d.Ref.Name))
			}
		}
		if fmt.Sprint(got) == fmt.Sprint(want) {
			return
		}
	}
	t.Fatalf("the log tells %q, want %q", got, want)
}

func TestEveryChangeIsToldOnceAcrossBrokenWatchesAndRestarts(t *testing.T) {
	s, b := serve(t), memory.New(memory.Options{})
	s.change("ADDED", "a", 0)
	_, stop := start(t, s, b, "one")
	eventually(t, b, "is a")
	s.change("MODIFIED", "a", 0)
	eventually(t, b, "is a", "is a")
	s.cut()
	s.change("ADDED", "b", 0)
	eventually(t, b, "is a", "is a", "is b")
	stop()
	s.change("DELETED", "a", 0)
	start(t, s, b, "two")
	eventually(t, b, "is a", "is a", "is b", "gone a")
	if s.mu.Lock(); s.lists != 1 {
		t.Errorf("%d lists, want one: the rest resumes", s.lists)
	}
	s.mu.Unlock()
}

func TestDeletesDuringACompactionAreFound(t *testing.T) {
	s, b := serve(t), memory.New(memory.Options{})
	s.change("ADDED", "a", 0)
	s.change("ADDED", "b", 0)
	_, stop := start(t, s, b, "one")
	until(t, func() bool { return len(logOf(t, b)) == 3 }) // two objects and a mark
	stop()
	s.change("DELETED", "a", 0)
	s.change("DELETED", "b", 0)
	s.change("ADDED", "b", 0) // another one of that name
	s.forget()
	start(t, s, b, "two")
	until(t, func() bool { return strings.Contains(fmt.Sprint(ops(logOf(t, b))), "gap") })
	if got := fmt.Sprint(ops(logOf(t, b)[3:])); !strings.HasPrefix(got, "[gone b is b gone a gap") {
		t.Errorf("the relist told %s", got)
	}
}

func until(t *testing.T, holds func() bool) {
	t.Helper()
	for end := time.Now().Add(10 * time.Second); !holds(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("waited in vain")
		}
	}
}

func ops(log []events.Delta) (text []string) {
	for _, d := range log {
		text = append(text, strings.TrimSpace(string(d.Op)+" "+d.Ref.Name))
	}
	return text
}

func TestWhatIsTooLargeIsToldInBrief(t *testing.T) {
	s, b := serve(t), memory.New(memory.Options{MaxMessage: 4096})
	start(t, s, b, "one")
	until(t, func() bool { return len(logOf(t, b)) == 1 }) // the mark of an empty list
	s.change("ADDED", "large", 8192)
	s.change("ADDED", "small", 0)
	eventually(t, b, "is large", "is small")
	for _, d := range logOf(t, b) {
		if want := map[string]kinds.Form{"large": kinds.Metadata, "small": kinds.Full}[d.Ref.Name]; d.Form != want {
			t.Errorf("%v has form %q, want %q", d.Ref, d.Form, want)
		}
	}
}

func TestTheYoungerWatcherTakesOverWithoutDoubling(t *testing.T) {
	s, b := serve(t), memory.New(memory.Options{})
	_, stop := start(t, s, b, "one")
	s.change("ADDED", "a", 0)
	eventually(t, b, "is a")
	start(t, s, b, "two")
	s.change("ADDED", "b", 0)
	eventually(t, b, "is a", "is b")
	stop()
	s.change("ADDED", "c", 0)
	eventually(t, b, "is a", "is b", "is c")
}

func TestRefusedCredentialsEndTheRun(t *testing.T) {
	s := serve(t)
	s.refuse = http.StatusUnauthorized
	service, err := New(Config{REST: &rest.Config{Host: s.URL}, Bus: memory.New(memory.Options{}), Kinds: []kinds.Kind{kinds.Pods.Kind}, ID: "one"})
	if err != nil {
		t.Fatal(err)
	}
	if err := service.Run(t.Context()); !errors.Is(err, ErrRefused) {
		t.Errorf("run: %v, want %v", err, ErrRefused)
	}
	if service.Checks()["api"]() == nil {
		t.Error("the api check passes")
	}
}

func TestTheOldestWatcherIsActive(t *testing.T) {
	began := time.Unix(1000, 0)
	p := newPeers("young", began)
	old := beat{ID: "old", Started: began.Add(-time.Hour)}
	if p.first(began.Add(silence / 2)) {
		t.Error("active before it can know of others")
	}
	p.hear(old, began.Add(silence))
	if p.first(began.Add(silence + heartbeat)) {
		t.Error("active beside an older one")
	}
	if !p.first(began.Add(2 * silence)) {
		t.Error("not active although the older one is silent")
	}
	p.hear(old, began.Add(2*silence))
	old.Bye = true
	p.hear(old, began.Add(2*silence))
	if !p.first(began.Add(2 * silence)) {
		t.Error("not active although the older one said goodbye")
	}
}
