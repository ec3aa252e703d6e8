package sim

import (
	"fmt"
	"slices"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/kinds"
)

// Kubelets is what happens to nodes that report their state, and to their pods, which tolerate
// an unhealthy node for [patient]. In between time passes, while every process works, or only
// the kubelets do.
var Kubelets = []Operation{
	newKubelet, newKubelet, newKubelet, stopKubelet, stopKubelet, startKubelet, complain, placePod, placePod, placePod, wait, wait, freeze, cordon,
}

const (
	renewEvery = 10 * time.Second
	// grace is for how long a kubelet may be silent, patient for how long pods stay.
	grace   = 50 * time.Second
	patient = 60 * time.Second
	// evictEvery is the time between the pods of two nodes of a zone.
	evictEvery = 10 * time.Second
	// ours is the API server's own lease.
	ours = "kube-apiserver"
)

// kubelet is the kubelet of one node.
type kubelet struct {
	zone             string
	stopped, unready bool
	renewed, before  time.Time // when it was last heard, and the time before that
	// driving is since when its pods are evicted (zero: they are not); driven until when they
	// were, the last time that this took as long as they tolerate it.
	driving, driven time.Time
}

func (w *World) kubelet(name string) *kubelet {
	if w.kubelets == nil {
		w.kubelets = map[string]*kubelet{}
	}
	return w.kubelets[name]
}

func (w *World) someKubelet() (name string, k *kubelet) {
	name = fmt.Sprint("worker-", w.roll(5))
	return name, w.kubelet(name)
}

func newKubelet(w *World) {
	name, k := w.someKubelet()
	if k != nil {
		return
	}
	zone := fmt.Sprint("zone-", w.roll(2))
	w.kubelets[name] = &kubelet{zone: zone}
	w.note("user: a node %s in %s", name, zone)
	w.create(nodeRef(name), &corev1.Node{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "Node"},
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{corev1.LabelTopologyZone: zone, corev1.LabelOSStable: "linux"}},
		Spec:       corev1.NodeSpec{Taints: []corev1.Taint{{Key: corev1.TaintNodeNotReady, Effect: corev1.TaintEffectNoSchedule}}},
	})
	w.liveness()
}

func stopKubelet(w *World) {
	if name, k := w.someKubelet(); k != nil && !k.stopped {
		w.note("kubelet of %s stops", name)
		k.stopped, w.dirty = true, true
	}
}

func startKubelet(w *World) {
	if name, k := w.someKubelet(); k != nil {
		w.note("kubelet of %s is there and well", name)
		k.stopped, k.unready, w.dirty = false, false, true
	}
}

func complain(w *World) {
	if name, k := w.someKubelet(); k != nil {
		w.note("kubelet of %s has something to complain about", name)
		k.unready = true
	}
}

func cordon(w *World) {
	if name, k := w.someKubelet(); k != nil {
		w.note("user: cordon or uncordon %s", name)
		w.api.Change(nodeRef(name), func(obj metav1.Object) {
			n := obj.(*corev1.Node)
			n.Spec.Unschedulable = !n.Spec.Unschedulable
		})
	}
}

// placePod creates a pod on a node, whose bad state it tolerates for a while.
func placePod(w *World) {
	name, k := w.someKubelet()
	if k == nil {
		return
	}
	ref := events.Ref{Kind: kinds.Pods.Name, Namespace: namespace, Name: fmt.Sprint("guest", w.roll(6))}
	w.note("user: %v on %s", ref, name)
	by := func(key string) corev1.Toleration {
		return corev1.Toleration{Key: key, Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoExecute, TolerationSeconds: new(int64(patient / time.Second))}
	}
	w.create(ref, &corev1.Pod{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"}, ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: ref.Name},
		Spec: corev1.PodSpec{NodeName: name, Tolerations: []corev1.Toleration{by(corev1.TaintNodeNotReady), by(corev1.TaintNodeUnreachable)}},
	})
}

