package horizontalpodautoscaler

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/pkg/events/query"
	"github.com/millrace/millrace/services/reconcilers/kube/gate"
	"github.com/millrace/millrace/services/reconcilers/reconcile"
)

// Verdict is the result of a round.
type Verdict struct {
	// Because is the reason on record; Reason is the reason in the Event about a change.
	Because string `json:"because,omitempty"`
	Reason  string `json:"reason,omitempty"`
	// Scale is the target's scale as it was read, To the number of replicas that it
	// should ask for.
	Scale query.Scale `json:"scale,omitzero"`
	To    int32       `json:"to"`
	// Attempt counts how often the scale has been written.
	Attempt int `json:"attempt,omitempty"`
	// Status is the new status of the autoscaler, Notices the Events, Memory the state
	// for the next round.
	Status  autoscalingv2.HorizontalPodAutoscalerStatus `json:"status,omitzero"`
	Notices []Told                                      `json:"notices,omitempty"`
	Memory  Memory                                      `json:"memory,omitzero"`
	// Asked is the start of the round.
	Asked time.Time `json:"asked,omitzero"`
	// Computed is the result of each metric.
	Computed []computed `json:"computed,omitempty"`
	// Trouble is the error label of upstream's metrics; empty without an error.
	Trouble string `json:"trouble,omitempty"`
	// Moved is true if the scale was changed.
	Moved bool `json:"moved,omitempty"`
}

// Told is an Event on the autoscaler.
type Told struct {
	Type    string `json:"type"`
	Reason  string `json:"reason"`
	Message string `json:"message"`
}

func notice(h *autoscalingv2.HorizontalPodAutoscaler, severity, reason, message string) events.Notice {
	return events.Notice{About: reconcile.About(kinds.HorizontalPodAutoscalers.Kind, h), Type: severity, Reason: reason, Message: message}
}

// begin returns the initial verdict of a round.
func (v View) begin(asked time.Time) Verdict {
	d := Verdict{Asked: asked, Status: *v.Autoscaler.Status.DeepCopy(), Memory: v.Memory, Because: "the target has the desired number of pods"}
	d.Memory.Asked = asked
	return d
}

// rescales reports whether the verdict changes the number of replicas.
func (d *Verdict) rescales() bool { return d.To != d.Scale.Replicas }

// warn adds a Warning Event.
func (d *Verdict) warn(reason, message string) {
	d.Notices = append(d.Notices, Told{corev1.EventTypeWarning, reason, message})
}

// set sets a condition.
func (d *Verdict) set(kind autoscalingv2.HorizontalPodAutoscalerConditionType, so bool, reason, message string, now time.Time) {
	status := corev1.ConditionFalse
	if so {
		status = corev1.ConditionTrue
	}
	at := slices.IndexFunc(d.Status.Conditions, func(c autoscalingv2.HorizontalPodAutoscalerCondition) bool { return c.Type == kind })
	if at < 0 {
		at = len(d.Status.Conditions)
		d.Status.Conditions = append(d.Status.Conditions, autoscalingv2.HorizontalPodAutoscalerCondition{Type: kind})
	}
	c := &d.Status.Conditions[at]
	if c.Status != status {
		c.LastTransitionTime = metav1.NewTime(now.Truncate(time.Second))
	}
	c.Status, c.Reason, c.Message = status, reason, message
}

// unset removes a condition.
func (d *Verdict) unset(kind autoscalingv2.HorizontalPodAutoscalerConditionType) {
	d.Status.Conditions = slices.DeleteFunc(d.Status.Conditions, func(c autoscalingv2.HorizontalPodAutoscalerCondition) bool { return c.Type == kind })
}

// say sets the numbers of the status. It drops observedGeneration, as upstream does.
func (d *Verdict) say(desired int32, current []autoscalingv2.MetricStatus) {
	d.Status = autoscalingv2.HorizontalPodAutoscalerStatus{
		CurrentReplicas: d.Scale.Replicas, DesiredReplicas: desired, CurrentMetrics: current,
		LastScaleTime: d.Status.LastScaleTime, Conditions: d.Status.Conditions,
	}
}

