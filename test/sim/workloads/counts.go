package workloads

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
	"github.com/millrace/millrace/test/sim/apiserver"
	"github.com/millrace/millrace/test/sim/cluster"
)

// Rules about the real state at the moment when a request takes effect. Each allows for what
// the turn could not know: what others did since its view. The view must contain what its own
// controller did, so the rules allow nothing for that.

// Pod counts the live pods of each owner, and checks a new one.
func Pod(g *cluster.Guard, old, now metav1.Object) {
	was, is := cluster.SetOf(old), cluster.SetOf(now)
	if was != "" && was != is {
		delete(g.Pods.Live[was], old.GetUID())
		g.Pods.Ended[old.GetUID()] = ""
		if g.Turns.Doing != nil {
			g.Pods.Ended[old.GetUID()] = g.Turns.Doing.Turn.Controller
		}
	}
	if is == "" {
		return
	}
	if g.Pods.Live[is] == nil {
		g.Pods.Live[is] = map[types.UID]bool{}
	}
	g.Pods.Live[is][now.GetUID()] = true
	switch {
	case old == nil && !g.Record.Restoring:
		g.Pods.Created = append(g.Pods.Created, g.World.Now)
		tooMany(g, now.(*corev1.Pod), is)
	case was != is:
		g.Pods.Brought[now.GetUID()] = true
	}
}

// tooMany checks a pod that was just created: at some time since the version that was decided
// on, its owner has asked for as many pods. Pods that another owner or a user gave it meanwhile
// do not count against a turn whose view did not have them as the owner's.
func tooMany(g *cluster.Guard, pod *corev1.Pod, owner types.UID) {
	turn, seen := turn(g)
	most, known := most(g, metav1.GetControllerOf(pod), pod.Namespace, turn)
	if !known {
		return
	}
	if n, ok := ordinalOf(cluster.OwnerOf(pod), pod.Name); ok && metav1.GetControllerOf(pod).Kind == kinds.StatefulSets.Kind.Kind {
		if n >= most { // while it shrinks there may be more than it asks for; the check is which ones
			g.Breaks("I2", "%s is created, and %s never asked for more than %d since that was decided", pod.Name, cluster.OwnerOf(pod), most)
		}
		return
	}
	count := 0
	for uid := range g.Pods.Live[owner] {
		if g.Pods.Brought[uid] && !shows(seen, kinds.Pods.Name, uid) {
			g.Spare(cluster.Given)
			continue
		}
		count++
	}
	if count > most {
		g.Breaks("I2", "%s is one of %d live pods of an owner that never asked for more than %d since that was decided", pod.Name, count, most)
	}
}

// turn is the turn whose request is being carried out, if there is one, and its view.
func turn(g *cluster.Guard) (*events.Turn, *cluster.Look) {
	if g.Turns.Doing == nil {
		return nil, nil
	}
	return &g.Turns.Doing.Turn, g.Turns.Seen[cluster.TurnOf{Controller: g.Turns.Doing.Turn.Controller, Sequence: g.Turns.Doing.Sequence}]
}

// most is the most that an owner asked for at any time from the version that a turn was decided
// on until now; known is false if the owner does not exist, or asks for no number.
func most(g *cluster.Guard, owner *metav1.OwnerReference, namespace string, turn *events.Turn) (most int, known bool) {
	for _, version := range versions(g, owner, namespace, turn) {
		n, asks := asksFor(version)
		most, known = max(most, n), known || asks
	}
	return most, known
}

