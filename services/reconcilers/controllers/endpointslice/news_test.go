package endpointslice

import (
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/services/reconcilers/reconcile"
	"github.com/millrace/millrace/services/reconcilers/reconciletest"
)

var webKey = events.Key{Namespace: reconciletest.Namespace, Name: "web"}

// told returns the Events of a decision.
func told(d reconcile.Decision) (all []string) {
	for _, c := range d.Commands {
		if c.Verb == events.VerbRecord && c.OnApplied != nil {
			all = append(all, c.OnApplied.Type+" "+c.OnApplied.Reason+": "+c.OnApplied.Message)
		}
	}
	return all
}

// turn decides for the service web, and applies the decision.
func turn(world *reconciletest.World) reconcile.Decision {
	v, _ := controller.Observe(world, webKey)
	d := controller.Decide(v, now)
	for _, s := range applied(v, d, now).Slices {
		world.Put(kinds.EndpointSlices.Kind, s)
	}
	o := events.Outcome{Key: webKey, Lane: events.LaneStatus, UID: v.Service.UID}
	for i, c := range d.Commands {
		if c.Lane() == events.LaneStatus {
			o.Results = append(o.Results, events.Result{Command: i, Status: events.Applied, Answer: &events.Answer{Note: c.Note}})
		}
	}
	if len(o.Results) > 0 {
		world.Remember(o)
	}
	return d
}

func readyAt(name, ip, node string) *corev1.Pod {
	p := podAt(name, ip)
	p.Spec.NodeName = node
	reconciletest.ReadySince(now)(p)
	return p
}

// A service asks for hints: Events report once why it has none, when it gets some, when
// that ends, and when it no longer asks for them.
func TestUsersAreToldOfHints(t *testing.T) {
	web := svc("web")
	world := reconciletest.NewWorld().Put(kinds.Services.Kind, web).
		Put(kinds.Nodes.Kind, node("n1", "east"), node("n2", "west")).Put(kinds.Pods.Kind, readyAt("a", "10.1.0.1", "n1"))
	step := func(what string, want ...string) {
		t.Helper()
		got := told(turn(world))
		same := len(got) == len(want)
		for i := range min(len(got), len(want)) {
			same = same && strings.HasPrefix(got[i], want[i])
		}
		if !same {
			t.Errorf("%s: users are told %q, want %q", what, got, want)
		}
		if d := turn(world); len(d.Commands) > 0 {
			t.Errorf("%s: and then again: %s", what, d.Because)
		}
	}
	annotated := func(mode string) {
		next := web.DeepCopy()
		next.Annotations = map[string]string{corev1.AnnotationTopologyMode: mode}
		world.Put(kinds.Services.Kind, next)
	}
	step("it does not ask")
	annotated("Auto")
	few := "Warning TopologyAwareHintsDisabled: Insufficient number of endpoints (1 endpoints, 2 zones), addressType: IPv4"
	step("too few endpoints", few)
	world.Put(kinds.Pods.Kind, readyAt("b", "10.1.0.2", "n2"))
	step("enough", "Normal TopologyAwareHintsEnabled: Topology Aware Hints has been enabled, addressType: IPv4")
	annotated("Disabled")
	step("no longer asked for", "Warning TopologyAwareHintsDisabled: Topology Aware Hints has been disabled, addressType: IPv4")
	world.Remove(kinds.Pods.Name, reconciletest.Namespace, "b")
	annotated("Auto")
	step("too few again", few)
	annotated("Disabled")
	step("not asked for, and had none")
	annotated("Auto")
	step("asked for once more", few)
	next := web.DeepCopy()
	next.Spec.TrafficDistribution = ptr.To("PreferClose")
	world.Put(kinds.Services.Kind, next)
	step("by distance")
	next = web.DeepCopy()
	world.Put(kinds.Services.Kind, next)
	step("no hints by distance any more")
}