func same(a, b autoscalingv2.HorizontalPodAutoscalerStatus) bool {
	return equality.Semantic.DeepEqual(a, b)
}

// unreadable returns the verdict of a round in which the scale cannot be read.
func (v View) unreadable(asked time.Time, trouble, why string, now time.Time) Verdict {
	d := v.begin(asked)
	d.Because, d.Trouble = "the scale of its target cannot be read", trouble
	d.warn("FailedGetScale", why)
	d.set(autoscalingv2.AbleToScale, false, "FailedGetScale", "the HPA controller was unable to get the target's current scale: "+why, now)
	return d
}

// judge returns the verdict on an answer.
//
// Upstream: reconcileAutoscaler.
func (c Config) judge(v View, now time.Time) Verdict {
	if v.Readings.Scale == nil {
		return v.unreadable(v.Asked, internalError, v.Readings.Failure, now)
	}
	h, d := v.Autoscaler, v.begin(v.Asked)
	d.Scale = *v.Readings.Scale
	d.set(autoscalingv2.AbleToScale, true, "SucceededGetScale", "the HPA controller was able to get the target's current scale", now)
	current := d.Scale.Replicas
	if len(d.Memory.Recommended) == 0 {
		d.Memory.Recommended = []Count{{current, now}}
	}
	switch {
	case current == 0 && c.wakes(h):
		return c.measure(v, d, now)
	case current == 0:
		d.To, d.Because = 0, "its target is switched off"
		d.set(autoscalingv2.ScalingActive, false, switchedOff, "scaling is disabled since the replica count of the target is zero", now)
		if !c.Gates.On(gate.HPAScaleToZero) {
			d.unset(autoscalingv2.ScaledToZero)
		}
	case current > h.Spec.MaxReplicas:
		d.To, d.Reason = h.Spec.MaxReplicas, "Current number of replicas above Spec.MaxReplicas"
	case current < v.least():
		d.To, d.Reason = v.least(), "Current number of replicas below Spec.MinReplicas"
	default:
		return c.measure(v, d, now)
	}
	d.say(d.To, nil)
	return d
}

// measure returns the verdict of a round in which the metrics decide.
//
// Upstream: computeReplicasForMetrics, and the rest of reconcileAutoscaler.
func (c Config) measure(v View, d Verdict, now time.Time) Verdict {
	h, current := v.Autoscaler, d.Scale.Replicas
	var best proposal
	var statuses []autoscalingv2.MetricStatus
	failure := d.selects(v, now)
	if failure == "" {
		best, statuses, failure = c.propose(v, &d, now)
	}
	if failure != "" {
		d.Trouble = internalError
	}
	if best.metric == "" {
		d.Because = "how many replicas there should be is not known"
		d.To = current
		d.say(h.Status.DesiredReplicas, statuses)
		d.warn("FailedComputeMetricsReplicas", failure)
		return d
	}
	wanted := best.replicas
	switch {
	case wanted > current:
		d.Reason = best.metric + " above target"
	case wanted < current:
		d.Reason = "All metrics below target"
	}
	if h.Spec.Behavior == nil {
		d.To = c.normalize(h, &d, wanted, v.least(), now)
	} else {
		d.To = c.behave(h, &d, wanted, v.least(), now)
	}
	if least := v.least(); current == 0 && d.To < least {
		d.To, d.Reason = least, cmp.Or(d.Reason, "Current number of replicas below Spec.MinReplicas")
	}
	d.say(d.To, statuses)
	return d
}

