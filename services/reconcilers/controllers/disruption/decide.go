package disruption

import (
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/services/reconcilers/kube/pod"
	"github.com/millrace/millrace/services/reconcilers/reconcile"
)

// How long the controller waits for a pod to terminate: after an eviction that the API
// server allowed, and after the pod got the condition DisruptionTarget.
//
// Upstream: pkg/controller/disruption, DeletionTimeout and stalePodDisruptionTimeout.
const (
	deletionTimeout = 2 * time.Minute
	staleTimeout    = 2 * time.Minute
)

// The Events, with upstream's reasons.
const (
	noPods     = "NoPods"
	failed     = "CalculateExpectedPodCountFailed"
	unmanaged  = "UnmanagedPods"
	multiple   = "MultiplePodDisruptionBudgets"
	notDeleted = "NotDeleted"
)

func decide(v View, now time.Time) reconcile.Decision {
	if v.Budget == nil {
		return v.decideOnPod(now)
	}
	var all scales
	switch {
	case v.Select != "":
		return v.failSafe("the budget's selector is invalid", v.Select, notice(corev1.EventTypeWarning, noPods, "Failed to get pods: "+v.Select), now)
	case v.counts():
		all = v.scales(now)
	case v.Budget.Spec.MinAvailable != nil:
		all.expected = int32(len(v.Pods))
	}
	if len(all.ask) > 0 {
		return reconcile.Do("the scale of the pods' controller must be read", all.ask...)
	}
	desired, err := v.desired(all.expected)
	if err != nil && all.failure == "" {
		all.failure = err.Error()
	}
	d := v.report(all, desired, now)
	return reconcile.Join(d, wake(all.stale, "the scale of the pods' controller must be read again"))
}

// wake requests a turn at a time, unless that is zero.
func wake(at time.Time, because string) reconcile.Decision {
	if at.IsZero() {
		return reconcile.Decision{}
	}
	return reconcile.Wake(at, because)
}

// report updates the status if it differs.
func (v View) report(all scales, desired int32, now time.Time) reconcile.Decision {
	if all.failure != "" {
		told := notice(corev1.EventTypeWarning, failed, "Failed to calculate the number of expected pods: "+all.failure)
		return v.failSafe("the expected number of pods is unknown", all.failure, told, now)
	}
	disrupted, late, until := v.disrupted(now)
	status := policyv1.PodDisruptionBudgetStatus{
		ObservedGeneration: v.Budget.Generation, DisruptedPods: disrupted, CurrentHealthy: v.healthy(disrupted),
		DesiredHealthy: desired, ExpectedPods: all.expected, Conditions: slices.Clone(v.Budget.Status.Conditions),
	}
	// Upstream: a budget that expects no pods allows nothing, so that it is safe when
	// the first ones come.
	if all.expected > 0 {
		status.DisruptionsAllowed = max(0, status.CurrentHealthy-desired)
	}
	condition := metav1.Condition{Reason: policyv1.InsufficientPodsReason, Status: metav1.ConditionFalse, ObservedGeneration: status.ObservedGeneration}
	if status.DisruptionsAllowed > 0 {
		condition.Reason, condition.Status = policyv1.SufficientPodsReason, metav1.ConditionTrue
	}
	d := v.write("the budget's status is not up to date", status, condition, now)
	recheck := wake(until, "an evicted pod may not be deleted by then")
	if len(d.Commands) == 0 {
		return reconcile.Join(d, recheck)
	}
	for _, n := range v.notices(all, late) {
		d.Commands = append(d.Commands, reconcile.Record(n))
	}
	return reconcile.Join(d, recheck)
}

// failSafe allows no evictions and reports why. The rest of the status stays.
func (v View) failSafe(because, why string, told func(View) events.Notice, now time.Time) reconcile.Decision {
	status := *v.Budget.Status.DeepCopy()
	status.DisruptionsAllowed = 0
	condition := metav1.Condition{
		Reason: policyv1.SyncFailedReason, Status: metav1.ConditionFalse, Message: why, ObservedGeneration: status.ObservedGeneration,
	}
	d := v.write(because, status, condition, now)
	if len(d.Commands) > 0 {
		d.Commands = append(d.Commands, reconcile.Record(told(v)))
	}
	return d
}

