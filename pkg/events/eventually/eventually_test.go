package eventually_test

import (
	"fmt"
	"runtime"
	"testing"
	"testing/synctest"
	"time"

	"github.com/millrace/millrace/pkg/events/eventually"
)

// reported is a test that keeps how it failed.
type reported struct {
	testing.TB
	text string
}

func (r *reported) Helper() {}

func (r *reported) Fatalf(format string, of ...any) {
	r.text = fmt.Sprintf(format, of...)
	runtime.Goexit()
}

// failure is how a test fails, and how long that takes.
func failure(test func(t testing.TB)) (text string, took time.Duration) {
	r, began, ended := &reported{}, time.Now(), make(chan struct{})
	go func() { defer close(ended); test(r) }()
	<-ended
	return r.text, time.Since(began)
}

// TestBound: a condition that comes to hold ends the wait at the next question, and one that never
// holds ends the test after the bound.
func TestBound(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		at := time.Now().Add(time.Second)
		due := func() bool { return !time.Now().Before(at) }
		if text, took := failure(func(t testing.TB) { eventually.True(t, time.Minute, "it is time", due) }); text != "" || took > time.Second+20*time.Millisecond {
			t.Errorf("True ends after %v with %q, want when the condition holds", took, text)
		}
		text, took := failure(func(t testing.TB) {
			eventually.True(t, time.Minute, "it rains", func() bool { return false })
		})
		if text != "not within 1m0s: it rains" || took < time.Minute || took > time.Minute+40*time.Millisecond {
			t.Errorf("True ends after %v with %q, want the failure after a minute", took, text)
		}
	})
}

// TestComplete: the failure names what was missing last.
func TestComplete(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		asked := 3
		missing := func() string { asked = max(asked-1, 0); return fmt.Sprint(asked, " pods") }
		text, _ := failure(func(t testing.TB) { eventually.Complete(t, time.Second, "all run", missing) })
		if text != "not within 1s: all run: 0 pods" {
			t.Errorf("Complete fails with %q, want what was missing last", text)
		}
		if text, _ = failure(func(t testing.TB) { eventually.Complete(t, time.Second, "all run", func() string { return "" }) }); text != "" {
			t.Errorf("Complete fails with %q, and nothing is missing", text)
		}
	})
}
