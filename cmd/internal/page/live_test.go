package page

import (
	"context"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/millrace/millrace/pkg/events/record"
	"github.com/millrace/millrace/pkg/events/stream/memory"
)

// listener is a client of a live view that records the received events.
type listener struct {
	http.ResponseWriter
	mu    sync.Mutex
	heard strings.Builder
}

func (l *listener) Write(text []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.heard.Write(text)
}

func (l *listener) Flush() {}

func (l *listener) text() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.heard.String()
}

// look opens a live view; leave ends it.
func look(handler http.Handler, query string) (l *listener, leave func()) {
	ctx, leave := context.WithCancel(context.Background())
	l = &listener{ResponseWriter: httptest.NewRecorder()}
	q := httptest.NewRequest(http.MethodGet, "http://127.0.0.1/api/live?"+query, nil).WithContext(ctx)
	go handler.ServeHTTP(l, q)
	synctest.Wait()
	return l, leave
}

func TestWhatHappensIsTold(t *testing.T) {
	visit(t, func(s *site) {
		all, leave := look(s.handler, "namespace=shop")
		other, leaveToo := look(s.handler, "namespace=elsewhere")
		if got := all.text(); got != "event: begun\ndata: {}\n\n" {
			s.Errorf("before anything happens: %q", got)
		}
		if err := s.AddPod(s.Context()); err != nil {
			s.Fatal(err)
		}
		time.Sleep(time.Second)
		synctest.Wait()
		for _, want := range []string{"event: happened\n", `"noun":"turn"`, `"noun":"outcome"`, `"name":"web-1-3"`, `"event":"created"`} {
			if !strings.Contains(all.text(), want) {
				s.Errorf("%s is missing in what is told:\n%s", want, all.text())
			}
		}
		if strings.Contains(other.text(), "happened") {
			s.Errorf("who asked about elsewhere is told %s", other.text())
		}
		time.Sleep(heartbeat + time.Second)
		if synctest.Wait(); !strings.Contains(other.text(), ": still here") {
			s.Errorf("when nothing happens nothing is sent: %q", other.text())
		}
		leave()
		leaveToo()
		synctest.Wait()
	})
}

func TestOnlySoManyLookOn(t *testing.T) {
	visit(t, func(s *site) {
		var leaves []func()
		for range liveViews {
			_, leave := look(s.handler, "")
			leaves = append(leaves, leave)
		}
		var got trouble
		if s.ask(http.StatusServiceUnavailable, "live", nil, &got); got.Code != "crowded" {
			s.Errorf("one too many is told %+v", got)
		}
		leaves[0]()
		synctest.Wait()
		again, leave := look(s.handler, "")
		if !strings.Contains(again.text(), "begun") {
			s.Errorf("where there is room again: %q", again.text())
		}
		leave()
		for _, leave := range leaves {
			leave()
		}
		synctest.Wait()
	})
}

func TestWhoIsSlowIsToldThatHeMissed(t *testing.T) {
	l := &listener{ResponseWriter: httptest.NewRecorder()}
	v := &view{w: l, control: http.NewResponseController(l)}
	for range backlog + 1 {
		if err := v.hear(record.Happening{Noun: "delta"}); err != nil {
			t.Fatal(err)
		}
	}
	something, err := v.flush()
	if err != nil || !something || strings.Count(l.text(), `"noun"`) != backlog || !strings.HasSuffix(l.text(), "event: missed\ndata: {}\n\n") {
		t.Errorf("%v, %v: he is told of %d, and at last %q", something, err, strings.Count(l.text(), `"noun"`), l.text()[max(0, len(l.text())-40):])
	}
	if something, err := v.flush(); something || err != nil {
		t.Errorf("and again: %v, %v", something, err)
	}
}

func TestWhoLooksOnIsToldThatTheBusIsAway(t *testing.T) {
	visit(t, func(s *site) {
		l, leave := look(s.handler, "")
		defer leave()
		if err := s.bus.Close(); err != nil {
			s.Fatal(err)
		}
		time.Sleep(time.Second)
		if synctest.Wait(); !strings.Contains(l.text(), "event: trouble\n") {
			s.Errorf("he is told %q", l.text())
		}
	})
}

func TestALiveViewOfABusThatIsAway(t *testing.T) {
	b := memory.New(memory.Options{})
	handler := New(b, Options{})
	if err := b.Close(); err != nil {
		t.Fatal(err)
	}
	w := httptest.NewRecorder()
	handler.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "http://127.0.0.1/api/live", nil))
	if w.Code != http.StatusServiceUnavailable || !strings.Contains(w.Body.String(), `"away"`) {
		t.Errorf("it is answered with %d: %s", w.Code, w.Body)
	}
}
