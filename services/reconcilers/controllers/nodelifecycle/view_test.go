package nodelifecycle

import (
	"fmt"
	"slices"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/services/reconcilers/reconciletest"
)

func in(region, zone string) func(*corev1.Node) {
	return func(n *corev1.Node) {
		n.Labels = map[string]string{corev1.LabelTopologyRegion: region, corev1.LabelTopologyZone: zone}
	}
}

func is(status corev1.ConditionStatus) func(*corev1.Node) {
	return says(corev1.NodeReady, status, ago(time.Minute))
}

func TestZones(t *testing.T) {
	old := node("n")
	old.Labels = map[string]string{corev1.LabelFailureDomainBetaZone: "z0", corev1.LabelTopologyZone: "z1"}
	for _, c := range []struct {
		node      *corev1.Node
		key, name string
	}{
		{node("n"), ":", ""}, {node("n", in("r", "z")), "r:z", "r:\x00:z"}, {node("n", in("r", "")), "r:", "r:\x00:"}, {old, ":z0", ":\x00:z0"},
	} {
		if key, name := zoneOf(c.node); key != (events.Key{Name: c.key}) || name != c.name {
			t.Errorf("a node with the labels %v is in zone %v, %q", c.node.Labels, key, name)
		}
	}
}

func TestObserveANode(t *testing.T) {
	key := events.Key{Name: "n1"}
	on := func(name, node string, edits ...reconciletest.Edit[*corev1.Pod]) *corev1.Pod {
		return reconciletest.Pod(name, append(edits, reconciletest.On(node))...)
	}
	world := reconciletest.NewWorld(kinds.Leases.Kind).
		Put(kinds.Nodes.Kind, node("n1", is("Unknown"), tainted(corev1.TaintNodeUnreachable, corev1.TaintEffectNoExecute)), node("n2", is("True"))).
		Put(kinds.Pods.Kind, on("ready", "n1", readyPod), on("unready", "n1"), on("elsewhere", "n2", readyPod)).
		Hear(kinds.Leases.Name, "kube-node-lease", "n1", ago(time.Hour)).
		Remember(events.Outcome{Key: key, Lane: events.LaneStatus, UID: "u"})
	v, ok := controller.Observe(world, key)
	if !ok || v.Node.Name != "n1" || v.Known != "u" || !v.Renewed.Equal(ago(time.Hour)) || v.FullDisruption || len(v.Pods) != 1 || v.Pods[0].Name != "ready" {
		t.Errorf("the view is %+v, found: %v", v, ok)
	}
	world.Put(kinds.Nodes.Kind, node("n2", is("False")))
	if v, _ := controller.Observe(world, key); !v.FullDisruption {
		t.Error("no node is ready, and it is no full disruption")
	}
	if v, _ := controller.Observe(world, events.Key{Name: "n2"}); len(v.Pods) > 0 {
		t.Errorf("of a node that speaks for itself the view has the pods %v", v.Pods)
	}
	world.Remove(kinds.Nodes.Name, "", "n1")
	if v, ok := controller.Observe(world, key); !ok || v.Name != "n1" || v.Known != "u" {
		t.Errorf("of a node that is gone the view has %+v, found: %v", v, ok)
	}
	if _, ok := controller.Observe(world, events.Key{Name: "never"}); ok {
		t.Error("observe finds a node that never was")
	}
}

func TestObserveAZone(t *testing.T) {
	key := events.Key{Name: "r:a"}
	world := reconciletest.NewWorld(kinds.Leases.Kind).
		Put(kinds.Nodes.Kind, node("n1", in("r", "a")), node("n2", in("r", "a")), node("n3", in("r", "b"))).
		Hear(kinds.Leases.Name, "kube-node-lease", "n1", ago(2*time.Second)).Hear(kinds.Nodes.Name, "", "n1", ago(time.Second)).
		Watch(kinds.Leases.Name, ago(time.Hour), now).
		Remember(events.Outcome{Key: key, Lane: events.LaneWrite, At: ago(time.Minute), Results: []events.Result{
			{Status: events.Refused, Ref: events.Ref{Kind: kinds.Nodes.Name, Name: "n2"}},
		}})
	v, ok := controller.Observe(world, key)
	if !ok || v.Zone == nil || len(v.Zone.Members) != 2 || !v.FullDisruption {
		t.Fatalf("the view is %+v, found: %v", v, ok)
	}
	z := v.Zone
	if z.Name != "r:\x00:a" || !z.Last.Equal(ago(time.Minute)) || z.Failed != "n2" || z.Sight != (events.Sight{Since: ago(time.Hour), Until: now}) {
		t.Errorf("the view has the zone %+v", z)
	}
	if m := z.Members[0]; m.Node.Name != "n1" || !m.Renewed.Equal(ago(2*time.Second)) || !m.Heard.Equal(ago(time.Second)) {
		t.Errorf("the view has the member %+v", m)
	}
	if _, ok := controller.Observe(world, events.Key{Name: "r:c"}); ok {
		t.Error("observe finds a zone without nodes")
	}
}

