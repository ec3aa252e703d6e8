package apply_test

import (
	"context"
	"errors"
	"net/http"
	"sync/atomic"
	"testing"
	"time"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/apiservertest"
	"github.com/millrace/millrace/services/writer/apply"
	"github.com/millrace/millrace/services/writer/apply/applytest"
	"github.com/millrace/millrace/services/writer/plan"
)

// TestNothingIsCreatedTwice: the answer to a create is lost, and a user deletes the created object
// before the retry. The name is free, but the writer does not create the object again: the record
// has had it.
func TestNothingIsCreatedTwice(t *testing.T) {
	for name, again := range map[string]bool{"the answer was lost": false, "the turn was delivered before": true} {
		t.Run(name, func(t *testing.T) {
			s := applytest.Serve(t)
			var lost, asked atomic.Int64
			s.Break(func(r apiservertest.Request) apiservertest.Fault {
				if r.Method == "POST" && !again && lost.Add(1) == 1 {
					return apiservertest.Fault{Lost: true}
				}
				return apiservertest.Fault{}
			})
			door := open(t, s, func(c *apply.Config) {
				c.Known = func(_ context.Context, ref events.Ref, _ uint64) (plan.Known, error) {
					if s.Remove(podPath + ref.Name); asked.Add(1) == 1 {
						return plan.Known{}, errors.New("the bus is away for a moment")
					}
					return plan.Known{Created: true}, nil
				}
			})
			before := s.Created(podPath + "web-0")
			results := carry(t, door, plan.Options{Again: again}, creates(1)...)
			if r := results[0]; r.Status != events.Conflict || !r.Unsure {
				t.Errorf("the result is %+v, want a conflict that admits that it is unsure", r)
			}
			if after := s.Created(podPath + "web-0"); after-before > 1 || again && after > 0 {
				t.Errorf("the pod was created %d times, want once at most, and not again in a repeated turn", after)
			}
		})
	}
}

// TestWhereNoWatcherWatches: a pod was created and deleted while no watcher watched, and the
// record is as silent as if nothing had happened. The API server's watch history has the pod for a
// while.
func TestWhereNoWatcherWatches(t *testing.T) {
	for name, c := range map[string]struct {
		lived, forgotten, cut bool
		late                  time.Duration
		since                 string
		want                  events.Status
		creates               int
	}{
		"it has lived": {lived: true, since: "1", want: events.Conflict, creates: 1},
		"it has lived, and the answer is cut short": {lived: true, cut: true, since: "1", want: events.Conflict, creates: 1},
		"it has lived, and the way is slow":         {lived: true, late: time.Second / 2, since: "1", want: events.Conflict, creates: 1},
		"it has not":                                {since: "1", want: events.Applied, creates: 1},
		"it has lived, and is not remembered":       {lived: true, forgotten: true, since: "1", want: events.Applied, creates: 2},
		"it has lived, and since when is unknown":   {lived: true, want: events.Applied, creates: 2},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := applytest.Serve(t)
			s.Put(podPath+"older", "u", map[string]any{})
			s.Put(podPath+"old", "v", map[string]any{})
			var lost, cut atomic.Bool
			s.Break(func(r apiservertest.Request) apiservertest.Fault {
				switch {
				case readsVersion(r):
					return apiservertest.Fault{Code: http.StatusGone}
				case c.cut && r.Query.Get("watch") != "":
					return apiservertest.Fault{Lost: cut.CompareAndSwap(false, true)}
				case c.forgotten && r.Query.Get("watch") != "":
					return apiservertest.Fault{Code: http.StatusGone}
				case r.Query.Get("watch") != "":
					return apiservertest.Fault{Delay: c.late}
				case r.Method == http.MethodPost:
					return apiservertest.Fault{Lost: c.lived && lost.CompareAndSwap(false, true)}
				}
				return apiservertest.Fault{}
			})
			door := open(t, s, func(config *apply.Config) {
				config.Known = func(context.Context, events.Ref, uint64) (plan.Known, error) {
					return plan.Known{Told: "2", Since: c.since}, nil
				}
			})
			s.Hold(func(r apiservertest.Request) {
				if r.Method != http.MethodPost {
					s.Remove(podPath + "web-0")
					s.Remove(podPath + "older") // now the record is behind
				}
			})
			r := carry(t, door, plan.Options{Again: !c.lived}, creates(1)...)[0]
			if r.Status != c.want || s.Created(podPath+"web-0") != c.creates {
				t.Errorf("the result is %+v after %d creates, want %s after %d", r, s.Created(podPath+"web-0"), c.want, c.creates)
			}
		})
	}
}

