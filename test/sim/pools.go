package sim

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"time"

	resourcev1 "k8s.io/api/resource/v1"
	resourcev1alpha3 "k8s.io/api/resource/v1alpha3"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/kinds"
)

// Pools is what drivers do with pools of devices, the scheduler with devices, and
// administrators that ask for the number of devices. In the last hours no administrator asks
// any more.
var Pools = []Operation{
	inLastHours(publish), inLastHours(publish), inLastHours(publish), inLastHours(withdraw), inLastHours(giveOut), inLastHours(giveOut), inLastHours(takeBack),
	inLastHours(askPools), inLastHours(askPools), inLastHours(askPools), inLastHours(askPools), inLastHours(dropPoolRequest), passHours,
}

// slicesOfPool is the number of slices of each complete pool.
const slicesOfPool = 2

func sliceRef(pool, part int) events.Ref {
	return events.Ref{Kind: kinds.ResourceSlices.Name, Name: fmt.Sprintf("pool%d-%d", pool, part)}
}

func (w *World) generationOf(pool int) (newest int64) {
	for part := range slicesOfPool {
		if s, ok := w.api.Get(sliceRef(pool, part)).(*resourcev1.ResourceSlice); ok {
			newest = max(newest, s.Spec.Pool.Generation)
		}
	}
	return newest
}

// publish has a driver write one slice of a pool: of the same generation as the other one, or
// of the next generation, which then lacks the other slice.
func publish(w *World) {
	pool, part := w.roll(3), w.roll(slicesOfPool)
	generation := max(w.generationOf(pool), 1)
	if w.roll(3) == 0 {
		generation++
	}
	w.publishes(sliceRef(pool, part), fmt.Sprint("pool", pool), fmt.Sprint("node-", w.roll(4)/3), generation, w.roll(4))
}

func (w *World) publishes(ref events.Ref, pool, node string, generation int64, devices int) {
	slice := &resourcev1.ResourceSlice{
		TypeMeta: metav1.TypeMeta{APIVersion: "resource.k8s.io/v1", Kind: "ResourceSlice"}, ObjectMeta: metav1.ObjectMeta{Name: ref.Name},
		Spec: resourcev1.ResourceSliceSpec{
			Driver: driver, NodeName: &node, Pool: resourcev1.ResourcePool{Name: pool, Generation: generation, ResourceSliceCount: slicesOfPool},
		},
	}
	for i := range devices {
		slice.Spec.Devices = append(slice.Spec.Devices, resourcev1.Device{Name: fmt.Sprint("chip-", i)})
	}
	w.note("driver: %s of generation %d has %d devices", ref.Name, generation, devices)
	if w.api.Get(ref) == nil {
		w.create(ref, slice)
		return
	}
	w.api.Change(ref, func(obj metav1.Object) { obj.(*resourcev1.ResourceSlice).Spec = slice.Spec })
}

// withdraw has a driver delete a slice.
func withdraw(w *World) {
	if ref := sliceRef(w.roll(3), w.roll(slicesOfPool)); w.api.Get(ref) != nil {
		w.Delete(ref, metav1.DeletePropagationBackground)
	}
}

// giveOut allocates devices of pools to a claim; the pools may not exist.
func giveOut(w *World) {
	ref := deviceClaimRef(fmt.Sprint("shared", w.roll(4)))
	if w.api.Get(ref) != nil {
		return
	}
	claim := &resourcev1.ResourceClaim{
		TypeMeta: metav1.TypeMeta{APIVersion: "resource.k8s.io/v1", Kind: "ResourceClaim"}, ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: ref.Name},
		Spec: deviceSpec(), Status: resourcev1.ResourceClaimStatus{Allocation: &resourcev1.AllocationResult{}},
	}
	for i := range w.roll(3) {
		claim.Status.Allocation.Devices.Results = append(claim.Status.Allocation.Devices.Results, resourcev1.DeviceRequestAllocationResult{
			Request: "chip", Driver: []string{driver, driver, "other." + driver}[w.roll(3)], Pool: fmt.Sprint("pool", w.roll(3)), Device: fmt.Sprint("chip-", i),
		})
	}
	w.note("scheduler: %s has %v", ref.Name, devicesOf(claim))
	w.create(ref, claim)
}