// Silenced depends on all nodes of the cluster that are not excluded and report that they are ready.
func TestObserveSilenceElsewhere(t *testing.T) {
	key := events.Key{Name: ":a"}
	world := reconciletest.NewWorld(kinds.Leases.Kind).
		Put(kinds.Nodes.Kind, node("n1", in("", "a"), is("Unknown")), node("n2", in("", "b"), is("True")), node("n3", in("", "b"), is("True"))).
		Hear(kinds.Leases.Name, "kube-node-lease", "n2", ago(51*time.Second)).Hear(kinds.Leases.Name, "kube-node-lease", "n3", ago(20*time.Second)).
		Watch(kinds.Leases.Name, ago(time.Hour), now)
	if v, _ := controller.Observe(world, key); v.Silenced || !v.Sound.Equal(ago(-30*time.Second)) {
		t.Errorf("where one of two was heard it sees %v, %v", v.Silenced, v.Sound)
	}
	excluded := node("n3", in("", "b"), is("True"))
	excluded.Labels[exclude] = ""
	world.Put(kinds.Nodes.Kind, excluded)
	if v, _ := controller.Observe(world, key); !v.Silenced || v.FullDisruption || !v.Sound.IsZero() {
		t.Errorf("where the last that counts was not heard it sees %v, %v", v.Silenced, v.Sound)
	}
	world.Put(kinds.Nodes.Kind, node("n2", in("", "b"), is("False")))
	if v, _ := controller.Observe(world, key); v.Silenced || !v.FullDisruption {
		t.Errorf("where none says that it is ready it sees %v, %v", v.Silenced, v.FullDisruption)
	}
}

func keyList(names ...string) (keys []events.Key) {
	for _, name := range names {
		keys = append(keys, events.Key{Name: name})
	}
	return keys
}

func TestWhoseTurn(t *testing.T) {
	a, b := in("", "a"), in("", "b")
	drives := tainted(corev1.TaintNodeNotReady, corev1.TaintEffectNoExecute)
	heartbeat := node("n1", a, is("True"))
	heartbeat.Status.Conditions[0].LastHeartbeatTime = metav1.NewTime(now)
	many := []metav1.Object{node("n1", a, is("True")), node("n2", b, is("False"), drives)}
	for i := range 10 {
		many = append(many, node(fmt.Sprint("m", i), b, is("True")))
	}
	bright := reconciletest.NewWorld().Put(kinds.Nodes.Kind, many...)
	dim := reconciletest.NewWorld().Put(kinds.Nodes.Kind, many[:2]...).
		Put(kinds.Nodes.Kind, node("n3", is("Unknown"), tainted(corev1.TaintNodeUnreachable, corev1.TaintEffectNoSchedule)))
	for _, c := range []struct {
		what     string
		world    *reconciletest.World
		was, now *corev1.Node
		want     []events.Key
	}{
		{"it is new", bright, nil, node("n1", a, is("True")), keyList("n1", ":a")},
		{"it is gone", bright, node("n1", a, is("True")), nil, keyList("n1", ":a")},
		{"it says the same again", bright, node("n1", a, is("True")), heartbeat, keyList("n1")},
		{"it is not ready any more", bright, node("n1", a, is("True")), node("n1", a, is("False")), keyList("n1", ":a")},
		{"it moves", bright, node("n1", a, is("True")), node("n1", b, is("True")), keyList("n1", ":b", ":a")},
		{"its pods may stay", bright, node("n1", a, is("False"), drives), node("n1", a, is("False")), keyList("n1", ":a")},
		{"its own key has done its part", bright, node("n1", a, is("False")), node("n1", a, is("False"), tainted(corev1.TaintNodeNotReady, corev1.TaintEffectNoSchedule)), keyList("n1", ":a")},
		{"one of few changes", dim, node("n1", a, is("True")), node("n1", a, is("False")), keyList("n1", ":a", ":b", "n2", ":")},
		{"one of few that were not ready is unknown", dim, node("n1", a, is("False")), node("n1", a, is("Unknown")), keyList("n1", ":a")},
	} {
		var was, is metav1.Object
		if c.was != nil {
			was = c.was
		}
		if c.now != nil {
			is = c.now
		}
		if got := c.world.Keys(controller, kinds.Nodes.Kind, was, is); !slices.Equal(got, c.want) {
			t.Errorf("%s: turns of %v, want %v", c.what, got, c.want)
		}
	}
	lease := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: "kube-node-lease", Name: "n1"}}
	if got := bright.Keys(controller, kinds.Leases.Kind, lease, lease); got != nil {
		t.Errorf("a lease makes turns of %v", got)
	}
	for name, want := range map[string][]events.Key{"n1": nil, "n3": keyList("n3"), "n9": nil} {
		if got := dim.Keys(controller, kinds.Pods.Kind, nil, reconciletest.Pod("p", reconciletest.On(name), readyPod)); !slices.Equal(got, want) {
			t.Errorf("a ready pod on %s makes turns of %v, want %v", name, got, want)
		}
	}
	if got := dim.Keys(controller, kinds.Pods.Kind, nil, reconciletest.Pod("p", reconciletest.On("n3"))); got != nil {
		t.Errorf("a pod that is not ready makes turns of %v", got)
	}
}