// readsVersion reports whether a request reads a version of the past.
func readsVersion(r apiservertest.Request) bool {
	return r.Query.Get("resourceVersionMatch") == "Exact"
}

// versionsGone is the fault of an API server whose storage was compacted.
func versionsGone(r apiservertest.Request) apiservertest.Fault {
	if readsVersion(r) {
		return apiservertest.Fault{Code: http.StatusGone}
	}
	return apiservertest.Fault{}
}

// TestTheRecordNeedNotCatchUp: in a busy cluster the record is always a little behind. It only has
// to reach the version that the API server had when it was first asked.
func TestTheRecordNeedNotCatchUp(t *testing.T) {
	s := applytest.Serve(t)
	s.Break(versionsGone)
	now := s.Put(podPath+"busy", "u", map[string]any{})
	told, asked := now, 0
	s.Hold(func(r apiservertest.Request) {
		if r.Method == http.MethodGet {
			now = s.Put(podPath+"busy", "u", map[string]any{})
		}
	})
	door := open(t, s, func(c *apply.Config) {
		c.Known = func(context.Context, events.Ref, uint64) (plan.Known, error) {
			if asked++; asked > 5 {
				return plan.Known{Told: "1000000"}, nil // else it would never be created
			}
			behind := told
			told = now
			return plan.Known{Told: behind}, nil
		}
	})
	r := carry(t, door, plan.Options{Again: true}, creates(1)...)[0]
	if r.Status != events.Applied || asked != 2 {
		t.Errorf("the result is %+v, after %d questions to the record; want 2", r, asked)
	}
}

// TestAFirstCreateAsksNothing: only doubtful creates consult the record.
func TestAFirstCreateAsksNothing(t *testing.T) {
	s := applytest.Serve(t)
	door := open(t, s, func(c *apply.Config) {
		c.Known = func(context.Context, events.Ref, uint64) (plan.Known, error) {
			t.Error("the record was asked")
			return plan.Known{Created: true}, nil
		}
	})
	if r := carry(t, door, plan.Options{}, creates(1)...)[0]; r.Status != events.Applied {
		t.Errorf("the result is %+v", r)
	}
}

