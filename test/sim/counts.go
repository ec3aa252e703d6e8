package sim

import (
	"slices"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/kinds"
)

// Rules about the real state at the moment when a request takes effect. Each allows for what
// the turn could not know: what others did since its view. The view must contain what its own
// controller did, so the rules allow nothing for that.

// pod counts the live pods of each owner, and checks a new one.
func (g *guard) pod(old, now metav1.Object) {
	was, is := setOf(old), setOf(now)
	if was != "" && was != is {
		delete(g.live[was], old.GetUID())
		g.ended[old.GetUID()] = ""
		if g.doing != nil {
			g.ended[old.GetUID()] = g.doing.turn.Controller
		}
	}
	if is == "" {
		return
	}
	if g.live[is] == nil {
		g.live[is] = map[types.UID]bool{}
	}
	g.live[is][now.GetUID()] = true
	switch {
	case old == nil && !g.restoring:
		g.pods = append(g.pods, g.world.now)
		g.tooMany(now.(*corev1.Pod), is)
	case was != is:
		g.brought[now.GetUID()] = true
	}
}

// tooMany checks a pod that was just created: at some time since the version that was decided
// on, its owner has asked for as many pods. Pods that another owner or a user gave it meanwhile
// do not count against a turn whose view did not have them as the owner's.
func (g *guard) tooMany(pod *corev1.Pod, owner types.UID) {
	turn, seen := g.turn()
	most, known := g.most(metav1.GetControllerOf(pod), pod.Namespace, turn)
	if !known {
		return
	}
	if n, ok := ordinalOf(ownerOf(pod), pod.Name); ok && metav1.GetControllerOf(pod).Kind == kinds.StatefulSets.Kind.Kind {
		if n >= most { // while it shrinks there may be more than it asks for; the check is which ones
			g.breaks("I2", "%s is created, and %s never asked for more than %d since that was decided", pod.Name, ownerOf(pod), most)
		}
		return
	}
	count := 0
	for uid := range g.live[owner] {
		if g.brought[uid] && !seen.shows(kinds.Pods.Name, uid) {
			g.spare(given)
			continue
		}
		count++
	}
	if count > most {
		g.breaks("I2", "%s is one of %d live pods of an owner that never asked for more than %d since that was decided", pod.Name, count, most)
	}
}

// turn is the turn whose request is being carried out, if there is one, and its view.
func (g *guard) turn() (*events.Turn, *look) {
	if g.doing == nil {
		return nil, nil
	}
	return &g.doing.turn, g.seen[turnOf{g.doing.turn.Controller, g.doing.sequence}]
}

// most is the most that an owner asked for at any time from the version that a turn was decided
// on until now; known is false if the owner does not exist, or asks for no number.
func (g *guard) most(owner *metav1.OwnerReference, namespace string, turn *events.Turn) (most int, known bool) {
	for _, version := range g.versions(owner, namespace, turn) {
		n, asks := asksFor(version)
		most, known = max(most, n), known || asks
	}
	return most, known
}

// versions are the versions of an owner from the one that a turn was decided on until now.
func (g *guard) versions(owner *metav1.OwnerReference, namespace string, turn *events.Turn) (all []metav1.Object) {
	from := int64(0)
	if turn != nil && turn.UID == owner.UID {
		from = number(turn.ResourceVersion)
	}
	ref, known := g.world.api.ownerRef(owner, namespace)
	if !known {
		return nil
	}
	for _, change := range slices.Backward(g.world.api.of(ref.Kind).log) {
		if change.Object.GetUID() != owner.UID {
			continue
		}
		if all = append(all, change.Object); change.Version <= from {
			break
		}
	}
	return all
}

// shows reports whether the view has an object whose controller is the key's object.
func (l *look) shows(kind kinds.Name, uid types.UID) bool {
	return l != nil && slices.ContainsFunc(l.owned(kind), func(o metav1.Object) bool { return o.GetUID() == uid })
}

// set checks the size of a ReplicaSet: a Deployment does not let its sets grow beyond what it
// asked for at some time since the version that was decided on. It is not responsible for sizes
// that others have set.
func (g *guard) set(old, now metav1.Object) {
	before := 0
	if rs, ok := old.(*appsv1.ReplicaSet); ok {
		before = int(*rs.Spec.Replicas)
		delete(g.sets[controllerOf(rs)], rs.UID)
	}
	rs, ok := now.(*appsv1.ReplicaSet)
	if !ok || controllerOf(rs) == "" {
		return
	}
	owner := metav1.GetControllerOf(rs)
	if g.sets[owner.UID] == nil {
		g.sets[owner.UID] = map[types.UID]int{}
	}
	size := int(*rs.Spec.Replicas)
	g.sets[owner.UID][rs.UID] = size
	turn, seen := g.turn()
	if g.restoring || turn == nil || turn.UID != owner.UID || size <= before {
		return
	}
	sum := size
	for uid, n := range g.sets[owner.UID] {
		if uid != rs.UID && (seen == nil || seen.shows(kinds.ReplicaSets.Name, uid)) {
			sum += n
		}
	}
	if most, known := g.most(owner, rs.Namespace, turn); known && sum > most {
		g.breaks("I2", "%s grows from %d to %d, and the replica sets of %s ask for %d, never allowed more than %d since that was decided",
			rs.Name, before, size, owner.Name, sum, most)
	}
}

