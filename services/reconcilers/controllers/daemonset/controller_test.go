package daemonset

import (
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/services/reconcilers/kube/gate"
	"github.com/millrace/millrace/services/reconcilers/reconciletest"
)

var now = reconciletest.Now

// daemons returns a set with a rolling update one by one.
func daemons(name string) *appsv1.DaemonSet {
	like := reconciletest.ReplicaSet(name, 1)
	return &appsv1.DaemonSet{ObjectMeta: like.ObjectMeta, Spec: appsv1.DaemonSetSpec{Selector: like.Spec.Selector, Template: like.Spec.Template}}
}

func of(set *appsv1.DaemonSet) reconciletest.Edit[*corev1.Pod] {
	return reconciletest.OwnedBy[*corev1.Pod](kinds.DaemonSets.Kind, set)
}

func node(name string, taints ...corev1.Taint) *corev1.Node {
	return &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"kubernetes.io/hostname": name}}, Spec: corev1.NodeSpec{Taints: taints}}
}

func TestObserve(t *testing.T) {
	set, other := daemons("web"), daemons("other")
	other.Spec.Selector = &metav1.LabelSelector{MatchLabels: map[string]string{"app": "other"}}
	foreign := revisionOf(other, "nginx:3")
	foreign.Name, foreign.Labels = "web-3", nil
	world := reconciletest.NewWorld().Put(kinds.DaemonSets.Kind, set, other).
		Put(kinds.Nodes.Kind, node("n1"), node("n2")).
		Put(kinds.Pods.Kind, reconciletest.Pod("web-a", of(set)), reconciletest.Pod("web-b", of(other)), reconciletest.Pod("stray")).
		Put(kinds.ControllerRevisions.Kind, revisionOf(set, "nginx:1"), foreign)
	v, ok := observe(world, events.Key{Namespace: reconciletest.Namespace, Name: "web"})
	if !ok || len(v.Nodes) != 2 || len(v.Pods) != 2 || len(v.Revisions) != 1 || !slices.Equal(v.Taken, []string{"web-3"}) {
		t.Errorf("the view has %d nodes, %d pods, %d revisions, and the names %v taken", len(v.Nodes), len(v.Pods), len(v.Revisions), v.Taken)
	}
	if _, ok := observe(world, events.Key{Namespace: reconciletest.Namespace, Name: "absent"}); ok {
		t.Error("observe finds a set that is not there")
	}
}

// The view of a set that is being deleted, or that selects everything, has only the set itself.
func TestObserveOfASetThatDoesNothing(t *testing.T) {
	for what, edit := range map[string]func(*appsv1.DaemonSet){
		"being deleted":      func(set *appsv1.DaemonSet) { reconciletest.Deleted[*appsv1.DaemonSet](now)(set) },
		"without a selector": func(set *appsv1.DaemonSet) { set.Spec.Selector = nil },
		"selecting what is no label": func(set *appsv1.DaemonSet) {
			set.Spec.Selector = &metav1.LabelSelector{MatchLabels: map[string]string{"app": "not a label"}}
		},
	} {
		set := daemons("web")
		edit(set)
		world := reconciletest.NewWorld(kinds.ControllerRevisions.Kind).Put(kinds.DaemonSets.Kind, set).
			Put(kinds.Nodes.Kind, node("n1")).Put(kinds.Pods.Kind, reconciletest.Pod("web-a", of(set)))
		v, ok := observe(world, events.Key{Namespace: reconciletest.Namespace, Name: "web"})
		if !ok || v.Set == nil || len(v.Nodes)+len(v.Pods) > 0 {
			t.Errorf("of a set %s the view has %d nodes and %d pods, found: %v", what, len(v.Nodes), len(v.Pods), ok)
		}
	}
}