func takeBack(w *World) {
	if all := w.api.List(kinds.ResourceClaims.Name); len(all) > 0 {
		w.Delete(refOf(kinds.ResourceClaims.Name, all[w.roll(len(all))]), metav1.DeletePropagationBackground)
	}
}

func poolRequestRef(w *World) events.Ref {
	return events.Ref{Kind: kinds.ResourcePoolStatusRequests.Name, Name: fmt.Sprint("ask-", w.roll(4))}
}

// askPools creates a request about all pools of a driver, about some of them, or about one.
func askPools(w *World) {
	ref := poolRequestRef(w)
	if w.api.Get(ref) != nil {
		return
	}
	r := &resourcev1alpha3.ResourcePoolStatusRequest{
		TypeMeta: metav1.TypeMeta{APIVersion: "resource.k8s.io/v1alpha3", Kind: "ResourcePoolStatusRequest"}, ObjectMeta: metav1.ObjectMeta{Name: ref.Name},
		Spec: resourcev1alpha3.ResourcePoolStatusRequestSpec{Driver: driver},
	}
	about := "all pools"
	switch w.roll(4) {
	case 0:
		about = fmt.Sprint("pool", w.roll(3))
		r.Spec.PoolName = &about
	case 1:
		about, r.Spec.Limit = "one pool", new(int32(1))
	}
	w.note("administrator: %s asks about %s", ref.Name, about)
	w.create(ref, r)
}

func dropPoolRequest(w *World) {
	if ref := poolRequestRef(w); w.api.Get(ref) != nil {
		w.Delete(ref, metav1.DeletePropagationBackground)
	}
}

// poolsAskedFor is the right answer to a request: the pools of its driver by their slices of
// the newest generation, and how many there are; whole is false while slices of them are
// missing.
func poolsAskedFor(spec resourcev1alpha3.ResourcePoolStatusRequestSpec, list func(kinds.Name) []metav1.Object) (pools []resourcev1alpha3.PoolStatus, count int, whole bool) {
	newest := map[string]int64{}
	for _, obj := range list(kinds.ResourceSlices.Name) {
		if s := obj.(*resourcev1.ResourceSlice).Spec; s.Driver == spec.Driver && (spec.PoolName == nil || *spec.PoolName == s.Pool.Name) {
			newest[s.Pool.Name] = max(newest[s.Pool.Name], s.Pool.Generation)
		}
	}
	whole = true
	for _, name := range slices.Sorted(maps.Keys(newest)) {
		if spec.Limit != nil && len(pools) == int(*spec.Limit) {
			break
		}
		var parts, devices, taken int32
		nodes := map[string]bool{}
		for _, obj := range list(kinds.ResourceSlices.Name) {
			if s := obj.(*resourcev1.ResourceSlice).Spec; s.Driver == spec.Driver && s.Pool.Name == name && s.Pool.Generation == newest[name] {
				parts, devices = parts+1, devices+int32(len(s.Devices))
				nodes[*s.NodeName] = true
			}
		}
		for _, obj := range list(kinds.ResourceClaims.Name) {
			for _, r := range obj.(*resourcev1.ResourceClaim).Status.Allocation.Devices.Results {
				if r.Driver == spec.Driver && r.Pool == name {
					taken++
				}
			}
		}
		p := resourcev1alpha3.PoolStatus{
			Driver: spec.Driver, PoolName: name, Generation: newest[name], ResourceSliceCount: &parts,
			TotalDevices: &devices, AllocatedDevices: &taken, AvailableDevices: new(max(0, devices-taken)), UnavailableDevices: new(int32(0)),
		}
		if len(nodes) == 1 {
			p.NodeName = new(slices.Collect(maps.Keys(nodes))[0])
		}
		pools, whole = append(pools, p), whole && parts == slicesOfPool
	}
	return pools, len(newest), whole
}

