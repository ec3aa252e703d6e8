package workloads_test

import (
	"encoding/json"
	"fmt"
	"strconv"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"pgregory.net/rapid"

	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/services/reconcilers/reconciletest"
	"github.com/millrace/millrace/test/oracle/exemption"
	"github.com/millrace/millrace/test/oracle/objects"
	"github.com/millrace/millrace/test/oracle/oracletest"
	"github.com/millrace/millrace/test/oracle/workloads"
)

func TestDaemonSetDecidesAsUpstreamDoes(t *testing.T) {
	oracletest.Agree(t, workloads.DaemonSet, deploymentKey, daemonSetWorld)
}

// TestTheOracleBitesOnDaemonSets: the comparison detects a controller with one small fault.
func TestTheOracleBitesOnDaemonSets(t *testing.T) {
	seeing := func(change func(*appsv1.DaemonSet)) oracletest.Mutant {
		return oracletest.Mutant{Mask: func(w *reconciletest.World) { oracletest.Each(w, kinds.DaemonSets, change) }}
	}
	rolling := func(change func(*appsv1.RollingUpdateDaemonSet)) oracletest.Mutant {
		return seeing(func(d *appsv1.DaemonSet) {
			if r := d.Spec.UpdateStrategy.RollingUpdate; r != nil {
				change(r)
			}
		})
	}
	pods := func(change func(*corev1.Pod)) oracletest.Mutant {
		return oracletest.Mutant{Mask: func(w *reconciletest.World) { oracletest.Each(w, kinds.Pods, change) }}
	}
	nodes := func(change func(*corev1.Node)) oracletest.Mutant {
		return oracletest.Mutant{Mask: func(w *reconciletest.World) { oracletest.Each(w, kinds.Nodes, change) }}
	}
	for name, m := range map[string]oracletest.Mutant{
		"may miss one more":     rolling(func(r *appsv1.RollingUpdateDaemonSet) { r.MaxUnavailable = oracletest.Ptr(intstr.FromInt32(4)) }),
		"never surges":          rolling(func(r *appsv1.RollingUpdateDaemonSet) { r.MaxSurge = oracletest.Ptr(intstr.FromInt32(0)) }),
		"sees no deletion":      seeing(func(d *appsv1.DaemonSet) { d.DeletionTimestamp = nil }),
		"sees no affinity":      seeing(func(d *appsv1.DaemonSet) { d.Spec.Template.Spec.Affinity = nil }),
		"keeps one more":        seeing(func(d *appsv1.DaemonSet) { *d.Spec.RevisionHistoryLimit++ }),
		"waits a second more":   seeing(func(d *appsv1.DaemonSet) { d.Spec.MinReadySeconds++ }),
		"sees no collisions":    seeing(func(d *appsv1.DaemonSet) { d.Status.CollisionCount = nil }),
		"has no generation":     seeing(func(d *appsv1.DaemonSet) { d.Annotations = nil }),
		"sees nothing ready":    pods(func(p *corev1.Pod) { p.Status.Conditions = nil }),
		"sees no age":           pods(func(p *corev1.Pod) { p.CreationTimestamp.Reset() }),
		"sees nothing leave":    pods(func(p *corev1.Pod) { p.DeletionTimestamp = nil }),
		"sees nothing fail":     pods(func(p *corev1.Pod) { p.Status.Phase = corev1.PodRunning }),
		"sees no taint":         nodes(func(n *corev1.Node) { n.Spec.Taints = nil }),
		"is closed to everyone": nodes(func(n *corev1.Node) { n.Spec.Taints = []corev1.Taint{{Key: "x", Effect: corev1.TaintEffectNoSchedule}} }),
		"forgets the last":      {Garble: oracletest.ForgetLast},
		"tells no user":         {Garble: oracletest.TellNothing},
		"binds to nothing":      {Garble: oracletest.Replace("metadata.name", "metadata.uid")},
	} {
		t.Run(name, func(t *testing.T) { oracletest.Noticed(t, workloads.DaemonSet, m, deploymentKey, daemonSetWorld) })
	}
}