// TestPerhapsNoWatcherWatches: an API server that has just started has no watch history, and the
// watchers lost their connections together with it. Silence in one namespace proves little then: a
// change in another namespace that the record does not have shows that no watcher watches.
func TestPerhapsNoWatcherWatches(t *testing.T) {
	const elsewhere, there = "/api/v1/namespaces/other/pods/busy", "/api/v1/namespaces/ns/pods"
	starting := apiservertest.Fault{Code: http.StatusForbidden, Message: `User "w" cannot impersonate-on:serviceaccount:list resource "pods"`}
	for name, c := range map[string]struct {
		busy   bool
		refuse map[string]apiservertest.Fault
		since  time.Duration
		made   bool
		reason string
	}{
		"nothing changes anywhere":                {since: plan.Believed, made: true},
		"nothing changes, for a moment":           {since: plan.Believed - 1, reason: "NoAnswer"},
		"another namespace changes":               {busy: true, since: plan.Believed, reason: "NoAnswer"},
		"only other namespaces ever change":       {busy: true, since: plan.Unfollowed, made: true},
		"other namespaces may not be looked at":   {busy: true, refuse: map[string]apiservertest.Fault{"/api/v1/pods": {Code: http.StatusForbidden}}, since: plan.Believed, made: true},
		"they cannot be looked at for a moment":   {refuse: map[string]apiservertest.Fault{"/api/v1/pods": {Code: http.StatusInternalServerError}}, since: plan.Believed, reason: ""},
		"the server does not know the writer yet": {refuse: map[string]apiservertest.Fault{there: starting}, since: plan.Believed - 1, reason: plan.ReasonNotImpersonated},
		"the writer may not list":                 {refuse: map[string]apiservertest.Fault{there: starting}, since: plan.Believed, made: true},
		"the controller may not list":             {refuse: map[string]apiservertest.Fault{there: {Code: http.StatusForbidden}}, made: true},
	} {
		t.Run(name, func(t *testing.T) {
			s := applytest.Serve(t)
			told := s.Put(podPath+"old", "u", map[string]any{})
			if c.busy {
				s.Put(elsewhere, "v", map[string]any{})
			}
			s.Break(func(r apiservertest.Request) apiservertest.Fault {
				if r.Method == http.MethodGet && r.Query.Get("watch") == "" {
					if refusal, refused := c.refuse[r.Path]; refused {
						return refusal
					}
					return versionsGone(r)
				}
				return apiservertest.Fault{}
			})
			s.Hold(func(apiservertest.Request) { s.Remove(podPath + "gone") }) // now the record is behind
			s.Put(podPath+"gone", "w", map[string]any{})
			door := open(t, s, func(config *apply.Config) {
				config.Known = func(context.Context, events.Ref, uint64) (plan.Known, error) { return plan.Known{Told: told}, nil }
			})
			r := door.Do(t.Context(), actor, doubted(c.since), "t.1.0")
			if made := s.Created(podPath+"a") == 1; made != c.made || made != (r.Code == http.StatusCreated) {
				t.Errorf("made: %t, want %t; the answer is %+v", made, c.made, r)
			}
			if !c.made && c.reason != "" && r.Reason != c.reason {
				t.Errorf("the answer is %+v, want %s", r, c.reason)
			}
		})
	}
}

// doubtful returns an API server whose version is past the record's, because of another kind only,
// and the record's version. It has no past versions.
func doubtful(t *testing.T) (s *apiservertest.Server, told string) {
	t.Helper()
	s = applytest.Serve(t)
	s.Break(versionsGone)
	told = s.Put(podPath+"old", "u", map[string]any{"metadata": map[string]any{"name": "old"}})
	s.Put("/api/v1/nodes/n", "n", map[string]any{})
	return s, told
}

// knowing gives a door a record that is complete up to a version, and knows the kind's first
// version.
func knowing(told string) func(*apply.Config) {
	return func(c *apply.Config) {
		c.Known = func(context.Context, events.Ref, uint64) (plan.Known, error) {
			return plan.Known{Told: told, Since: "1"}, nil
		}
	}
}

// The API server's watch history of a name settles a doubt. If it has none, a long silence does,
// and a temporary failure is retried.
func TestWhatTheAPIServerRemembers(t *testing.T) {
	for _, c := range []struct {
		code int
		body string
		made bool
		want int // the answer's code
	}{
		{200, `{"type":"ADDED"}`, false, 409},
		{200, `{"type":"MODIFIED"}`, false, 409},
		{200, `{"type":"DELETED"}`, false, 409},
		{200, `{"type":"ERROR"}`, true, 201},
		{200, `{"type":"BOOKMARK"}`, true, 201},
		{200, ``, true, 201},
		{200, `{`, false, 0},
		{400, `{}`, true, 201},
		{403, `{}`, true, 201},
		{410, `{}`, true, 201},
		{429, `{}`, false, 429},
		{499, `{}`, true, 201},
		{500, `{}`, false, 500},
		{503, `{}`, false, 503},
	} {
		s, told := doubtful(t)
		line := &applytest.Answering{At: "watch=true", Code: c.code, Body: c.body}
		r := open(t, s, knowing(told), line.By).Do(t.Context(), actor, doubted(plan.Believed), "")
		if made := s.Created(podPath+"a") == 1; made != c.made || r.Code != c.want {
			t.Errorf("%d %s: made: %t, and the answer is %+v", c.code, c.body, made, r)
		}
		if !c.made && r.Code != 409 && r.Stood != "2" {
			t.Errorf("%d %s: the API server stood at %q", c.code, c.body, r.Stood)
		}
	}
}