// unasked checks a live pod that is about to be deleted as surplus: it is surplus by what its
// owner asked for at some time since the version that was decided on. A pod that went since
// then without the controller's doing still counted for it.
func (g *guard) unasked(c *carrying, pod *corev1.Pod) {
	owner := metav1.GetControllerOf(pod)
	seen := g.seen[turnOf{c.turn.Controller, c.sequence}]
	if owner == nil || seen == nil || !active(pod) {
		return
	}
	versions := g.versions(owner, pod.Namespace, &c.turn)
	if len(versions) == 0 {
		return
	}
	least, _ := asksFor(versions[0])
	for _, version := range versions {
		n, _ := asksFor(version)
		least = min(least, n)
	}
	count := len(g.live[owner.UID])
	for _, p := range seen.live() {
		if by := g.ended[p.UID]; !g.live[owner.UID][p.UID] && by != c.turn.Controller {
			count++
		}
	}
	if count <= least {
		g.breaks("I4", "turn %d deletes %s as one too many when %s had %d pods and asked for %d", c.sequence, pod.Name, owner.Name, count, least)
	}
}

// spareWork checks a live pod that its Job is about to delete: at some time since the decision
// the Job was suspended, said that it ends, or asked for fewer pods than it had.
func (g *guard) spareWork(c *carrying, pod *corev1.Pod) {
	owner := metav1.GetControllerOf(pod)
	if owner == nil || !active(pod) {
		return
	}
	least, asked := 0, false
	for _, version := range g.versions(owner, pod.Namespace, &c.turn) {
		job, ok := version.(*batchv1.Job)
		if !ok {
			return
		}
		if *job.Spec.CompletionMode == batchv1.IndexedCompletion {
			g.spare(indexedWork)
			return
		}
		n := atOnce(job)
		if l := g.work[job.UID]; l != nil && job.Spec.Completions != nil {
			n = min(n, max(0, int(*job.Spec.Completions)-len(l.succeeded)))
		}
		if *job.Spec.Suspend || job.DeletionTimestamp != nil || says(job, batchv1.JobSuccessCriteriaMet) || says(job, batchv1.JobFailureTarget) {
			n = 0
		}
		if !asked || n < least {
			least, asked = n, true
		}
	}
	count := len(g.live[owner.UID])
	if seen := g.seen[turnOf{c.turn.Controller, c.sequence}]; seen != nil {
		for _, p := range seen.live() {
			if !g.live[owner.UID][p.UID] && g.ended[p.UID] != c.turn.Controller {
				count++
			}
		}
	}
	if asked && count <= least {
		g.breaks("I4", "turn %d deletes %s as one too many when %s had %d pods at work and could have %d", c.sequence, pod.Name, owner.Name, count, least)
	}
}

// replaced checks a live pod that its StatefulSet is about to delete: at some time since the
// decision it was surplus, or had another template.
func (g *guard) replaced(c *carrying, pod *corev1.Pod) {
	owner := metav1.GetControllerOf(pod)
	n, member := ordinalOf(ownerOf(pod), pod.Name)
	if owner == nil || !member || !active(pod) {
		return
	}
	for _, version := range g.versions(owner, pod.Namespace, &c.turn) {
		set, ok := version.(*appsv1.StatefulSet)
		if !ok || n >= int(*set.Spec.Replicas) || imageOf(set.Spec.Template) != imageOfPod(pod) {
			return
		}
	}
	g.breaks("I4", "turn %d deletes %s, which is one that %s asks for, of its template", c.sequence, pod.Name, owner.Name)
}

// SliceMax is the most endpoints of a slice in a simulated cluster.
const SliceMax = 2

// sliced checks the number of endpoints of an EndpointSlice that its controller writes.
func (g *guard) sliced(now metav1.Object) {
	slice, ok := now.(*discoveryv1.EndpointSlice)
	if ok && g.doing != nil && g.doing.turn.Controller == "endpointslice-controller" && len(slice.Endpoints) > SliceMax {
		g.breaks("S1", "%s has %d endpoints, and may have %d", slice.Name, len(slice.Endpoints), SliceMax)
	}
}