// daemonSetWorld is a DaemonSet at some point of its life, with nodes, revisions and pods. If a revision
// exists twice, every pod is of it: upstream would relabel every pod to the newest revision.
func daemonSetWorld(t *rapid.T) []runtime.Object {
	set := arbitraryDaemonSet(t)
	world := []runtime.Object{set}
	nodes := rapid.IntRange(0, 5).Draw(t, "nodes")
	for i := range nodes {
		world = append(world, arbitraryNode(t, i))
	}
	hashes := []string{"unknown"}
	for i := range rapid.IntRange(0, 3).Draw(t, "revisions") {
		r := daemonRevision(set, i)
		if oracletest.Chance(t, 10, "orphan revision") {
			r.OwnerReferences = nil
		}
		hashes, world = append(hashes, r.Labels[appsv1.DefaultDaemonSetUniqueLabelKey]), append(world, r)
	}
	if oracletest.Chance(t, 12, "twin") {
		exemption.Uses("twin-revision")
		twin := daemonRevision(set, 7)
		twin.Data, twin.Revision = patchOf(set.Spec.Template), 9
		hashes, world = []string{twin.Labels[appsv1.DefaultDaemonSetUniqueLabelKey]}, append(world, twin)
	}
	failed := map[string]bool{} // upstream deletes those of one node one by one
	most, one := 7*min(nodes, 1), rapid.Bool().Draw(t, "one on each node")
	if one {
		most = nodes
	}
	for i := range rapid.IntRange(0, most).Draw(t, "pods") {
		on := i
		if !one {
			on = rapid.IntRange(0, nodes-1).Draw(t, "on")
		}
		p := daemonOf(t, set, i, on, rapid.SampledFrom(hashes).Draw(t, "pod's revision"))
		if p.Status.Phase == corev1.PodFailed && failed[p.Spec.NodeName] {
			exemption.Uses("failed-one-by-one")
			p.Status.Phase = corev1.PodRunning
		}
		failed[p.Spec.NodeName] = failed[p.Spec.NodeName] || p.Status.Phase == corev1.PodFailed
		world = append(world, p)
	}
	return world
}

func arbitraryDaemonSet(t *rapid.T) *appsv1.DaemonSet {
	set := &appsv1.DaemonSet{
		ObjectMeta: metav1.ObjectMeta{Name: oracletest.Owner, Namespace: oracletest.Namespace, UID: "set", ResourceVersion: "10", Generation: 2, CreationTimestamp: oracletest.Ago(t, 4000, "created")},
		Spec: appsv1.DaemonSetSpec{
			Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": oracletest.Owner}},
			Template: oracletest.Template(rapid.IntRange(1, 3).Draw(t, "image")), RevisionHistoryLimit: oracletest.Ptr(oracletest.Small(t, 2, "history")),
			MinReadySeconds: rapid.SampledFrom([]int32{0, 0, 30}).Draw(t, "min ready"),
			UpdateStrategy:  appsv1.DaemonSetUpdateStrategy{Type: appsv1.OnDeleteDaemonSetStrategyType},
		},
		Status: appsv1.DaemonSetStatus{
			DesiredNumberScheduled: oracletest.Small(t, 5, "said"), NumberReady: oracletest.Small(t, 5, "said ready"), NumberMisscheduled: oracletest.Small(t, 2, "said elsewhere"),
			ObservedGeneration: int64(rapid.IntRange(1, 2).Draw(t, "observed")),
		},
	}
	limit := rapid.SampledFrom([]intstr.IntOrString{intstr.FromInt32(1), intstr.FromInt32(2), intstr.FromString("40%"), intstr.FromString("100%")}).Draw(t, "limit")
	none := intstr.FromInt32(0)
	switch rapid.IntRange(0, 4).Draw(t, "strategy") {
	case 0:
	case 1, 2:
		set.Spec.UpdateStrategy = appsv1.DaemonSetUpdateStrategy{
			Type: appsv1.RollingUpdateDaemonSetStrategyType, RollingUpdate: &appsv1.RollingUpdateDaemonSet{MaxUnavailable: &limit, MaxSurge: &none}}
	default:
		set.Spec.UpdateStrategy = appsv1.DaemonSetUpdateStrategy{
			Type: appsv1.RollingUpdateDaemonSetStrategyType, RollingUpdate: &appsv1.RollingUpdateDaemonSet{MaxUnavailable: &none, MaxSurge: &limit}}
	}
	spec := &set.Spec.Template.Spec
	switch rapid.IntRange(0, 11).Draw(t, "odd set") {
	case 0:
		set.DeletionTimestamp, set.Finalizers = oracletest.Ptr(oracletest.Ago(t, 60, "deleted")), []string{"example.com/hold"}
	case 1:
		spec.NodeSelector = map[string]string{"zone": "a"}
	case 2:
		spec.Tolerations = []corev1.Toleration{{Key: "shut", Operator: corev1.TolerationOpExists}, {Key: corev1.TaintNodeNotReady, Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoExecute, TolerationSeconds: oracletest.Ptr(int64(9))}}
	case 3:
		spec.HostNetwork = true
	case 4:
		set.Annotations = map[string]string{appsv1.DeprecatedTemplateGeneration: rapid.SampledFrom([]string{"4", "x"}).Draw(t, "generation")}
	case 5:
		set.Status.CollisionCount = oracletest.Ptr(oracletest.Small(t, 2, "collisions"))
	case 6:
		spec.Affinity = &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{RequiredDuringSchedulingIgnoredDuringExecution: &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{
			{MatchExpressions: []corev1.NodeSelectorRequirement{{Key: "zone", Operator: corev1.NodeSelectorOpNotIn, Values: []string{"a"}}}},
			{MatchFields: []corev1.NodeSelectorRequirement{{Key: "metadata.name", Operator: corev1.NodeSelectorOpIn, Values: []string{"n1"}}}},
		}}}}
	}
	return set
}