// write updates the status if it differs, on condition that the budget is unchanged,
// because the API server counts evictions in the same status.
func (v View) write(because string, status policyv1.PodDisruptionBudgetStatus, c metav1.Condition, now time.Time) reconcile.Decision {
	c.Type, c.LastTransitionTime = policyv1.DisruptionAllowedCondition, metav1.NewTime(now.Truncate(time.Second))
	meta.SetStatusCondition(&status.Conditions, c)
	if equality.Semantic.DeepEqual(status, v.Budget.Status) {
		return reconcile.Nothing("the budget's status is up to date")
	}
	next := *v.Budget // shallow: only the status changes, and is made anew
	next.TypeMeta = metav1.TypeMeta{APIVersion: kinds.PodDisruptionBudgets.APIVersion(), Kind: kinds.PodDisruptionBudgets.Kind.Kind}
	next.Status = status
	return reconcile.Do(because, reconcile.UpdateStatus(kinds.PodDisruptionBudgets.Kind, &next))
}

// counts reports whether the expected number of pods matters: an absolute minAvailable is
// only compared with the existing pods.
func (v View) counts() bool {
	spec := v.Budget.Spec
	return spec.MaxUnavailable != nil || spec.MinAvailable != nil && spec.MinAvailable.Type == intstr.String
}

// desired returns how many pods must be healthy. Percentages are rounded up in both fields.
func (v View) desired(expected int32) (int32, error) {
	spec := v.Budget.Spec
	switch {
	case spec.MaxUnavailable != nil:
		most, err := intstr.GetScaledValueFromIntOrPercent(spec.MaxUnavailable, int(expected), true)
		return max(0, expected-int32(most)), err
	case spec.MinAvailable != nil:
		least, err := intstr.GetScaledValueFromIntOrPercent(spec.MinAvailable, int(expected), true)
		return int32(least), err
	default: // a budget without a limit
		return 0, nil
	}
}

// disrupted returns the pods whose eviction was allowed and that may still terminate
// (still), those that should have terminated by now (late), and the earliest deadline of
// the former (until).
func (v View) disrupted(now time.Time) (still map[string]metav1.Time, late []*corev1.Pod, until time.Time) {
	for _, p := range v.Pods {
		since, there := v.Budget.Status.DisruptedPods[p.Name]
		if !there || p.DeletionTimestamp != nil {
			continue
		}
		expiry := since.Add(deletionTimeout)
		if !now.Before(expiry) {
			late = append(late, p)
			continue
		}
		if still == nil {
			still = map[string]metav1.Time{}
		}
		still[p.Name] = since
		if until.IsZero() || expiry.Before(until) {
			until = expiry
		}
	}
	return still, late, until
}

// healthy returns how many pods are ready and not about to terminate.
func (v View) healthy(disrupted map[string]metav1.Time) (n int32) {
	for _, p := range v.Pods {
		if _, leaving := disrupted[p.Name]; !leaving && p.DeletionTimestamp == nil && pod.Ready(p) {
			n++
		}
	}
	return n
}

// notices returns the Events about a new status.
func (v View) notices(all scales, late []*corev1.Pod) (told []events.Notice) {
	if len(v.Pods) == 0 {
		told = append(told, notice(corev1.EventTypeNormal, noPods, "No matching pods found")(v))
	}
	if len(all.unmanaged) > 0 {
		told = append(told, notice(corev1.EventTypeWarning, unmanaged, fmt.Sprintf(
			"Pods selected by this PodDisruptionBudget (selector: %v) were found to be unmanaged. As a result, the status of the PDB cannot be calculated correctly, "+
				`which may result in undefined behavior. To account for these pods please set ".spec.minAvailable" field of the PDB to an integer value.`,
			v.Budget.Spec.Selector))(v))
	}
	for _, p := range late {
		told = append(told, events.Notice{
			About: reconcile.About(kinds.Pods.Kind, p), Type: corev1.EventTypeWarning, Reason: notDeleted,
			Message: fmt.Sprintf("Pod was expected by PDB %s/%s to be deleted but it wasn't", v.Budget.Namespace, v.Budget.Name),
		})
	}
	return told
}