// versions are the versions of an owner from the one that a turn was decided on until now.
func versions(g *cluster.Guard, owner *metav1.OwnerReference, namespace string, turn *events.Turn) (all []metav1.Object) {
	from := int64(0)
	if turn != nil && turn.UID == owner.UID {
		from = apiserver.Number(turn.ResourceVersion)
	}
	ref, known := g.World.API.OwnerRef(owner, namespace)
	if !known {
		return nil
	}
	for _, change := range slices.Backward(g.World.API.Of(ref.Kind).Log) {
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
func shows(l *cluster.Look, kind kinds.Name, uid types.UID) bool {
	return l != nil && slices.ContainsFunc(l.Owned(kind), func(o metav1.Object) bool { return o.GetUID() == uid })
}

// Set checks the size of a ReplicaSet: a Deployment does not let its sets grow beyond what it
// asked for at some time since the version that was decided on. It is not responsible for sizes
// that others have set.
func Set(g *cluster.Guard, old, now metav1.Object) {
	before := 0
	if rs, ok := old.(*appsv1.ReplicaSet); ok {
		before = int(*rs.Spec.Replicas)
		delete(g.Pods.Sets[cluster.ControllerOf(rs)], rs.UID)
	}
	rs, ok := now.(*appsv1.ReplicaSet)
	if !ok || cluster.ControllerOf(rs) == "" {
		return
	}
	owner := metav1.GetControllerOf(rs)
	if g.Pods.Sets[owner.UID] == nil {
		g.Pods.Sets[owner.UID] = map[types.UID]int{}
	}
	size := int(*rs.Spec.Replicas)
	g.Pods.Sets[owner.UID][rs.UID] = size
	turn, seen := turn(g)
	if g.Record.Restoring || turn == nil || turn.UID != owner.UID || size <= before {
		return
	}
	sum := size
	for uid, n := range g.Pods.Sets[owner.UID] {
		if uid != rs.UID && (seen == nil || shows(seen, kinds.ReplicaSets.Name, uid)) {
			sum += n
		}
	}
	if most, known := most(g, owner, rs.Namespace, turn); known && sum > most {
		g.Breaks("I2", "%s grows from %d to %d, and the replica sets of %s ask for %d, never allowed more than %d since that was decided",
			rs.Name, before, size, owner.Name, sum, most)
	}
}

// Unasked checks a live pod that is about to be deleted as surplus: it is surplus by what its
// owner asked for at some time since the version that was decided on. A pod that went since
// then without the controller's doing still counted for it.
func Unasked(g *cluster.Guard, c *cluster.Taken, pod *corev1.Pod) {
	owner := metav1.GetControllerOf(pod)
	seen := g.Turns.Seen[cluster.TurnOf{Controller: c.Turn.Controller, Sequence: c.Sequence}]
	if owner == nil || seen == nil || !cluster.Active(pod) {
		return
	}
	versions := versions(g, owner, pod.Namespace, &c.Turn)
	if len(versions) == 0 {
		return
	}
	least, _ := asksFor(versions[0])
	for _, version := range versions {
		n, _ := asksFor(version)
		least = min(least, n)
	}
	count := len(g.Pods.Live[owner.UID])
	for _, p := range seen.Live() {
		if by := g.Pods.Ended[p.UID]; !g.Pods.Live[owner.UID][p.UID] && by != c.Turn.Controller {
			count++
		}
	}
	if count <= least {
		g.Breaks("I4", "turn %d deletes %s as one too many when %s had %d pods and asked for %d", c.Sequence, pod.Name, owner.Name, count, least)
	}
}

// SpareWork checks a live pod that its Job is about to delete: at some time since the decision
// the Job was suspended, said that it ends, or asked for fewer pods than it had.
func SpareWork(g *cluster.Guard, c *cluster.Taken, pod *corev1.Pod) {
	owner := metav1.GetControllerOf(pod)
	if owner == nil || !cluster.Active(pod) {
		return
	}
	least, asked := 0, false
	for _, version := range versions(g, owner, pod.Namespace, &c.Turn) {
		job, ok := version.(*batchv1.Job)
		if !ok {
			return
		}
		if *job.Spec.CompletionMode == batchv1.IndexedCompletion {
			g.Spare(cluster.IndexedWork)
			return
		}
		n := atOnce(job)
		if l := g.Jobs.Work[job.UID]; l != nil && job.Spec.Completions != nil {
			n = min(n, max(0, int(*job.Spec.Completions)-len(l.Succeeded)))
		}
		if *job.Spec.Suspend || job.DeletionTimestamp != nil || says(job, batchv1.JobSuccessCriteriaMet) || says(job, batchv1.JobFailureTarget) {
			n = 0
		}
		if !asked || n < least {
			least, asked = n, true
		}
	}
	count := len(g.Pods.Live[owner.UID])
	if seen := g.Turns.Seen[cluster.TurnOf{Controller: c.Turn.Controller, Sequence: c.Sequence}]; seen != nil {
		for _, p := range seen.Live() {
			if !g.Pods.Live[owner.UID][p.UID] && g.Pods.Ended[p.UID] != c.Turn.Controller {
				count++
			}
		}
	}
	if asked && count <= least {
		g.Breaks("I4", "turn %d deletes %s as one too many when %s had %d pods at work and could have %d", c.Sequence, pod.Name, owner.Name, count, least)
	}
}

// Replaced checks a live pod that its StatefulSet is about to delete: at some time since the
// decision it was surplus, or had another template.
func Replaced(g *cluster.Guard, c *cluster.Taken, pod *corev1.Pod) {
	owner := metav1.GetControllerOf(pod)
	n, member := ordinalOf(cluster.OwnerOf(pod), pod.Name)
	if owner == nil || !member || !cluster.Active(pod) {
		return
	}
	for _, version := range versions(g, owner, pod.Namespace, &c.Turn) {
		set, ok := version.(*appsv1.StatefulSet)
		if !ok || n >= int(*set.Spec.Replicas) || cluster.ImageOf(set.Spec.Template) != cluster.ImageOfPod(pod) {
			return
		}
	}
	g.Breaks("I4", "turn %d deletes %s, which is one that %s asks for, of its template", c.Sequence, pod.Name, owner.Name)
}

// SliceMax is the most endpoints of a slice in a simulated cluster.
const SliceMax = 2

// Sliced checks the number of endpoints of an EndpointSlice that its controller writes.
func Sliced(g *cluster.Guard, now metav1.Object) {
	slice, ok := now.(*discoveryv1.EndpointSlice)
	if ok && g.Turns.Doing != nil && g.Turns.Doing.Turn.Controller == "endpointslice-controller" && len(slice.Endpoints) > SliceMax {
		g.Breaks("S1", "%s has %d endpoints, and may have %d", slice.Name, len(slice.Endpoints), SliceMax)
	}
}
