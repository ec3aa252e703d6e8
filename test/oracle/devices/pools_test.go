package devices_test

import (
	"fmt"
	"testing"
	"time"

	resourcev1 "k8s.io/api/resource/v1"
	resourcev1alpha3 "k8s.io/api/resource/v1alpha3"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"pgregory.net/rapid"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/services/writer/plan"
	"github.com/millrace/millrace/test/oracle/devices"
	"github.com/millrace/millrace/test/oracle/exemption"
	"github.com/millrace/millrace/test/oracle/objects"
	"github.com/millrace/millrace/test/oracle/oracletest"
	"github.com/millrace/millrace/test/oracle/stage"
	"github.com/millrace/millrace/test/sim/apiserver"
)

func TestRequestsAboutPoolsAreAnsweredAsUpstreams(t *testing.T) {
	oracletest.Agree(t, devices.PoolRequests, oracletest.ClusterKey, poolWorld)
}

// Both answer and delete the same requests in the end, although the API server refuses some writes.
func TestRefusedRequestsAboutPoolsEndAsUpstreams(t *testing.T) {
	oracletest.RestAlike(t, devices.PoolRequestsAtRest, agingPoolWorld, stage.Refusal{Verb: plan.Delete}, stage.Refusal{Verb: plan.Update, Status: true})
}

// poolWorld is a request of some age about all pools of a driver, or about one.
func poolWorld(t *rapid.T) []runtime.Object {
	ages := []int{0, 60, 3599, 3601, 86399, 86401, 200_000}
	r := aPoolRequest(t, ages, ages)
	if rapid.IntRange(0, 5).Draw(t, "held") == 5 {
		r.Finalizers = []string{"example.com/held"}
		if rapid.Bool().Draw(t, "deleted") {
			r.DeletionTimestamp = oracletest.Ptr(oracletest.Before(objects.Now, 1))
		}
	}
	return append([]runtime.Object{r}, somePools(t)...)
}

// agingPoolWorld is a request that expires some minutes before upstream polls (at minutes that are multiples
// of ten), or not within the observed time; upstream polls twice more if a delete is refused. A request that
// has waited for a day is about an incomplete pool: upstream may answer any other one while it deletes it.
func agingPoolWorld(t *rapid.T) []runtime.Object {
	const minute, day = 60, 24 * 60 * 60
	r := aPoolRequest(t, []int{0, minute, day - 45*minute, day - 15*minute, day - 5*minute, day + minute}, []int{0, minute, 15 * minute, 45 * minute, 55 * minute, 61 * minute})
	world := append([]runtime.Object{r}, somePools(t)...)
	if r.Status == nil && r.CreationTimestamp.Time.Before(objects.Now.Add(-12*time.Hour)) {
		exemption.Uses("answered-and-deleted")
		r.Spec = resourcev1alpha3.ResourcePoolStatusRequestSpec{Driver: "d"}
		world = append(world, aSlice(90, "d", "", 9, 2, "", 1))
	}
	return world
}

// aPoolRequest is a request about pools, created so many seconds ago, perhaps with a status whose conditions
// are so many seconds old.
func aPoolRequest(t *rapid.T, created, since []int) *resourcev1alpha3.ResourcePoolStatusRequest {
	r := &resourcev1alpha3.ResourcePoolStatusRequest{ObjectMeta: metav1.ObjectMeta{Name: oracletest.Owner, UID: "request", ResourceVersion: "10"}}
	r.CreationTimestamp = oracletest.Before(objects.Now, rapid.SampledFrom(created).Draw(t, "created"))
	r.Spec = poolQuestion(t)
	if rapid.IntRange(0, 2).Draw(t, "answered") == 0 {
		r.Status = &resourcev1alpha3.ResourcePoolStatusRequestStatus{}
		for _, kind := range rapid.SliceOfNDistinct(rapid.SampledFrom([]string{"Complete", "Failed", "Noted"}), 0, 2, rapid.ID).Draw(t, "conditions") {
			c := metav1.Condition{Type: kind, Status: rapid.SampledFrom([]metav1.ConditionStatus{metav1.ConditionTrue, metav1.ConditionFalse}).Draw(t, "status")}
			if rapid.IntRange(0, 5).Draw(t, "says since when") > 0 {
				c.LastTransitionTime = oracletest.Before(objects.Now, rapid.SampledFrom(since).Draw(t, "since"))
			}
			r.Status.Conditions = append(r.Status.Conditions, c)
		}
	}
	return r
}

