package eventrecorder_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/apiservertest"
	"github.com/millrace/millrace/pkg/events/eventually"
	"github.com/millrace/millrace/pkg/events/metrictest"
	"github.com/millrace/millrace/services/writer/apply"
	"github.com/millrace/millrace/services/writer/apply/applytest"
	"github.com/millrace/millrace/services/writer/apply/eventrecorder"
	"github.com/millrace/millrace/services/writer/plan"
)

var actor = applytest.Actor

func eventRecord(i int, message string) eventrecorder.Event {
	return eventrecorder.Event{
		Actor: actor, Source: "replicaset-controller", ID: fmt.Sprint("TURN.1.", i),
		Event: plan.Event{Command: i, Notice: events.Notice{
			About: corev1.ObjectReference{Kind: "ReplicaSet", APIVersion: "apps/v1", Namespace: "ns", Name: "web", UID: "rs"},
			Type:  corev1.EventTypeNormal, Reason: "SuccessfulCreate", Message: message,
		}},
	}
}

// told writes records and waits until the server has n Events and has had a number of requests.
func told(t *testing.T, s *apiservertest.Server, records []eventrecorder.Event, n, requests int) map[string]map[string]any {
	t.Helper()
	recorder := eventrecorder.New(eventrecorder.Config{Do: applytest.Open(t, s).Do, Clock: clock.RealClock{}})
	for _, r := range records {
		recorder.Record(r)
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	go recorder.Run(ctx)
	sent := func() bool { return len(s.Paths()) == n && len(s.Requests()) >= requests }
	if !eventually.Within(eventually.Long, sent) {
		t.Fatalf("%d Events after %d requests, want %d after %d", len(s.Paths()), len(s.Requests()), n, requests)
	}
	found := map[string]map[string]any{}
	for _, path := range s.Paths() {
		found[path] = s.Get(path)
	}
	return found
}

// Fifteen creates of one owner: nine Events of their own, the rest combined.
func TestSimilarEventsAreCombined(t *testing.T) {
	s := applytest.Serve(t)
	var records []eventrecorder.Event
	for i := range 15 {
		records = append(records, eventRecord(i, fmt.Sprintf("Created pod: web-%d", i)))
	}
	combined := 0
	for path, event := range told(t, s, records, 10, 15) {
		if !strings.HasPrefix(path, "/api/v1/namespaces/ns/events/web.") {
			t.Errorf("an Event at %s", path)
		}
		if strings.HasPrefix(fmt.Sprint(event["message"]), "(combined from similar events): ") {
			combined++
			if got := fmt.Sprint(event["count"]); got != "6" {
				t.Errorf("%s are combined", got)
			}
		}
	}
	if combined != 1 {
		t.Errorf("%d combined Events", combined)
	}
}

// Two writers that write the Events of one turn make one Event.
func TestToldTwiceIsOneEvent(t *testing.T) {
	s := applytest.Serve(t)
	told(t, s, []eventrecorder.Event{eventRecord(0, "Created pod: web-0")}, 1, 1)
	told(t, s, []eventrecorder.Event{eventRecord(0, "Created pod: web-0")}, 1, 2)
}

// A server that is away for a while loses no Event; a refusal ends an Event at once.
func TestEventsAreTriedAgain(t *testing.T) {
	s := applytest.Serve(t)
	n := 0
	s.Break(func(r apiservertest.Request) apiservertest.Fault {
		if n++; n < 3 {
			return apiservertest.Fault{Code: http.StatusServiceUnavailable}
		}
		if n == 4 {
			return apiservertest.Fault{Code: http.StatusForbidden}
		}
		return apiservertest.Fault{}
	})
	records := []eventrecorder.Event{eventRecord(0, "Created pod: web-0"), eventRecord(1, "Created pod: web-1"), eventRecord(2, "Created pod: web-2")}
	told(t, s, records, 2, 5)
}

// postbox is an API server for Events. It answers the requests one after the other as the test
// says: with a code, or not at all (0).
type postbox struct {
	answer func(n int) int

	mu     sync.Mutex
	asked  []string // methods
	bodies []string
	at     []time.Time
}

// RoundTrip is [http.RoundTripper].
func (p *postbox) RoundTrip(r *http.Request) (*http.Response, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return nil, err
	}
	p.asked, p.bodies, p.at = append(p.asked, r.Method), append(p.bodies, string(body)), append(p.at, time.Now())
	code := p.answer(len(p.asked))
	if code == 0 {
		return nil, errors.New("the connection was lost")
	}
	return &http.Response{
		StatusCode: code, Header: http.Header{"Content-Type": {"application/json"}}, Request: r,
		Body: io.NopCloser(strings.NewReader(`{"metadata":{"name":"e","resourceVersion":"7"}}`)),
	}, nil
}

// posted writes records for a virtual hour, and returns the counts of their results.
func posted(t *testing.T, p *postbox, panicked func(string, any, []byte), records ...eventrecorder.Event) func(result string) float64 {
	t.Helper()
	metrics := eventrecorder.NewMetrics()
	door, err := apply.New(apply.Config{REST: &rest.Config{Host: "http://api.invalid", Transport: p}, Panicked: panicked}, []apply.Actor{actor})
	if err != nil {
		t.Fatal(err)
	}
	recorder := eventrecorder.New(eventrecorder.Config{Do: door.Do, Clock: clock.RealClock{}, Metrics: metrics, Panicked: panicked})
	ctx, cancel := context.WithCancel(t.Context())
	go recorder.Run(ctx)
	for _, s := range records {
		recorder.Record(s)
	}
	time.Sleep(time.Hour) // virtual
	cancel()
	synctest.Wait()
	return func(result string) float64 {
		return metrictest.Collect(t, metrics.Collectors()...).Sum("millrace_writer_events_total", result)
	}
}