// The gates are recorded with the view, so that a turn can be decided again.
func TestGatesAreSeen(t *testing.T) {
	gates := gate.Set{gate.TaintTolerationComparisonOperators: true}
	world := reconciletest.NewWorld(kinds.Nodes.Kind, kinds.Pods.Kind, kinds.ControllerRevisions.Kind).Put(kinds.DaemonSets.Kind, daemons("web"))
	c := New(gates)
	if v, ok := c.Observe(world, events.Key{Namespace: reconciletest.Namespace, Name: "web"}); !ok || !v.Gates.On(gate.TaintTolerationComparisonOperators) {
		t.Errorf("the view has the gates %v of a set that is there: %v", v.Gates, ok)
	}
	if _, ok := c.Observe(world, events.Key{Namespace: reconciletest.Namespace, Name: "other"}); ok {
		t.Error("observe finds a set that is not there")
	}
}

func TestWhoseTurnANodeMakesIt(t *testing.T) {
	any1, some := daemons("any"), daemons("some")
	any1.Spec.Template.Spec.Tolerations = []corev1.Toleration{{Key: "pool", Operator: corev1.TolerationOpEqual, Value: "mine"}}
	some.Spec.Template.Spec.NodeSelector = map[string]string{"disk": "fast"}
	world := reconciletest.NewWorld(kinds.Nodes.Kind).Put(kinds.DaemonSets.Kind, any1, some)
	fast, shut, beating := node("n1"), node("n1", corev1.Taint{Key: "shut", Effect: corev1.TaintEffectNoSchedule}), node("n1")
	fast.Labels["disk"], beating.Annotations, beating.Generation = "fast", map[string]string{"heartbeat": "1"}, 7
	pool := func(value string) *corev1.Node {
		return node("n1", corev1.Taint{Key: "pool", Value: value, Effect: corev1.TaintEffectNoSchedule})
	}
	for _, c := range []struct {
		what     string
		was, now metav1.Object
		want     []string
	}{
		{"a new one", nil, node("n1"), []string{"any", "some"}},
		{"one that is gone", node("n1"), nil, []string{"any", "some"}},
		{"one that reports that it is well", node("n1"), beating, nil},
		{"one that is now selected", node("n1"), fast, []string{"some"}},
		{"one that is closed", node("n1"), shut, []string{"any"}},
		{"one that is opened", shut, node("n1"), []string{"any"}},
		{"one whose taint has another reason", shut, node("n1", corev1.Taint{Key: "shut", Value: "2", Effect: corev1.TaintEffectNoSchedule}), nil},
		{"one whose taint becomes another", pool("mine"), shut, []string{"any"}},
		{"one whose taint has another value", pool("mine"), pool("yours"), []string{"any"}},
		{"one whose taint has a stronger effect", shut, node("n1", corev1.Taint{Key: "shut", Effect: corev1.TaintEffectNoExecute}), []string{"any"}},
	} {
		var got []string
		for _, k := range world.Keys(Controller, kinds.Nodes.Kind, c.was, c.now) {
			got = append(got, k.Name)
		}
		if !slices.Equal(got, c.want) {
			t.Errorf("%s: turns of %v, want %v", c.what, got, c.want)
		}
	}
}

