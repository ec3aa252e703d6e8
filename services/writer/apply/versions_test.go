package apply_test

import (
	"fmt"
	"net/http"
	"testing"
	"time"

	"github.com/millrace/millrace/pkg/events/apiservertest"
	"github.com/millrace/millrace/services/writer/apply"
	"github.com/millrace/millrace/services/writer/apply/applytest"
	"github.com/millrace/millrace/services/writer/plan"
)

// A create in doubt is settled at once by the versions that the record does not reach, whenever the
// object lived in them: the last writer was killed, and nothing else of the kind changes.
func TestTheVersionsSettleADoubt(t *testing.T) {
	const unread = 9 // versions that the record does not reach
	for created := 1; created <= unread; created++ {
		for deleted := created; deleted <= unread; deleted++ { // created == deleted: it never existed
			t.Run(fmt.Sprintf("created at %d, deleted at %d", created, deleted), func(t *testing.T) {
				s := applytest.Serve(t)
				told := s.Put(podPath+"old", "u", map[string]any{})
				for at := 1; at <= unread; at++ {
					switch {
					case created < deleted && at == created:
						s.Put(podPath+"a", "a", map[string]any{})
					case created < deleted && at == deleted:
						s.Remove(podPath + "a")
					default:
						s.Put("/api/v1/nodes/n", "n", map[string]any{})
					}
				}
				r := open(t, s, knowing(told)).Do(t.Context(), actor, doubted(0), "")
				want := http.StatusConflict
				if created == deleted {
					want = http.StatusCreated
				}
				if r.Code != want {
					t.Errorf("the answer is %+v, want %d", r, want)
				}
				if watched := s.Answered("GET " + podPath[:len(podPath)-1]); watched > 1+unread {
					t.Errorf("%d reads for %d versions", watched, unread)
				}
			})
		}
	}
}

// Versions that cannot be read prove nothing, wherever they are among those that can.
func TestAVersionThatCannotBeReadProvesNothing(t *testing.T) {
	for _, code := range []int{http.StatusGone, http.StatusForbidden, http.StatusTooManyRequests, http.StatusInternalServerError} {
		for version := 2; version <= 6; version++ {
			s := applytest.Serve(t)
			told := s.Put(podPath+"old", "u", map[string]any{})
			for range 5 {
				s.Put("/api/v1/nodes/n", "n", map[string]any{})
			}
			s.Break(func(r apiservertest.Request) apiservertest.Fault {
				if readsVersion(r) && r.Query.Get("resourceVersion") == fmt.Sprint(version) {
					return apiservertest.Fault{Code: code}
				}
				return apiservertest.Fault{}
			})
			r := open(t, s, knowing(told)).Do(t.Context(), actor, doubted(0), "")
			if r.Reason != "NoAnswer" || s.Created(podPath+"a") > 0 {
				t.Errorf("version %d answers %d: %+v", version, code, r)
			}
		}
	}
}

// A server that answers with the present in place of the past proves nothing.
func TestAnotherVersionProvesNothing(t *testing.T) {
	s := applytest.Serve(t)
	told := s.Put(podPath+"old", "u", map[string]any{})
	s.Put("/api/v1/nodes/n", "n", map[string]any{})
	line := &applytest.Answering{At: "resourceVersionMatch=Exact", Code: http.StatusOK, Body: `{"metadata":{"resourceVersion":"9"},"items":[]}`}
	r := open(t, s, knowing(told), line.By).Do(t.Context(), actor, doubted(0), "")
	if r.Reason != "NoAnswer" || s.Created(podPath+"a") > 0 {
		t.Errorf("the answer is %+v, want NoAnswer, and no create", r)
	}
}

// An actor whose rate is limited reads no versions, since they would exceed its rate.
func TestALimitedRateReadsNoVersions(t *testing.T) {
	s, told := doubtful(t)
	limited := func(c *apply.Config) { c.QPS, c.Burst = 100, 10 }
	r := open(t, s, knowing(told), limited).Do(t.Context(), actor, doubted(0), "")
	if r.Reason != "NoAnswer" {
		t.Errorf("the answer is %+v, want NoAnswer", r)
	}
	for _, asked := range s.Requests() {
		if readsVersion(asked) {
			t.Errorf("asked is %+v", asked.Query)
		}
	}
}

// Many creates in doubt read the versions of one only, at most four at a time.
func TestManyDoubtsReadFewVersions(t *testing.T) {
	s := applytest.Serve(t)
	told := s.Put(podPath+"old", "u", map[string]any{})
	for range 100 {
		s.Put("/api/v1/nodes/n", "n", map[string]any{})
	}
	d := open(t, s, knowing(told))
	reading, going := make(chan struct{}, 200), make(chan struct{})
	s.Hold(func(r apiservertest.Request) {
		if readsVersion(r) {
			reading <- struct{}{}
			<-going
		}
	})
	first := make(chan plan.Response, 1)
	go func() { first <- d.Do(t.Context(), actor, doubted(0), "") }()
	for range 4 {
		<-reading
	}
	other := doubted(0)
	other.Name, other.Body = "b", []byte(`{"metadata":{"name":"b"}}`)
	if r := d.Do(t.Context(), actor, other, ""); r.Reason != "NoAnswer" {
		t.Errorf("while another create is settled the answer is %+v, want NoAnswer", r)
	}
	time.Sleep(50 * time.Millisecond)
	if more := len(reading); more > 0 {
		t.Errorf("%d versions are read beyond the first four", more)
	}
	close(going)
	if r := <-first; r.Code != http.StatusCreated {
		t.Errorf("the first is %+v", r)
	}
	if r := d.Do(t.Context(), actor, other, ""); r.Code != http.StatusCreated {
		t.Errorf("then: %+v", r)
	}
}
