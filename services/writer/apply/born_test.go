package apply_test

import (
	"context"
	"errors"
	"net/http"
	"sync/atomic"
	"testing"
	"time"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/services/writer/apply"
	"github.com/millrace/millrace/services/writer/internal/fakeserver"
	"github.com/millrace/millrace/services/writer/plan"
)

// TestNobodyIsBornTwice: the answer to a birth is lost, and before it is tried again
// somebody has deleted what was born. The name is free, and yet it is not taken
// again: the record has known its bearer.
func TestNobodyIsBornTwice(t *testing.T) {
	for name, again := range map[string]bool{"the answer was lost": false, "the turn was delivered before": true} {
		t.Run(name, func(t *testing.T) {
			s := fakeserver.New(t)
			var lost, asked atomic.Int64
			s.Break(func(r fakeserver.Request) fakeserver.Fault {
				if r.Method == "POST" && !again && lost.Add(1) == 1 {
					return fakeserver.Fault{Lost: true}
				}
				return fakeserver.Fault{}
			})
			door := open(t, s, func(c *apply.Config) {
				c.Known = func(_ context.Context, ref events.Ref, _ uint64) (plan.Known, error) {
					if s.Remove(podPath + ref.Name); asked.Add(1) == 1 {
						return plan.Known{}, errors.New("the bus is away for a moment")
					}
					return plan.Known{Born: true}, nil
				}
			})
			before := s.Created(podPath + "web-0")
			results := carry(t, door, plan.Options{Again: again}, births(1)...)
			if r := results[0]; r.Status != events.Conflict || !r.Unsure {
				t.Errorf("the result is %+v, want a conflict that admits that nobody knows", r)
			}
			if after := s.Created(podPath + "web-0"); after-before > 1 || again && after > 0 {
				t.Errorf("it was born %d times", after)
			}
		})
	}
}

// TestWhereNobodyWatches: somebody was born and deleted while nobody watched, and the record
// is as silent as where nothing happens. The API server remembers it for a while.
func TestWhereNobodyWatches(t *testing.T) {
	for name, c := range map[string]struct {
		lived, forgotten, cut bool
		late                  time.Duration
		since                 string
		want                  events.Status
		births                int
	}{
		"it has lived": {lived: true, since: "1", want: events.Conflict, births: 1},
		"it has lived, and the answer is cut short": {lived: true, cut: true, since: "1", want: events.Conflict, births: 1},
		"it has lived, and the way is slow":         {lived: true, late: time.Second / 2, since: "1", want: events.Conflict, births: 1},
		"it has not":                                {since: "1", want: events.Applied, births: 1},
		"it has lived, and nobody remembers":        {lived: true, forgotten: true, since: "1", want: events.Applied, births: 2},
		"it has lived, and nobody knows since when": {lived: true, want: events.Applied, births: 2},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := fakeserver.New(t)
			s.Put(podPath+"older", "u", map[string]any{})
			s.Put(podPath+"old", "v", map[string]any{})
			var lost, cut atomic.Bool
			s.Break(func(r fakeserver.Request) fakeserver.Fault {
				switch {
				case c.cut && r.Query.Get("watch") != "":
					return fakeserver.Fault{Lost: cut.CompareAndSwap(false, true)}
				case c.forgotten && r.Query.Get("watch") != "":
					return fakeserver.Fault{Code: http.StatusGone}
				case r.Query.Get("watch") != "":
					return fakeserver.Fault{Late: c.late}
				case r.Method == http.MethodPost:
					return fakeserver.Fault{Lost: c.lived && lost.CompareAndSwap(false, true)}
				}
				return fakeserver.Fault{}
			})
			door := open(t, s, func(config *apply.Config) {
				config.Known = func(context.Context, events.Ref, uint64) (plan.Known, error) {
					return plan.Known{Told: "2", Since: c.since}, nil
				}
			})
			s.Hold(func(r fakeserver.Request) {
				if r.Method != http.MethodPost {
					s.Remove(podPath + "web-0")
					s.Remove(podPath + "older") // so that the record has not come as far
				}
			})
			r := carry(t, door, plan.Options{Again: !c.lived}, births(1)...)[0]
			if r.Status != c.want || s.Created(podPath+"web-0") != c.births {
				t.Errorf("the result is %+v after %d births, want %s after %d", r, s.Created(podPath+"web-0"), c.want, c.births)
			}
		})
	}
}

