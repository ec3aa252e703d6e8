package horizontalpodautoscaler

import (
	"encoding/json"
	"testing"
	"time"

	autoscalingv2 "k8s.io/api/autoscaling/v2"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/pkg/events/query"
	"github.com/millrace/millrace/services/reconcilers/reconcile"
	"github.com/millrace/millrace/services/reconcilers/reconciletest"
)

// A clock that was an hour ahead dates a round. The round counts as one of now: the next
// one comes after a period, its recommendation counts for a window, and the round after
// it does not count as an earlier one.
func TestARoundOfAClockThatWasAhead(t *testing.T) {
	key, ahead := events.Key{Namespace: reconciletest.Namespace, Name: "web"}, now.Add(time.Hour)
	h := &autoscalingv2.HorizontalPodAutoscaler{ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace, Name: key.Name, UID: "h", ResourceVersion: "1"}}
	h.Spec.ScaleTargetRef = autoscalingv2.CrossVersionObjectReference{APIVersion: "apps/v1", Kind: "Deployment", Name: "web"}
	counts := []Count{{5, ahead.Add(-time.Minute)}, {9, now.Add(-time.Minute)}}
	memory := note{Memory: &Memory{Asked: ahead, Recommended: counts, Added: counts, Removed: counts}}
	world := reconciletest.NewWorld().Put(kinds.HorizontalPodAutoscalers.Kind, h)
	told := events.Outcome{Key: key, Lane: events.LaneStatus, UID: "h", ResourceVersion: "1", Decided: ahead.Add(time.Second), At: ahead.Add(time.Second),
		Results: []events.Result{{Status: events.Applied, Answer: &events.Answer{Note: reconcile.Body(memory)}}}}
	world.Remember(told.KnownBy(now))
	v, _ := observe(world, key)
	for _, of := range [][]Count{v.Memory.Recommended, v.Memory.Added, v.Memory.Removed} {
		if len(of) != 2 || !of[0].At.Equal(now) || !of[1].At.Equal(now.Add(-time.Minute)) {
			t.Errorf("the view remembers %v", of)
		}
	}
	c := Config{}.filled()
	if d := c.decide(v, now.Add(time.Second)); !d.WakeAt.Equal(now.Add(c.Period)) || len(d.Commands) > 0 {
		t.Errorf("the decision wakes at %v with %d commands, want a period after the round at %v", d.WakeAt, len(d.Commands), now)
	}
	later := now.Add(c.Period)
	d := c.decide(v, later)
	var asked note
	if len(d.Commands) != 1 || json.Unmarshal(d.Commands[0].Note, &asked) != nil || !asked.Asked.After(ahead) {
		t.Fatalf("the next round is %+v of %v", d, asked.Asked)
	}
	answer := events.Result{Status: events.Answered, Answer: &events.Answer{Note: d.Commands[0].Note, Body: reconcile.Body(query.Readings{Failure: "away"})}}
	world.Remember(events.Outcome{Key: key, Lane: events.LaneWrite, UID: "h", ResourceVersion: "1", Decided: later, At: later, Results: []events.Result{answer}})
	if v, _ = observe(world, key); v.Readings == nil {
		t.Error("the answer of the next round is not heard")
	}
	for _, f := range c.decide(v, later.Add(time.Second)).Figures {
		if f.Value < 0 {
			t.Errorf("%s is %v", f.Metric, f.Value)
		}
	}
	v.Autoscaler = h.DeepCopy()
	v.Autoscaler.Spec.ScaleTargetRef.APIVersion, v.Readings = "a/b/c", nil
	remembered := note{}
	if d := c.decide(v, later); len(d.Commands) == 0 || json.Unmarshal(d.Commands[0].Note, &remembered) != nil || !remembered.Memory.Asked.After(ahead) {
		t.Errorf("a round without a question is %+v of %v", d, remembered.Asked)
	}
}

// After the question of a round that another replica may have finished unseen, a new
// round begins. It is later than that one, even at the same time, and its scale is remembered.
func TestTwoRoundsOfOneMoment(t *testing.T) {
	key := events.Key{Namespace: reconciletest.Namespace, Name: "web"}
	h := &autoscalingv2.HorizontalPodAutoscaler{ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace, Name: key.Name, UID: "h", ResourceVersion: "2"}}
	h.Spec.ScaleTargetRef = autoscalingv2.CrossVersionObjectReference{APIVersion: "apps/v1", Kind: "Deployment", Name: "web"}
	answer := events.Result{Status: events.Answered, Answer: &events.Answer{Note: reconcile.Body(note{Asked: now}), Body: reconcile.Body(query.Readings{Failure: "away"})}}
	world := reconciletest.NewWorld().Put(kinds.HorizontalPodAutoscalers.Kind, h)
	world.Remember(events.Outcome{Key: key, Lane: events.LaneWrite, UID: "h", ResourceVersion: "1", Decided: now, At: now, Results: []events.Result{answer}})
	v, _ := observe(world, key)
	d := Config{}.filled().decide(v, now)
	var asked note
	if len(d.Commands) != 1 || json.Unmarshal(d.Commands[0].Note, &asked) != nil || !asked.Asked.After(now) {
		t.Errorf("the round after that of %v is of %v: %+v", now, asked.Asked, d)
	}
}