// poolsJudged judges an answer by the view, which must have all slices of the answer's pools
// and agree with it (P2). poolsTold judges by the effect whether a request is answered again.
func poolsJudged(l *look, f findings) {
	request, ok := l.own.(*resourcev1alpha3.ResourcePoolStatusRequest)
	if !ok || request.Status != nil {
		return
	}
	for _, c := range l.reports {
		var next resourcev1alpha3.ResourcePoolStatusRequest
		if err := json.Unmarshal(c.Body, &next); err != nil || next.Status == nil {
			f.breaks("P2", "answers with %s (%v)", c.Body, err)
			continue
		}
		pools, count, whole := poolsAskedFor(request.Spec, l.list)
		if !whole {
			f.breaks("P2", "answers %s, and slices of a pool are missing", request.Name)
		}
		want, got := wordsOf(pools, count), wordsOf(next.Status.Pools, int(*next.Status.PoolCount))
		if want != got {
			f.breaks("P2", "tells %s of %s, and there was %s", request.Name, got, want)
		}
	}
}

// wordsOf is an answer in comparable form.
func wordsOf(pools []resourcev1alpha3.PoolStatus, count int) string {
	text, err := json.Marshal(pools)
	if err != nil {
		panic(err) // an API object
	}
	return fmt.Sprintf("%d pools, of which %s", count, text)
}

// poolsTold checks a request that has an answer: it gets no other one later (P1).
func (g *guard) poolsTold(old, now metav1.Object) {
	was, before := old.(*resourcev1alpha3.ResourcePoolStatusRequest)
	next, there := now.(*resourcev1alpha3.ResourcePoolStatusRequest)
	if before && there && !g.restoring && was.Status != nil && (next.Status == nil || !same(was.Status, next.Status)) {
		g.breaks("P1", "%s was told %+v, and is told %+v", was.Name, was.Status, next.Status)
	}
}

// poolRequestOver reports whether a request has expired: an hour after its answer, or a day after
// its creation without one.
//
// Upstream: pkg/controller/resourcepoolstatusrequest.
func (w *World) poolRequestOver(r *resourcev1alpha3.ResourcePoolStatusRequest) bool {
	if r.Status == nil {
		return w.now.Sub(r.CreationTimestamp.Time) >= 24*time.Hour
	}
	return w.now.Sub(r.Status.Conditions[0].LastTransitionTime.Time) >= time.Hour
}

// poolRequestGoes checks a request that is about to be deleted: it has expired (P3).
func (g *guard) poolRequestGoes(c *carrying, r *resourcev1alpha3.ResourcePoolStatusRequest) {
	switch {
	case g.world.poolRequestOver(r):
	case g.passed(c.turn, time.Hour):
		g.spare(clockAhead)
	default:
		g.breaks("P3", "turn %d deletes %s, made at %v, before its time: %+v", c.sequence, r.Name, r.CreationTimestamp, r.Status)
	}
}

// poolsAnswered reports whether every request that can be answered is, and no expired one is
// left.
func (w *World) poolsAnswered() error {
	for _, obj := range w.api.List(kinds.ResourcePoolStatusRequests.Name) {
		r := obj.(*resourcev1alpha3.ResourcePoolStatusRequest)
		if _, _, whole := poolsAskedFor(r.Spec, w.api.List); r.Status == nil && whole {
			return fmt.Errorf("%s can be answered, and was not", r.Name)
		}
		if w.poolRequestOver(r) {
			return fmt.Errorf("the time of %s is up, and it is still there: %+v", r.Name, r.Status)
		}
	}
	return nil
}
