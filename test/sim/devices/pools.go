package devices

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
	"github.com/millrace/millrace/test/sim/apiserver"
	"github.com/millrace/millrace/test/sim/cluster"
	"github.com/millrace/millrace/test/sim/storage"
)

// Pools is what drivers do with pools of devices, the scheduler with devices, and
// administrators that ask for the number of devices. In the last hours no administrator asks
// any more.
var Pools = []cluster.Operation{
	cluster.InLastHours(publish), cluster.InLastHours(publish), cluster.InLastHours(publish), cluster.InLastHours(withdraw), cluster.InLastHours(giveOut), cluster.InLastHours(giveOut), cluster.InLastHours(takeBack),
	cluster.InLastHours(AskPools), cluster.InLastHours(AskPools), cluster.InLastHours(AskPools), cluster.InLastHours(AskPools), cluster.InLastHours(dropPoolRequest), cluster.PassHours,
}

// slicesOfPool is the number of slices of each complete pool.
const slicesOfPool = 2

// SliceRef is the place of a part of a pool's slices.
func SliceRef(pool, part int) events.Ref {
	return events.Ref{Kind: kinds.ResourceSlices.Name, Name: fmt.Sprintf("pool%d-%d", pool, part)}
}

func generationOf(w *cluster.Cluster, pool int) (newest int64) {
	for part := range slicesOfPool {
		if s, ok := w.API.Get(SliceRef(pool, part)).(*resourcev1.ResourceSlice); ok {
			newest = max(newest, s.Spec.Pool.Generation)
		}
	}
	return newest
}

// publish has a driver write one slice of a pool: of the same generation as the other one, or
// of the next generation, which then lacks the other slice.
func publish(w *cluster.Cluster) {
	pool, part := w.Roll(3), w.Roll(slicesOfPool)
	generation := max(generationOf(w, pool), 1)
	if w.Roll(3) == 0 {
		generation++
	}
	Publishes(w, SliceRef(pool, part), fmt.Sprint("pool", pool), fmt.Sprint("node-", w.Roll(4)/3), generation, w.Roll(4))
}

// Publishes has a driver write down a slice of a pool.
func Publishes(w *cluster.Cluster, ref events.Ref, pool, node string, generation int64, devices int) {
	slice := &resourcev1.ResourceSlice{
		TypeMeta: metav1.TypeMeta{APIVersion: "resource.k8s.io/v1", Kind: "ResourceSlice"}, ObjectMeta: metav1.ObjectMeta{Name: ref.Name},
		Spec: resourcev1.ResourceSliceSpec{
			Driver: storage.Driver, NodeName: &node, Pool: resourcev1.ResourcePool{Name: pool, Generation: generation, ResourceSliceCount: slicesOfPool},
		},
	}
	for i := range devices {
		slice.Spec.Devices = append(slice.Spec.Devices, resourcev1.Device{Name: fmt.Sprint("chip-", i)})
	}
	w.Note("driver: %s of generation %d has %d devices", ref.Name, generation, devices)
	if w.API.Get(ref) == nil {
		w.Create(ref, slice)
		return
	}
	w.API.Change(ref, func(obj metav1.Object) { obj.(*resourcev1.ResourceSlice).Spec = slice.Spec })
}

// withdraw has a driver delete a slice.
func withdraw(w *cluster.Cluster) {
	if ref := SliceRef(w.Roll(3), w.Roll(slicesOfPool)); w.API.Get(ref) != nil {
		w.Delete(ref, metav1.DeletePropagationBackground)
	}
}

// giveOut allocates devices of pools to a claim; the pools may not exist.
func giveOut(w *cluster.Cluster) {
	ref := deviceClaimRef(fmt.Sprint("shared", w.Roll(4)))
	if w.API.Get(ref) != nil {
		return
	}
	claim := &resourcev1.ResourceClaim{
		TypeMeta: metav1.TypeMeta{APIVersion: "resource.k8s.io/v1", Kind: "ResourceClaim"}, ObjectMeta: metav1.ObjectMeta{Namespace: cluster.Namespace, Name: ref.Name},
		Spec: deviceSpec(), Status: resourcev1.ResourceClaimStatus{Allocation: &resourcev1.AllocationResult{}},
	}
	for i := range w.Roll(3) {
		claim.Status.Allocation.Devices.Results = append(claim.Status.Allocation.Devices.Results, resourcev1.DeviceRequestAllocationResult{
			Request: "chip", Driver: []string{storage.Driver, storage.Driver, "other." + storage.Driver}[w.Roll(3)], Pool: fmt.Sprint("pool", w.Roll(3)), Device: fmt.Sprint("chip-", i),
		})
	}
	w.Note("scheduler: %s has %v", ref.Name, DevicesOf(claim))
	w.Create(ref, claim)
}

func takeBack(w *cluster.Cluster) {
	if all := w.API.List(kinds.ResourceClaims.Name); len(all) > 0 {
		w.Delete(apiserver.RefOf(kinds.ResourceClaims.Name, all[w.Roll(len(all))]), metav1.DeletePropagationBackground)
	}
}

