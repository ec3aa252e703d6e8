package workloads

import (
	"maps"
	"slices"
	"strconv"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/test/sim/apiserver"
	"github.com/millrace/millrace/test/sim/cluster"
	"github.com/millrace/millrace/test/sim/nodes"
)

const (
	revisionNote = "deployment.kubernetes.io/revision"
	desiredNote  = "deployment.kubernetes.io/desired-replicas"
)

// DeploymentJudged judges a Deployment by the sizes that it gives its ReplicaSets, and by the
// sets that it deletes.
func DeploymentJudged(l *cluster.Look, f cluster.Findings) {
	d, ok := l.Own.(*appsv1.Deployment)
	if !ok {
		return
	}
	var sets []*appsv1.ReplicaSet
	for _, obj := range l.Owned(kinds.ReplicaSets.Name) {
		sets = append(sets, obj.(*appsv1.ReplicaSet))
	}
	sizesJudged(l, d, sets, f)
	historyJudged(l, d, sets, f)
}

// sizesJudged judges the sizes: together the sets grow to at most replicas and surge, and a
// rolling update takes no available pod that must be left. The number of available pods is that
// in the sets' statuses, which is all that a Deployment sees.
func sizesJudged(l *cluster.Look, d *appsv1.Deployment, sets []*appsv1.ReplicaSet, f cluster.Findings) {
	sizes, after := l.Resized(kinds.ReplicaSets.Name)
	before, had, has, scales, stale := 0, 0, 0, false, false
	for _, s := range sets {
		was := int(*s.Spec.Replicas)
		size, changed := sizes[s.UID]
		if !changed {
			size = was
		}
		before, after = before+was, after+size
		available := int(s.Status.AvailableReplicas)
		had, has = had+available, has+available-(min(was, available)-min(size, available))
		stale = stale || available > was
		// A Deployment whose number has changed shares it among its sets, regardless of
		// available pods, as upstream's scale does.
		scales = scales || was > 0 && noted(s, d)
	}
	if most, _ := asksFor(d); after > before && after > most {
		f.Breaks("I2", "has its sets grow from %d to %d replicas, and asks for %d", before, after, most)
	}
	least := int(*d.Spec.Replicas) - missable(d)
	rolls := d.Spec.Strategy.Type == appsv1.RollingUpdateDeploymentStrategyType && !d.Spec.Paused
	switch {
	case !rolls || has >= had:
	case scales:
		f.Spares(cluster.Scaling)
	case has < least:
		f.Breaks("I5", "leaves %d of %d available pods, and %d must be left", has, had, least)
	case stale:
		f.Spares(cluster.StaleSets)
	}
}

// noted reports whether a set was sized for another number of replicas than its Deployment asks
// for.
func noted(s *appsv1.ReplicaSet, d *appsv1.Deployment) bool {
	desired, told := s.Annotations[desiredNote]
	return told && desired != strconv.Itoa(int(*d.Spec.Replicas))
}

// missable is how many available pods a Deployment may lack during a rolling update.
func missable(d *appsv1.Deployment) int {
	r := d.Spec.Strategy.RollingUpdate
	if r == nil {
		return 0
	}
	n, _ := intstr.GetScaledValueFromIntOrPercent(r.MaxUnavailable, int(*d.Spec.Replicas), false)
	if n == 0 && surge(d) == 0 {
		n = 1 // nothing could ever move otherwise
	}
	return min(n, int(*d.Spec.Replicas))
}

// historyJudged judges the sets that a Deployment deletes: old ones without pods, the oldest
// first, and only those beyond its limit.
func historyJudged(l *cluster.Look, d *appsv1.Deployment, sets []*appsv1.ReplicaSet, f cluster.Findings) {
	gone := l.Deletes(kinds.ReplicaSets.Name)
	if len(gone) == 0 {
		return
	}
	for _, s := range sets {
		if gone[s.UID] && (*s.Spec.Replicas > 0 || s.Status.Replicas > 0) {
			f.Breaks("I4", "deletes %s, which has pods", s.Name)
		}
	}
	old := slices.DeleteFunc(slices.Clone(sets), func(s *appsv1.ReplicaSet) bool { return s.DeletionTimestamp != nil })
	if at := slices.IndexFunc(old, func(s *appsv1.ReplicaSet) bool {
		return cluster.ImageOf(s.Spec.Template) == cluster.ImageOf(d.Spec.Template)
	}); at >= 0 {
		if gone[old[at].UID] {
			f.Breaks("I4", "deletes %s, which is of the template of now", old[at].Name)
		}
		old = slices.Delete(old, at, at+1)
	}
	outOfOrder(old, gone, int(*d.Spec.RevisionHistoryLimit), func(a, b *appsv1.ReplicaSet) bool {
		return apiserver.Number(a.Annotations[revisionNote]) < apiserver.Number(b.Annotations[revisionNote]) && *a.Spec.Replicas == 0 && a.Status.Replicas == 0
	}, f)
}

