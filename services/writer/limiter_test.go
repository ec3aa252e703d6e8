package writer_test

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/bus/bustest"
	"github.com/millrace/millrace/pkg/events/eventually"
	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/pkg/events/subject"
	"github.com/millrace/millrace/services/writer"
	"github.com/millrace/millrace/services/writer/limits"
)

// limited is a change of a writer's configuration: the controller may create three pods an hour.
func limited(s *scene) func(*writer.Config) {
	set, err := limits.Parse([]byte(`{apiVersion: millrace.io/v1alpha1, kind: WriteLimits, limits: [{name: pods, verbs: [create], kinds: [pods], max: 3, within: 1h}]}`))
	s.must(err)
	return func(c *writer.Config) { c.Limits, c.Controllers[0].Owns = set, kinds.ReplicaSets.Name }
}

// heldIn is how many commands of an outcome were applied, and how many were held by the limit.
func heldIn(o events.Outcome) (applied, held int) {
	for _, r := range o.Results {
		switch {
		case r.Status == events.Applied:
			applied++
		case r.Held() && r.Reason == events.Held && r.Code == http.StatusTooManyRequests && r.Cause == "pods":
			held++
		}
	}
	return applied, held
}

// A writer holds the writes that exceed a limit. The writer that follows it counts what is on record, so
// that a restart gives no room.
func TestWritesBeyondALimitAreHeld(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	stop := s.writer(limited(s))
	s.store("web", nil, creates("web", 5)...)
	o := s.outcome("web")
	if applied, held := heldIn(o); applied != 3 || held != 2 || !o.OnlyHeld() {
		t.Errorf("of five creates %d are applied and %d held, want 3 and 2: %+v", applied, held, o.Results)
	}
	if len(o.WriteCounts) != 1 || o.WriteCounts[0] != (events.WriteCount{Limit: "pods", Writes: 3}) {
		t.Errorf("the writes count as %+v, want 3 for the limit pods", o.WriteCounts)
	}
	if want := `the write limit "pods" is reached: 3 writes within 1h0m0s`; !strings.HasPrefix(o.Results[4].Message, want) {
		t.Errorf("the message is %q", o.Results[4].Message)
	}
	stop()

	s.writer(limited(s))
	s.store("next", nil, creates("next", 1)...)
	if applied, held := heldIn(s.outcome("next")); applied != 0 || held != 1 {
		t.Error("another writer does not count what is on record")
	}
	eventually.True(s, eventually.Long, "Event about it", func() bool {
		for _, r := range s.api.Requests() {
			if r.Method == http.MethodPost && strings.HasPrefix(r.Path, strings.TrimSuffix(told, "/")) && strings.Contains(string(r.Body), "the write limit") {
				return true
			}
		}
		return false
	})
}

// A person approves, or denies, in an annotation of the key's object.
func TestAPersonApprovesHeldWrites(t *testing.T) {
	t.Parallel()
	yes, no := events.ApprovalAnnotations("rs")
	for what, c := range map[string]struct {
		annotation, text string
		applied          int
		denied           bool
	}{
		"approved":               {yes, `{"limits":["pods"],"generation":2}`, 5, false},
		"approved before":        {yes, `{"limits":["pods"],"generation":1}`, 3, false},
		"denied":                 {no, `{"limits":["pods"],"generation":2,"by":"alice"}`, 0, true},
		"something is different": {"note", "x", 3, false},
	} {
		t.Run(what, func(t *testing.T) {
			s := newScene(t)
			s.must(s.bus.EnsureKind(t.Context(), kinds.ReplicaSets.Kind))
			set := &appsv1.ReplicaSet{ObjectMeta: metav1.ObjectMeta{Name: "web", Namespace: "ns", UID: "rs", Generation: 2, Annotations: map[string]string{c.annotation: c.text}}}
			body, err := kinds.Encode(kinds.ReplicaSets.Kind, set)
			s.must(err)
			s.delta(events.Delta{Op: events.Is, UID: "rs", ResourceVersion: "5", Generation: 2, ContentType: kinds.Protobuf, Body: body, Form: kinds.Full})
			s.writer(limited(s))
			s.store("web", seen("rs", "5", 2), creates("web", 5)...)
			o := s.outcome("web")
			applied, _ := heldIn(o)
			if last := o.Results[4]; applied != c.applied || (last.Reason == events.Denied) != c.denied || c.denied && last.Message != "denied by alice" {
				t.Errorf("%d are applied, and the last is %+v", applied, last)
			}
		})
	}
}

// A turn that a limit is about is not carried out before the outcomes are counted.
func TestALimitedTurnWaitsForTheCount(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	stop := s.writer(limited(s))
	s.store("web", nil, creates("web", 3)...)
	s.outcome("web")
	stop()

	b := s.bus
	u, outcomes := bustest.Wrap(b), subject.OutcomeStream(controller)
	u.OnFollow = func(ctx context.Context, stream string, from uint64, handle func([]events.Message) error) error {
		if stream == outcomes && u.Count(bustest.Follow, outcomes) <= 2 {
			return errors.New("away")
		}
		return b.Follow(ctx, stream, from, handle)
	}
	s.bus = u
	s.writer(limited(s))
	s.store("next", nil, creates("next", 1)...)
	if applied, held := heldIn(s.outcome("next")); applied != 0 || held != 1 || u.Count(bustest.Follow, outcomes) <= 2 {
		t.Errorf("%d are applied and %d held, after %d tries", applied, held, u.Count(bustest.Follow, outcomes))
	}
}