// wait has users pause.
func wait(w *World) { w.lull = w.now.Add(time.Duration(1+w.roll(180)) * time.Second) }

// freeze lets time pass in which only kubelets act.
func freeze(w *World) {
	w.note("everybody but the kubelets stands still")
	for range 1 + w.roll(18) {
		w.advance(w.now.Add(renewEvery))
		w.liveness()
	}
	w.stirred = w.now // the other processes only now begin to see the changes
}

// liveness has the kubelets report their state, and the API server renew its lease.
func (w *World) liveness() {
	if len(w.kubelets) == 0 || w.api.of(kinds.Leases.Name) == nil {
		return
	}
	if w.now.Sub(w.renewed) >= renewEvery {
		w.renewed = w.now
		w.renew("kube-system", ours)
	}
	for _, name := range sortedNames(w.kubelets) {
		k := w.kubelets[name]
		if k.stopped || w.now.Sub(k.renewed) < renewEvery {
			continue
		}
		k.before, k.renewed = k.renewed, w.now
		w.renew(corev1.NamespaceNodeLease, name)
		status := corev1.ConditionTrue
		if k.unready {
			status = corev1.ConditionFalse
		}
		n := w.api.Get(nodeRef(name)).(*corev1.Node)
		if c := readiness(n); c == nil || c.Status != status {
			w.api.Change(nodeRef(name), func(obj metav1.Object) { w.speak(obj.(*corev1.Node), status) })
		}
	}
}

// remember removes kubelets whose nodes do not exist after a restore, and takes from the other
// nodes for how long they have been evicting pods.
func (w *World) remember() {
	for _, name := range sortedNames(w.kubelets) {
		k := w.kubelets[name]
		n, there := w.api.Get(nodeRef(name)).(*corev1.Node)
		if !there {
			delete(w.kubelets, name)
			continue
		}
		k.driving = time.Time{}
		for _, t := range n.Spec.Taints {
			if t.Effect == corev1.TaintEffectNoExecute && t.TimeAdded != nil {
				k.driving = t.TimeAdded.Time
			}
		}
	}
}

func (w *World) renew(space, name string) {
	ref := events.Ref{Kind: kinds.Leases.Name, Namespace: space, Name: name}
	w.renewals++
	at := metav1.NewMicroTime(w.now)
	if w.api.Get(ref) == nil {
		w.create(ref, &coordinationv1.Lease{
			TypeMeta:   metav1.TypeMeta{APIVersion: "coordination.k8s.io/v1", Kind: "Lease"},
			ObjectMeta: metav1.ObjectMeta{Namespace: space, Name: name}, Spec: coordinationv1.LeaseSpec{RenewTime: &at},
		})
		return
	}
	w.api.Change(ref, func(obj metav1.Object) { obj.(*coordinationv1.Lease).Spec.RenewTime = &at })
}

func readiness(n *corev1.Node) *corev1.NodeCondition {
	for i := range n.Status.Conditions {
		if c := &n.Status.Conditions[i]; c.Type == corev1.NodeReady {
			return c
		}
	}
	return nil
}

func (w *World) speak(n *corev1.Node, status corev1.ConditionStatus) {
	at := metav1.NewTime(w.now.Truncate(time.Second))
	said := corev1.NodeCondition{Type: corev1.NodeReady, Status: status, LastHeartbeatTime: at, LastTransitionTime: at}
	n.Status.Conditions = []corev1.NodeCondition{said}
}

