package sim

import (
	"encoding/json"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/services/writer/plan"
)

// Cluster is what administrators do with nodes, volumes and roles.
var Cluster = []Operation{
	newNode, newNode, deleteNode, forgeNode, newVolume, newVolume, bindVolume, deleteVolume,
	outOfService, outOfService, newClaim, newClaim, useClaim, useClaim, deleteClaim, deleteClaim, deletePod, newRole, newRole, changeRole, deleteRole,
}

const (
	claimGuard  = "kubernetes.io/pvc-protection"
	volumeGuard = "kubernetes.io/pv-protection"
	addTo       = "example.com/add-to"
)

func nodeRef(name string) events.Ref { return events.Ref{Kind: kinds.Nodes.Name, Name: name} }

func (w *World) someNode() (events.Ref, bool) {
	return w.someOf(kinds.Nodes.Kind, "node-", func(name string) any {
		return &corev1.Node{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Node"}, ObjectMeta: metav1.ObjectMeta{Name: name}}
	})
}

func newNode(w *World) { w.someNode() }

func deleteNode(w *World) {
	if ref, there := w.someNode(); there {
		w.Delete(ref, metav1.DeletePropagationBackground)
		w.dirty = true
	}
}

// outOfService marks a node with a silent kubelet as out of service, or takes that back.
func outOfService(w *World) {
	if ref, there := w.someNode(); there {
		w.note("user: %v is out of service, or is back", ref)
		w.api.Change(ref, func(obj metav1.Object) {
			n := obj.(*corev1.Node)
			if !silenced(n) {
				n.Spec.Taints = []corev1.Taint{{Key: corev1.TaintNodeOutOfService, Effect: corev1.TaintEffectNoExecute}}
				return
			}
			n.Spec.Taints = nil
		})
	}
}

// silenced reports whether a node is marked as out of service.
func silenced(obj metav1.Object) bool {
	n, ok := obj.(*corev1.Node)
	return ok && slices.ContainsFunc(n.Spec.Taints, func(t corev1.Taint) bool { return t.Key == corev1.TaintNodeOutOfService })
}

// wellSaid reports whether a node reports that it is ready.
func wellSaid(n *corev1.Node) bool {
	c := readiness(n)
	return c != nil && c.Status == corev1.ConditionTrue
}

func forgeNode(w *World) {
	if ref, there := w.someNode(); there {
		w.note("foreign: %v loses its annotations", ref)
		w.api.Change(ref, func(obj metav1.Object) { obj.SetAnnotations(nil) })
	}
}

func (w *World) someVolume() (events.Ref, bool) {
	return w.someOf(kinds.PersistentVolumes.Kind, "pv", func(name string) any {
		return &corev1.PersistentVolume{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "PersistentVolume"}, ObjectMeta: metav1.ObjectMeta{Name: name}}
	})
}

func newVolume(w *World) { w.someVolume() }

func bindVolume(w *World) {
	if ref, there := w.someVolume(); there {
		w.note("binder: bind or release %v", ref)
		w.api.Change(ref, func(obj metav1.Object) {
			if pv := obj.(*corev1.PersistentVolume); pv.Status.Phase == corev1.VolumeBound {
				pv.Status.Phase = corev1.VolumeReleased
			} else {
				pv.Status.Phase = corev1.VolumeBound
			}
		})
	}
}

func deleteVolume(w *World) {
	if ref, there := w.someVolume(); there {
		w.Delete(ref, metav1.DeletePropagationBackground)
	}
}

func (w *World) someClaim() (events.Ref, bool) {
	return w.someOf(kinds.PersistentVolumeClaims.Kind, "claim", func(name string) any {
		return &corev1.PersistentVolumeClaim{
			TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "PersistentVolumeClaim"}, ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: namespace},
		}
	})
}

func newClaim(w *World) { w.someClaim() }

// useClaim creates a pod that uses a claim.
func useClaim(w *World) {
	claim, _ := w.someClaim()
	ref := events.Ref{Kind: kinds.Pods.Name, Namespace: namespace, Name: fmt.Sprint("user", w.roll(3))}
	w.note("user: create %v, which uses %v", ref, claim)
	source := corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: claim.Name}}
	w.create(ref, &corev1.Pod{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"}, ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: ref.Name},
		Spec: corev1.PodSpec{Volumes: []corev1.Volume{{Name: "data", VolumeSource: source}}},
	})
}

func (w *World) someRole() (events.Ref, bool) {
	return w.someOf(kinds.ClusterRoles.Kind, "part", w.part)
}

// part is a role that another role aggregates.
func (w *World) part(name string) any {
	return &rbacv1.ClusterRole{
		TypeMeta:   metav1.TypeMeta{APIVersion: "rbac.authorization.k8s.io/v1", Kind: "ClusterRole"},
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{addTo: fmt.Sprint("sum", w.roll(2))}},
		Rules:      []rbacv1.PolicyRule{{Verbs: []string{"get"}, APIGroups: []string{""}, Resources: []string{fmt.Sprint("r", w.roll(3))}}},
	}
}

