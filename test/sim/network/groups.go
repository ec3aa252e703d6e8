package network

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
	"github.com/millrace/millrace/test/sim/apiserver"
	"github.com/millrace/millrace/test/sim/cluster"
)

// Groups is what users do with groups of pods, and administrators with the ranges from which
// Services get their addresses.
var Groups = []cluster.Operation{
	newGroup, newGroup, dropGroup, dropGroup, groupPod, groupPod, groupPod, cluster.DeletePod, cluster.FailPod,
	newServiceRange, newServiceRange, newServiceRange, dropServiceRange, dropServiceRange, takeAddress, takeAddress, takeAddress, returnAddress, returnAddress, cluster.Wait,
}

// groupGuard is the finalizer that the API server's admission adds to new groups.
const groupGuard = "scheduling.k8s.io/podgroup-protection"

func groupRef(name string) events.Ref {
	return events.Ref{Kind: kinds.PodGroups.Name, Namespace: cluster.Namespace, Name: name}
}

func newGroup(w *cluster.Cluster) {
	w.SomeOf(kinds.PodGroups.Kind, "group", func(name string) any {
		return &schedulingv1alpha2.PodGroup{
			TypeMeta:   metav1.TypeMeta{APIVersion: "scheduling.k8s.io/v1alpha2", Kind: "PodGroup"},
			ObjectMeta: metav1.ObjectMeta{Namespace: cluster.Namespace, Name: name, Finalizers: []string{groupGuard}},
		}
	})
}

func dropGroup(w *cluster.Cluster) {
	if ref := groupRef(fmt.Sprint("group", w.Roll(2))); w.API.Get(ref) != nil {
		w.Delete(ref, metav1.DeletePropagationBackground)
	}
}

func groupPod(w *cluster.Cluster) {
	ref := events.Ref{Kind: kinds.Pods.Name, Namespace: cluster.Namespace, Name: fmt.Sprint("member", w.Roll(3))}
	if w.API.Get(ref) != nil {
		return
	}
	group := fmt.Sprint("group", w.Roll(2))
	w.Note("user: create %v in %s", ref, group)
	w.Create(ref, &corev1.Pod{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"}, ObjectMeta: metav1.ObjectMeta{Namespace: cluster.Namespace, Name: ref.Name},
		Spec: corev1.PodSpec{SchedulingGroup: &corev1.PodSchedulingGroup{PodGroupName: &group}},
	})
}

func serviceRangeRef(name string) events.Ref {
	return events.Ref{Kind: kinds.ServiceCIDRs.Name, Name: name}
}

// serviceRanges are ranges by name; some contain others.
var serviceRanges = []string{"10.96.0.0/28", "10.96.0.0/24", "10.96.0.0/28", "10.97.0.0/28"}

func newServiceRange(w *cluster.Cluster) {
	i := w.Roll(len(serviceRanges))
	ref := serviceRangeRef(fmt.Sprint("range-", i))
	if w.API.Get(ref) == nil {
		w.Note("administrator: %s is %s", ref.Name, serviceRanges[i])
		w.Create(ref, &networkingv1.ServiceCIDR{
			TypeMeta: metav1.TypeMeta{APIVersion: "networking.k8s.io/v1", Kind: "ServiceCIDR"}, ObjectMeta: metav1.ObjectMeta{Name: ref.Name},
			Spec: networkingv1.ServiceCIDRSpec{CIDRs: []string{serviceRanges[i]}},
		})
	}
}

func dropServiceRange(w *cluster.Cluster) {
	if ref := serviceRangeRef(fmt.Sprint("range-", w.Roll(len(serviceRanges)))); w.API.Get(ref) != nil {
		w.Delete(ref, metav1.DeletePropagationBackground)
	}
}

// late is for how long allocators may not know that a range is deleted.
const late = 8 * time.Second

// takeAddress has an allocator allocate an address of a range that, as far as it knows, is
// ready.
func takeAddress(w *cluster.Cluster) {
	text := []string{"10.96.0.5", "10.96.0.6", "10.96.0.77", "10.97.0.5"}[w.Roll(4)]
	ref := events.Ref{Kind: kinds.IPAddresses.Name, Name: text}
	if w.API.Get(ref) != nil || !slices.ContainsFunc(rangesOfServices(w), func(r *networkingv1.ServiceCIDR) bool {
		ready := slices.ContainsFunc(r.Status.Conditions, func(c metav1.Condition) bool { return c.Status == metav1.ConditionTrue })
		known := r.DeletionTimestamp == nil || w.Now.Sub(r.DeletionTimestamp.Time) < late
		return query.InRange(r, netip.MustParseAddr(text)) && known && ready && cluster.Has(r, query.RangeFinalizer)
	}) {
		return
	}
	w.Note("allocator: %s", text)
	w.Create(ref, &networkingv1.IPAddress{
		TypeMeta:   metav1.TypeMeta{APIVersion: "networking.k8s.io/v1", Kind: "IPAddress"},
		ObjectMeta: metav1.ObjectMeta{Name: text, Labels: map[string]string{networkingv1.LabelManagedBy: query.AddressManager}},
	})
}