func sortedNames(all map[string]*kubelet) []string {
	names := make([]string, 0, len(all))
	for name := range all {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

// node checks the reported state of nodes and its consequences (F24): no node that was heard
// counts as silent, and the pods of a zone's nodes are evicted one node after the other.
func (g *guard) node(old, now metav1.Object) {
	before, _ := old.(*corev1.Node)
	n, there := now.(*corev1.Node)
	if !there || g.world.kubelet(n.Name) == nil || g.restoring {
		return
	}
	w, k := g.world, g.world.kubelets[n.Name]
	if c := readiness(n); c != nil && c.Status == corev1.ConditionUnknown && (before == nil || readiness(before) == nil || readiness(before).Status != c.Status) {
		heard := k.renewed
		if heard.Equal(w.now) { // the heartbeat is on its way to the replica that decided this
			heard = k.before
			g.spare(heardNow)
		}
		if silent := w.now.Sub(heard); silent > grace {
		} else if g.doing != nil && g.wasSilent(g.doing.turn, n.Name) {
			g.spare(silentThen)
		} else {
			g.breaks("F24", "%s is said to be silent, and was heard %v ago", n.Name, silent)
		}
	}
	drives := slices.ContainsFunc(n.Spec.Taints, func(t corev1.Taint) bool { return t.Effect == corev1.TaintEffectNoExecute })
	switch {
	case drives && k.driving.IsZero():
		k.driving = w.now
		if last := w.drove[k.zone]; last.IsZero() || w.now.Sub(last) >= evictEvery {
		} else if g.doing != nil && g.passed(g.doing.turn, evictEvery) {
			g.spare(clockAhead)
		} else {
			g.breaks("F24", "%s is to lose its pods %v after another node of %s", n.Name, w.now.Sub(last), k.zone)
		}
		if w.drove == nil {
			w.drove = map[string]time.Time{}
		}
		w.drove[k.zone] = w.now
	case !drives && !k.driving.IsZero():
		if w.now.Sub(k.driving) >= patient {
			k.driven = w.now
		}
		k.driving = time.Time{}
	}
}

// wasSilent reports whether a node had been silent for too long by the leases in a turn's view, whose
// newest record is older than the interval of renewals.
func (g *guard) wasSilent(t events.Turn, name string) bool {
	log := g.world.bus.kinds[kinds.Leases.Name].log
	seen := min(int(t.Seen[kinds.Leases.Name]), len(log))
	lease, ok := g.objectOf(t, kinds.Leases.Kind, events.Ref{Kind: kinds.Leases.Name, Namespace: corev1.NamespaceNodeLease, Name: name}).(*coordinationv1.Lease)
	if !ok || seen == 0 {
		return false
	}
	newest := log[seen-1].delta.At
	return g.world.now.Sub(newest) > renewEvery && newest.Sub(lease.Spec.RenewTime.Time) > grace
}

// guest checks pods that tolerate their node's state for a while: until then no controller
// deletes them.
func (g *guard) guest(old, now metav1.Object) {
	before, _ := old.(*corev1.Pod)
	if before == nil || before.DeletionTimestamp != nil || now != nil && now.GetDeletionTimestamp() == nil || g.restoring {
		return
	}
	k := g.world.kubelet(before.Spec.NodeName)
	if k == nil || !k.driven.IsZero() || !k.driving.IsZero() && g.world.now.Sub(k.driving) >= patient {
		return
	}
	if g.doing != nil && g.passed(g.doing.turn, patient) {
		g.spare(clockAhead)
		return
	}
	g.breaks("F24", "%s is deleted, and its node %s has driven pods away since %v", before.Name, before.Spec.NodeName, k.driving)
}

// settledNodes reports whether the reported state of nodes is right, and the evicted pods are
// gone.
func (w *World) settledNodes() error {
	for _, name := range sortedNames(w.kubelets) {
		k, n := w.kubelets[name], w.api.Get(nodeRef(name)).(*corev1.Node)
		c, want := readiness(n), corev1.ConditionTrue
		switch {
		case k.stopped:
			want = corev1.ConditionUnknown
		case k.unready:
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
		for _, obj := range w.api.List(kinds.Pods.Name) {
			pod := obj.(*corev1.Pod)
			if pod.Spec.NodeName == name && pod.DeletionTimestamp == nil && !k.driving.IsZero() && w.now.Sub(k.driving) > patient {
				return fmt.Errorf("%s is left on %s, which has driven pods away since %v", pod.Name, name, k.driving)
			}
		}
	}
	return nil
}
