package apply_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	testingclock "k8s.io/utils/clock/testing"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/apiservertest"
	"github.com/millrace/millrace/services/writer/apply"
	"github.com/millrace/millrace/services/writer/apply/applytest"
	"github.com/millrace/millrace/services/writer/plan"
)

// Short names of the test kit.
var (
	actor    = applytest.Actor
	always   = applytest.Always
	open     = applytest.Open
	carry    = applytest.Carry
	creates  = applytest.Creates
	deletion = applytest.Deletion
)

const podPath = applytest.PodPath

// Every third write is carried out and loses its answer, every fifth gets a temporary refusal;
// every create happens exactly once.
func TestLostAnswersDoubleNothing(t *testing.T) {
	s := applytest.Serve(t)
	var n atomic.Int64
	s.Break(func(r apiservertest.Request) apiservertest.Fault {
		switch n := n.Add(1); {
		case n%3 == 0:
			return apiservertest.Fault{Lost: true}
		case n%5 == 0:
			return apiservertest.Fault{Code: http.StatusInternalServerError}
		default:
			return apiservertest.Fault{}
		}
	})
	for i, r := range carry(t, open(t, s), plan.Options{}, creates(20)...) {
		if r.Status != events.Applied || r.UID == "" || r.Version == "" {
			t.Errorf("create %d: %+v", i, r)
		}
		if made := s.Created(podPath + r.Ref.Name); made != 1 {
			t.Errorf("create %d happened %d times", i, made)
		}
	}
}

func TestWhoAsksAndHow(t *testing.T) {
	s := applytest.Serve(t)
	s.Put(podPath+"old", "old-uid", map[string]any{})
	results := carry(t, open(t, s), plan.Options{}, creates(1)[0], deletion("old", "old-uid"))
	for _, r := range results {
		if r.Status != events.Applied {
			t.Fatalf("the result is %+v, want Applied", r)
		}
	}
	if !results[1].Removed {
		t.Errorf("the delete left something: %+v", results[1])
	}
	for _, r := range s.Requests() {
		if got := r.Header.Get("Impersonate-User"); got != "system:serviceaccount:kube-system:replicaset-controller" {
			t.Errorf("%s as %q", r.Method, got)
		}
		if got := r.Header.Get("User-Agent"); got != "millrace-writer/replicaset-controller" {
			t.Errorf("%s by %q", r.Method, got)
		}
		switch r.Method {
		case http.MethodPost:
			if got := r.Query.Get("fieldManager"); got != apply.FieldManager {
				t.Errorf("field manager %q", got)
			}
			if got := r.Header.Get("Audit-Id"); got != "t.0.1" || results[0].AuditID != got {
				t.Errorf("audit id %q, in the result %q", got, results[0].AuditID)
			}
		case http.MethodDelete:
			var o metav1.DeleteOptions
			if err := json.Unmarshal(r.Body, &o); err != nil || o.Preconditions == nil || *o.Preconditions.UID != "old-uid" {
				t.Errorf("delete without its condition: %s (%v)", r.Body, err)
			}
		}
	}
}

// A controller applies under its own name: a manager's apply removes what its previous one set,
// and must not remove another controller's fields.
func TestControllersApplyUnderTheirOwnNames(t *testing.T) {
	s := applytest.Serve(t)
	s.Put(podPath+"p", "u", map[string]any{})
	for how, want := range map[types.PatchType]string{types.ApplyPatchType: actor.Controller, types.StrategicMergePatchType: apply.FieldManager} {
		patch := events.Command{Verb: events.VerbPatch, PatchType: how, Kind: "pods", Version: "v1", Namespace: "ns", Name: "p", Body: []byte(`{}`), If: &events.If{UID: "u"}}
		carry(t, open(t, s), plan.Options{}, patch)
		requests := s.Requests()
		query := requests[len(requests)-1].Query
		if got := query.Get("fieldManager"); got != want {
			t.Errorf("a patch of type %s is under the name %q, want %q", how, got, want)
		}
		if forced := query.Get("force") == "true"; forced != (how == types.ApplyPatchType) {
			t.Errorf("a patch of type %s is forced: %t", how, forced)
		}
	}
}

func TestDryRunStoresNothing(t *testing.T) {
	s := applytest.Serve(t)
	d := open(t, s, func(c *apply.Config) { c.DryRun = true })
	if r := carry(t, d, plan.Options{DryRun: true}, creates(1)...)[0]; r.Status != events.DryRun {
		t.Errorf("the result of a dry run is %+v, want DryRun", r)
	}
	if paths := s.Paths(); len(paths) != 0 {
		t.Errorf("stored %v", paths)
	}
}

