package sim

import (
	"fmt"
	"net/netip"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	schedulingv1alpha2 "k8s.io/api/scheduling/v1alpha2"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/pkg/events/query"
	"github.com/millrace/millrace/services/writer/plan"
)

// Groups is what users do with groups of pods, and administrators with the ranges from which
// Services get their addresses.
var Groups = []Operation{
	newGroup, newGroup, dropGroup, dropGroup, groupPod, groupPod, groupPod, deletePod, failPod,
	newServiceRange, newServiceRange, newServiceRange, dropServiceRange, dropServiceRange, takeAddress, takeAddress, takeAddress, returnAddress, returnAddress, wait,
}

// groupGuard is the finalizer that the API server's admission adds to new groups.
const groupGuard = "scheduling.k8s.io/podgroup-protection"

func groupRef(name string) events.Ref {
	return events.Ref{Kind: kinds.PodGroups.Name, Namespace: namespace, Name: name}
}

func newGroup(w *World) {
	w.someOf(kinds.PodGroups.Kind, "group", func(name string) any {
		return &schedulingv1alpha2.PodGroup{
			TypeMeta:   metav1.TypeMeta{APIVersion: "scheduling.k8s.io/v1alpha2", Kind: "PodGroup"},
			ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, Finalizers: []string{groupGuard}},
		}
	})
}

func dropGroup(w *World) {
	if ref := groupRef(fmt.Sprint("group", w.roll(2))); w.api.Get(ref) != nil {
		w.Delete(ref, metav1.DeletePropagationBackground)
	}
}

func groupPod(w *World) {
	ref := events.Ref{Kind: kinds.Pods.Name, Namespace: namespace, Name: fmt.Sprint("member", w.roll(3))}
	if w.api.Get(ref) != nil {
		return
	}
	group := fmt.Sprint("group", w.roll(2))
	w.note("user: create %v in %s", ref, group)
	w.create(ref, &corev1.Pod{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"}, ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: ref.Name},
		Spec: corev1.PodSpec{SchedulingGroup: &corev1.PodSchedulingGroup{PodGroupName: &group}},
	})
}

func serviceRangeRef(name string) events.Ref {
	return events.Ref{Kind: kinds.ServiceCIDRs.Name, Name: name}
}

// serviceRanges are ranges by name; some contain others.
var serviceRanges = []string{"10.96.0.0/28", "10.96.0.0/24", "10.96.0.0/28", "10.97.0.0/28"}

func newServiceRange(w *World) {
	i := w.roll(len(serviceRanges))
	ref := serviceRangeRef(fmt.Sprint("range-", i))
	if w.api.Get(ref) == nil {
		w.note("administrator: %s is %s", ref.Name, serviceRanges[i])
		w.create(ref, &networkingv1.ServiceCIDR{
			TypeMeta: metav1.TypeMeta{APIVersion: "networking.k8s.io/v1", Kind: "ServiceCIDR"}, ObjectMeta: metav1.ObjectMeta{Name: ref.Name},
			Spec: networkingv1.ServiceCIDRSpec{CIDRs: []string{serviceRanges[i]}},
		})
	}
}

func dropServiceRange(w *World) {
	if ref := serviceRangeRef(fmt.Sprint("range-", w.roll(len(serviceRanges)))); w.api.Get(ref) != nil {
		w.Delete(ref, metav1.DeletePropagationBackground)
	}
}

// late is for how long allocators may not know that a range is deleted.
const late = 8 * time.Second

// takeAddress has an allocator allocate an address of a range that, as far as it knows, is
// ready.
func takeAddress(w *World) {
	text := []string{"10.96.0.5", "10.96.0.6", "10.96.0.77", "10.97.0.5"}[w.roll(4)]
	ref := events.Ref{Kind: kinds.IPAddresses.Name, Name: text}
	if w.api.Get(ref) != nil || !slices.ContainsFunc(w.serviceRanges(), func(r *networkingv1.ServiceCIDR) bool {
		ready := slices.ContainsFunc(r.Status.Conditions, func(c metav1.Condition) bool { return c.Status == metav1.ConditionTrue })
		known := r.DeletionTimestamp == nil || w.now.Sub(r.DeletionTimestamp.Time) < late
		return query.InRange(r, netip.MustParseAddr(text)) && known && ready && has(r, query.RangeFinalizer)
	}) {
		return
	}
	w.note("allocator: %s", text)
	w.create(ref, &networkingv1.IPAddress{
		TypeMeta:   metav1.TypeMeta{APIVersion: "networking.k8s.io/v1", Kind: "IPAddress"},
		ObjectMeta: metav1.ObjectMeta{Name: text, Labels: map[string]string{networkingv1.LabelManagedBy: query.AddressManager}},
	})
}

func returnAddress(w *World) {
	if all := w.api.List(kinds.IPAddresses.Name); len(all) > 0 {
		w.Delete(refOf(kinds.IPAddresses.Name, all[w.roll(len(all))]), metav1.DeletePropagationBackground)
	}
}