// TestTheRecordNeedNotCatchUp: where something happens all the time, the record is always a
// little behind. It has to come as far as the API server was when it was first asked.
func TestTheRecordNeedNotCatchUp(t *testing.T) {
	s := fakeserver.New(t)
	now := s.Put(podPath+"busy", "u", map[string]any{})
	told, asked := now, 0
	s.Hold(func(r fakeserver.Request) {
		if r.Method == http.MethodGet {
			now = s.Put(podPath+"busy", "u", map[string]any{})
		}
	})
	door := open(t, s, func(c *apply.Config) {
		c.Known = func(context.Context, events.Ref, uint64) (plan.Known, error) {
			if asked++; asked > 5 {
				return plan.Known{Told: "1000000"}, nil // or nobody would ever be born
			}
			behind := told
			told = now
			return plan.Known{Told: behind}, nil
		}
	})
	r := carry(t, door, plan.Options{Again: true}, births(1)...)[0]
	if r.Status != events.Applied || asked != 2 {
		t.Errorf("the result is %+v, after %d questions to the record; want 2", r, asked)
	}
}

// TestAFirstBirthAsksNobody: the record is in the way of doubtful births only.
func TestAFirstBirthAsksNobody(t *testing.T) {
	s := fakeserver.New(t)
	door := open(t, s, func(c *apply.Config) {
		c.Known = func(context.Context, events.Ref, uint64) (plan.Known, error) {
			t.Error("the record was asked")
			return plan.Known{Born: true}, nil
		}
	})
	if r := carry(t, door, plan.Options{}, births(1)...)[0]; r.Status != events.Applied {
		t.Errorf("the result is %+v", r)
	}
}

// TestNobodyMayBeWatching: an API server that has just started remembers nothing, and those who
// watch are away with it. Silence in one namespace says little then: what the record was not
// told of elsewhere shows that nobody watches.
func TestNobodyMayBeWatching(t *testing.T) {
	const elsewhere, there = "/api/v1/namespaces/other/pods/busy", "/api/v1/namespaces/ns/pods"
	starting := fakeserver.Fault{Code: http.StatusForbidden, Message: `User "w" cannot impersonate-on:serviceaccount:list resource "pods"`}
	for name, c := range map[string]struct {
		busy   bool
		refuse map[string]fakeserver.Fault
		since  time.Duration
		made   bool
		reason string
	}{
		"nothing changes anywhere":                {since: plan.Believed, made: true},
		"nothing changes, for a moment":           {since: plan.Believed - 1, reason: "NoAnswer"},
		"another namespace changes":               {busy: true, since: plan.Believed, reason: "NoAnswer"},
		"only other namespaces ever change":       {busy: true, since: plan.Unfollowed, made: true},
		"other namespaces may not be looked at":   {busy: true, refuse: map[string]fakeserver.Fault{"/api/v1/pods": {Code: http.StatusForbidden}}, since: plan.Believed, made: true},
		"they cannot be looked at for a moment":   {refuse: map[string]fakeserver.Fault{"/api/v1/pods": {Code: http.StatusInternalServerError}}, since: plan.Believed, reason: ""},
		"the server does not know the writer yet": {refuse: map[string]fakeserver.Fault{there: starting}, since: plan.Believed - 1, reason: plan.ReasonNotImpersonated},
		"the writer may not list":                 {refuse: map[string]fakeserver.Fault{there: starting}, since: plan.Believed, made: true},
		"the controller may not list":             {refuse: map[string]fakeserver.Fault{there: {Code: http.StatusForbidden}}, made: true},
	} {
		t.Run(name, func(t *testing.T) {
			s := fakeserver.New(t)
			told := s.Put(podPath+"old", "u", map[string]any{})
			if c.busy {
				s.Put(elsewhere, "v", map[string]any{})
			}
			s.Break(func(r fakeserver.Request) fakeserver.Fault {
				if r.Method == http.MethodGet && r.Query.Get("watch") == "" {
					return c.refuse[r.Path]
				}
				return fakeserver.Fault{}
			})
			s.Hold(func(fakeserver.Request) { s.Remove(podPath + "gone") }) // so that the record has not come as far
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