func TestRetryAfterIsHonoured(t *testing.T) {
	s := applytest.Serve(t)
	var first atomic.Bool
	var again atomic.Int64
	began := time.Now()
	s.Break(func(apiservertest.Request) apiservertest.Fault {
		if first.CompareAndSwap(false, true) {
			return apiservertest.Fault{Code: http.StatusTooManyRequests, RetryAfter: 1}
		}
		again.Store(int64(time.Since(began)))
		return apiservertest.Fault{}
	})
	if r := carry(t, open(t, s), plan.Options{}, creates(1)...)[0]; r.Status != events.Applied {
		t.Errorf("the result is %+v, want Applied", r)
	}
	if took := time.Duration(again.Load()); took < time.Second {
		t.Errorf("asked again after %v", took)
	}
}

func TestPatienceEnds(t *testing.T) {
	s := applytest.Serve(t)
	s.Break(func(apiservertest.Request) apiservertest.Fault {
		return apiservertest.Fault{Code: http.StatusTooManyRequests}
	})
	d := open(t, s, func(c *apply.Config) { c.Patience = 300 * time.Millisecond })
	results := carry(t, d, plan.Options{}, creates(50)...)
	if results[0].Status != events.Failed || results[0].Code != http.StatusTooManyRequests {
		t.Errorf("the first create: %+v", results[0])
	}
	if results[49].Status != events.Skipped {
		t.Errorf("the last create: %+v", results[49])
	}
}

func TestAnEndedContextLeavesTheTurnOpen(t *testing.T) {
	s := applytest.Serve(t)
	ctx, cancel := context.WithCancel(t.Context())
	s.Break(func(apiservertest.Request) apiservertest.Fault {
		cancel()
		return apiservertest.Fault{Code: http.StatusServiceUnavailable}
	})
	p := plan.New(events.Turn{Commands: creates(1)}, plan.Options{})
	if results, done := open(t, s).Execute(ctx, actor, p, always, func(int, int) string { return "" }); done {
		t.Errorf("done: %+v", results)
	}
}

// still stops the clock, so that proofs do not age on a slow machine.
func still(c *apply.Config) { c.Clock = testingclock.NewFakePassiveClock(time.Now()) }

// Owners are found by kind through discovery, in the dependent's namespace; an absent owner is
// read once.
func TestOwnersAreLookedAtLive(t *testing.T) {
	s := applytest.Serve(t)
	s.Put("/apis/apps/v1/namespaces/ns/replicasets/web", "rs", map[string]any{})
	s.Put("/api/v1/nodes/n", "node", map[string]any{})
	owner := func(apiVersion, kind, name, uid string) metav1.OwnerReference {
		return metav1.OwnerReference{APIVersion: apiVersion, Kind: kind, Name: name, UID: types.UID(uid)}
	}
	d := open(t, s, still)
	for i, story := range []struct {
		owner  metav1.OwnerReference
		status events.Status
		reason string
	}{
		{owner("apps/v1", "ReplicaSet", "web", "rs"), events.Refused, "OwnerAlive"},
		{owner("apps/v1", "ReplicaSet", "web", "before"), events.Applied, ""},
		{owner("apps/v1", "ReplicaSet", "gone", "gone"), events.Applied, ""},
		{owner("apps/v1", "ReplicaSet", "gone", "gone"), events.Applied, ""},
		{owner("v1", "Node", "n", "node"), events.Refused, "OwnerAlive"},
		{owner("example.com/v1", "Foo", "f", "f"), events.Refused, plan.ReasonNoMatch},
	} {
		name := fmt.Sprintf("p%d", i)
		s.Put(podPath+name, name, map[string]any{})
		c := deletion(name, types.UID(name))
		c.If.Absent = []metav1.OwnerReference{story.owner}
		if r := carry(t, d, plan.Options{}, c)[0]; r.Status != story.status || r.Reason != story.reason {
			t.Errorf("%v: %+v", story.owner, r)
		}
	}
	looks := 0
	for _, r := range s.Requests() {
		if strings.HasSuffix(r.Path, "/gone") {
			looks++
		}
	}
	if looks != 1 {
		t.Errorf("%d looks at an owner that is gone", looks)
	}

	cluster := events.Command{
		Verb: events.VerbDelete, Kind: "nodes", Version: "v1", Name: "n",
		If: &events.If{UID: "node", Absent: []metav1.OwnerReference{owner("apps/v1", "ReplicaSet", "web", "x")}},
	}
	if r := carry(t, d, plan.Options{}, cluster)[0]; r.Reason != plan.ReasonUnresolvable {
		t.Errorf("a node with an owner in a namespace: %+v", r)
	}
}

// A restore of the API server's storage brings back an owner that was proven absent, with the same
// uid: its dependents must not be deleted because of an old proof.
func TestAProofOfAbsenceGrowsOld(t *testing.T) {
	s := applytest.Serve(t)
	now := testingclock.NewFakePassiveClock(time.Now())
	d := open(t, s, func(c *apply.Config) { c.Clock = now })
	end := func(name string) events.Result {
		s.Put(podPath+name, name, map[string]any{})
		c := deletion(name, types.UID(name))
		c.If.Absent = []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "ReplicaSet", Name: "web", UID: "rs"}}
		return carry(t, d, plan.Options{}, c)[0]
	}
	if r := end("orphan"); r.Status != events.Applied {
		t.Fatalf("the orphan: %+v", r)
	}
	s.Put("/apis/apps/v1/namespaces/ns/replicasets/web", "rs", map[string]any{})
	now.SetTime(now.Now().Add(2 * time.Second))
	if r := end("dependent"); r.Status != events.Refused || r.Reason != "OwnerAlive" {
		t.Errorf("the dependent of an owner that is back: %+v", r)
	}
}

