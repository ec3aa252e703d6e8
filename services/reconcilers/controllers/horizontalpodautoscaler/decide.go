package horizontalpodautoscaler

import (
	"fmt"
	"time"

	autoscalingv1 "k8s.io/api/autoscaling/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/utils/ptr"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/pkg/events/query"
	"github.com/millrace/millrace/services/reconcilers/reconcile"
)

const (
	// lasting is the maximum age of an answer that may change the number of pods: a
	// reconciler that returns after an outage asks again.
	lasting = 30 * time.Second
	// attempts is the maximum number of writes of a scale that other clients write concurrently.
	//
	// Upstream: client-go/util/retry, DefaultRetry.
	attempts = 5
)

func (c Config) decide(v View, now time.Time) reconcile.Decision {
	d := c.round(v, now)
	d.Figures = append(d.Figures, v.figures()...)
	return d
}

// round takes the next step of the round in progress, or begins a round.
func (c Config) round(v View, now time.Time) reconcile.Decision {
	h := v.Autoscaler
	next := latest(v.asked(), h.CreationTimestamp.Time).Add(c.Period)
	_, malformed := schema.ParseGroupVersion(h.Spec.ScaleTargetRef.APIVersion)
	switch {
	case v.Verdict != nil && v.Tried != nil && v.again():
		return v.write(*v.Verdict, v.Tried.Version, "another client has written the scale")
	case v.Verdict != nil && v.Tried != nil:
		return c.tried(*v.Verdict, h, *v.Tried, now).tell(v, now)
	case v.Readings != nil && now.Sub(v.At) <= lasting:
		verdict := c.judge(v, now)
		if verdict.rescales() {
			because := fmt.Sprintf("its target needs %d replicas and not %d", verdict.To, verdict.Scale.Replicas)
			return v.write(verdict, verdict.Scale.ResourceVersion, because)
		}
		return verdict.tell(v, now)
	case now.Before(next):
		return reconcile.Wake(next, "the target was read a moment ago")
	case malformed != nil:
		return v.unreadable(v.round(now), specError, malformed.Error(), now).tell(v, now)
	default:
		return reconcile.Do("the target must be read", c.ask(v, now))
	}
}

// asked returns the start of the last finished round.
func (v View) asked() time.Time {
	if !v.Known.IsZero() {
		return v.Known
	}
	return v.Memory.Asked
}

// round returns the start of a round that begins now. It is always after the previous
// round, which may have the same time, come from a clock that was ahead, or be finished
// without being known as such.
func (v View) round(now time.Time) time.Time {
	return latest(now, latest(v.Memory.Asked, v.Begun).Add(time.Nanosecond))
}

func latest(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// ask asks for the scale, and for the metrics if they would count.
func (c Config) ask(v View, now time.Time) events.Command {
	h := v.Autoscaler
	ref := h.Spec.ScaleTargetRef
	of := metav1.OwnerReference{APIVersion: ref.APIVersion, Kind: ref.Kind, Name: ref.Name}
	command := reconcile.AskOf(h.Namespace, of, query.SubReadings, note{Asked: v.round(now)})
	command.Body = reconcile.Body(query.ReadingsQuestion{Metrics: h.Spec.Metrics, Least: v.least(), Most: h.Spec.MaxReplicas, Zero: c.wakes(h)})
	return command
}

// least returns the minimum number of replicas.
func (v View) least() int32 { return ptr.Deref(v.Autoscaler.Spec.MinReplicas, 1) }

// again reports whether the same verdict's scale must be written again, since only a
// conflict prevented the write.
func (v View) again() bool {
	return !v.Tried.OK && v.Tried.Version != "" && v.Verdict.Attempt < attempts
}

// write writes the scale, on condition that it still has this version.
func (v View) write(verdict Verdict, version, because string) reconcile.Decision {
	verdict.Attempt++
	to := verdict.Scale
	kind := kinds.Kind{Name: to.Kind, Version: to.Version}
	named := metav1.ObjectMeta{
		Namespace: v.Autoscaler.Namespace, Name: v.Autoscaler.Spec.ScaleTargetRef.Name, UID: to.UID, ResourceVersion: version,
	}
	command := reconcile.Update(kind, &named)
	command.Subresource = scale
	command.Body = reconcile.Body(autoscalingv1.Scale{
		TypeMeta:   metav1.TypeMeta{APIVersion: autoscalingv1.SchemeGroupVersion.String(), Kind: "Scale"},
		ObjectMeta: named, Spec: autoscalingv1.ScaleSpec{Replicas: verdict.To},
	})
	command.Note = reconcile.Body(note{Asked: v.Asked, Verdict: &verdict})
	return reconcile.Do(because, command)
}

// tell ends the round: it records the memory, and writes the result to the status and to
// Events. It waits until no command of the round is in flight.
func (d Verdict) tell(v View, now time.Time) reconcile.Decision {
	h := v.Autoscaler
	remember := events.Command{Verb: events.VerbRecord, Note: reconcile.Body(note{Asked: d.Memory.Asked, Memory: &d.Memory})}
	said := reconcile.Do(d.Because, remember)
	if !same(d.Status, h.Status) {
		next := *h // shallow: only the status changes, and is made anew
		next.TypeMeta = metav1.TypeMeta{APIVersion: kinds.HorizontalPodAutoscalers.APIVersion(), Kind: kinds.HorizontalPodAutoscalers.Kind.Kind}
		next.Status = d.Status
		failed := notice(h, corev1.EventTypeWarning, "FailedUpdateStatus", "{error}")
		said.Commands = append(said.Commands, reconcile.UpdateStatus(kinds.HorizontalPodAutoscalers.Kind, &next, reconcile.WithEvents(nil, &failed)))
	}
	for _, n := range d.Notices {
		said.Commands = append(said.Commands, reconcile.Record(notice(h, n.Type, n.Reason, n.Message)))
	}
	said.Sure = true
	said.Figures = d.figures(now)
	return said
}