func poolQuestion(t *rapid.T) (of resourcev1alpha3.ResourcePoolStatusRequestSpec) {
	of.Driver = rapid.SampledFrom([]string{"d", "d", "d", "x", "none"}).Draw(t, "of the driver")
	if rapid.IntRange(0, 3).Draw(t, "of one pool") == 0 {
		of.PoolName = oracletest.Ptr(rapid.SampledFrom([]string{"p", "q", "none"}).Draw(t, "which"))
	}
	of.Limit = rapid.SampledFrom([]*int32{nil, oracletest.Ptr(int32(100)), oracletest.Ptr(int32(1)), oracletest.Ptr(int32(2))}).Draw(t, "limit")
	return of
}

// somePools are slices of some pools, of several generations, and claims with devices of them. All slices of
// a generation have the same slice count.
func somePools(t *rapid.T) (world []runtime.Object) {
	exemption.Uses("slices-disagree")
	for i := range rapid.IntRange(0, 6).Draw(t, "slices") {
		world = append(world, drawnSlice(t, i))
	}
	for i := range rapid.IntRange(0, 3).Draw(t, "claims") {
		world = append(world, drawnClaim(t, i))
	}
	return world
}

func drawnSlice(t *rapid.T, i int) *resourcev1.ResourceSlice {
	driver, pool := rapid.SampledFrom([]string{"d", "d", "x"}).Draw(t, "driver"), rapid.SampledFrom([]string{"p", "p", "q", "r"}).Draw(t, "pool")
	generation := rapid.SampledFrom([]int64{1, 2, 2, 3}).Draw(t, "generation")
	// The expected number of slices differs between the generations of each pool.
	expected := (generation*int64(pool[0])+int64(driver[0]))%3 + int64(driver[0]+pool[0])%2
	node := rapid.SampledFrom([]string{"n", "n", "n", "m", ""}).Draw(t, "node")
	return aSlice(i, driver, pool, generation, expected, node, rapid.IntRange(0, 4).Draw(t, "devices"))
}

func aSlice(i int, driver, pool string, generation, expected int64, node string, devices int) *resourcev1.ResourceSlice {
	s := &resourcev1.ResourceSlice{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprint("slice-", i), UID: types.UID(fmt.Sprint("slice-", i)), ResourceVersion: "5"}}
	s.Spec.Driver, s.Spec.Pool = driver, resourcev1.ResourcePool{Name: pool, Generation: generation, ResourceSliceCount: expected}
	if node != "" {
		s.Spec.NodeName = &node
	}
	for d := range devices {
		s.Spec.Devices = append(s.Spec.Devices, resourcev1.Device{Name: fmt.Sprint("device-", i, "-", d)})
	}
	return s
}

func drawnClaim(t *rapid.T, i int) *resourcev1.ResourceClaim {
	c := &resourcev1.ResourceClaim{ObjectMeta: metav1.ObjectMeta{Namespace: oracletest.Namespace, Name: fmt.Sprint("claim-", i), UID: types.UID(fmt.Sprint("claim-", i)), ResourceVersion: "6"}}
	if rapid.IntRange(0, 3).Draw(t, "allocated") == 0 {
		return c
	}
	c.Status.Allocation = &resourcev1.AllocationResult{}
	for range rapid.IntRange(0, 4).Draw(t, "devices of a claim") {
		c.Status.Allocation.Devices.Results = append(c.Status.Allocation.Devices.Results, resourcev1.DeviceRequestAllocationResult{
			Driver: rapid.SampledFrom([]string{"d", "d", "x"}).Draw(t, "driver of a device"), Pool: rapid.SampledFrom([]string{"p", "p", "q", "z"}).Draw(t, "pool of a device"), Device: "0",
		})
	}
	return c
}