func TestRates(t *testing.T) {
	c := Config{}.filled()
	for _, k := range []struct {
		up, down, out int
		want          float32
	}{
		{1, 0, 0, c.Rate}, {1, 2, 0, c.Rate}, {3, 3, 0, c.Rate}, {2, 3, 0, 0}, {0, 5, 0, c.Rate}, {20, 29, 0, 0}, {20, 31, 0, c.Secondary},
		{22, 28, 1, 0}, {0, 0, 4, c.Rate},
	} {
		z := &Zone{}
		add := func(n int, edits ...func(*corev1.Node)) {
			for range n {
				z.Members = append(z.Members, Member{Node: node("n", edits...)})
			}
		}
		add(k.up, is("True"))
		add(k.down, is("False"))
		add(k.out, is("False"), func(n *corev1.Node) { n.Labels = map[string]string{exclude: ""} })
		if got := z.rate(c, nil); got != k.want {
			t.Errorf("%d ready, %d not, %d left out: %v, want %v", k.up, k.down, k.out, got, k.want)
		}
	}
}

func TestWhoComesNext(t *testing.T) {
	unready := tainted(corev1.TaintNodeNotReady, corev1.TaintEffectNoSchedule)
	z := &Zone{Failed: "a", Members: []Member{
		{Node: node("a", says(corev1.NodeReady, "False", ago(time.Hour)), unready)},
		{Node: node("b", says(corev1.NodeReady, "False", ago(time.Minute)), unready)},
		{Node: node("c", says(corev1.NodeReady, "Unknown", ago(2*time.Minute)), tainted(corev1.TaintNodeUnreachable, corev1.TaintEffectNoSchedule))},
		{Node: node("d", is("False"), unready, tainted(corev1.TaintNodeUnreachable, corev1.TaintEffectNoExecute))},
		{Node: node("e", is("False"), unready)}, {Node: node("f", is("True"))}, {Node: node("g")},
		{Node: node("h", says(corev1.NodeReady, "False", ago(time.Hour)))}, // its own key comes first
	}}
	var names []string
	for _, n := range z.waiting(map[string]bool{"e": true}) {
		names = append(names, n.Name)
	}
	if !slices.Equal(names, []string{"c", "b", "a"}) {
		t.Errorf("pods go from %v, in this order", names)
	}
}

func TestFigures(t *testing.T) {
	z := &Zone{Name: "z", Members: []Member{{Node: node("a", is("False"), tainted(corev1.TaintNodeNotReady, corev1.TaintEffectNoSchedule))}, {Node: node("b", is("True"))}, {Node: node("c", is("True"))}, {Node: node("d", is("True"))}}}
	got := map[string]float64{}
	for _, f := range controller.Decide(View{Zone: z}, now).Figures {
		if !slices.Equal(f.Labels, []string{"z"}) {
			t.Errorf("a figure of %v", f.Labels)
		}
		got[f.Metric] = f.Value
	}
	if len(got) != 4 || got[health] != 75 || got[size] != 4 || got[unhealthy] != 1 || got[evictions] != 1 {
		t.Errorf("the figures are %v", got)
	}
}

func TestManyPodsAreReportedInTurns(t *testing.T) {
	v := View{Known: "uid-n1", Node: node("n1", is("Unknown"))}
	for i := range most + 5 {
		v.Pods = append(v.Pods, reconciletest.Pod(fmt.Sprint("p", i), readyPod))
	}
	if got := len(v.report(now).Commands); got != most {
		t.Errorf("%d pods are reported on at once", got)
	}
}
