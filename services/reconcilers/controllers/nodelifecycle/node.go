package nodelifecycle

import (
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/services/reconcilers/reconcile"
)

// warnings are the NoSchedule taints of conditions.
//
// Upstream: nodeConditionToTaintKeyStatusMap.
var warnings = []struct {
	condition corev1.NodeConditionType
	status    corev1.ConditionStatus
	taint     string
}{
	{corev1.NodeReady, corev1.ConditionFalse, corev1.TaintNodeNotReady},
	{corev1.NodeReady, corev1.ConditionUnknown, corev1.TaintNodeUnreachable},
	{corev1.NodeMemoryPressure, corev1.ConditionTrue, corev1.TaintNodeMemoryPressure},
	{corev1.NodeDiskPressure, corev1.ConditionTrue, corev1.TaintNodeDiskPressure},
	{corev1.NodeNetworkUnavailable, corev1.ConditionTrue, corev1.TaintNodeNetworkUnavailable},
	{corev1.NodePIDPressure, corev1.ConditionTrue, corev1.TaintNodePIDPressure},
}

// warned are the keys of the NoSchedule taints that a node should have.
func warned(n *corev1.Node) (keys []string) {
	for _, w := range warnings {
		if c := condition(n, w.condition); c != nil && c.Status == w.status {
			keys = append(keys, w.taint)
		}
	}
	if n.Spec.Unschedulable {
		keys = append(keys, corev1.TaintNodeUnschedulable)
	}
	return keys
}

// warning reports whether a taint is one that [warned] may return.
func warning(t corev1.Taint) bool {
	ours := t.Key == corev1.TaintNodeUnschedulable
	for _, w := range warnings {
		ours = ours || t.Key == w.taint
	}
	return ours && t.Effect == corev1.TaintEffectNoSchedule
}

// taints are the keys of all taints that this controller manages.
func taints() []string {
	keys := []string{corev1.TaintNodeUnschedulable}
	for _, w := range warnings {
		keys = append(keys, w.taint)
	}
	return keys
}

// driven are the keys of the NoExecute taints of this controller that a node has.
func driven(n *corev1.Node) (keys []string) {
	for _, t := range n.Spec.Taints {
		if driving(t) {
			keys = append(keys, t.Key)
		}
	}
	return keys
}

func driving(t corev1.Taint) bool {
	return t.Effect == corev1.TaintEffectNoExecute && (t.Key == corev1.TaintNodeNotReady || t.Key == corev1.TaintNodeUnreachable)
}

// driver is the key of the NoExecute taint for a node that is not ready; "" for one that
// is ready or has no such condition.
func driver(n *corev1.Node) string {
	c := condition(n, corev1.NodeReady)
	switch {
	case c == nil || c.Status == corev1.ConditionTrue:
		return ""
	case c.Status == corev1.ConditionFalse:
		return corev1.TaintNodeNotReady
	default:
		return corev1.TaintNodeUnreachable
	}
}

// mark corrects the taints and labels of a node.
//
// A node that already evicts its pods gets the other NoExecute taint at once when it
// changes between not ready and unknown, because no pods remain that a delay could save.
func (v View) mark(now time.Time) reconcile.Decision {
	n, drives := v.Node, driven(v.Node)
	switch {
	case len(drives) == 0:
	case ready(n) || v.FullDisruption:
		drives = nil
	case driver(n) != "":
		drives = []string{driver(n)}
	}
	taints, retainted := retaint(n, warned(n), drives, now)
	labels := relabelled(n)
	patch := map[string]any{}
	because := "its taints and labels say how the node is"
	if len(labels) > 0 {
		patch["metadata"] = map[string]any{"labels": labels}
		because = "the beta labels differ from the stable ones"
	}
	if retainted {
		patch["spec"] = map[string]any{"taints": taints}
		because = "the taints do not match the node's conditions"
	}
	if len(patch) == 0 {
		return reconcile.Nothing(because)
	}
	return reconcile.Do(because, patched(n, patch))
}

// marked reports whether [View.mark] has nothing to do for a node that evicts no pods. Until
// then only the node's own key writes the node. The zone's key would write the same list
// at the same version, and one of the two would conflict.
func marked(n *corev1.Node) bool {
	_, retainted := retaint(n, warned(n), driven(n), time.Time{})
	return !retainted && len(relabelled(n)) == 0
}

