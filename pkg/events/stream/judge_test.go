package stream

import (
	"strings"
	"testing"
	"time"
)

// TestJudge: each thing that can be seen has its reason, at its bound.
func TestJudge(t *testing.T) {
	t.Parallel()
	good := func() busFacts {
		return busFacts{
			replicas: 3, online: 3, version: "2.15.2", payload: 8 << 20,
			sync: map[string]time.Duration{"a": 0, "b": 0, "c": 0},
		}
	}
	for _, c := range []struct {
		name  string
		spoil func(*busFacts)
		want  string // a reason; with "..." it is passing
	}{
		{"nothing", func(*busFacts) {}, ""},
		{"one copy", func(o *busFacts) { o.replicas, o.online = 1, 0 }, "replicas"},
		{"two of three are there", func(o *busFacts) { o.online = 2 }, "servers..."},
		{"one syncs late", func(o *busFacts) { o.sync["b"] = time.Second }, "sync"},
		{"one was never seen", func(o *busFacts) { delete(o.sync, "b") }, "unseen"},
		{"one is away", func(o *busFacts) { delete(o.sync, "b"); o.silentEndpoints = []string{"refused"} }, "unseen..."},
		{"an older server", func(o *busFacts) { o.version = "2.9.99" }, "version"},
		{"a newer server", func(o *busFacts) { o.version = "3.0.0-beta" }, ""},
		{"one copy on one server", func(o *busFacts) {
			*o = busFacts{replicas: 1, version: "2.15.2", payload: 8 << 20, sync: map[string]time.Duration{"a": 0}}
		}, "replicas"},
		{"no copy yet, and nothing seen", func(o *busFacts) { *o = busFacts{version: "2.15.2", payload: 8 << 20} }, "replicas unseen"},
		{"a server that says no version", func(o *busFacts) { o.version = "" }, ""},
		{"the oldest server", func(o *busFacts) { o.version = "2.15" }, ""},
		{"messages of 4 MiB", func(o *busFacts) { o.payload = 4 << 20 }, ""},
		{"messages of less", func(o *busFacts) { o.payload = 4<<20 - 1 }, "payload"},
		{"small messages", func(o *busFacts) { o.payload = 1 << 20 }, "payload"},
		{"clocks", func(o *busFacts) { o.serverTime = toldAfter(3 * time.Second) }, "clock..."},
		{"clocks, as much as may be", func(o *busFacts) { o.serverTime = toldAfter(2 * time.Second) }, ""},
		{"clocks, a little more", func(o *busFacts) { o.serverTime = toldAfter(2*time.Second + 1) }, "clock..."},
		{"clocks, a little", func(o *busFacts) { o.serverTime = toldAfter(time.Second) }, ""},
	} {
		o := good()
		c.spoil(&o)
		var got []string
		for _, s := range o.judge() {
			reason := s.Reason
			if s.Passing {
				reason += "..."
			}
			if s.What == "" || s.Cure == "" {
				t.Errorf("%s: %+v says nothing", c.name, s)
			}
			got = append(got, reason)
		}
		if all := strings.Join(got, " "); all != c.want {
			t.Errorf("%s: found %q, want %q", c.name, all, c.want)
		}
	}
}

// TestLateServersAreNamed in their order, so that the same is said each time.
func TestLateServersAreNamed(t *testing.T) {
	t.Parallel()
	o := busFacts{sync: map[string]time.Duration{"d": time.Second, "b": time.Second, "a": time.Second, "e": 0, "c": time.Second}}
	if got := strings.Join(o.lateSyncing(), " "); got != "a b c d" {
		t.Errorf("late are %s", got)
	}
}

// toldAfter is a moment that an answer told so long after it came.
func toldAfter(late time.Duration) ClockReading {
	asked := time.Unix(1000, 0)
	return ClockReading{At: asked.Add(late), Asked: asked, Answered: asked}
}

// TestApart: what the way of the answer, or the precision of the moment, explains is no
// difference of clocks.
func TestApart(t *testing.T) {
	t.Parallel()
	asked := time.Unix(1000, 0)
	for _, c := range []struct{ at, precision, want time.Duration }{
		{-time.Hour, 0, -time.Hour},
		{0, 0, 0}, {time.Second, 0, 0}, {time.Minute, 0, 59 * time.Second},
		{-time.Second, time.Second, 0}, {-3 * time.Second, time.Second, -2 * time.Second},
		{-time.Millisecond, time.Second, 0}, {3 * time.Second, time.Second, 2 * time.Second},
	} {
		told := ClockReading{At: asked.Add(c.at), Precision: c.precision, Asked: asked, Answered: asked.Add(time.Second)}
		if got := told.Offset(); got != c.want {
			t.Errorf("told %v after the question, to %v: %v apart, want %v", c.at, c.precision, got, c.want)
		}
	}
	if got := (ClockReading{Asked: asked, Answered: asked}).Offset(); got != 0 {
		t.Errorf("nothing told: %v apart", got)
	}
}
