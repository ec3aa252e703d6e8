package watcher

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"k8s.io/client-go/rest"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/bus"
	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/pkg/events/stream/memory"
	"github.com/millrace/millrace/pkg/events/subject"
)

// start runs a watcher until the test ends or stop is called.
func start(t *testing.T, s *server, b bus.Bus, id string, options ...func(*Config)) (service *Service, stop func()) {
	config := Config{REST: &rest.Config{Host: s.URL}, Bus: b, Kinds: []kinds.Kind{kinds.Pods.Kind}, ID: id}
	for _, option := range options {
		option(&config)
	}
	service, err := New(config)
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

func logOf(t *testing.T, b bus.Bus) (log []events.Delta) { return logOfKind(t, b, "pods") }

func logOfKind(t *testing.T, b bus.Bus, kind kinds.Name) (log []events.Delta) {
	at, err := b.StreamState(t.Context(), subject.LogStream(kind))
	if err != nil {
		return nil // not there yet
	}
	for sequence := at.First; sequence <= at.Last; sequence++ {
		d, there, err := stored(t.Context(), b, subject.LogStream(kind), sequence)
		if err != nil || !there {
			t.Fatalf("message %d: there is %t, %v", sequence, there, err)
		}
		log = append(log, d)
	}
	return log
}

// eventually waits until the log holds these deltas, leaving marks out.
func eventually(t *testing.T, b bus.Bus, want ...string) {
	t.Helper()
	var got []string
	for end := time.Now().Add(patient); time.Now().Before(end); time.Sleep(5 * time.Millisecond) {
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
	t.Parallel()
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
	t.Parallel()
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

// patient bounds the wait for what must happen, even on a slow machine.
const patient = 5 * time.Minute

func until(t *testing.T, holds func() bool) {
	t.Helper()
	for end := time.Now().Add(patient); !holds(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("timed out")
		}
	}
}

// eventuallySorted waits until the log holds these deltas, in any order.
func eventuallySorted(t *testing.T, b bus.Bus, want ...string) {
	t.Helper()
	until(t, func() bool {
		got := slices.DeleteFunc(ops(logOf(t, b)), func(s string) bool { return s == "mark" })
		slices.Sort(got)
		return slices.Equal(got, want)
	})
}

// listen waits until an address is free again.
func listen(t *testing.T, address string) (l net.Listener) {
	t.Helper()
	until(t, func() (ok bool) {
		var err error
		l, err = net.Listen("tcp", address)
		return err == nil
	})
	return l
}

func ops(log []events.Delta) (text []string) {
	for _, d := range log {
		text = append(text, strings.TrimSpace(string(d.Op)+" "+d.Ref.Name))
	}
	return text
}

func TestWhatIsTooLargeIsToldInBrief(t *testing.T) {
	t.Parallel()
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
	t.Parallel()
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
	t.Parallel()
	s := serve(t)
	s.refuse[""] = http.StatusUnauthorized
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
