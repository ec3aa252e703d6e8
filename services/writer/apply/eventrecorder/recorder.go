// Package eventrecorder writes Kubernetes Events, from one goroutine behind a bounded queue, so that
// Events never delay a turn. It combines, counts and filters them as client-go's recorder does.
package eventrecorder

import (
	"context"
	"encoding/json"
	"fmt"
	"hash/fnv"
	"runtime/debug"
	"time"

	"github.com/cenkalti/backoff/v4"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/record"
	"k8s.io/utils/clock"

	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/services/writer/apply/apiclient"
	"github.com/millrace/millrace/services/writer/plan"
)

// Event is one Kubernetes Event to be written.
type Event struct {
	Actor apiclient.Actor
	// Source is the component in the Event.
	Source string
	// ID identifies the Event: a redelivered turn gives the same ID, hence the same Event name,
	// and the API server refuses the duplicate.
	ID string
	plan.Event
}

// Upstream: client-go/tools/record queues 1000 Events, drops what is more, and
// gives up an Event after 12 tries.
const (
	eventQueue = 1000
	eventTries = 12
)

// Config configures a recorder.
type Config struct {
	// Do makes a request as a controller. It is called by one goroutine at a time.
	Do func(ctx context.Context, a apiclient.Actor, r plan.Request, auditID string) plan.Response
	// Clock gives the time of Events, and the age of similar ones.
	Clock clock.PassiveClock
	// Metrics counts Events; nil counts nothing.
	Metrics *Metrics
	// Panicked reports a panic while an Event is written: the controller, the cause and the stack.
	// The Event is dropped; nil reports nothing.
	Panicked func(controller string, cause any, stack []byte)
}

// Recorder writes Kubernetes Events, with upstream's correlation: it combines similar Events, counts
// repeated ones, and drops Events beyond a rate.
type Recorder struct {
	config     Config
	queue      chan Event
	correlator *record.EventCorrelator
}

// New returns a recorder. It writes nothing until Run.
func New(c Config) *Recorder {
	if c.Metrics == nil {
		c.Metrics = NewMetrics()
	}
	if c.Panicked == nil {
		c.Panicked = func(string, any, []byte) {}
	}
	return &Recorder{config: c, queue: make(chan Event, eventQueue), correlator: record.NewEventCorrelator(c.Clock)}
}

// Record queues an Event, or drops it when the queue is full.
func (t *Recorder) Record(s Event) {
	select {
	case t.queue <- s:
	default:
		t.count(s, "dropped")
	}
}

// Run writes the queued Events, one after the other, until the context ends.
func (t *Recorder) Run(ctx context.Context) {
	for {
		select {
		case s := <-t.queue:
			t.record(ctx, s)
		case <-ctx.Done():
			return
		}
	}
}

func (t *Recorder) record(ctx context.Context, s Event) {
	defer func() {
		if cause := recover(); cause != nil {
			t.config.Panicked(s.Actor.Controller, cause, debug.Stack())
			t.count(s, "dropped")
		}
	}()
	event := t.event(s)
	correlated, err := t.correlator.EventCorrelate(event)
	if err != nil || correlated.Skip {
		t.count(s, "filtered")
		return
	}
	pauses := backoff.NewExponentialBackOff(backoff.WithInitialInterval(100*time.Millisecond),
		backoff.WithMaxInterval(10*time.Second), backoff.WithMaxElapsedTime(0))
	for range eventTries {
		response := t.write(ctx, s.Actor, correlated.Event, correlated.Patch)
		switch {
		case response.Code >= 200 && response.Code < 300:
			correlated.Event.ResourceVersion = response.Object.ResourceVersion
			t.correlator.UpdateState(correlated.Event)
			t.count(s, "told")
			return
		case response.Code == 409:
			t.count(s, "told") // by an earlier delivery of the turn
			return
		case response.Code >= 400 && response.Code < 500 && response.Code != 429:
			t.count(s, "refused")
			return
		}
		pause := max(response.RetryAfter, pauses.NextBackOff())
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			t.count(s, "dropped")
			return
		}
	}
	t.count(s, "dropped")
}

// write increments the count of an existing Event, or creates the Event.
func (t *Recorder) write(ctx context.Context, a apiclient.Actor, event *corev1.Event, patch []byte) plan.Response {
	r := plan.Request{Kind: kinds.Events.Name, Version: kinds.Events.Version, Namespace: event.Namespace, Name: event.Name}
	if event.Count > 1 {
		r.Verb, r.PatchType, r.Body = plan.Patch, types.StrategicMergePatchType, patch
		if response := t.config.Do(ctx, a, r, ""); response.Code != 404 {
			return response
		}
		event.ResourceVersion = ""
	}
	body, err := json.Marshal(event)
	if err != nil {
		return plan.Response{Code: 400, Reason: "Malformed", Message: err.Error()}
	}
	r.Verb, r.PatchType, r.Body = plan.Create, "", body
	return t.config.Do(ctx, a, r, "")
}

// event makes the Event, in the form that client-go's recorder gives it.
func (t *Recorder) event(s Event) *corev1.Event {
	now := metav1.NewTime(t.config.Clock.Now())
	namespace := s.About.Namespace
	if namespace == "" {
		namespace = metav1.NamespaceDefault
	}
	hash := fnv.New64a()
	hash.Write([]byte(s.ID))
	return &corev1.Event{
		TypeMeta:            metav1.TypeMeta{APIVersion: "v1", Kind: "Event"},
		ObjectMeta:          metav1.ObjectMeta{Name: fmt.Sprintf("%s.%016x", s.About.Name, hash.Sum64()), Namespace: namespace},
		InvolvedObject:      s.About,
		Type:                s.Type,
		Reason:              s.Reason,
		Message:             s.Message,
		FirstTimestamp:      now,
		LastTimestamp:       now,
		Count:               1,
		Source:              corev1.EventSource{Component: s.Source},
		ReportingController: s.Source,
	}
}

func (t *Recorder) count(s Event, result string) {
	t.config.Metrics.told.WithLabelValues(s.Actor.Controller, result).Inc()
}