// Events about a service say nothing about a later service of that name, and a failed
// Event is sent again.
func TestWhatWasToldIsOfOneService(t *testing.T) {
	for _, o := range []events.Outcome{
		{UID: "another", Results: []events.Result{{Status: events.Applied}}},
		{UID: "uid-web", Results: []events.Result{{Status: events.Failed}}},
	} {
		web := svc("web")
		web.Annotations = map[string]string{corev1.AnnotationTopologyMode: "Auto"}
		world := reconciletest.NewWorld().Put(kinds.Services.Kind, web)
		d := turn(world)
		if len(told(d)) != 1 {
			t.Fatalf("users are told %q", told(d))
		}
		o.Key, o.Lane = webKey, events.LaneStatus
		o.Results[0].Answer = &events.Answer{Note: d.Commands[len(d.Commands)-1].Note}
		world.Remember(o)
		if again := told(turn(world)); !slices.Equal(again, told(d)) {
			t.Errorf("after %v users are told %q", o, again)
		}
	}
}

// Deleting a Node object by itself removes nothing from the slices: its pods run until
// they are deleted. When the service changes for another reason, its slices lose these
// pods, as upstream, and an Event names them.
func TestPodsOfADeletedNode(t *testing.T) {
	web := svc("web")
	world := reconciletest.NewWorld().Put(kinds.Services.Kind, web).
		Put(kinds.Nodes.Kind, node("n1", "east"), node("n2", "west")).
		Put(kinds.Pods.Kind, readyAt("a", "10.1.0.1", "n1"), readyAt("b", "10.1.0.2", "n2"))
	turn(world)
	gone, _ := world.Get(kinds.Nodes.Name, "", "n1")
	world.Remove(kinds.Nodes.Name, "", "n1")
	if got := world.Keys(controller, kinds.Nodes.Kind, gone, nil); len(got) > 0 {
		t.Errorf("the change asks for turns of %v", got)
	}
	if got := told(turn(world)); !slices.Equal(got, []string{"Warning FailedToUpdateEndpointSlices: Error updating Endpoint Slices for Service default/web: skipping Pod a for Service default/web: Node n1 Not Found"}) {
		t.Errorf("users are told %q", got)
	}
	world.Put(kinds.Nodes.Kind, node("n1", "east"))
	if got := world.Keys(controller, kinds.Nodes.Kind, nil, node("n1", "east")); !slices.Equal(got, []events.Key{webKey}) {
		t.Errorf("the return of the node asks for turns of %v", got)
	}
	if d := turn(world); len(told(d)) > 0 || len(d.Commands) == 0 {
		t.Errorf("when the node comes back the decision is %v", d)
	}
}

// Hints by capacity follow the usable nodes: a new node counts while it is ready.
func TestHintsFollowNodes(t *testing.T) {
	web, plain := svc("web"), svc("plain")
	web.Annotations = map[string]string{corev1.AnnotationTopologyMode: "Auto"}
	world := reconciletest.NewWorld().Put(kinds.Services.Kind, web, plain).Put(kinds.Pods.Kind, podAt("a", "10.1.0.1"))
	unready := func(n *corev1.Node) *corev1.Node {
		n.Status.Conditions[0].Status = corev1.ConditionFalse
		return n
	}
	larger := node("north", "north")
	larger.Status.Allocatable = corev1.ResourceList{corev1.ResourceCPU: *larger.Status.Allocatable.Cpu()}
	cpu := larger.Status.Allocatable[corev1.ResourceCPU]
	cpu.Add(cpu)
	larger.Status.Allocatable[corev1.ResourceCPU] = cpu
	for _, c := range []struct {
		what     string
		was, now *corev1.Node
		turns    bool
	}{
		{"a node that is not ready comes", nil, unready(node("north", "north")), false},
		{"it is ready", unready(node("north", "north")), node("north", "north"), true},
		{"it says so again", node("north", "north"), node("north", "north"), false},
		{"it has more processors", node("north", "north"), larger, true},
		{"it is not ready", node("north", "north"), unready(node("north", "north")), true},
		{"it moves, and is not ready", unready(node("north", "north")), unready(node("north", "south")), false},
		{"one that is ready goes", node("north", "north"), nil, true},
		{"one that is not goes", unready(node("north", "north")), nil, false},
	} {
		var was, is metav1.Object
		if c.was != nil {
			was = c.was
		}
		if c.now != nil {
			is = c.now
		}
		want := []events.Key(nil)
		if c.turns {
			want = []events.Key{webKey}
		}
		if got := world.Keys(controller, kinds.Nodes.Kind, was, is); !slices.Equal(got, want) {
			t.Errorf("%s: turns of %v, want %v", c.what, got, want)
		}
	}
}
