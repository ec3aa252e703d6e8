package apply

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/cenkalti/backoff/v4"
	"k8s.io/client-go/rest"
	testingclock "k8s.io/utils/clock/testing"

	"github.com/millrace/millrace/services/writer/plan"
)

// A request waits as long as the API server asked, or with exponential back-off; its patience
// begins with the first one.
func TestHowLongARequestWaits(t *testing.T) {
	d := &Client{config: Config{Patience: time.Minute}}
	patient := map[int]*retryBudget{}
	if got := d.pauseBefore(patient, plan.Request{Command: 3, After: time.Second}); got != 0 {
		t.Errorf("the first waits %v", got)
	}
	until := patient[3].until
	if left := time.Until(until); left > time.Minute || left < 50*time.Second {
		t.Errorf("the write is given up in %v, want in 50 s to a minute", left)
	}
	if got := d.pauseBefore(patient, plan.Request{Command: 3, Wait: true, After: 3 * time.Second}); got != 3*time.Second {
		t.Errorf("one that was told waits %v", got)
	}
	if got := d.pauseBefore(patient, plan.Request{Command: 3, Wait: true}); got < 50*time.Millisecond || got > 150*time.Millisecond {
		t.Errorf("the next waits %v", got)
	}
	longest := time.Duration(0)
	for range 30 {
		longest = max(longest, d.pauseBefore(patient, plan.Request{Command: 3, Wait: true}))
	}
	if longest < 2500*time.Millisecond || longest > 7500*time.Millisecond || !patient[3].until.Equal(until) {
		t.Errorf("the longest wait is %v", longest)
	}
	p := patient[3]
	if b := p.pauses.(*backoff.ExponentialBackOff); b.InitialInterval != 100*time.Millisecond || b.MaxInterval != 5*time.Second || b.MaxElapsedTime != 0 {
		t.Errorf("the waits are from %v to %v, for %v", b.InitialInterval, b.MaxInterval, b.MaxElapsedTime)
	}
	if p.doubtDuration() != 0 || p.doubtedSince.IsZero() {
		t.Error("a doubt has lasted before it began")
	}
	if p.doubtedSince = p.doubtedSince.Add(-time.Hour); p.doubtDuration() < time.Hour {
		t.Error("a doubt does not last")
	}
}

// A door has the default limits that its documentation says.
func TestDefaultsOfADoor(t *testing.T) {
	c := Config{}.withDefaults()
	if c.FieldManager != FieldManager || c.MaxInFlight != 200 || c.Patience != 30*time.Second || c.Timeout != 15*time.Second || c.Clock == nil || c.Metrics == nil {
		t.Errorf("by default it is %+v", c)
	}
	c.Panicked("", nil, nil)
	told, clock, metrics := 0, testingclock.NewFakePassiveClock(time.Now()), NewMetrics()
	c = Config{FieldManager: "m", MaxInFlight: 1, Patience: 1, Timeout: 1, Clock: clock, Metrics: metrics, Panicked: func(string, any, []byte) { told++ }}.withDefaults()
	if c.Panicked("", nil, nil); c.FieldManager != "m" || c.MaxInFlight != 1 || c.Patience != 1 || c.Timeout != 1 || c.Clock != clock || c.Metrics != metrics || told != 1 {
		t.Errorf("the configuration that was given has become %+v", c)
	}
}

// The error of a door that cannot be opened names the controller, or discovery.
func TestDoorsThatCannotBeOpened(t *testing.T) {
	unreadable := &rest.Config{Host: "https://127.0.0.1:1", TLSClientConfig: rest.TLSClientConfig{CAFile: "/nonexistent"}}
	for want, c := range map[string]struct {
		config Config
		actors []Actor
	}{
		"no address given": {Config{}, nil}, "for job-controller: ": {Config{REST: unreadable}, []Actor{{Controller: "job-controller"}}}, "for discovery: ": {Config{REST: unreadable}, nil},
	} {
		if d, err := New(c.config, c.actors); err == nil || d != nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want an error with %q", err, want)
		}
	}
}

// A request waits for a slot no longer than its turn lasts.
func TestAPlaceIsNotWaitedForWithoutEnd(t *testing.T) {
	d, err := New(Config{REST: &rest.Config{Host: "http://127.0.0.1:1"}, MaxInFlight: 1}, nil)
	if err != nil {
		t.Fatal(err)
	}
	over, err := d.admit(t.Context(), Actor{})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(errors.New("the writer stops"))
	if r := d.Do(ctx, Actor{}, plan.Request{Verb: plan.Look}, ""); r.Code != 0 || r.Reason != "Interrupted" || r.Message != "the writer stops" {
		t.Errorf("while another request is under way the answer is %+v, want Interrupted because the writer stops", r)
	}
	over()
	if r := d.Do(t.Context(), Actor{Controller: "job-controller"}, plan.Request{Verb: plan.Look, Kind: "pods", Version: "v1", Namespace: "ns", Name: "a"}, ""); r.Code != http.StatusForbidden || r.Reason != "NoIdentity" || !strings.Contains(r.Message, "job-controller") {
		t.Errorf("for a controller without an identity the answer is %+v, want code 403 with NoIdentity", r)
	}
}
