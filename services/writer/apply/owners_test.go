package apply_test

import (
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/apiservertest"
	"github.com/millrace/millrace/services/writer/apply"
	"github.com/millrace/millrace/services/writer/apply/applytest"
	"github.com/millrace/millrace/services/writer/plan"
)

// orphaned makes a door delete a pod if its owner, the ReplicaSet ns/web with a uid, is absent.
func orphaned(t *testing.T, s *apiservertest.Server, d *apply.Client, pod string, owner types.UID) events.Result {
	t.Helper()
	s.Put(podPath+pod, pod, map[string]any{})
	c := deletion(pod, types.UID(pod))
	c.If.Absent = []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "ReplicaSet", Name: "web", UID: owner}}
	return carry(t, d, plan.Options{}, c)[0]
}

// The result for one uid says nothing about a later object of the name, in whatever order they are
// read.
func TestAnOwnerThatLivesIsFoundEachTime(t *testing.T) {
	s := applytest.Serve(t)
	s.Put("/apis/apps/v1/namespaces/ns/replicasets/web", "rs", map[string]any{})
	d := open(t, s)
	// Without a uid any object of the name is meant.
	for i, owner := range []types.UID{"rs", "rs", "before", "rs", "before", "rs", "", ""} {
		r := orphaned(t, s, d, fmt.Sprint("p", i), owner)
		if alive := r.Status == events.Refused && r.Reason == "OwnerAlive"; alive != (owner != "before") {
			t.Errorf("number %d, of %s: %+v", i, owner, r)
		}
	}
}

// An error of the API server does not prove that the owner is absent.
func TestAnErrorProvesNoAbsence(t *testing.T) {
	for _, code := range []int{http.StatusInternalServerError, http.StatusTooManyRequests, http.StatusGatewayTimeout} {
		s := applytest.Serve(t)
		s.Put("/apis/apps/v1/namespaces/ns/replicasets/web", "rs", map[string]any{})
		var looks atomic.Int64
		s.Break(func(r apiservertest.Request) apiservertest.Fault {
			if strings.HasSuffix(r.Path, "/web") && looks.Add(1) == 1 {
				return apiservertest.Fault{Code: code}
			}
			return apiservertest.Fault{}
		})
		if r := orphaned(t, s, open(t, s), "p", "rs"); r.Status != events.Refused || r.Reason != "OwnerAlive" {
			t.Errorf("after a code %d for the owner the result is %+v, want it refused with OwnerAlive", code, r)
		}
		if looks.Load() != 2 {
			t.Errorf("after a %d: %d looks, want another one", code, looks.Load())
		}
	}
}

// The owner's kind was served at the last discovery and is not now, as after the restore of a
// storage without it. That proves nothing about the owner.
func TestAKindThatIsNotServedProvesNoAbsence(t *testing.T) {
	s := applytest.Serve(t)
	d := open(t, s)
	s.Put("/apis/apps/v1/namespaces/ns/replicasets/web", "rs", map[string]any{})
	if r := orphaned(t, s, d, "first", "rs"); r.Reason != "OwnerAlive" {
		t.Fatalf("at first: %+v", r)
	}
	s.Break(func(r apiservertest.Request) apiservertest.Fault {
		return apiservertest.Fault{Unserved: strings.HasPrefix(r.Path, "/apis/apps/v1/namespaces")}
	})
	before := s.Answered("GET /apis")
	for _, pod := range []string{"second", "third"} {
		if r := orphaned(t, s, d, pod, "rs"); r.Status != events.Refused || r.Reason != plan.ReasonNoMatch {
			t.Errorf("of an owner whose kind is not served the result is %+v, want it refused with NoMatch", r)
		}
	}
	if asked := s.Answered("GET /apis") - before; asked != 1 {
		t.Errorf("which kinds there are was asked for %d times", asked)
	}
}

// While discovery fails an owner is unknown. A new kind is found at its first read; for an unknown
// kind discovery is repeated at intervals.
func TestKindsThatAreNotKnownYet(t *testing.T) {
	s := applytest.Serve(t)
	s.Put("/apis/apps/v1/namespaces/ns/replicasets/web", "rs", map[string]any{})
	s.Put("/api/v1/nodes/n", "node", map[string]any{})
	broken := "/apis"
	s.Break(func(r apiservertest.Request) (f apiservertest.Fault) {
		switch {
		case r.Path == broken && broken == "/apis":
			f.Code = http.StatusServiceUnavailable
		case r.Path == broken:
			f.Unserved = true
		}
		return f
	})
	d := open(t, s)
	look := func(version, kind, name string) plan.Response {
		owner := &metav1.OwnerReference{APIVersion: version, Kind: kind, Name: name, UID: "x"}
		return d.Do(t.Context(), actor, plan.Request{Verb: plan.Look, Namespace: "ns", Owner: owner}, "")
	}
	if r := look("apps/v1", "ReplicaSet", "web"); r.Code != http.StatusServiceUnavailable {
		t.Errorf("when discovery fails the answer is %+v, want code 503", r)
	}
	broken = "/apis/apps/v1"
	if r := look("v1", "Node", "n"); r.Code != http.StatusOK {
		t.Fatalf("a kind that is there: %+v", r)
	}
	broken = ""
	if r := look("apps/v1", "ReplicaSet", "web"); r.Code != http.StatusOK || r.Object.UID != "rs" {
		t.Errorf("a kind that is new: %+v", r)
	}
	before := s.Answered("GET /apis")
	for range 2 {
		if r := look("example.com/v1", "Foo", "f"); r.Reason != plan.ReasonNoMatch {
			t.Errorf("a kind that there is not: %+v", r)
		}
	}
	if asked := s.Answered("GET /apis") - before; asked > 1 {
		t.Errorf("for a kind that does not exist discovery is asked %d times, want once at most", asked)
	}
}
