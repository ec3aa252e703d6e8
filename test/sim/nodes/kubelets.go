package nodes

import (
	"fmt"
	"slices"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/test/sim/cluster"
)

// Kubelets is what happens to nodes that report their state, and to their pods, which tolerate
// an unhealthy node for [patient]. In between time passes, while every process works, or only
// the kubelets do.
var Kubelets = []cluster.Operation{
	newKubelet, newKubelet, newKubelet, stopKubelet, stopKubelet, startKubelet, complain, placePod, placePod, placePod, cluster.Wait, cluster.Wait, freeze, cordon,
}

const (
	// RenewEvery is how often kubelets renew their leases.
	RenewEvery = 10 * time.Second
	// grace is for how long a kubelet may be silent, patient for how long pods stay.
	grace   = 50 * time.Second
	patient = 60 * time.Second
	// evictEvery is the time between the pods of two nodes of a zone.
	evictEvery = 10 * time.Second
	// ours is the API server's own lease.
	ours = "kube-apiserver"
)

func kubelet(w *cluster.Cluster, name string) *cluster.Kubelet {
	if w.Nodes.Kubelets == nil {
		w.Nodes.Kubelets = map[string]*cluster.Kubelet{}
	}
	return w.Nodes.Kubelets[name]
}

func someKubelet(w *cluster.Cluster) (name string, k *cluster.Kubelet) {
	name = fmt.Sprint("worker-", w.Roll(5))
	return name, kubelet(w, name)
}

func newKubelet(w *cluster.Cluster) {
	name, k := someKubelet(w)
	if k != nil {
		return
	}
	zone := fmt.Sprint("zone-", w.Roll(2))
	w.Nodes.Kubelets[name] = &cluster.Kubelet{Zone: zone}
	w.Note("user: a node %s in %s", name, zone)
	w.Create(cluster.NodeRef(name), &corev1.Node{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "Node"},
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{corev1.LabelTopologyZone: zone, corev1.LabelOSStable: "linux"}},
		Spec:       corev1.NodeSpec{Taints: []corev1.Taint{{Key: corev1.TaintNodeNotReady, Effect: corev1.TaintEffectNoSchedule}}},
	})
	Liveness(w)
}

func stopKubelet(w *cluster.Cluster) {
	if name, k := someKubelet(w); k != nil && !k.Stopped {
		w.Note("kubelet of %s stops", name)
		k.Stopped, w.Dirty = true, true
	}
}

func startKubelet(w *cluster.Cluster) {
	if name, k := someKubelet(w); k != nil {
		w.Note("kubelet of %s is there and well", name)
		k.Stopped, k.Unready, w.Dirty = false, false, true
	}
}

func complain(w *cluster.Cluster) {
	if name, k := someKubelet(w); k != nil {
		w.Note("kubelet of %s has something to complain about", name)
		k.Unready = true
	}
}

func cordon(w *cluster.Cluster) {
	if name, k := someKubelet(w); k != nil {
		w.Note("user: cordon or uncordon %s", name)
		w.API.Change(cluster.NodeRef(name), func(obj metav1.Object) {
			n := obj.(*corev1.Node)
			n.Spec.Unschedulable = !n.Spec.Unschedulable
		})
	}
}

// placePod creates a pod on a node, whose bad state it tolerates for a while.
func placePod(w *cluster.Cluster) {
	name, k := someKubelet(w)
	if k == nil {
		return
	}
	ref := events.Ref{Kind: kinds.Pods.Name, Namespace: cluster.Namespace, Name: fmt.Sprint("guest", w.Roll(6))}
	w.Note("user: %v on %s", ref, name)
	by := func(key string) corev1.Toleration {
		return corev1.Toleration{Key: key, Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoExecute, TolerationSeconds: new(int64(patient / time.Second))}
	}
	w.Create(ref, &corev1.Pod{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"}, ObjectMeta: metav1.ObjectMeta{Namespace: cluster.Namespace, Name: ref.Name},
		Spec: corev1.PodSpec{NodeName: name, Tolerations: []corev1.Toleration{by(corev1.TaintNodeNotReady), by(corev1.TaintNodeUnreachable)}},
	})
}

// freeze lets time pass in which only kubelets act.
func freeze(w *cluster.Cluster) {
	w.Note("everybody but the kubelets stands still")
	for range 1 + w.Roll(18) {
		w.Advance(w.Now.Add(RenewEvery))
		Liveness(w)
	}
	w.Rest.Stirred = w.Now // the other processes only now begin to see the changes
}