func poolRequestRef(w *cluster.Cluster) events.Ref {
	return events.Ref{Kind: kinds.ResourcePoolStatusRequests.Name, Name: fmt.Sprint("ask-", w.Roll(4))}
}

// AskPools creates a request about all pools of a driver, about some of them, or about one.
func AskPools(w *cluster.Cluster) {
	ref := poolRequestRef(w)
	if w.API.Get(ref) != nil {
		return
	}
	r := &resourcev1alpha3.ResourcePoolStatusRequest{
		TypeMeta: metav1.TypeMeta{APIVersion: "resource.k8s.io/v1alpha3", Kind: "ResourcePoolStatusRequest"}, ObjectMeta: metav1.ObjectMeta{Name: ref.Name},
		Spec: resourcev1alpha3.ResourcePoolStatusRequestSpec{Driver: storage.Driver},
	}
	about := "all pools"
	switch w.Roll(4) {
	case 0:
		about = fmt.Sprint("pool", w.Roll(3))
		r.Spec.PoolName = &about
	case 1:
		about, r.Spec.Limit = "one pool", new(int32(1))
	}
	w.Note("administrator: %s asks about %s", ref.Name, about)
	w.Create(ref, r)
}

func dropPoolRequest(w *cluster.Cluster) {
	if ref := poolRequestRef(w); w.API.Get(ref) != nil {
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

// PoolsJudged judges an answer by the view, which must have all slices of the answer's pools
// and agree with it (P2). poolsTold judges by the effect whether a request is answered again.
func PoolsJudged(l *cluster.Look, f cluster.Findings) {
	request, ok := l.Own.(*resourcev1alpha3.ResourcePoolStatusRequest)
	if !ok || request.Status != nil {
		return
	}
	for _, c := range l.Reports {
		var next resourcev1alpha3.ResourcePoolStatusRequest
		if err := json.Unmarshal(c.Body, &next); err != nil || next.Status == nil {
			f.Breaks("P2", "answers with %s (%v)", c.Body, err)
			continue
		}
		pools, count, whole := poolsAskedFor(request.Spec, l.List)
		if !whole {
			f.Breaks("P2", "answers %s, and slices of a pool are missing", request.Name)
		}
		want, got := wordsOf(pools, count), wordsOf(next.Status.Pools, int(*next.Status.PoolCount))
		if want != got {
			f.Breaks("P2", "tells %s of %s, and there was %s", request.Name, got, want)
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

// PoolsTold checks a request that has an answer: it gets no other one later (P1).
func PoolsTold(g *cluster.Guard, old, now metav1.Object) {
	was, before := old.(*resourcev1alpha3.ResourcePoolStatusRequest)
	next, there := now.(*resourcev1alpha3.ResourcePoolStatusRequest)
	if before && there && !g.Record.Restoring && was.Status != nil && (next.Status == nil || !apiserver.Same(was.Status, next.Status)) {
		g.Breaks("P1", "%s was told %+v, and is told %+v", was.Name, was.Status, next.Status)
	}
}

// poolRequestOver reports whether a request has expired: an hour after its answer, or a day after
// its creation without one.
//
// Upstream: pkg/controller/resourcepoolstatusrequest.
func poolRequestOver(w *cluster.Cluster, r *resourcev1alpha3.ResourcePoolStatusRequest) bool {
	if r.Status == nil {
		return w.Now.Sub(r.CreationTimestamp.Time) >= 24*time.Hour
	}
	return w.Now.Sub(r.Status.Conditions[0].LastTransitionTime.Time) >= time.Hour
}

// PoolRequestGoes checks a request that is about to be deleted: it has expired (P3).
func PoolRequestGoes(g *cluster.Guard, c *cluster.Taken, r *resourcev1alpha3.ResourcePoolStatusRequest) {
	switch {
	case poolRequestOver(g.World, r):
	case g.Passed(c.Turn, time.Hour):
		g.Spare(cluster.ClockAhead)
	default:
		g.Breaks("P3", "turn %d deletes %s, made at %v, before its time: %+v", c.Sequence, r.Name, r.CreationTimestamp, r.Status)
	}
}

// PoolsAnswered reports whether every request that can be answered is, and no expired one is
// left.
func PoolsAnswered(w *cluster.Cluster) error {
	for _, obj := range w.API.List(kinds.ResourcePoolStatusRequests.Name) {
		r := obj.(*resourcev1alpha3.ResourcePoolStatusRequest)
		if _, _, whole := poolsAskedFor(r.Spec, w.API.List); r.Status == nil && whole {
			return fmt.Errorf("%s can be answered, and was not", r.Name)
		}
		if poolRequestOver(w, r) {
			return fmt.Errorf("the time of %s is up, and it is still there: %+v", r.Name, r.Status)
		}
	}
	return nil
}