func returnAddress(w *cluster.Cluster) {
	if all := w.API.List(kinds.IPAddresses.Name); len(all) > 0 {
		w.Delete(apiserver.RefOf(kinds.IPAddresses.Name, all[w.Roll(len(all))]), metav1.DeletePropagationBackground)
	}
}

func rangesOfServices(w *cluster.Cluster) (all []*networkingv1.ServiceCIDR) {
	for _, obj := range w.API.List(kinds.ServiceCIDRs.Name) {
		all = append(all, obj.(*networkingv1.ServiceCIDR))
	}
	return all
}

// Looks records when a writer checks for obstacles to a turn: users of its object, the ranges
// of other nodes, or the node that a pod was on.
func Looks(g *cluster.Guard, c *cluster.Taken, r plan.Request) {
	search := r.Verb == plan.Search && (r.Subresource == query.SubUsers || r.Subresource == query.SubRanges)
	if search || r.Verb == plan.Look && r.Owner != nil && r.Owner.Kind == kinds.Nodes.Kind.Kind {
		g.Turns.Looked[c.At()] = g.World.API.Version
	}
}

// LetsGo checks a group or a range that has lost its finalizer: it has no pod, and no address
// (I12). No writer can know of a pod that is created between its check and its request.
func LetsGo(g *cluster.Guard, old, now metav1.Object) {
	if old == nil || g.Turns.Doing == nil || g.Record.Restoring {
		return
	}
	switch o := old.(type) {
	case *schedulingv1alpha2.PodGroup:
		if !cluster.Has(o, groupGuard) || cluster.Has(now, groupGuard) {
			return
		}
		for _, obj := range g.World.API.List(kinds.Pods.Name) {
			switch pod := obj.(*corev1.Pod); {
			case !query.InPodGroup(pod, o.Name):
			case g.SinceLook(g.Turns.Doing, pod):
				g.Spare(cluster.UsedMeanwhile)
			default:
				g.Breaks("I12", "group %s is let go, and %s is in it", o.Name, pod.Name)
			}
		}
	case *networkingv1.ServiceCIDR:
		if cluster.Has(o, query.RangeFinalizer) && !cluster.Has(now, query.RangeFinalizer) {
			rangeGoes(g, o)
		}
	}
}

// rangeGoes checks a deleted range: each of its addresses is in another range, which is held
// and goes only after a check of its own.
func rangeGoes(g *cluster.Guard, o *networkingv1.ServiceCIDR) {
	for _, address := range g.World.API.List(kinds.IPAddresses.Name) {
		a, _ := query.Allocated(address)
		kept := slices.ContainsFunc(rangesOfServices(g.World), func(r *networkingv1.ServiceCIDR) bool {
			return r.Name != o.Name && cluster.Has(r, query.RangeFinalizer) && query.InRange(r, a)
		})
		switch {
		case kept || !query.InRange(o, a):
		case g.Passed(g.Turns.Doing.Turn, time.Hour) && g.SinceLook(g.Turns.Doing, address):
			g.Spare(cluster.ClockAhead)
		default:
			g.Breaks("I12", "range %s goes, and the address %s is in no other", o.Name, address.GetName())
		}
	}
}

// Grouped reports whether groups and ranges have their finalizer while they are needed, and no
// longer.
func Grouped(w *cluster.Cluster) error {
	if !w.Runs("podgroup-protection-controller") {
		return nil
	}
	for _, obj := range w.API.List(kinds.PodGroups.Name) {
		if found := w.API.UsersOf(obj); obj.GetDeletionTimestamp() != nil && found.Count == 0 {
			return fmt.Errorf("group %s is deleted, and held by %v", obj.GetName(), obj.GetFinalizers())
		}
	}
	for _, r := range rangesOfServices(w) {
		ready := slices.ContainsFunc(r.Status.Conditions, func(c metav1.Condition) bool { return c.Status == metav1.ConditionTrue })
		switch found := w.API.UsersOf(r); {
		case r.DeletionTimestamp != nil && found.Count == 0:
			return fmt.Errorf("range %s is deleted, and held by %v", r.Name, r.Finalizers)
		case r.DeletionTimestamp == nil && (!cluster.Has(r, query.RangeFinalizer) || !ready), r.DeletionTimestamp != nil && ready:
			return fmt.Errorf("range %s, deleted %v, has the finalizers %v and says %+v", r.Name, r.DeletionTimestamp, r.Finalizers, r.Status.Conditions)
		}
	}
	return nil
}