func (w *World) serviceRanges() (all []*networkingv1.ServiceCIDR) {
	for _, obj := range w.api.List(kinds.ServiceCIDRs.Name) {
		all = append(all, obj.(*networkingv1.ServiceCIDR))
	}
	return all
}

// usersOf are the objects that need a group or a range.
func (a *API) usersOf(about metav1.Object) (found query.Users) {
	switch o := about.(type) {
	case *schedulingv1alpha2.PodGroup:
		for _, obj := range a.List(kinds.Pods.Name) {
			if pod := obj.(*corev1.Pod); pod.Namespace == o.Namespace && query.InPodGroup(pod, o.Name) {
				found.Name(pod.Name)
			}
		}
	case *networkingv1.ServiceCIDR:
		var all []*networkingv1.ServiceCIDR
		for _, obj := range a.List(kinds.ServiceCIDRs.Name) {
			all = append(all, obj.(*networkingv1.ServiceCIDR))
		}
		ranges := query.RangesOf(o, all)
		for _, address := range a.List(kinds.IPAddresses.Name) {
			if ranges.Need(address) {
				found.Name(address.GetName())
			}
		}
	}
	return found
}

// looks records when a writer checks for obstacles to a turn: users of its object, the ranges
// of other nodes, or the node that a pod was on.
func (g *guard) looks(c *carrying, r plan.Request) {
	search := r.Verb == plan.Search && (r.Subresource == query.SubUsers || r.Subresource == query.SubRanges)
	if search || r.Verb == plan.Look && r.Owner != nil && r.Owner.Kind == kinds.Nodes.Kind.Kind {
		g.looked[c.at()] = g.world.api.version
	}
}

// letsGo checks a group or a range that has lost its finalizer: it has no pod, and no address
// (I12). No writer can know of a pod that is created between its check and its request.
func (g *guard) letsGo(old, now metav1.Object) {
	if old == nil || g.doing == nil || g.restoring {
		return
	}
	switch o := old.(type) {
	case *schedulingv1alpha2.PodGroup:
		if !has(o, groupGuard) || has(now, groupGuard) {
			return
		}
		for _, obj := range g.world.api.List(kinds.Pods.Name) {
			switch pod := obj.(*corev1.Pod); {
			case !query.InPodGroup(pod, o.Name):
			case g.sinceLook(g.doing, pod):
				g.spare(usedMeanwhile)
			default:
				g.breaks("I12", "group %s is let go, and %s is in it", o.Name, pod.Name)
			}
		}
	case *networkingv1.ServiceCIDR:
		if has(o, query.RangeFinalizer) && !has(now, query.RangeFinalizer) {
			g.rangeGoes(o)
		}
	}
}

// sinceLook reports whether an object was created after the writer of a turn checked for
// obstacles.
func (g *guard) sinceLook(c *carrying, obj metav1.Object) bool {
	looked, ever := g.looked[c.at()]
	return ever && g.madeAt[obj.GetUID()] > looked
}

// rangeGoes checks a deleted range: each of its addresses is in another range, which is held
// and goes only after a check of its own.
func (g *guard) rangeGoes(o *networkingv1.ServiceCIDR) {
	for _, address := range g.world.api.List(kinds.IPAddresses.Name) {
		a, _ := query.Allocated(address)
		kept := slices.ContainsFunc(g.world.serviceRanges(), func(r *networkingv1.ServiceCIDR) bool {
			return r.Name != o.Name && has(r, query.RangeFinalizer) && query.InRange(r, a)
		})
		switch {
		case kept || !query.InRange(o, a):
		case g.passed(g.doing.turn, time.Hour) && g.sinceLook(g.doing, address):
			g.spare(clockAhead)
		default:
			g.breaks("I12", "range %s goes, and the address %s is in no other", o.Name, address.GetName())
		}
	}
}

// grouped reports whether groups and ranges have their finalizer while they are needed, and no
// longer.
func (w *World) grouped() error {
	if !w.runs("podgroup-protection-controller") {
		return nil
	}
	for _, obj := range w.api.List(kinds.PodGroups.Name) {
		if found := w.api.usersOf(obj); obj.GetDeletionTimestamp() != nil && found.Count == 0 {
			return fmt.Errorf("group %s is deleted, and held by %v", obj.GetName(), obj.GetFinalizers())
		}
	}
	for _, r := range w.serviceRanges() {
		ready := slices.ContainsFunc(r.Status.Conditions, func(c metav1.Condition) bool { return c.Status == metav1.ConditionTrue })
		switch found := w.api.usersOf(r); {
		case r.DeletionTimestamp != nil && found.Count == 0:
			return fmt.Errorf("range %s is deleted, and held by %v", r.Name, r.Finalizers)
		case r.DeletionTimestamp == nil && (!has(r, query.RangeFinalizer) || !ready), r.DeletionTimestamp != nil && ready:
			return fmt.Errorf("range %s, deleted %v, has the finalizers %v and says %+v", r.Name, r.DeletionTimestamp, r.Finalizers, r.Status.Conditions)
		}
	}
	return nil
}