// well reports whether the other pods of a StatefulSet need not wait for this one.
func well(p *corev1.Pod) bool { return p != nil && cluster.Active(p) && cluster.Ready(p) }

// StatefulSetJudged judges the creations and deletions of a StatefulSet, and their order.
func StatefulSetJudged(l *cluster.Look, f cluster.Findings) {
	set, ok := l.Own.(*appsv1.StatefulSet)
	if !ok {
		return
	}
	members := map[int]*corev1.Pod{}
	for _, obj := range l.Owned(kinds.Pods.Name) {
		if n, ok := ordinalOf(set.Name, obj.GetName()); ok {
			members[n] = obj.(*corev1.Pod)
		}
	}
	ordered := set.Spec.PodManagementPolicy == appsv1.OrderedReadyPodManagement
	for _, c := range l.Creates(kinds.Pods.Name) {
		n, _ := ordinalOf(set.Name, c.Name)
		if n >= int(*set.Spec.Replicas) || members[n] != nil {
			f.Breaks("I2", "creates %s of %d", c.Name, *set.Spec.Replicas)
		}
		for i := range n {
			if ordered && !well(members[i]) {
				f.Breaks("I3", "creates %s, and %d before it is not ready", c.Name, i)
			}
		}
	}
	gone := l.Deletes(kinds.Pods.Name)
	rolled := 0
	for n, p := range members {
		if gone[p.UID] && n < int(*set.Spec.Replicas) && cluster.Active(p) {
			rolled++
		}
	}
	if rolled > 1 {
		f.Breaks("I5", "deletes %d pods at once", rolled)
	}
	for _, n := range slices.Sorted(maps.Keys(members)) {
		switch p := members[n]; {
		case !gone[p.UID]:
			continue
		case n >= int(*set.Spec.Replicas):
			surplusJudged(set, members, n, f)
		case cluster.Active(p):
			rollJudged(set, members, n, f)
		}
		delete(gone, members[n].UID)
	}
	if len(gone) > 0 {
		f.Breaks("I4", "deletes %d pods that are not its own", len(gone))
	}
}

// surplusJudged judges the deletion of a surplus pod: if the set is ordered, the last one goes
// first, once all wanted pods are well.
//
// Upstream: processCondemned.
func surplusJudged(set *appsv1.StatefulSet, members map[int]*corev1.Pod, n int, f cluster.Findings) {
	if set.Spec.PodManagementPolicy != appsv1.OrderedReadyPodManagement {
		return
	}
	if last := slices.Max(slices.Collect(maps.Keys(members))); last > n {
		f.Breaks("I3", "deletes %d as one too many, and %d is still there", n, last)
	}
	for i := range int(*set.Spec.Replicas) {
		if !well(members[i]) {
			f.Breaks("I3", "deletes %d as one too many, and %d is not well", n, i)
		}
	}
}

// rollJudged judges the deletion of a wanted pod: it has another template, is at or above the
// partition, and all pods above it are well and have the new template; if the set is ordered,
// all pods are well.
//
// Upstream: updateStatefulSetAfterInvariantEstablished. A set without order does not wait for
// pods below the one that it replaces.
func rollJudged(set *appsv1.StatefulSet, members map[int]*corev1.Pod, n int, f cluster.Findings) {
	r := set.Spec.UpdateStrategy.RollingUpdate
	if r == nil || n < int(*r.Partition) || set.DeletionTimestamp != nil {
		f.Breaks("I4", "deletes %d, which is not to be replaced", n)
		return
	}
	if members[n].Spec.Containers[0].Image == cluster.ImageOf(set.Spec.Template) {
		f.Breaks("I4", "deletes %d, which is of the template of now", n)
	}
	from := n + 1
	if set.Spec.PodManagementPolicy == appsv1.OrderedReadyPodManagement {
		from = 0
	}
	for i := from; i < int(*set.Spec.Replicas); i++ {
		switch {
		case i != n && !well(members[i]):
			f.Breaks("I5", "deletes %d, and %d is not well", n, i)
		case i > n && members[i].Spec.Containers[0].Image != cluster.ImageOf(set.Spec.Template):
			f.Breaks("I3", "deletes %d, and %d is of another template too", n, i)
		}
	}
}

