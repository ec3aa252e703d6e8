package resourcepoolstatusrequest

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	resourcev1alpha3 "k8s.io/api/resource/v1alpha3"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"pgregory.net/rapid"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/services/reconcilers/reconcile"
	"github.com/millrace/millrace/services/reconcilers/reconciletest"
)

var now = reconciletest.Now

func TestStories(t *testing.T) { reconciletest.Stories(t, Controller) }

func TestLaws(t *testing.T) {
	reconciletest.Laws(t, Controller, rapid.Custom(anyView), now,
		reconciletest.Content(3, applied),
		reconciletest.Law[View]{Name: "once", Holds: once},
		reconciletest.Law[View]{Name: "adding up", Holds: addingUp},
		reconciletest.Law[View]{Name: "on time", Holds: onTime})
}

// anyView returns a request of some age about some pools, perhaps with a status.
func anyView(t *rapid.T) View {
	v := View{Request: &resourcev1alpha3.ResourcePoolStatusRequest{ObjectMeta: metav1.ObjectMeta{Name: "gpus", UID: "u", ResourceVersion: "7"}}}
	v.Request.CreationTimestamp = ago(t, "created, minutes ago")
	v.Request.Spec.Driver = "gpu.example.com"
	v.Request.Spec.Limit = rapid.SampledFrom([]*int32{nil, ptr.To(int32(1)), ptr.To(int32(2)), ptr.To(int32(100))}).Draw(t, "limit")
	if rapid.IntRange(0, 3).Draw(t, "deleted") == 0 {
		v.Request.DeletionTimestamp = &metav1.Time{Time: now}
	}
	if rapid.Bool().Draw(t, "answered") {
		v.Request.Status = &resourcev1alpha3.ResourcePoolStatusRequestStatus{}
		for _, kind := range rapid.SliceOfNDistinct(rapid.SampledFrom([]string{"Noted", "Complete", "Failed"}), 0, 2, rapid.ID).Draw(t, "conditions") {
			v.Request.Status.Conditions = append(v.Request.Status.Conditions, metav1.Condition{Type: kind, Status: metav1.ConditionTrue, LastTransitionTime: ago(t, "since, minutes ago")})
		}
		return v
	}
	for i := range rapid.IntRange(0, 3).Draw(t, "pools") {
		v.Pools = append(v.Pools, Pool{
			Name: fmt.Sprint("pool-", i), Generation: rapid.Int64Range(0, 3).Draw(t, "generation"),
			Slices: rapid.Int32Range(1, 3).Draw(t, "slices"), Expected: rapid.Int64Range(0, 3).Draw(t, "expected"),
			Devices: rapid.Int32Range(0, 4).Draw(t, "devices"), Allocated: rapid.Int32Range(0, 5).Draw(t, "allocated"),
			Node: rapid.SampledFrom([]string{"", "n"}).Draw(t, "node"),
		})
	}
	return v
}

// ago returns a moment near the end of a time limit; seldom none.
func ago(t *rapid.T, what string) metav1.Time {
	minutes := rapid.SampledFrom([]int{0, 1, 59, 60, 61, 24*60 - 1, 24 * 60, 24*60 + 1, -1}).Draw(t, what)
	if minutes < 0 {
		return metav1.Time{}
	}
	return metav1.NewTime(now.Add(-time.Duration(minutes) * time.Minute))
}

// applied returns the view after a decision was carried out.
func applied(v View, d reconcile.Decision, now time.Time) View {
	for _, c := range d.Commands {
		if c.Verb == events.VerbDelete {
			gone := *v.Request
			gone.DeletionTimestamp = &metav1.Time{Time: now}
			return View{Request: &gone}
		}
		next, err := answerIn(c)
		if err != nil {
			panic(err)
		}
		return View{Request: next}
	}
	return v
}

func answerIn(c events.Command) (*resourcev1alpha3.ResourcePoolStatusRequest, error) {
	next := new(resourcev1alpha3.ResourcePoolStatusRequest)
	return next, json.Unmarshal(c.Body, next)
}

// once: a request with a status gets no other one, whatever the status is.
func once(_ *rapid.T, c reconcile.Controller[View], v View, now time.Time) error {
	for _, command := range c.Decide(v, now).Commands {
		if command.Verb != events.VerbDelete && v.Request.Status != nil {
			return errors.New("a request with an answer gets another one")
		}
	}
	return nil
}