// Liveness has the kubelets report their state, and the API server renew its lease.
func Liveness(w *cluster.Cluster) {
	if len(w.Nodes.Kubelets) == 0 || w.API.Of(kinds.Leases.Name) == nil {
		return
	}
	if w.Now.Sub(w.Nodes.Renewed) >= RenewEvery {
		w.Nodes.Renewed = w.Now
		renew(w, "kube-system", ours)
	}
	for _, name := range sortedNames(w.Nodes.Kubelets) {
		k := w.Nodes.Kubelets[name]
		if k.Stopped || w.Now.Sub(k.Renewed) < RenewEvery {
			continue
		}
		k.Before, k.Renewed = k.Renewed, w.Now
		renew(w, corev1.NamespaceNodeLease, name)
		status := corev1.ConditionTrue
		if k.Unready {
			status = corev1.ConditionFalse
		}
		n := w.API.Get(cluster.NodeRef(name)).(*corev1.Node)
		if c := Readiness(n); c == nil || c.Status != status {
			w.API.Change(cluster.NodeRef(name), func(obj metav1.Object) { Speak(w, obj.(*corev1.Node), status) })
		}
	}
}

// Remember removes kubelets whose nodes do not exist after a restore, and takes from the other
// nodes for how long they have been evicting pods.
func Remember(w *cluster.Cluster) {
	for _, name := range sortedNames(w.Nodes.Kubelets) {
		k := w.Nodes.Kubelets[name]
		n, there := w.API.Get(cluster.NodeRef(name)).(*corev1.Node)
		if !there {
			delete(w.Nodes.Kubelets, name)
			continue
		}
		k.Driving = time.Time{}
		for _, t := range n.Spec.Taints {
			if t.Effect == corev1.TaintEffectNoExecute && t.TimeAdded != nil {
				k.Driving = t.TimeAdded.Time
			}
		}
	}
}

func renew(w *cluster.Cluster, space, name string) {
	ref := events.Ref{Kind: kinds.Leases.Name, Namespace: space, Name: name}
	w.Nodes.Renewals++
	at := metav1.NewMicroTime(w.Now)
	if w.API.Get(ref) == nil {
		w.Create(ref, &coordinationv1.Lease{
			TypeMeta:   metav1.TypeMeta{APIVersion: "coordination.k8s.io/v1", Kind: "Lease"},
			ObjectMeta: metav1.ObjectMeta{Namespace: space, Name: name}, Spec: coordinationv1.LeaseSpec{RenewTime: &at},
		})
		return
	}
	w.API.Change(ref, func(obj metav1.Object) { obj.(*coordinationv1.Lease).Spec.RenewTime = &at })
}

// Readiness is the condition Ready of a node; nil if it has none.
func Readiness(n *corev1.Node) *corev1.NodeCondition {
	for i := range n.Status.Conditions {
		if c := &n.Status.Conditions[i]; c.Type == corev1.NodeReady {
			return c
		}
	}
	return nil
}

// Speak sets the condition Ready of a node, as its kubelet does.
func Speak(w *cluster.Cluster, n *corev1.Node, status corev1.ConditionStatus) {
	at := metav1.NewTime(w.Now.Truncate(time.Second))
	said := corev1.NodeCondition{Type: corev1.NodeReady, Status: status, LastHeartbeatTime: at, LastTransitionTime: at}
	n.Status.Conditions = []corev1.NodeCondition{said}
}