// station is a node with the live pods of a DaemonSet on it.
type station struct {
	known  bool
	closed corev1.TaintEffect
	pods   []*corev1.Pod
}

// DaemonSetJudged judges a DaemonSet: it deletes a pod where none should be, or where the node
// keeps another one. A pod that it replaces has another template, and at most so many nodes
// lack an available pod as may.
func DaemonSetJudged(l *cluster.Look, f cluster.Findings) {
	set, ok := l.Own.(*appsv1.DaemonSet)
	gone := l.Deletes(kinds.Pods.Name)
	if !ok || len(gone) == 0 {
		return
	}
	stations := map[string]*station{}
	for _, obj := range l.List(kinds.Nodes.Name) {
		stations[obj.GetName()] = &station{known: true, closed: closed(obj.(*corev1.Node))}
	}
	desired := 0
	for _, s := range stations {
		if s.closed == "" {
			desired++
		}
	}
	for _, obj := range l.Owned(kinds.Pods.Name) {
		p := obj.(*corev1.Pod)
		at := nodes.BoundNode(p)
		if stations[at] == nil {
			stations[at] = &station{}
		}
		if cluster.Active(p) {
			stations[at].pods = append(stations[at].pods, p)
		}
	}
	taken := false // an available pod of a node that should have one, and keeps none
	missing, available := 0, 0
	for _, name := range slices.Sorted(maps.Keys(stations)) {
		s := stations[name]
		for _, p := range s.pods {
			taken = gone[p.UID] && s.endJudged(set, p, gone, f) || taken
		}
		serves := slices.ContainsFunc(s.pods, func(p *corev1.Pod) bool { return !gone[p.UID] && cluster.Ready(p) })
		switch {
		case serves:
			available++
		case s.known && (s.closed == "" || len(s.pods) > 0) && s.closed != corev1.TaintEffectNoExecute:
			missing++
		}
	}
	surge, unavailable := limitsOf(set, desired)
	switch {
	case taken && surge == 0 && missing > unavailable:
		f.Breaks("I5", "leaves %d nodes without an available pod, and %d may be", missing, unavailable)
	case taken && surge > 0 && available < desired:
		f.Breaks("I5", "leaves %d available pods, and %d must be left", available, desired)
	}
}

// endJudged judges the deletion of a live pod, and reports whether it takes an available one from
// its node only because of the template. A pod whose node is gone is left alone, unless it has
// another template: upstream replaces those by the names of their nodes.
func (s *station) endJudged(set *appsv1.DaemonSet, p *corev1.Pod, gone map[types.UID]bool, f cluster.Findings) (taken bool) {
	rest := slices.IndexFunc(s.pods, func(q *corev1.Pod) bool { return !gone[q.UID] })
	switch {
	case !s.known && p.Spec.NodeName == "", s.closed == corev1.TaintEffectNoExecute:
	case rest >= 0:
		surge, _ := limitsOf(set, 1)
		switch q := s.pods[rest]; {
		case surge == 0 || !cluster.Ready(p) || cluster.Ready(q) || cluster.ImageOfPod(p) == cluster.ImageOfPod(q):
		case cluster.ImageOfPod(q) != cluster.ImageOf(set.Spec.Template) && p.CreationTimestamp.Equal(&q.CreationTimestamp):
			f.Spares(cluster.FirstByName)
		default:
			f.Breaks("I5", "deletes %s, and %s, which takes its place, is not available", p.Name, q.Name)
		}
	case cluster.ImageOfPod(p) == cluster.ImageOf(set.Spec.Template):
		f.Breaks("I4", "deletes %s, which is of the template of now", p.Name)
	default:
		return cluster.Ready(p)
	}
	return false
}

// limitsOf is how many nodes may have two pods of a DaemonSet, and how many none.
func limitsOf(set *appsv1.DaemonSet, desired int) (surge, unavailable int) {
	r := set.Spec.UpdateStrategy.RollingUpdate
	surge, _ = intstr.GetScaledValueFromIntOrPercent(r.MaxSurge, desired, true)
	unavailable, _ = intstr.GetScaledValueFromIntOrPercent(r.MaxUnavailable, desired, true)
	return surge, unavailable
}