func arbitraryNode(t *rapid.T, i int) *corev1.Node {
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{
		Name: fmt.Sprintf("n%d", i), UID: types.UID(fmt.Sprintf("node-%d", i)), ResourceVersion: strconv.Itoa(500 + i),
		Labels: map[string]string{"zone": rapid.SampledFrom([]string{"a", "b"}).Draw(t, "zone")},
	}}
	switch rapid.IntRange(0, 7).Draw(t, "odd node") {
	case 0:
		n.Spec.Taints = []corev1.Taint{{Key: "shut", Effect: corev1.TaintEffectNoSchedule}}
	case 1:
		n.Spec.Taints = []corev1.Taint{{Key: "away", Effect: corev1.TaintEffectNoExecute}}
	case 2:
		n.Spec.Taints = []corev1.Taint{{Key: corev1.TaintNodeNotReady, Effect: corev1.TaintEffectNoExecute}, {Key: corev1.TaintNodeNetworkUnavailable, Effect: corev1.TaintEffectNoSchedule}}
	}
	return n
}

// daemonRevision is the revision of the i-th template, under a name without hash. Its other fields are those
// of the set's template.
func daemonRevision(set *appsv1.DaemonSet, i int) *appsv1.ControllerRevision {
	of := *set.Spec.Template.DeepCopy()
	of.Spec.Containers = oracletest.Template(i + 1).Spec.Containers
	name := fmt.Sprintf("%s-r%d", oracletest.Owner, i)
	return &appsv1.ControllerRevision{
		ObjectMeta: metav1.ObjectMeta{
			Name: name, Namespace: oracletest.Namespace, UID: types.UID(name), ResourceVersion: strconv.Itoa(20 + i), Labels: map[string]string{"app": oracletest.Owner, appsv1.DefaultDaemonSetUniqueLabelKey: fmt.Sprintf("r%d", i)},
			OwnerReferences: []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "DaemonSet", Name: set.Name, UID: set.UID, Controller: oracletest.Ptr(true), BlockOwnerDeletion: oracletest.Ptr(true)}},
		},
		Data: patchOf(of), Revision: int64(i + 1),
	}
}

func patchOf(t corev1.PodTemplateSpec) runtime.RawExtension {
	var body map[string]any
	raw, _ := json.Marshal(t)
	_ = json.Unmarshal(raw, &body)
	body["$patch"] = "replace"
	raw, _ = json.Marshal(map[string]any{"spec": map[string]any{"template": body}})
	return runtime.RawExtension{Raw: raw}
}

// daemonOf is a pod on a node, at some point of its life.
func daemonOf(t *rapid.T, set *appsv1.DaemonSet, i, on int, hash string) *corev1.Pod {
	name, node := fmt.Sprintf("%s-%d", set.Name, i), fmt.Sprintf("n%d", on)
	p := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Name: name, Namespace: oracletest.Namespace, UID: types.UID("pod-" + name), ResourceVersion: strconv.Itoa(1000 + i), CreationTimestamp: oracletest.Ago(t, 3000, "pod created"),
			Labels:          map[string]string{"app": oracletest.Owner, appsv1.DefaultDaemonSetUniqueLabelKey: hash},
			OwnerReferences: []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "DaemonSet", Name: set.Name, UID: set.UID, Controller: oracletest.Ptr(true), BlockOwnerDeletion: oracletest.Ptr(true)}},
		},
		Spec:   corev1.PodSpec{NodeName: node},
		Status: corev1.PodStatus{Phase: corev1.PodRunning},
	}
	if !oracletest.Chance(t, 4, "unready") {
		since := metav1.NewTime(objects.Now.Add(-time.Duration(rapid.SampledFrom([]int{10, 29, 30, 100}).Draw(t, "ready since")) * time.Second).Truncate(time.Second))
		p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue, LastTransitionTime: since}}
	}
	switch rapid.IntRange(1, 24).Draw(t, "odd pod") {
	case 1:
		p.Status = corev1.PodStatus{Phase: corev1.PodFailed}
	case 2:
		p.Status = corev1.PodStatus{Phase: corev1.PodSucceeded}
	case 3, 4:
		p.Spec, p.Status = corev1.PodSpec{Affinity: boundTo(node)}, corev1.PodStatus{Phase: corev1.PodPending}
	case 5:
		p.DeletionTimestamp, p.Finalizers = oracletest.Ptr(oracletest.Ago(t, 20, "pod deleted")), []string{"example.com/hold"}
	case 6:
		p.OwnerReferences = nil
	case 7:
		p.Labels["app"] = "else"
	case 8:
		p.Spec, p.Status = corev1.PodSpec{Affinity: boundTo("gone")}, corev1.PodStatus{Phase: corev1.PodPending}
	case 9:
		p.Labels["pod-template-generation"] = "4"
	}
	return p
}

func boundTo(node string) *corev1.Affinity {
	return &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{RequiredDuringSchedulingIgnoredDuringExecution: &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{
		{MatchFields: []corev1.NodeSelectorRequirement{{Key: "metadata.name", Operator: corev1.NodeSelectorOpIn, Values: []string{node}}}},
	}}}}
}