func sortedNames(all map[string]*cluster.Kubelet) []string {
	names := make([]string, 0, len(all))
	for name := range all {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

// Node checks the reported state of nodes and its consequences (F24): no node that was heard
// counts as silent, and the pods of a zone's nodes are evicted one node after the other.
func Node(g *cluster.Guard, old, now metav1.Object) {
	before, _ := old.(*corev1.Node)
	n, there := now.(*corev1.Node)
	if !there || kubelet(g.World, n.Name) == nil || g.Record.Restoring {
		return
	}
	w, k := g.World, g.World.Nodes.Kubelets[n.Name]
	if c := Readiness(n); c != nil && c.Status == corev1.ConditionUnknown && (before == nil || Readiness(before) == nil || Readiness(before).Status != c.Status) {
		heard := k.Renewed
		if heard.Equal(w.Now) { // the heartbeat is on its way to the replica that decided this
			heard = k.Before
			g.Spare(cluster.HeardNow)
		}
		if silent := w.Now.Sub(heard); silent > grace {
		} else if g.Turns.Doing != nil && wasSilent(g, g.Turns.Doing.Turn, n.Name) {
			g.Spare(cluster.SilentThen)
		} else {
			g.Breaks("F24", "%s is said to be silent, and was heard %v ago", n.Name, silent)
		}
	}
	drives := slices.ContainsFunc(n.Spec.Taints, func(t corev1.Taint) bool { return t.Effect == corev1.TaintEffectNoExecute })
	switch {
	case drives && k.Driving.IsZero():
		k.Driving = w.Now
		if last := w.Nodes.Drove[k.Zone]; last.IsZero() || w.Now.Sub(last) >= evictEvery {
		} else if g.Turns.Doing != nil && g.Passed(g.Turns.Doing.Turn, evictEvery) {
			g.Spare(cluster.ClockAhead)
		} else {
			g.Breaks("F24", "%s is to lose its pods %v after another node of %s", n.Name, w.Now.Sub(last), k.Zone)
		}
		if w.Nodes.Drove == nil {
			w.Nodes.Drove = map[string]time.Time{}
		}
		w.Nodes.Drove[k.Zone] = w.Now
	case !drives && !k.Driving.IsZero():
		if w.Now.Sub(k.Driving) >= patient {
			k.Driven = w.Now
		}
		k.Driving = time.Time{}
	}
}

// wasSilent reports whether a node had been silent for too long by the leases in a turn's view, whose
// newest record is older than the interval of renewals.
func wasSilent(g *cluster.Guard, t events.Turn, name string) bool {
	log := g.World.Bus.Kinds[kinds.Leases.Name].Log
	seen := min(int(t.Seen[kinds.Leases.Name]), len(log))
	lease, ok := g.ObjectOf(t, kinds.Leases.Kind, events.Ref{Kind: kinds.Leases.Name, Namespace: corev1.NamespaceNodeLease, Name: name}).(*coordinationv1.Lease)
	if !ok || seen == 0 {
		return false
	}
	newest := log[seen-1].Delta.At
	return g.World.Now.Sub(newest) > RenewEvery && newest.Sub(lease.Spec.RenewTime.Time) > grace
}

// Guest checks pods that tolerate their node's state for a while: until then no controller
// deletes them.
func Guest(g *cluster.Guard, old, now metav1.Object) {
	before, _ := old.(*corev1.Pod)
	if before == nil || before.DeletionTimestamp != nil || now != nil && now.GetDeletionTimestamp() == nil || g.Record.Restoring {
		return
	}
	k := kubelet(g.World, before.Spec.NodeName)
	if k == nil || !k.Driven.IsZero() || !k.Driving.IsZero() && g.World.Now.Sub(k.Driving) >= patient {
		return
	}
	if g.Turns.Doing != nil && g.Passed(g.Turns.Doing.Turn, patient) {
		g.Spare(cluster.ClockAhead)
		return
	}
	g.Breaks("F24", "%s is deleted, and its node %s has driven pods away since %v", before.Name, before.Spec.NodeName, k.Driving)
}

// SettledNodes reports whether the reported state of nodes is right, and the evicted pods are
// gone.
func SettledNodes(w *cluster.Cluster) error {
	for _, name := range sortedNames(w.Nodes.Kubelets) {
		k, n := w.Nodes.Kubelets[name], w.API.Get(cluster.NodeRef(name)).(*corev1.Node)
		c, want := Readiness(n), corev1.ConditionTrue
		switch {
		case k.Stopped:
			want = corev1.ConditionUnknown
		case k.Unready:
			want = corev1.ConditionFalse
		}
		if c == nil || c.Status != want {
			return fmt.Errorf("%s is %v, and should be %v", name, c, want)
		}
		key := map[corev1.ConditionStatus]string{corev1.ConditionFalse: corev1.TaintNodeNotReady, corev1.ConditionUnknown: corev1.TaintNodeUnreachable}[want]
		for _, t := range n.Spec.Taints {
			if t.Key != key && (t.Key == corev1.TaintNodeNotReady || t.Key == corev1.TaintNodeUnreachable) {
				return fmt.Errorf("%s is %v, and has the taint %s:%s", name, want, t.Key, t.Effect)
			}
		}
		warns := slices.ContainsFunc(n.Spec.Taints, func(t corev1.Taint) bool { return t.Key == key && t.Effect == corev1.TaintEffectNoSchedule })
		if key != "" && !warns {
			return fmt.Errorf("%s is %v, and has no taint that says so", name, want)
		}
		for _, obj := range w.API.List(kinds.Pods.Name) {
			pod := obj.(*corev1.Pod)
			if pod.Spec.NodeName == name && pod.DeletionTimestamp == nil && !k.Driving.IsZero() && w.Now.Sub(k.Driving) > patient {
				return fmt.Errorf("%s is left on %s, which has driven pods away since %v", pod.Name, name, k.Driving)
			}
		}
	}
	return nil
}