func TestWhichNodesAreAPlace(t *testing.T) {
	set := daemons("web")
	spec := &set.Spec.Template.Spec
	well := func(key string, effect corev1.TaintEffect) *corev1.Node {
		return node("n1", corev1.Taint{Key: key, Effect: effect})
	}
	for what, c := range map[string]struct {
		node *corev1.Node
		edit func()
		want verdict
	}{
		"any":                          {node("n1"), func() {}, verdict{true, true}},
		"another than the named one":   {node("n1"), func() { spec.NodeName = "n2" }, verdict{}},
		"the named one":                {node("n1"), func() { spec.NodeName = "n1" }, verdict{true, true}},
		"not selected":                 {node("n1"), func() { spec.NodeSelector = map[string]string{"disk": "fast"} }, verdict{}},
		"not of its affinity":          {node("n1"), func() { spec.Affinity = bound(nil, "n2") }, verdict{}},
		"of its affinity":              {node("n1"), func() { spec.Affinity = bound(nil, "n1") }, verdict{true, true}},
		"closed":                       {well("shut", corev1.TaintEffectNoSchedule), func() {}, verdict{false, true}},
		"closed if there are others":   {well("shut", corev1.TaintEffectPreferNoSchedule), func() {}, verdict{true, true}},
		"told to leave":                {well("away", corev1.TaintEffectNoExecute), func() {}, verdict{false, false}},
		"not ready":                    {well(corev1.TaintNodeNotReady, corev1.TaintEffectNoExecute), func() {}, verdict{true, true}},
		"cordoned":                     {well(corev1.TaintNodeUnschedulable, corev1.TaintEffectNoSchedule), func() {}, verdict{true, true}},
		"without a network":            {well(corev1.TaintNodeNetworkUnavailable, corev1.TaintEffectNoSchedule), func() {}, verdict{false, true}},
		"that makes the network first": {well(corev1.TaintNodeNetworkUnavailable, corev1.TaintEffectNoSchedule), func() { spec.HostNetwork = true }, verdict{true, true}},
	} {
		*spec = corev1.PodSpec{}
		c.edit()
		if got := fits(spec, nil).verdict(c.node); got != c.want {
			t.Errorf("a node that is %s: %+v, want %+v", what, got, c.want)
		}
	}
}

// A toleration of the template with a limited time becomes unlimited in the pods of a set.
func TestTolerations(t *testing.T) {
	minute := int64(60)
	spec := &corev1.PodSpec{Tolerations: []corev1.Toleration{
		{Key: "mine", Operator: corev1.TolerationOpExists},
		{Key: corev1.TaintNodeNotReady, Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoExecute, TolerationSeconds: &minute},
	}}
	var got []string
	for _, t := range tolerations(spec) {
		text := strings.TrimPrefix(t.Key, "node.kubernetes.io/") + ":" + string(t.Effect)
		if t.TolerationSeconds != nil {
			text += " for a while"
		}
		got = append(got, text)
	}
	want := "mine: not-ready:NoExecute unreachable:NoExecute disk-pressure:NoSchedule memory-pressure:NoSchedule pid-pressure:NoSchedule unschedulable:NoSchedule"
	if text := strings.Join(got, " "); text != want || spec.Tolerations[1].TolerationSeconds == nil {
		t.Errorf("the tolerations are %s", text)
	}
}

func TestNodeOf(t *testing.T) {
	two := bound(nil, "n1")
	two.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution.NodeSelectorTerms[0].MatchFields[0].Values = []string{"n1", "n2"}
	other := func(key string, operator corev1.NodeSelectorOperator) *corev1.Affinity {
		a := bound(nil, "n1")
		terms := a.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution.NodeSelectorTerms
		terms[0].MatchFields[0].Key, terms[0].MatchFields[0].Operator = key, operator
		return a
	}
	for what, c := range map[string]struct {
		spec corev1.PodSpec
		want string
	}{
		"kept off it":      {corev1.PodSpec{Affinity: other("metadata.name", corev1.NodeSelectorOpNotIn)}, ""},
		"bound by a field": {corev1.PodSpec{Affinity: other("metadata.uid", corev1.NodeSelectorOpIn)}, ""},
		"on its node":      {corev1.PodSpec{NodeName: "n1", Affinity: bound(nil, "n2")}, "n1"},
		"bound to it":      {corev1.PodSpec{Affinity: bound(&corev1.Affinity{PodAffinity: &corev1.PodAffinity{}}, "n2")}, "n2"},
		"bound to two":     {corev1.PodSpec{Affinity: two}, ""},
		"of no affinity":   {corev1.PodSpec{}, ""},
		"of another's own": {corev1.PodSpec{Affinity: &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{}}}, ""},
	} {
		if got := nodeOf(&corev1.Pod{Spec: c.spec}); got != c.want {
			t.Errorf("a pod that is %s is of %q, want %q", what, got, c.want)
		}
	}
}