// selects returns why it is not known which pods belong to the target; empty if it is known.
//
// Upstream: validateAndParseSelector.
func (d *Verdict) selects(v View, now time.Time) (failure string) {
	refuse := func(event, reason, message, condition string) string {
		d.warn(event, message)
		d.set(autoscalingv2.ScalingActive, false, reason, condition, now)
		return message
	}
	said := d.Scale.Selector
	switch {
	case said == "":
		return refuse("SelectorRequired", "InvalidSelector", "selector is required", "the HPA target's scale is missing a selector")
	case v.Unselected != "":
		why := "couldn't convert selector into a corresponding internal selector object: " + v.Unselected
		return refuse("InvalidSelector", "InvalidSelector", why, why)
	case len(v.Rivals) > 1:
		why := fmt.Sprintf("pods by selector %v are controlled by multiple HPAs: %v", said, v.Rivals)
		return refuse("AmbiguousSelector", "AmbiguousSelector", why, why)
	default:
		return ""
	}
}

// propose evaluates every metric and returns the proposal with the most replicas. A
// metric without a result prevents scaling down, not scaling up. best is empty if no
// metric has a result. failure is the first error in any case.
func (c Config) propose(v View, d *Verdict, now time.Time) (best proposal, statuses []autoscalingv2.MetricStatus, failure string) {
	specs := v.Autoscaler.Spec.Metrics
	statuses = make([]autoscalingv2.MetricStatus, len(specs))
	var first proposal
	invalid := 0
	for i, spec := range specs {
		p := c.proposal(v, spec, v.reading(i), now)
		d.Computed = append(d.Computed, computed{Type: string(spec.Type), Action: action(p, v.Autoscaler.Status.CurrentReplicas), Trouble: p.trouble, Took: v.reading(i).Took})
		if p.failure != "" {
			d.warn(p.reason, p.cause)
			if invalid++; invalid == 1 {
				first = p
			}
			continue
		}
		statuses[i] = p.status
		if best.replicas == 0 || p.replicas > best.replicas {
			best = p
		}
	}
	if invalid > 0 {
		failure = fmt.Sprintf("invalid metrics (%v invalid out of %v), first error is: %v", invalid, len(specs), first.failure)
	}
	if invalid >= len(specs) || invalid > 0 && best.replicas < d.Scale.Replicas {
		if invalid > 0 {
			d.set(autoscalingv2.ScalingActive, false, first.reason, "the HPA was unable to compute the replica count: "+first.cause, now)
		}
		return proposal{}, statuses, failure
	}
	d.set(autoscalingv2.ScalingActive, true, "ValidMetricFound", "the HPA was able to successfully calculate a replica count from "+best.metric, now)
	return best, statuses, failure
}

// reading returns the reading of a metric.
func (v View) reading(i int) query.Reading {
	if i < len(v.Readings.Metrics) {
		return v.Readings.Metrics[i]
	}
	return query.Reading{Failure: "it was not read"}
}

// tried returns the verdict after the write of the scale succeeded or failed.
func (c Config) tried(d Verdict, h *autoscalingv2.HorizontalPodAutoscaler, tried Tried, now time.Time) Verdict {
	from, to := d.Scale.Replicas, d.To
	d.Status, d.Notices = *d.Status.DeepCopy(), slices.Clone(d.Notices) // both belong to the view
	if !tried.OK {
		d.Because, d.Trouble = "the scale of its target could not be written", internalError
		d.warn("FailedRescale", fmt.Sprintf("New size: %d; reason: %s; error: %s", to, d.Reason, tried.Message))
		d.set(autoscalingv2.AbleToScale, false, "FailedUpdateScale", "the HPA controller was unable to update the target scale: "+tried.Message, now)
		d.say(h.Status.DesiredReplicas, d.Status.CurrentMetrics)
		return d
	}
	d.Because, d.Moved = fmt.Sprintf("its target has %d replicas now instead of %d", to, from), true
	d.set(autoscalingv2.AbleToScale, true, "SucceededRescale", fmt.Sprintf("the HPA controller was able to update the target scale to %d", to), now)
	d.Notices = append(d.Notices, Told{corev1.EventTypeNormal, "SuccessfulRescale", fmt.Sprintf("New size: %d; reason: %s", to, d.Reason)})
	c.zero(&d, h, now)
	at := metav1.NewTime(now.Truncate(time.Second))
	d.Status.LastScaleTime = &at
	d.remember(h.Spec.Behavior, from, to, now)
	return d
}