// The many dependents of a deleted owner share one read of it.
func TestAnOwnerIsLookedAtOnceForAll(t *testing.T) {
	s := applytest.Serve(t)
	var deletions []events.Command
	for i := range 50 {
		name := fmt.Sprintf("p%d", i)
		s.Put(podPath+name, name, map[string]any{})
		c := deletion(name, types.UID(name))
		c.If.Absent = []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "ReplicaSet", Name: "gone", UID: "gone"}}
		deletions = append(deletions, c)
	}
	for i, r := range carry(t, open(t, s, still), plan.Options{}, deletions...) {
		if r.Status != events.Applied {
			t.Errorf("deletion %d: %+v", i, r)
		}
	}
	looks := 0
	for _, r := range s.Requests() {
		if strings.HasSuffix(r.Path, "/gone") {
			looks++
		}
	}
	if looks != 1 {
		t.Errorf("%d looks at the owner", looks)
	}
}

// A request has its whole time-out, and only the door's rate limit: waiting for the client
// library's own would count against the time-out.
func TestTheClientLibraryHoldsNothingUp(t *testing.T) {
	s := applytest.Serve(t)
	held := make(chan struct{})
	t.Cleanup(func() { close(held) })
	s.Hold(func(r apiservertest.Request) {
		if r.Path == podPath+"slow" {
			<-held
		}
	})
	d := open(t, s, func(c *apply.Config) { c.REST.QPS, c.REST.Burst = 0.001, 1 })
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	ask := plan.Request{Verb: plan.Read, Kind: "pods", Version: "v1", Namespace: "ns", Name: "web"}
	for range 3 {
		if r := d.Do(ctx, actor, ask, ""); r.Code != http.StatusNotFound {
			t.Errorf("a request is answered %+v", r)
		}
	}
	ask.Name = "slow"
	hurried := open(t, s, func(c *apply.Config) { c.Timeout = 100 * time.Millisecond })
	if r := hurried.Do(ctx, actor, ask, ""); r.Code != 0 || r.Reason != "NoAnswer" || ctx.Err() != nil {
		t.Errorf("a request that is never answered ends in %+v", r)
	}
}

// The cache holds as many absent owners as upstream's.
func TestHowManyAbsencesAreRemembered(t *testing.T) {
	s := applytest.Serve(t)
	d := open(t, s, still)
	look := func(i int) int {
		r := plan.Request{Verb: plan.Look, Namespace: "ns", Owner: &metav1.OwnerReference{APIVersion: "v1", Kind: "Pod", Name: fmt.Sprint("gone-", i), UID: "u"}}
		if got := d.Do(t.Context(), actor, r, ""); got.Code != http.StatusNotFound {
			t.Fatalf("number %d: %+v", i, got)
		}
		return s.Answered(fmt.Sprint("GET ", podPath, "gone-", i))
	}
	for i := range 501 {
		look(i)
	}
	if last, first := look(500), look(0); last != 1 || first != 2 {
		t.Errorf("the last of 501 is looked at %d times, the first %d times", last, first)
	}
}

// TestRequestsKeepToAPace: each actor has its own rate limit, if there is one.
func TestRequestsKeepToAPace(t *testing.T) {
	s := applytest.Serve(t)
	for _, c := range []struct {
		qps   float32
		least time.Duration
	}{{0, 0}, {20, 400 * time.Millisecond}} {
		d := open(t, s, func(config *apply.Config) { config.QPS, config.Burst = c.qps, 2 })
		began := time.Now()
		for range 11 {
			if r := d.Do(t.Context(), actor, plan.Request{Verb: plan.Read, Kind: "pods", Version: "v1", Namespace: "ns", Name: "web"}, ""); r.Code != http.StatusNotFound {
				t.Fatalf("the answer is %+v, want code 404", r)
			}
		}
		if took := time.Since(began); took < c.least {
			t.Errorf("11 requests took %v, at %v a second", took, c.qps)
		}
	}
	d := open(t, s, func(config *apply.Config) { config.QPS, config.Burst = 0.001, 1 })
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	ask := plan.Request{Verb: plan.Read, Kind: "pods", Version: "v1", Namespace: "ns", Name: "web"}
	d.Do(ctx, actor, ask, "")
	if r := d.Do(ctx, actor, ask, ""); r.Code != 0 || r.Reason != "Interrupted" {
		t.Errorf("a request whose turn does not come is answered %+v", r)
	}
}