// The result of an Event is counted: written once, also by an earlier delivery of its turn;
// refused; or retried for as long as upstream does, and then dropped.
func TestWhatBecomesOfAnEvent(t *testing.T) {
	for code, want := range map[int]struct {
		result string
		tries  int
	}{
		200: {"told", 1}, 201: {"told", 1}, 299: {"told", 1}, 409: {"told", 1}, 400: {"refused", 1}, 403: {"refused", 1}, 404: {"refused", 1}, 499: {"refused", 1},
		0: {"dropped", 12}, 300: {"dropped", 12}, 429: {"dropped", 12}, 500: {"dropped", 12}, 503: {"dropped", 12},
	} {
		synctest.Test(t, func(t *testing.T) {
			p := &postbox{answer: func(int) int { return code }}
			became := posted(t, p, nil, eventRecord(0, "Created pod: web-0"))
			if became(want.result) != 1 || became("told")+became("refused")+became("dropped")+became("filtered") != 1 || len(p.asked) != want.tries {
				t.Errorf("%d: told %v, refused %v, dropped %v, after %d tries", code, became("told"), became("refused"), became("dropped"), len(p.asked))
			}
			if took := p.at[len(p.at)-1].Sub(p.at[0]); want.tries > 1 && (took < 5*time.Second || took > time.Minute) {
				t.Errorf("%d: it is tried for %v", code, took)
			}
		})
	}
}

// One object gets no more Events at once than upstream writes.
func TestManyEventsOfAnObjectAreFiltered(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var records []eventrecorder.Event
		for i := range 30 {
			records = append(records, eventRecord(i, fmt.Sprint("Created pod: web-", i)))
		}
		p := &postbox{answer: func(int) int { return 200 }}
		if became := posted(t, p, nil, records...); became("told") != 25 || became("filtered") != 5 || len(p.asked) != 25 {
			t.Errorf("%v Events were sent and %v filtered, with %d requests; want 25, 5, 25", became("told"), became("filtered"), len(p.asked))
		}
	})
}

// A repeated Event is counted up; one that has expired meanwhile is created again, without its old
// version.
func TestAnEventIsCountedUp(t *testing.T) {
	for what, c := range map[string]struct {
		second int // the second answer's code
		asked  string
	}{"it is there": {200, "POST PATCH"}, "it has expired": {404, "POST PATCH POST"}, "it may not": {403, "POST PATCH"}} {
		synctest.Test(t, func(t *testing.T) {
			p := &postbox{answer: func(n int) int {
				if n == 2 {
					return c.second
				}
				return 201
			}}
			posted(t, p, nil, eventRecord(0, "Created pod: web-0"), eventRecord(1, "Created pod: web-0"))
			if got := strings.Join(p.asked, " "); got != c.asked || strings.Contains(p.bodies[len(p.bodies)-1], "resourceVersion") || !strings.Contains(p.bodies[len(p.bodies)-1], `"count":2`) {
				t.Errorf("%s: the requests are %s, the last one is %s", what, got, p.bodies[len(p.bodies)-1])
			}
		})
	}
}

// A panic while an Event is written costs that Event, and is reported; the next ones are written.
func TestAPanicCostsOneEvent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		faults := 0
		panicked := func(controller string, cause any, stack []byte) {
			if faults++; controller != actor.Controller || cause != "a fault" || len(stack) == 0 {
				t.Errorf("the panic of %s is reported as %v, want \"a fault\" of the actor, with its stack", controller, cause)
			}
		}
		p := &postbox{answer: func(n int) int {
			if n == 1 {
				panic("a fault")
			}
			return 201
		}}
		if became := posted(t, p, panicked, eventRecord(0, "a"), eventRecord(1, "b")); became("dropped") != 1 || became("told") != 1 || faults != 1 {
			t.Errorf("dropped %v, told %v, after %d faults", became("dropped"), became("told"), faults)
		}
	})
}

// A writer that stops does not wait until an Event is written. Events beyond upstream's queue size
// are dropped at once.
func TestEventsHoldNothingUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		metrics := eventrecorder.NewMetrics()
		p := &postbox{answer: func(int) int { return 500 }}
		door, err := apply.New(apply.Config{REST: &rest.Config{Host: "http://api.invalid", Transport: p}}, []apply.Actor{actor})
		if err != nil {
			t.Fatal(err)
		}
		recorder := eventrecorder.New(eventrecorder.Config{Do: door.Do, Clock: clock.RealClock{}, Metrics: metrics})
		dropped := func() float64 {
			return metrictest.Collect(t, metrics.Collectors()...).Sum("millrace_writer_events_total", "dropped")
		}
		for i := range 1001 {
			recorder.Record(eventRecord(i, "m"))
		}
		if dropped() != 1 {
			t.Errorf("of 1001 Events %v are dropped, want 1", dropped())
		}
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan struct{})
		go func() { recorder.Run(ctx); close(ended) }()
		time.Sleep(time.Millisecond) // virtual: it waits to try the first one again
		began := time.Now()
		cancel()
		<-ended
		if took := time.Since(began); took > 0 || dropped() < 2 {
			t.Errorf("when the recorder ends it takes %v, and %v Events are dropped; want at once, and those that were waiting", took, dropped())
		}
	})
}
