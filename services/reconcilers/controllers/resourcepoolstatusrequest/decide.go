package resourcepoolstatusrequest

import (
	"fmt"
	"slices"
	"time"

	resourcev1alpha3 "k8s.io/api/resource/v1alpha3"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/services/reconcilers/reconcile"
)

const (
	// answered is how long a request is kept after its answer, pending how long without one.
	answered = time.Hour
	pending  = 24 * time.Hour
)

// decide answers a request once all pools in the answer are complete, and deletes an expired
// request.
//
// Upstream: pkg/controller/resourcepoolstatusrequest, syncRequest and shouldDeleteRequest.
func decide(v View, now time.Time) reconcile.Decision {
	end, because := v.end()
	over := !end.IsZero() && !now.Before(end)
	incomplete := slices.ContainsFunc(v.told(), func(p Pool) bool { return !p.complete() })
	switch {
	case v.Request.Status == nil && !incomplete && !over:
		return v.answer(now)
	case v.Request.DeletionTimestamp != nil:
		return reconcile.Nothing("the request is being deleted")
	case over:
		return reconcile.Do(because, reconcile.Delete(kinds.ResourcePoolStatusRequests.Kind, v.Request))
	case v.Request.Status == nil:
		return reconcile.Wake(end, "a pool does not have all of its slices yet")
	default:
		return reconcile.Wake(end, "the request has its answer")
	}
}

// end is when the request expires, and why; zero if the request has no time from which to count.
func (v View) end() (at time.Time, because string) {
	if v.Request.Status == nil {
		return after(v.Request.CreationTimestamp, pending), "the request has waited a day for its answer"
	}
	since := v.Request.CreationTimestamp
	ends := func(c metav1.Condition) bool {
		return c.Type == resourcev1alpha3.ResourcePoolStatusRequestConditionComplete || c.Type == resourcev1alpha3.ResourcePoolStatusRequestConditionFailed
	}
	if i := slices.IndexFunc(v.Request.Status.Conditions, ends); i >= 0 {
		since = v.Request.Status.Conditions[i].LastTransitionTime
	}
	return after(since, answered), "the request was answered an hour ago"
}

// after adds a duration to a moment; zero if the moment is not known.
func after(at metav1.Time, while time.Duration) time.Time {
	if at.IsZero() {
		return time.Time{}
	}
	return at.Add(while)
}

// answer writes the answer. It is a sum over one view, which is never corrected later.
//
// Upstream: calculatePoolStatus. Devices count as allocated once for each result that names their
// pool, and none counts as unavailable yet.
func (v View) answer(now time.Time) reconcile.Decision {
	told := v.told()
	status := &resourcev1alpha3.ResourcePoolStatusRequestStatus{
		PoolCount: ptr.To(int32(len(v.Pools))),
		Conditions: []metav1.Condition{{
			Type: resourcev1alpha3.ResourcePoolStatusRequestConditionComplete, Status: metav1.ConditionTrue, LastTransitionTime: metav1.NewTime(now.Truncate(time.Second)),
			Reason: "CalculationComplete", Message: fmt.Sprintf("Calculated status for %d pools", len(told)),
		}},
	}
	for _, p := range told {
		status.Pools = append(status.Pools, p.status(v.Request.Spec.Driver))
	}
	next := v.Request.DeepCopy()
	next.Status = status
	d := reconcile.Do("the request has no answer yet", reconcile.UpdateStatus(kinds.ResourcePoolStatusRequests.Kind, next))
	d.Sure = true
	d.Figures = figures(next)
	return d
}

// status is the answer about a complete pool.
func (p Pool) status(driver string) resourcev1alpha3.PoolStatus {
	s := resourcev1alpha3.PoolStatus{
		Driver: driver, PoolName: p.Name, Generation: p.Generation,
		ResourceSliceCount: ptr.To(p.Slices), TotalDevices: ptr.To(p.Devices), AllocatedDevices: ptr.To(p.Allocated),
		AvailableDevices: ptr.To(max(0, p.Devices-p.Allocated)), UnavailableDevices: ptr.To(int32(0)),
	}
	if p.Node != "" {
		s.NodeName = ptr.To(p.Node)
	}
	return s
}

const (
	processed = "resourcepoolstatusrequest_controller_requests_processed_total"
	failed    = "resourcepoolstatusrequest_controller_request_processing_errors_total"
	duration  = "resourcepoolstatusrequest_controller_request_processing_duration_seconds"
)

var byDriver = []string{"driver_name"}

// Upstream: pkg/controller/resourcepoolstatusrequest/metrics.
var metrics = []reconcile.Metric{
	{Name: processed, Help: "ResourcePoolStatusRequests that were processed.", Sort: reconcile.Counter, Labels: byDriver},
	{Name: failed, Help: "ResourcePoolStatusRequests whose status could not be written.", Sort: reconcile.Counter, Labels: byDriver},
	{Name: duration, Help: "Time in seconds between the decision about a ResourcePoolStatusRequest and its outcome.", Labels: byDriver,
		Buckets: []float64{.001, .002, .004, .008, .016, .032, .064, .128, .256, .512, 1.024, 2.048, 4.096, 8.192, 16.384}},
}

// figures are the figures of an answer, for both results of the write.
func figures(request *resourcev1alpha3.ResourcePoolStatusRequest) []reconcile.Figure {
	of, driver := events.Ref{Kind: kinds.ResourcePoolStatusRequests.Name, Name: request.Name}, []string{request.Spec.Driver}
	return []reconcile.Figure{
		{Metric: processed, Value: 1, Labels: driver, Of: of},
		{Metric: duration, Labels: driver, Of: of, Took: true},
		{Metric: processed, Value: 1, Labels: driver, Of: of, Failed: true},
		{Metric: failed, Value: 1, Labels: driver, Of: of, Failed: true},
		{Metric: duration, Labels: driver, Of: of, Took: true, Failed: true},
	}
}
