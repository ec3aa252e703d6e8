package audit

import (
	"net/url"
	"strings"
	"testing"
	"time"
)

// TestJudge: each thing that can be seen has its reason, at its bound.
func TestJudge(t *testing.T) {
	t.Parallel()
	good := func() Facts {
		return Facts{
			Replicas: 3, Online: 3, Version: "2.15.2", Payload: 8 << 20,
			Sync: map[string]time.Duration{"a": 0, "b": 0, "c": 0},
		}
	}
	for _, c := range []struct {
		name  string
		spoil func(*Facts)
		want  string // a reason; with "..." it is passing
	}{
		{"nothing", func(*Facts) {}, ""},
		{"one copy", func(o *Facts) { o.Replicas, o.Online = 1, 0 }, "replicas"},
		{"two of three are there", func(o *Facts) { o.Online = 2 }, "servers..."},
		{"one syncs late", func(o *Facts) { o.Sync["b"] = time.Second }, "sync"},
		{"one was never seen", func(o *Facts) { delete(o.Sync, "b") }, "unseen"},
		{"one is away", func(o *Facts) { delete(o.Sync, "b"); o.SilentEndpoints = []string{"refused"} }, "unseen..."},
		{"an older server", func(o *Facts) { o.Version = "2.9.99" }, "version"},
		{"a newer server", func(o *Facts) { o.Version = "3.0.0-beta" }, ""},
		{"one copy on one server", func(o *Facts) {
			*o = Facts{Replicas: 1, Version: "2.15.2", Payload: 8 << 20, Sync: map[string]time.Duration{"a": 0}}
		}, "replicas"},
		{"no copy yet, and nothing seen", func(o *Facts) { *o = Facts{Version: "2.15.2", Payload: 8 << 20} }, "replicas unseen"},
		{"a server that says no version", func(o *Facts) { o.Version = "" }, ""},
		{"the oldest server", func(o *Facts) { o.Version = "2.15" }, ""},
		{"messages of 4 MiB", func(o *Facts) { o.Payload = 4 << 20 }, ""},
		{"messages of less", func(o *Facts) { o.Payload = 4<<20 - 1 }, "payload"},
		{"small messages", func(o *Facts) { o.Payload = 1 << 20 }, "payload"},
		{"clocks", func(o *Facts) { o.ServerTime = toldAfter(3 * time.Second) }, "clock..."},
		{"clocks, as much as may be", func(o *Facts) { o.ServerTime = toldAfter(2 * time.Second) }, ""},
		{"clocks, a little more", func(o *Facts) { o.ServerTime = toldAfter(2*time.Second + 1) }, "clock..."},
		{"clocks, a little", func(o *Facts) { o.ServerTime = toldAfter(time.Second) }, ""},
	} {
		o := good()
		c.spoil(&o)
		var got []string
		for _, s := range o.Judge() {
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
	o := Facts{Sync: map[string]time.Duration{"d": time.Second, "b": time.Second, "a": time.Second, "e": 0, "c": time.Second}}
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
			t.Errorf("a clock read as %v after the question, to %v, is %v off, want %v", c.at, c.precision, got, c.want)
		}
	}
	if got := (ClockReading{Asked: asked, Answered: asked}).Offset(); got != 0 {
		t.Errorf("a clock that was not read is %v off, want 0", got)
	}
}

// A password is not shown to a monitoring page that others can listen in on, or pretend to be.
func TestWhereAMonitoringPageIs(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]bool{
		"http://localhost:8222": true, "http://127.0.0.1:8222": true, "http://127.1.2.3": true, "http://[::1]:8222": true, "http://10.0.0.1:8222": false, "http://nats:8222": false, "http://localhost.example.com": false,
	} {
		u, err := url.Parse(text)
		if err != nil {
			t.Fatal(err)
		}
		if got := isLocal(u); got != want {
			t.Errorf("%s is of this machine: %t", text, got)
		}
	}
	for says, o := range map[string]Monitor{"/none": {CAFile: "/none"}, "the text holds no certificate": {CAData: []byte("x")}} {
		if _, err := o.verified(); err == nil || !strings.Contains(err.Error(), says) || !strings.Contains(err.Error(), "authorities of the bus") {
			t.Errorf("with authorities that cannot be read: %v, want %q", err, says)
		}
	}
	if _, err := (Monitor{}).verified(); err != nil {
		t.Errorf("verify with the authorities of the machine: %v", err)
	}
}
