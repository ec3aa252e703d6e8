package resourcepoolstatusrequest

import (
	"fmt"
	"slices"
	"testing"

	resourcev1 "k8s.io/api/resource/v1"
	resourcev1alpha3 "k8s.io/api/resource/v1alpha3"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"pgregory.net/rapid"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/services/reconcilers/reconciletest"
)

func asking(name, driver string) *resourcev1alpha3.ResourcePoolStatusRequest {
	return &resourcev1alpha3.ResourcePoolStatusRequest{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: resourcev1alpha3.ResourcePoolStatusRequestSpec{Driver: driver}}
}

func slice(name, driver, pool string, generation, expected int64, node string, devices int) *resourcev1.ResourceSlice {
	s := &resourcev1.ResourceSlice{ObjectMeta: metav1.ObjectMeta{Name: name}}
	s.Spec.Driver, s.Spec.Pool = driver, resourcev1.ResourcePool{Name: pool, Generation: generation, ResourceSliceCount: expected}
	if node != "" {
		s.Spec.NodeName = &node
	}
	s.Spec.Devices = make([]resourcev1.Device, devices)
	return s
}

// claim returns a claim with devices, each named by its driver and pool; if allocated is false, it
// has none yet.
func claim(name string, allocated bool, of ...[2]string) *resourcev1.ResourceClaim {
	c := &resourcev1.ResourceClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name}}
	if !allocated {
		return c
	}
	c.Status.Allocation = &resourcev1.AllocationResult{}
	for _, d := range of {
		c.Status.Allocation.Devices.Results = append(c.Status.Allocation.Devices.Results, resourcev1.DeviceRequestAllocationResult{Driver: d[0], Pool: d[1]})
	}
	return c
}

func TestObserve(t *testing.T) {
	const gpu, nic = "gpu.example.com", "nic.example.com"
	world := reconciletest.NewWorld().Put(kinds.ResourceSlices.Kind,
		slice("a", gpu, "one", 1, 1, "n", 4), slice("b", gpu, "one", 2, 2, "n", 2), slice("c", gpu, "one", 2, 2, "n", 3), // the first is of an older generation
		slice("d", gpu, "two", 1, 2, "n", 1), slice("e", gpu, "two", 1, 3, "m", 1), // they disagree about the number of slices
		slice("f", nic, "one", 9, 1, "n", 8), slice("g", gpu, "zero", 0, 0, "", 0),
	).Put(kinds.ResourceClaims.Kind,
		claim("a", true, [2]string{gpu, "one"}, [2]string{gpu, "one"}, [2]string{nic, "one"}), claim("b", false), claim("c", true, [2]string{gpu, "two"}, [2]string{gpu, "gone"}),
	)
	one := Pool{Name: "one", Generation: 2, Slices: 2, Expected: 2, Devices: 5, Allocated: 2, Node: "n"}
	two := Pool{Name: "two", Generation: 1, Slices: 2, Expected: 3, Devices: 2, Allocated: 1}
	zero := Pool{Name: "zero", Slices: 1}
	only, answered := asking("only", gpu), asking("answered", gpu)
	only.Spec.PoolName, answered.Status = ptr.To("two"), &resourcev1alpha3.ResourcePoolStatusRequestStatus{}
	for _, c := range []struct {
		request *resourcev1alpha3.ResourcePoolStatusRequest
		want    []Pool
	}{
		{asking("gpus", gpu), []Pool{one, two, zero}},
		{asking("nics", nic), []Pool{{Name: "one", Generation: 9, Slices: 1, Expected: 1, Devices: 8, Allocated: 1, Node: "n"}}},
		{asking("none", "example.com"), nil}, {only, []Pool{two}}, {answered, nil},
	} {
		world.Put(kinds.ResourcePoolStatusRequests.Kind, c.request)
		v, ok := observe(world, events.Key{Name: c.request.Name})
		if !ok || v.Request != c.request || !slices.Equal(v.Pools, c.want) {
			t.Errorf("of %s it sees %+v, %v; want %+v", c.request.Name, v.Pools, ok, c.want)
		}
	}
	if _, ok := observe(world, events.Key{Name: "gone"}); ok {
		t.Error("observe finds a request that is not there")
	}
}

// The view of a pool does not depend on the names of its slices.
func TestPoolsAreTheSameInAnyOrder(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var all []*resourcev1.ResourceSlice
		for range rapid.IntRange(0, 6).Draw(t, "slices") {
			all = append(all, slice("", "d", rapid.SampledFrom([]string{"p", "p", "q"}).Draw(t, "pool"), rapid.Int64Range(0, 2).Draw(t, "generation"),
				rapid.Int64Range(0, 3).Draw(t, "expected"), rapid.SampledFrom([]string{"", "n", "n", "m"}).Draw(t, "node"), rapid.IntRange(0, 3).Draw(t, "devices")))
		}
		seen := func(order []*resourcev1.ResourceSlice) string {
			world := reconciletest.NewWorld(kinds.ResourceClaims.Kind).Put(kinds.ResourcePoolStatusRequests.Kind, asking("r", "d"))
			for i, s := range order {
				named := s.DeepCopy()
				named.Name = fmt.Sprint("s", i)
				world.Put(kinds.ResourceSlices.Kind, named)
			}
			v, _ := observe(world, events.Key{Name: "r"})
			return fmt.Sprint(v.Pools)
		}
		if first, then := seen(all), seen(rapid.Permutation(all).Draw(t, "other order")); first != then {
			t.Fatalf("seen are %s, and in another order %s", first, then)
		}
	})
}

func TestWhoseTurn(t *testing.T) {
	answered := asking("answered", "d")
	answered.Status = &resourcev1alpha3.ResourcePoolStatusRequestStatus{}
	world := reconciletest.NewWorld().Put(kinds.ResourcePoolStatusRequests.Kind, asking("r1", "d"), asking("r2", "d"), asking("other", "e"), answered)
	of := func(driver string) metav1.Object { return slice("s", driver, "p", 1, 1, "", 1) }
	for _, c := range []struct {
		name     string
		kind     kinds.Kind
		was, now metav1.Object
		want     []string
	}{
		{"a new slice", kinds.ResourceSlices.Kind, nil, of("d"), []string{"r1", "r2"}},
		{"a slice changes", kinds.ResourceSlices.Kind, of("d"), of("d"), []string{"r1", "r2"}},
		{"a slice goes", kinds.ResourceSlices.Kind, of("e"), nil, []string{"other"}},
		{"a slice of another driver now", kinds.ResourceSlices.Kind, of("d"), of("e"), []string{"other", "r1", "r2"}},
		{"one of a driver that none asks about", kinds.ResourceSlices.Kind, nil, of("f"), nil},
		{"a claim", kinds.ResourceClaims.Kind, nil, claim("c", true, [2]string{"d", "p"}), nil},
		{"a request", kinds.ResourcePoolStatusRequests.Kind, nil, asking("new", "d"), []string{"new"}},
	} {
		var got []string
		for _, key := range world.Keys(Controller, c.kind, c.was, c.now) {
			got = append(got, key.Name)
		}
		if slices.Sort(got); !slices.Equal(got, c.want) {
			t.Errorf("%s: turns of %v, want %v", c.name, got, c.want)
		}
	}
}