// TestRequestsAboutPoolsLiveAsUpstreams: drivers publish slices and claims get devices between requests.
// Upstream syncs a request that it could not answer when the request changes, not when its driver publishes
// the missing slices; so its author writes it again after each change of a slice.
func TestRequestsAboutPoolsLiveAsUpstreams(t *testing.T) {
	oracletest.Fewer(t, 4)
	rapid.Check(t, func(r *rapid.T) {
		v := &drivers{}
		for range rapid.IntRange(1, 8).Draw(r, "chapters") {
			v.act(r)
		}
		v.Compare(t, r, devices.PoolRequestsLive)
	})
}

// drivers has the writes of drivers, and of users who make requests.
type drivers struct {
	oracletest.Village
	made int
}

func (v *drivers) act(r *rapid.T) {
	switch rapid.IntRange(0, 5).Draw(r, "act") {
	case 0, 1:
		v.publish(r)
	case 2:
		v.claim(r)
		v.Chapter()
	default:
		v.request(r)
		v.Chapter()
	}
}

// publish changes one slice, and touches all requests without an answer.
func (v *drivers) publish(r *rapid.T) {
	s := drawnSlice(r, rapid.IntRange(0, 4).Draw(r, "slice"))
	ref := events.Ref{Kind: kinds.ResourceSlices.Name, Name: s.Name}
	if rapid.IntRange(0, 3).Draw(r, "withdraw") == 0 {
		v.Remove(ref)
	} else {
		v.Does(func(api *apiserver.API) {
			if api.Get(ref) == nil {
				api.Load(kinds.ResourceSlices.Name, s)
				return
			}
			api.Change(ref, func(o metav1.Object) { o.(*resourcev1.ResourceSlice).Spec = s.Spec })
		}, "publish %s: %s %+v with %d devices", s.Name, s.Spec.Driver, s.Spec.Pool, len(s.Spec.Devices))
	}
	v.End(v.Moment, true)
	v.Moment = nil
	v.Does(func(api *apiserver.API) {
		for _, o := range api.List(kinds.ResourcePoolStatusRequests.Name) {
			if o.(*resourcev1alpha3.ResourcePoolStatusRequest).Status == nil {
				api.Change(events.Ref{Kind: kinds.ResourcePoolStatusRequests.Name, Name: o.GetName()}, func(o metav1.Object) {
					o.SetAnnotations(map[string]string{"again": o.GetResourceVersion()})
				})
			}
		}
	}, "look again")
	v.Chapter()
}

// claim allocates devices for a claim, or removes the allocation.
func (v *drivers) claim(r *rapid.T) {
	c := drawnClaim(r, rapid.IntRange(0, 2).Draw(r, "claim"))
	ref := events.Ref{Kind: kinds.ResourceClaims.Name, Namespace: c.Namespace, Name: c.Name}
	v.Does(func(api *apiserver.API) {
		if api.Get(ref) == nil {
			api.Load(kinds.ResourceClaims.Name, c)
			return
		}
		api.Change(ref, func(o metav1.Object) { o.(*resourcev1.ResourceClaim).Status = c.Status })
	}, "%s has %+v", c.Name, c.Status.Allocation)
}

// request creates a request about the pools of a driver, or deletes one.
func (v *drivers) request(r *rapid.T) {
	name := rapid.SampledFrom([]string{"a", "b", "c"}).Draw(r, "request")
	ref := events.Ref{Kind: kinds.ResourcePoolStatusRequests.Name, Name: name}
	if rapid.IntRange(0, 4).Draw(r, "take back") == 0 {
		v.Remove(ref)
		return
	}
	v.made++
	asks := &resourcev1alpha3.ResourcePoolStatusRequest{ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID(fmt.Sprint(name, "-", v.made)), CreationTimestamp: metav1.NewTime(objects.Now.Truncate(time.Second))}, Spec: poolQuestion(r)}
	v.Does(func(api *apiserver.API) {
		if api.Get(ref) == nil {
			api.Load(ref.Kind, asks)
		}
	}, "request %s: %+v", asks.UID, asks.Spec)
}
