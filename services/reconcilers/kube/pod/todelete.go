package pod

import (
	"cmp"
	"math/bits"
	"slices"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
)

// Crowd counts pods by node.
type Crowd map[string]int

// Join counts a pod if it is active.
func (c Crowd) Join(p *corev1.Pod) {
	if Active(p) {
		c[p.Spec.NodeName]++
	}
}

// ToDelete picks count pods to delete when there are too many, first to go first.
// crowd counts related pods by node, so that nodes with many lose one before nodes
// with few; it may be nil. costs reports whether [DeletionCost] counts.
//
// Upstream: pkg/controller/controller_utils.go, ActivePodsWithRanks. As there, times
// count by powers of two, so that about equally old pods go in the order of their
// uids, which is as good as chance. That makes the comparison of three pods circular
// at times; sorting by name first keeps the outcome a matter of the pods alone.
func ToDelete(pods []*corev1.Pod, crowd Crowd, costs bool, count int, now time.Time) []*corev1.Pod {
	candidates := make([]candidate, len(pods))
	for i, p := range pods {
		candidates[i] = weigh(p, crowd, costs, now)
	}
	slices.SortFunc(candidates, byName)
	if count < len(candidates) { // when all must go, the order does not matter
		slices.SortStableFunc(candidates, byWorth)
	}
	toDelete := make([]*corev1.Pod, 0, count)
	for _, c := range candidates[:min(count, len(candidates))] {
		toDelete = append(toDelete, c.pod)
	}
	return toDelete
}

// candidate holds the properties by which pods are compared, read once.
type candidate struct {
	pod      *corev1.Pod
	assigned bool
	phase    int
	ready    bool
	cost     int32
	crowd    int
	since    age // ready since
	restarts int
	sidecars int // restarts of sidecars
	created  age
}

// age is a moment, and how long ago it was on a scale of powers of two.
type age struct {
	at   time.Time
	rank int
}

func weigh(p *corev1.Pod, crowd Crowd, costs bool, now time.Time) candidate {
	since, ready := ReadySince(p)
	restarts, sidecars := restarts(p)
	cost := int32(0)
	if costs {
		cost = DeletionCost(p)
	}
	return candidate{
		pod:      p,
		assigned: p.Spec.NodeName != "",
		phase:    phase(p),
		ready:    ready,
		cost:     cost,
		crowd:    crowd[p.Spec.NodeName],
		since:    ageOf(since, now),
		restarts: restarts, sidecars: sidecars,
		created: ageOf(p.CreationTimestamp.Time, now),
	}
}

func byName(a, b candidate) int {
	return cmp.Or(cmp.Compare(a.pod.Namespace, b.pod.Namespace), cmp.Compare(a.pod.Name, b.pod.Name))
}

// byWorth sorts the pod to delete first to the front.
func byWorth(a, b candidate) int {
	order := cmp.Or(
		falseFirst(a.assigned, b.assigned),
		cmp.Compare(a.phase, b.phase),
		falseFirst(a.ready, b.ready),
		cmp.Compare(a.cost, b.cost),
		cmp.Compare(b.crowd, a.crowd),
	)
	if order == 0 && a.ready && b.ready {
		order = youngFirst(a, b, a.since, b.since)
	}
	return cmp.Or(order,
		cmp.Compare(b.restarts, a.restarts),
		cmp.Compare(b.sidecars, a.sidecars),
		youngFirst(a, b, a.created, b.created),
	)
}

func falseFirst(a, b bool) int {
	switch {
	case a == b:
		return 0
	case b:
		return -1
	default:
		return 1
	}
}

// youngFirst compares moments; an unknown one counts as the youngest.
func youngFirst(a, b candidate, of, than age) int {
	switch {
	case of.at.Equal(than.at):
		return 0
	case of.at.IsZero():
		return -1
	case than.at.IsZero():
		return 1
	}
	return cmp.Or(cmp.Compare(of.rank, than.rank), cmp.Compare(a.pod.UID, b.pod.UID))
}

// ageOf computes the rank with integers, where upstream takes a floating-point
// logarithm. The two differ only within parts of 10^16 of a power of two, and
// integers give the same result on every machine.
func ageOf(at, now time.Time) age {
	rank := -1
	if passed := now.Sub(at); passed > 0 {
		rank = bits.Len64(uint64(passed)) - 1
	}
	return age{at: at, rank: rank}
}

// phase ranks pending, unknown, running. Upstream: a phase that is not known
// ranks as pending.
func phase(p *corev1.Pod) int {
	switch p.Status.Phase {
	case corev1.PodUnknown:
		return 1
	case corev1.PodRunning:
		return 2
	default:
		return 0
	}
}

// DeletionCost is the cost of deleting the pod according to its annotation; 0 if
// there is none, or none that is valid.
//
// Upstream: a plus sign and leading zeros are not sensible.
func DeletionCost(p *corev1.Pod) int32 {
	text := p.Annotations[corev1.PodDeletionCost]
	if text == "" || text[0] == '+' || (text[0] == '0' && text != "0") {
		return 0
	}
	cost, err := strconv.ParseInt(text, 10, 32)
	if err != nil {
		return 0
	}
	return int32(cost)
}

func restarts(p *corev1.Pod) (regular, sidecars int) {
	for i := range p.Status.ContainerStatuses {
		regular = max(regular, int(p.Status.ContainerStatuses[i].RestartCount))
	}
	for i := range p.Status.InitContainerStatuses {
		if s := &p.Status.InitContainerStatuses[i]; beside(p, s.Name) {
			sidecars = max(sidecars, int(s.RestartCount))
		}
	}
	return regular, sidecars
}

// beside reports whether an init container is a sidecar.
func beside(p *corev1.Pod, name string) bool {
	for i := range p.Spec.InitContainers {
		if c := &p.Spec.InitContainers[i]; c.Name == name && Sidecar(c) {
			return true
		}
	}
	return false
}
