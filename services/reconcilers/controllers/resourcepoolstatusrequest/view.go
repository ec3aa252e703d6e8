package resourcepoolstatusrequest

import (
	"maps"
	"slices"

	resourcev1 "k8s.io/api/resource/v1"
	resourcev1alpha3 "k8s.io/api/resource/v1alpha3"
	"k8s.io/utils/ptr"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/services/reconcilers/reconcile"
)

// View is what the turn of one request can see.
type View struct {
	Request *resourcev1alpha3.ResourcePoolStatusRequest `json:"request"`
	// Pools are the requested pools, sorted by name; none if the request has its answer.
	Pools []Pool `json:"pools,omitempty"`
}

// Pool is the known state of a pool: its slices of the newest generation.
type Pool struct {
	Name       string `json:"name"`
	Generation int64  `json:"generation"`
	// Slices is how many slices exist, Expected how many there should be.
	Slices   int32 `json:"slices"`
	Expected int64 `json:"expected"`
	// Devices is how many devices the slices have, Allocated how many of them are allocated to
	// claims.
	Devices   int32 `json:"devices"`
	Allocated int32 `json:"allocated,omitempty"`
	// Node is the node of all slices; empty if they differ or have none.
	Node string `json:"node,omitempty"`
}

func observe(s reconcile.Snapshot, k events.Key) (View, bool) {
	request, ok := reconcile.Get(s, kinds.ResourcePoolStatusRequests, "", k.Name)
	if !ok {
		return View{}, false
	}
	v := View{Request: request}
	if request.Status == nil {
		v.Pools = poolsOf(s, request.Spec)
	}
	return v, true
}

// poolsOf are the pools that a request asks about.
func poolsOf(s reconcile.Snapshot, spec resourcev1alpha3.ResourcePoolStatusRequestSpec) []Pool {
	only := ptr.Deref(spec.PoolName, "")
	found := map[string]*Pool{}
	for _, slice := range reconcile.List(s, kinds.ResourceSlices, "") {
		if of := slice.Spec.Pool.Name; slice.Spec.Driver == spec.Driver && (only == "" || only == of) {
			found[of] = found[of].with(slice)
		}
	}
	for _, claim := range reconcile.List(s, kinds.ResourceClaims, "") {
		if claim.Status.Allocation == nil {
			continue
		}
		for _, r := range claim.Status.Allocation.Devices.Results {
			if p := found[r.Pool]; p != nil && r.Driver == spec.Driver {
				p.Allocated++
			}
		}
	}
	pools := make([]Pool, 0, len(found))
	for _, name := range slices.Sorted(maps.Keys(found)) {
		pools = append(pools, *found[name])
	}
	return pools
}

// with adds a slice to a pool; p is nil before the first. A newer generation replaces older ones.
//
// Upstream: calculatePoolStatus, which takes the number of slices from the one that is listed
// first where slices disagree about it, which is chance.
func (p *Pool) with(slice *resourcev1.ResourceSlice) *Pool {
	of, devices, node := slice.Spec.Pool, int32(len(slice.Spec.Devices)), ptr.Deref(slice.Spec.NodeName, "")
	switch {
	case p == nil || of.Generation > p.Generation:
		return &Pool{Name: of.Name, Generation: of.Generation, Slices: 1, Expected: of.ResourceSliceCount, Devices: devices, Node: node}
	case of.Generation == p.Generation:
		p.Slices, p.Devices, p.Expected = p.Slices+1, p.Devices+devices, max(p.Expected, of.ResourceSliceCount)
		if node != p.Node {
			p.Node = ""
		}
	}
	return p
}

// complete reports whether all slices of the newest generation exist.
func (p Pool) complete() bool { return int64(p.Slices) >= p.Expected }

// told are the pools in the answer: the first ones by name, up to the requested limit.
func (v View) told() []Pool {
	most := ptr.Deref(v.Request.Spec.Limit, resourcev1alpha3.ResourcePoolStatusRequestLimitDefault)
	return v.Pools[:min(len(v.Pools), int(max(most, 0)))]
}