// newRole creates a part, or a role that aggregates parts.
func newRole(w *World) {
	if w.roll(2) == 0 {
		w.someRole()
		return
	}
	w.someOf(kinds.ClusterRoles.Kind, "sum", func(name string) any {
		return &rbacv1.ClusterRole{
			TypeMeta: metav1.TypeMeta{APIVersion: "rbac.authorization.k8s.io/v1", Kind: "ClusterRole"}, ObjectMeta: metav1.ObjectMeta{Name: name},
			AggregationRule: &rbacv1.AggregationRule{ClusterRoleSelectors: []metav1.LabelSelector{{MatchLabels: map[string]string{addTo: name}}}},
		}
	})
}

func changeRole(w *World) {
	if ref, there := w.someRole(); there {
		next := w.part(ref.Name).(*rbacv1.ClusterRole)
		w.note("user: change %v", ref)
		w.api.Change(ref, func(obj metav1.Object) {
			role := obj.(*rbacv1.ClusterRole)
			role.Labels, role.Rules = next.Labels, next.Rules
		})
	}
}

func deleteRole(w *World) {
	if ref, there := w.someRole(); there {
		w.Delete(ref, metav1.DeletePropagationBackground)
	}
}

// lives reports whether a node exists and runs; in a world without nodes every node does.
func (w *World) lives(node string) bool {
	if k := w.kubelets[node]; k != nil && k.stopped {
		return false
	}
	return w.api.of(kinds.Nodes.Name) == nil || w.api.Get(nodeRef(node)) != nil
}

// schedule assigns a node to a pod, if there is one. A pod whose claim is being deleted gets
// none.
func (w *World) schedule(pod *corev1.Pod, ref events.Ref) {
	for _, volume := range pod.Spec.Volumes {
		if volume.PersistentVolumeClaim == nil {
			continue
		}
		claim := w.api.Get(events.Ref{Kind: kinds.PersistentVolumeClaims.Name, Namespace: pod.Namespace, Name: volume.PersistentVolumeClaim.ClaimName})
		if claim == nil || claim.GetDeletionTimestamp() != nil {
			return
		}
	}
	node, all := "node-1", w.api.List(kinds.Nodes.Name)
	switch {
	case w.api.of(kinds.Nodes.Name) == nil:
	case boundNode(pod) != "":
		if node = boundNode(pod); !w.lives(node) {
			return
		}
	case len(all) == 0:
		return
	default:
		node = all[w.roll(len(all))].GetName()
	}
	w.work = append(w.work, func() {
		w.note("scheduler: %s assigned to %s", pod.Name, node)
		w.api.Change(ref, func(obj metav1.Object) { obj.(*corev1.Pod).Spec.NodeName = node })
	})
}

// addressOf is the address of a pod; no other pod has it.
func addressOf(pod *corev1.Pod) string {
	var n int
	_, _ = fmt.Sscanf(string(pod.UID), "uid-%d", &n) // as the toy API server makes them
	return fmt.Sprintf("10.0.%d.%d", n/250, n%250+1)
}

// users are the pods that have a node and name a claim.
func (w *World) users(claim metav1.Object) (all []string) {
	for _, obj := range w.api.List(kinds.Pods.Name) {
		pod := obj.(*corev1.Pod)
		uses := func(v corev1.Volume) bool {
			return v.PersistentVolumeClaim != nil && v.PersistentVolumeClaim.ClaimName == claim.GetName() || owns(pod, v, claim)
		}
		if pod.Spec.NodeName != "" && pod.Namespace == claim.GetNamespace() && slices.ContainsFunc(pod.Spec.Volumes, uses) {
			all = append(all, pod.Name)
		}
	}
	return all
}

// users are the pods that may need a claim.
func (a *API) users(claim metav1.Object) plan.Response {
	found := a.usersOf(claim)
	for _, obj := range a.List(kinds.Pods.Name) {
		pod := obj.(*corev1.Pod)
		if _, isClaim := claim.(*corev1.PersistentVolumeClaim); isClaim && pod.Namespace == claim.GetNamespace() {
			found.Take(pod, claim.GetName())
		}
	}
	r := answer(claim)
	r.Body, _ = json.Marshal(found) // it has only fields that encoding/json accepts
	return r
}

// unguarded checks a claim or a volume that has lost its finalizers.
func (g *guard) unguarded(old, now metav1.Object) {
	if old == nil || g.restoring {
		return
	}
	switch o := old.(type) {
	case *corev1.PersistentVolumeClaim:
		if users := g.world.users(o); slices.Contains(o.Finalizers, claimGuard) && !has(now, claimGuard) && len(users) > 0 {
			g.breaks("I12", "claim %s is let go, and %v use it", o.Name, users)
		}
	case *corev1.PersistentVolume:
		if slices.Contains(o.Finalizers, volumeGuard) && !has(now, volumeGuard) && o.Status.Phase == corev1.VolumeBound {
			g.breaks("I12", "volume %s is let go, and is bound", o.Name)
		}
	}
}