// notice returns an Event about the budget.
func notice(severity, reason, message string) func(View) events.Notice {
	return func(v View) events.Notice {
		return events.Notice{
			About: reconcile.About(kinds.PodDisruptionBudgets.Kind, v.Budget), Type: severity, Reason: reason, Message: message,
		}
	}
}

// claimsDisruption reports whether a pod has the condition DisruptionTarget and may be
// wrong. The condition that the kubelet sets is always right, however long the
// termination takes.
func claimsDisruption(p *corev1.Pod) bool {
	c, said := disruption(p)
	return said && c.Status == corev1.ConditionTrue && c.Reason != corev1.PodReasonTerminationByKubelet &&
		p.DeletionTimestamp == nil && !pod.Terminal(p)
}

func disruption(p *corev1.Pod) (corev1.PodCondition, bool) {
	for _, c := range p.Status.Conditions {
		if c.Type == corev1.DisruptionTarget {
			return c, true
		}
	}
	return corev1.PodCondition{}, false
}

// decideOnPod withdraws the condition of a disruption that did not happen, and sends an
// Event if the pod has several budgets.
func (v View) decideOnPod(now time.Time) reconcile.Decision {
	v.Several = slices.Sorted(slices.Values(v.Several))
	d := reconcile.Join(takeBack(v.Pod, now), v.share())
	if len(v.Several)+len(v.Told) > 0 {
		for i := range d.Commands {
			d.Commands[i].Note = reconcile.Body(memory{Budgets: v.Several}) // the memory keeps only the last report
		}
	}
	return d
}

// share sends one Event if a pod has several budgets, so that it cannot be evicted.
//
// Upstream: getPdbForPod, at each change of such a pod, and of any one of its budgets.
func (v View) share() reconcile.Decision {
	switch {
	case slices.Equal(v.Several, v.Told):
		return reconcile.Nothing("the Event about the pod's budgets is recorded")
	case len(v.Several) == 0:
		return reconcile.Do("the pod no longer has several budgets", events.Command{Verb: events.VerbRecord}) // only for its note
	}
	return reconcile.Do("the pod has several budgets", reconcile.Record(events.Notice{
		About: reconcile.About(kinds.Pods.Kind, v.Pod), Type: corev1.EventTypeWarning, Reason: multiple,
		Message: fmt.Sprintf("Pod %q/%q matches multiple PodDisruptionBudgets.  Chose %q arbitrarily.", v.Pod.Namespace, v.Pod.Name, v.Several[0]),
	}))
}

// takeBack sets the condition of a disruption that did not happen to False.
func takeBack(p *corev1.Pod, now time.Time) reconcile.Decision {
	if !claimsDisruption(p) {
		return reconcile.Nothing("the pod's DisruptionTarget condition is absent or correct")
	}
	said, _ := disruption(p)
	if until := said.LastTransitionTime.Add(staleTimeout); now.Before(until) {
		return reconcile.Wake(until, "the pod's DisruptionTarget condition is not stale yet")
	}
	// A strategic merge keeps fields that it does not name, so the patch names each field
	// that it clears.
	taken := map[string]any{
		"type": corev1.DisruptionTarget, "status": corev1.ConditionFalse, "observedGeneration": p.Generation,
		"lastTransitionTime": metav1.NewTime(now.Truncate(time.Second)), "lastProbeTime": nil, "reason": nil, "message": nil,
	}
	body := map[string]any{"metadata": map[string]any{"uid": p.UID}, "status": map[string]any{"conditions": []any{taken}}}
	c := reconcile.Patch(kinds.Pods.Kind, p, types.StrategicMergePatchType, reconcile.Body(body), reconcile.IfUnchanged(p))
	c.Subresource = "status"
	return reconcile.Do("the pod has a stale DisruptionTarget condition", c)
}
