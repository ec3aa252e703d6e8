package apply_test

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/clock"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/services/writer/apply"
	"github.com/millrace/millrace/services/writer/internal/fakeserver"
	"github.com/millrace/millrace/services/writer/plan"
)

func story(i int, message string) apply.Story {
	return apply.Story{
		Actor: actor, Source: "replicaset-controller", ID: fmt.Sprint("TURN.1.", i),
		Telling: plan.Telling{Command: i, Notice: events.Notice{
			About: corev1.ObjectReference{Kind: "ReplicaSet", APIVersion: "apps/v1", Namespace: "ns", Name: "web", UID: "rs"},
			Type:  corev1.EventTypeNormal, Reason: "SuccessfulCreate", Message: message,
		}},
	}
}

// told tells stories and waits until the server holds n Events and has been
// asked so often.
func told(t *testing.T, s *fakeserver.Server, stories []apply.Story, n, requests int) map[string]map[string]any {
	t.Helper()
	teller := apply.NewTeller(open(t, s), clock.RealClock{})
	for _, story := range stories {
		teller.Tell(story)
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	go teller.Run(ctx)
	for deadline := time.Now().Add(5 * time.Minute); len(s.Paths()) != n || len(s.Requests()) < requests; {
		if time.Now().After(deadline) {
			t.Fatalf("%d Events after %d requests, want %d after %d", len(s.Paths()), len(s.Requests()), n, requests)
		}
		time.Sleep(time.Millisecond)
	}
	found := map[string]map[string]any{}
	for _, path := range s.Paths() {
		found[path] = s.Get(path)
	}
	return found
}

// Fifteen births of one owner: nine Events of their own, the rest combined.
func TestSimilarEventsAreCombined(t *testing.T) {
	s := fakeserver.New(t)
	var stories []apply.Story
	for i := range 15 {
		stories = append(stories, story(i, fmt.Sprintf("Created pod: web-%d", i)))
	}
	combined := 0
	for path, event := range told(t, s, stories, 10, 15) {
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

// A turn that is told by two writers makes one Event.
func TestToldTwiceIsOneEvent(t *testing.T) {
	s := fakeserver.New(t)
	told(t, s, []apply.Story{story(0, "Created pod: web-0")}, 1, 1)
	told(t, s, []apply.Story{story(0, "Created pod: web-0")}, 1, 2)
}

// A server that does not answer for a while costs no Event; one that refuses
// ends it at once.
func TestEventsAreTriedAgain(t *testing.T) {
	s := fakeserver.New(t)
	n := 0
	s.Break(func(r fakeserver.Request) fakeserver.Fault {
		if n++; n < 3 {
			return fakeserver.Fault{Code: http.StatusServiceUnavailable}
		}
		if n == 4 {
			return fakeserver.Fault{Code: http.StatusForbidden}
		}
		return fakeserver.Fault{}
	})
	stories := []apply.Story{story(0, "Created pod: web-0"), story(1, "Created pod: web-1"), story(2, "Created pod: web-2")}
	told(t, s, stories, 2, 5)
}