func has(obj metav1.Object, finalizer string) bool {
	return obj != nil && slices.Contains(obj.GetFinalizers(), finalizer)
}

// cleans checks a pod that is about to be deleted because no kubelet would delete it. Its node
// may be back in service since the decision.
func (g *guard) cleans(c *carrying, pod *corev1.Pod) {
	at := nodeRef(pod.Spec.NodeName)
	switch node := g.world.api.Get(at); {
	case pod.Spec.NodeName == "" || !g.world.lives(pod.Spec.NodeName):
	case node != nil && g.sinceLook(c, node):
		g.spare(nodeMeanwhile)
	case pod.DeletionTimestamp == nil || !silenced(node) && !silenced(g.objectOf(c.turn, kinds.Nodes.Kind, at)):
		g.breaks("I4", "pod %s is deleted although its node %s lives", pod.Name, pod.Spec.NodeName)
	}
}

// objectOf is an object in the view of a turn; nil if the view had none, or the log has lost
// it.
func (g *guard) objectOf(t events.Turn, kind kinds.Kind, ref events.Ref) metav1.Object {
	log := g.world.bus.kinds[kind.Name].log
	if g.lostSince(t, kind.Name) {
		return nil
	}
	for i := min(int(t.Seen[kind.Name]), len(log)) - 1; i >= 0; i-- {
		d := log[i].delta
		if d.Ref != ref {
			continue
		}
		if d.Op != events.Is {
			return nil
		}
		obj, err := kinds.Decode(kind, d.ContentType, d.Body)
		if err != nil {
			return nil
		}
		return obj
	}
	return nil
}

// tended reports whether nodes, volumes, claims, roles and pods are as they should be.
func (w *World) tended() error {
	for _, obj := range w.api.List(kinds.Nodes.Name) {
		if w.promises["ttl-controller"] == nil {
			break
		}
		if told := obj.GetAnnotations()[corev1.ObjectTTLAnnotationKey]; told != "0" {
			return fmt.Errorf("%s is told to keep secrets for %q s", obj.GetName(), told)
		}
	}
	for _, obj := range w.api.List(kinds.Pods.Name) {
		pod := obj.(*corev1.Pod)
		if pod.Spec.NodeName != "" && w.api.of(kinds.Nodes.Name) != nil && w.api.Get(nodeRef(pod.Spec.NodeName)) == nil {
			return fmt.Errorf("pod %s is left on node %s, which is gone", pod.Name, pod.Spec.NodeName)
		}
		if n, _ := w.api.Get(nodeRef(pod.Spec.NodeName)).(*corev1.Node); pod.DeletionTimestamp != nil && n != nil && silenced(n) && !wellSaid(n) {
			return fmt.Errorf("pod %s is to go and is left on node %s, which is out of service", pod.Name, pod.Spec.NodeName)
		}
	}
	if err := w.protected(); err != nil {
		return err
	}
	return w.aggregated()
}

// protected reports whether volumes and claims have their finalizer while they are used, and no
// longer.
func (w *World) protected() error {
	for _, obj := range w.api.List(kinds.PersistentVolumes.Name) {
		held := obj.GetDeletionTimestamp() != nil
		if w.runs("persistentvolume-protection-controller") && (!has(obj, volumeGuard) || held && obj.(*corev1.PersistentVolume).Status.Phase != corev1.VolumeBound) {
			return fmt.Errorf("volume %s, deleted: %v, has the finalizers %v", obj.GetName(), held, obj.GetFinalizers())
		}
	}
	for _, obj := range w.api.List(kinds.PersistentVolumeClaims.Name) {
		held := obj.GetDeletionTimestamp() != nil
		if w.runs("persistentvolumeclaim-protection-controller") && (!has(obj, claimGuard) || held && len(w.users(obj)) == 0) {
			return fmt.Errorf("claim %s, deleted: %v, has the finalizers %v", obj.GetName(), held, obj.GetFinalizers())
		}
	}
	return nil
}

// aggregated reports whether every aggregating role has the rules of its parts.
func (w *World) aggregated() error {
	for _, obj := range w.api.List(kinds.ClusterRoles.Name) {
		role := obj.(*rbacv1.ClusterRole)
		if role.AggregationRule == nil {
			continue
		}
		var want []rbacv1.PolicyRule
		for _, other := range w.api.List(kinds.ClusterRoles.Name) {
			if other.GetLabels()[addTo] != role.Name {
				continue
			}
			for _, rule := range other.(*rbacv1.ClusterRole).Rules {
				if !slices.ContainsFunc(want, func(r rbacv1.PolicyRule) bool { return equality.Semantic.DeepEqual(r, rule) }) {
					want = append(want, rule)
				}
			}
		}
		if len(want)+len(role.Rules) > 0 && !equality.Semantic.DeepEqual(want, role.Rules) {
			return fmt.Errorf("%s has the rules %v, its parts %v", role.Name, role.Rules, want)
		}
	}
	return nil
}