// addingUp: an answer has the number of pools, and the devices of the first ones, as many as the
// request's limit; each of these is complete. The view is of one moment.
func addingUp(_ *rapid.T, c reconcile.Controller[View], v View, now time.Time) error {
	d := c.Decide(v, now)
	if len(d.Commands) == 0 || d.Commands[0].Verb == events.VerbDelete {
		return nil
	}
	next, err := answerIn(d.Commands[0])
	switch {
	case err != nil:
		return err
	case !d.Sure:
		return errors.New("it may be counted on a view of several moments")
	case int(*next.Status.PoolCount) != len(v.Pools) || len(next.Status.Pools) != min(len(v.Pools), int(ptr.Deref(v.Request.Spec.Limit, 100))):
		return fmt.Errorf("of %d pools it counts %d and tells of %d", len(v.Pools), *next.Status.PoolCount, len(next.Status.Pools))
	}
	for i, told := range next.Status.Pools {
		p := v.Pools[i]
		free := *told.TotalDevices - *told.AllocatedDevices - *told.UnavailableDevices
		switch {
		case told.Driver != v.Request.Spec.Driver || told.PoolName != p.Name || told.Generation != p.Generation || told.ValidationError != nil:
			return fmt.Errorf("pool %d is %+v, and told of is %+v", i, p, told)
		case *told.TotalDevices != p.Devices || *told.AllocatedDevices != p.Allocated || *told.AvailableDevices != max(0, free) || ptr.Deref(told.NodeName, "") != p.Node:
			return fmt.Errorf("of %+v it says %+v", p, told)
		case int64(*told.ResourceSliceCount) != int64(p.Slices) || int64(p.Slices) < p.Expected:
			return fmt.Errorf("of %d of %d slices it says %d", p.Slices, p.Expected, *told.ResourceSliceCount)
		}
	}
	return nil
}

// onTime: a request is deleted when its answer is an hour old, or when it has waited a day, and
// not before. A request whose pools are complete gets its answer at once.
func onTime(_ *rapid.T, c reconcile.Controller[View], v View, now time.Time) error {
	d := c.Decide(v, now)
	deleted := len(d.Commands) > 0 && d.Commands[0].Verb == events.VerbDelete
	since, patience := v.Request.CreationTimestamp, 24*time.Hour
	if s := v.Request.Status; s != nil {
		patience = time.Hour
		if i := slices.IndexFunc(s.Conditions, func(c metav1.Condition) bool { return c.Type != "Noted" }); i >= 0 {
			since = s.Conditions[i].LastTransitionTime
		}
	}
	over := !since.IsZero() && now.Sub(since.Time) >= patience
	incomplete := false
	for _, p := range v.Pools[:min(len(v.Pools), int(ptr.Deref(v.Request.Spec.Limit, 100)))] {
		incomplete = incomplete || int64(p.Slices) < p.Expected
	}
	switch {
	case deleted != (over && v.Request.DeletionTimestamp == nil):
		return fmt.Errorf("it is deleted: %v, and its time is up: %v", deleted, over)
	case !over && v.Request.Status == nil && !incomplete && len(d.Commands) == 0:
		return fmt.Errorf("it waits, and every pool is complete: %s", d.Because)
	case !over && v.Request.Status == nil && incomplete && len(d.Commands) > 0:
		return errors.New("it is answered, and a pool is not complete")
	default:
		return nil
	}
}

// Each answer is counted under its driver, with its duration, whether it could be written or not. One
// that could not be written counts as an error, too.
func TestFigures(t *testing.T) {
	v := View{Request: &resourcev1alpha3.ResourcePoolStatusRequest{ObjectMeta: metav1.ObjectMeta{Name: "gpus", UID: "u", ResourceVersion: "7", CreationTimestamp: metav1.NewTime(now)}}}
	v.Request.Spec.Driver = "gpu.example.com"
	var got []string
	for _, f := range Controller.Decide(v, now).Figures {
		if f.Of.Name != "gpus" || !slices.Equal(f.Labels, []string{"gpu.example.com"}) {
			t.Errorf("a figure is of %v, with %v", f.Of, f.Labels)
		}
		got = append(got, fmt.Sprintf("%s %v failed %v took %v", f.Metric[len("resourcepoolstatusrequest_controller_"):], f.Value, f.Failed, f.Took))
	}
	slices.Sort(got)
	want := []string{
		"request_processing_duration_seconds 0 failed false took true", "request_processing_duration_seconds 0 failed true took true",
		"request_processing_errors_total 1 failed true took false",
		"requests_processed_total 1 failed false took false", "requests_processed_total 1 failed true took false",
	}
	if !slices.Equal(got, want) {
		t.Errorf("counted are %q, want %q", got, want)
	}
}