// A controller that may not list does not learn the API server's version; a temporary failure is
// retried.
func TestWhereTheAPIServerStands(t *testing.T) {
	for _, c := range []struct {
		code int
		body string
		made bool
		want int
	}{
		{400, `{}`, true, 201},
		{403, `{}`, true, 201},
		{499, `{}`, true, 201},
		{429, `{}`, false, 429},
		{500, `{}`, false, 500},
		{200, `[`, true, 201},
		{200, `{"metadata":{"resourceVersion":"9"},"items":7}`, true, 201},
		{200, `{"metadata":{"resourceVersion":"9"}}`, false, 0},
		{200, `{"metadata":{"resourceVersion":"1"},"items":[{"metadata":{"name":"b"}}]}`, true, 201},
		{200, `{"metadata":{"resourceVersion":"1"},"items":[{"metadata":{"name":"b"}},{"metadata":{"name":"a"}},{"metadata":{"name":"c"}}]}`, false, 409},
	} {
		s, told := doubtful(t)
		r := doubted(0)
		line := &applytest.Answering{At: "fieldSelector", Code: c.code, Body: c.body}
		got := open(t, s, knowing(told), line.By).Do(t.Context(), actor, r, "")
		if made := s.Created(podPath+"a") == 1; made != c.made || got.Code != c.want || !c.made && s.Answered("POST "+podPath[:len(podPath)-1]) > 0 {
			t.Errorf("%d %s: made: %t, and the answer is %+v", c.code, c.body, made, got)
		}
	}
	for stood, want := range map[string]string{"": "2", "1": "1", "2": "2", "7": "2"} { // after a restore it begins anew
		s, _ := doubtful(t)
		r := doubted(0)
		r.Stood = stood
		if got := open(t, s, knowing("0")).Do(t.Context(), actor, r, ""); got.Reason != "NoAnswer" || got.Stood != want {
			t.Errorf("the API server, which stood at %q, is to be caught up with at %q, want %q: %+v", stood, got.Stood, want, got)
		}
		line := &applytest.Answering{At: "fieldSelector", Code: 503, Body: `{}`}
		if got := open(t, s, knowing("0"), line.By).Do(t.Context(), actor, r, ""); got.Code != 503 || got.Stood != stood {
			t.Errorf("when the API server cannot be asked for its version, %q is forgotten: %+v", stood, got)
		}
	}
}

// A new doubt reads only the object of the name. A lasting one reads the newest version of the
// kind, among as many objects as one list returns.
func TestWhatIsAskedInADoubt(t *testing.T) {
	for since, want := range map[time.Duration]string{0: "fieldSelector=metadata.name%3Da", plan.Quiet - 1: "fieldSelector=metadata.name%3Da", plan.Quiet: "limit=500"} {
		s, told := doubtful(t)
		line := &applytest.Answering{}
		open(t, s, knowing(told), line.By).Do(t.Context(), actor, doubted(since), "")
		asked := line.Asked[0].URL.Query()
		asked.Del("timeout")
		if got := asked.Encode(); got != want {
			t.Errorf("after %v it is asked for %s, want %s", since, got, want)
		}
	}
}
