package stream

import (
	"strings"
	"testing"
	"time"
)

// TestJudge: each thing that can be seen has its reason, at its bound.
func TestJudge(t *testing.T) {
	t.Parallel()
	good := func() observed {
		return observed{
			replicas: 3, online: 3, version: "2.15.2", payload: 8 << 20,
			sync: map[string]time.Duration{"a": 0, "b": 0, "c": 0},
		}
	}
	for _, c := range []struct {
		name  string
		spoil func(*observed)
		want  string // a reason; with "..." it is passing
	}{
		{"nothing", func(*observed) {}, ""},
		{"one copy", func(o *observed) { o.replicas, o.online = 1, 0 }, "replicas"},
		{"two of three are there", func(o *observed) { o.online = 2 }, "servers..."},
		{"one syncs late", func(o *observed) { o.sync["b"] = time.Second }, "sync"},
		{"one was never seen", func(o *observed) { delete(o.sync, "b") }, "unseen"},
		{"one is away", func(o *observed) { delete(o.sync, "b"); o.mute = []string{"refused"} }, "unseen..."},
		{"an older server", func(o *observed) { o.version = "2.9.99" }, "version"},
		{"a newer server", func(o *observed) { o.version = "3.0.0-beta" }, ""},
		{"small messages", func(o *observed) { o.payload = 1 << 20 }, "payload"},
		{"clocks", func(o *observed) { o.skew = 3 * time.Second }, "clock..."},
		{"clocks, a little", func(o *observed) { o.skew = time.Second }, ""},
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

func TestApart(t *testing.T) {
	t.Parallel()
	asked := time.Unix(1000, 0)
	answered := asked.Add(time.Second)
	for told, want := range map[time.Duration]time.Duration{-time.Hour: time.Hour, 0: 0, time.Second: 0, time.Minute: 59 * time.Second} {
		if got := apart(asked.Add(told), asked, answered); got != want {
			t.Errorf("told %v after the question: %v apart, want %v", told, got, want)
		}
	}
	if got := apart(time.Time{}, asked, answered); got != 0 {
		t.Errorf("nothing told: %v apart", got)
	}
}