// retaint returns a node's taints with the wanted taints of this controller, and whether
// they differ from those that the node has.
func retaint(n *corev1.Node, warns, drives []string, now time.Time) (taints []corev1.Taint, changed bool) {
	missing := map[corev1.TaintEffect][]string{corev1.TaintEffectNoSchedule: warns, corev1.TaintEffectNoExecute: drives}
	taints = []corev1.Taint{} // an empty list removes the last taint
	for _, t := range n.Spec.Taints {
		at := slices.Index(missing[t.Effect], t.Key)
		if at < 0 && (warning(t) || driving(t)) {
			changed = true
			continue
		}
		if at >= 0 {
			missing[t.Effect] = slices.Delete(slices.Clone(missing[t.Effect]), at, at+1)
		}
		taints = append(taints, t)
	}
	added := metav1.NewTime(now.Truncate(time.Second))
	for _, effect := range []corev1.TaintEffect{corev1.TaintEffectNoSchedule, corev1.TaintEffectNoExecute} {
		for _, key := range missing[effect] {
			changed = true
			taints = append(taints, corev1.Taint{Key: key, Effect: effect, TimeAdded: &added})
		}
	}
	return taints, changed
}

// aliases are old labels and the current labels that replaced them.
//
// Upstream: labelReconcileInfo.
var aliases = []struct{ today, old string }{
	{corev1.LabelOSStable, "beta.kubernetes.io/os"},
	{corev1.LabelArchStable, "beta.kubernetes.io/arch"},
}

// relabelled are the old labels whose values differ from the current ones.
func relabelled(n *corev1.Node) map[string]string {
	labels := map[string]string{}
	for _, a := range aliases {
		value, there := n.Labels[a.today]
		if old, known := n.Labels[a.old]; there && (!known || old != value) {
			labels[a.old] = value
		}
	}
	return labels
}

// patched is a patch of a node that is conditional on its resourceVersion, because a list
// of taints can only be replaced as a whole.
func patched(n *corev1.Node, patch map[string]any) events.Command {
	return reconcile.Patch(kinds.Nodes.Kind, n, types.StrategicMergePatchType, reconcile.Body(patch), reconcile.IfUnchanged(n))
}

// most is how many pods a turn reports on. With more, the outcome would not be remembered.
const most = 60

// report records that a node was registered, and sets the pods of a silent node to not
// ready.
func (v View) report(now time.Time) reconcile.Decision {
	var reports []reconcile.Decision
	if v.Known != v.Node.UID {
		message := fmt.Sprintf("Node %s event: Registered Node %[1]s in Controller", v.Node.Name)
		reports = append(reports, reconcile.Do("the node is new", reconcile.Record(about(v.Node.Name, v.Node.UID, "RegisteredNode", message))))
	}
	if unready := v.unready(now); len(unready) > 0 {
		reports = append(reports, reconcile.Do("the node is unreachable, and its pods are marked ready", unready...))
	}
	return reconcile.Join(reports...)
}

// unready sets the pods of a silent node to not ready. It does not contradict a kubelet
// that renewed its lease after the node was found silent.
//
// Upstream does so once, when it finds the node silent; and forgets it when it is
// stopped in between.
func (v View) unready(now time.Time) (commands []events.Command) {
	c := condition(v.Node, corev1.NodeReady)
	if c == nil || c.Status != corev1.ConditionUnknown || v.Renewed.After(c.LastTransitionTime.Time) {
		return nil
	}
	for _, p := range v.Pods[:min(len(v.Pods), most)] {
		told := events.Notice{About: reconcile.About(kinds.Pods.Kind, p), Type: corev1.EventTypeWarning, Reason: "NodeNotReady", Message: "Node is not ready"}
		patch := map[string]any{"status": map[string]any{"conditions": []map[string]any{{
			"type": corev1.PodReady, "status": corev1.ConditionFalse, "lastTransitionTime": metav1.NewTime(now.Truncate(time.Second)),
		}}}}
		command := reconcile.Patch(kinds.Pods.Kind, p, types.StrategicMergePatchType, reconcile.Body(patch), reconcile.IfUnchanged(p), reconcile.WithEvents(&told, nil))
		command.Subresource = "status"
		commands = append(commands, command)
	}
	return commands
}

// farewell records that a node was removed.
func (v View) farewell() reconcile.Decision {
	if v.Known == "" {
		return reconcile.Nothing("the node is deleted, and the Event is recorded")
	}
	message := fmt.Sprintf("Node %s event: Removing Node %[1]s from Controller", v.Name)
	return reconcile.Do("the node is gone", reconcile.Record(about(v.Name, v.Known, "RemovingNode", message)))
}

func about(name string, uid types.UID, reason, message string) events.Notice {
	return events.Notice{
		About: corev1.ObjectReference{APIVersion: "v1", Kind: "Node", Name: name, UID: uid},
		Type:  corev1.EventTypeNormal, Reason: reason, Message: message,
	}
}
