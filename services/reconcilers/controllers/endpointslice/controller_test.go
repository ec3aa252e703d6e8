package endpointslice

import (
	"encoding/json"
	"fmt"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"
	"pgregory.net/rapid"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/services/reconcilers/kube/endpoint"
	"github.com/millrace/millrace/services/reconcilers/reconcile"
	"github.com/millrace/millrace/services/reconcilers/reconciletest"
)

var (
	controller = New(Config{})
	now        = reconciletest.Now
)

func TestStories(t *testing.T) { reconciletest.Stories(t, controller) }

func TestLaws(t *testing.T) {
	reconciletest.Laws(t, controller, rapid.Custom(anyView), now,
		reconciletest.Indifferent(shuffled),
		reconciletest.Content(2, applied),
		reconciletest.Law[View]{Name: "complete", Holds: complete},
	)
}

// complete checks that, after the commands are applied, every endpoint is in one slice,
// and no slice has too many.
func complete(_ *rapid.T, c reconcile.Controller[View], v View, now time.Time) error {
	if !v.published() || v.Service.DeletionTimestamp != nil {
		return nil
	}
	after := applied(v, c.Decide(v, now), now)
	for _, family := range v.families() {
		want, have := map[string]int{}, map[string]int{}
		for _, p := range v.Pods {
			if e, ok := v.endpoint(p, family); ok {
				want[endpoint.Identity(e)]++
			}
		}
		for _, slice := range after.Slices {
			if slice.AddressType != family || !ownedBy(slice, v.Service) {
				continue
			}
			if len(slice.Endpoints) > v.Max {
				return fmt.Errorf("%s holds %d endpoints", slice.Name, len(slice.Endpoints))
			}
			for _, e := range slice.Endpoints {
				have[endpoint.Identity(e)]++
			}
		}
		for key := range want {
			if have[key] != 1 {
				return fmt.Errorf("%s is in %d slices", key, have[key])
			}
			delete(have, key)
		}
		if len(have) > 0 {
			return fmt.Errorf("there is no pod any more for %v", have)
		}
	}
	return nil
}

func svc(name string) *corev1.Service {
	return &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: reconciletest.Namespace, Name: name, UID: types.UID("uid-" + name), ResourceVersion: "1",
			CreationTimestamp: metav1.NewTime(now.Add(-time.Hour)), Labels: map[string]string{"app": name},
		},
		Spec: corev1.ServiceSpec{
			ClusterIP: "10.0.0.1", IPFamilies: []corev1.IPFamily{corev1.IPv4Protocol}, Selector: map[string]string{"app": "web"},
			Ports: []corev1.ServicePort{{Name: "http", Port: 80, Protocol: corev1.ProtocolTCP, TargetPort: intstr.FromInt32(8080)}},
		},
	}
}

func podAt(name string, ip string) *corev1.Pod {
	p := reconciletest.Pod(name, reconciletest.On("n1"))
	p.Status.PodIP, p.Status.PodIPs = ip, []corev1.PodIP{{IP: ip}}
	return p
}

func anyView(t *rapid.T) View {
	s := svc("web")
	v := View{
		Service: s, Max: rapid.IntRange(1, 4).Draw(t, "max"), Attempt: uint64(rapid.IntRange(0, 2).Draw(t, "attempt")),
		Zones: map[string]string{"n1": "east", "n2": "west", "n3": ""},
	}
	s.Spec.PublishNotReadyAddresses = rapid.Bool().Draw(t, "publish")
	s.Spec.TrafficDistribution = rapid.SampledFrom([]*string{nil, ptr.To("PreferClose"), ptr.To("PreferSameNode")}).Draw(t, "distribution")
	if rapid.IntRange(0, 5).Draw(t, "two families") == 0 {
		s.Spec.IPFamilies = append(s.Spec.IPFamilies, corev1.IPv6Protocol)
	}
	if rapid.Bool().Draw(t, "named port") {
		s.Spec.Ports[0].TargetPort = intstr.FromString("web")
	}
	switch rapid.IntRange(0, 9).Draw(t, "odd service") {
	case 0:
		s.Spec.Type = corev1.ServiceTypeExternalName
	case 1:
		reconciletest.Deleted[*corev1.Service](now)(s)
	case 2:
		s.Spec.ClusterIP, s.Spec.Ports = corev1.ClusterIPNone, nil
	case 3, 4, 5:
		s.Annotations = map[string]string{corev1.AnnotationTopologyMode: "Auto"}
		v.Capacity = map[string]int64{"east": int64(rapid.IntRange(1, 9).Draw(t, "east")), "west": 3}
	}
	for i := range rapid.IntRange(0, 8).Draw(t, "pods") {
		v.Pods = append(v.Pods, anyPod(t, i))
	}
	// The slices come from an earlier turn with fewer pods and another maximum.
	past := v
	past.Pods = v.Pods[:rapid.IntRange(0, len(v.Pods)).Draw(t, "known")]
	past.Max = rapid.IntRange(1, v.Max).Draw(t, "max before")
	if rapid.Bool().Draw(t, "had slices") {
		past = applied(past, decide(past, now), now)
		v.Slices = past.Slices
	}
	for _, slice := range v.Slices {
		switch rapid.IntRange(0, 7).Draw(t, "odd slice") {
		case 0:
			slice.OwnerReferences[0].UID = "another"
		case 1:
			slice.Labels["more"] = "x"
		case 2:
			if len(slice.Endpoints) > 0 {
				slice.Endpoints = slice.Endpoints[1:]
			}
		}
	}
	return v
}

func anyPod(t *rapid.T, i int) *corev1.Pod {
	p := podAt(fmt.Sprintf("web-%d", i), fmt.Sprintf("10.1.0.%d", i+1))
	p.Spec.NodeName = rapid.SampledFrom([]string{"n1", "n2", "n2", "n3", "gone"}).Draw(t, "node")
	if rapid.Bool().Draw(t, "two addresses") {
		p.Status.PodIPs = append(p.Status.PodIPs, corev1.PodIP{IP: fmt.Sprintf("fd00::%d", i+1)})
	}
	if rapid.Bool().Draw(t, "has the port") {
		p.Spec.Containers = []corev1.Container{{Name: "c", Ports: []corev1.ContainerPort{{Name: "web", ContainerPort: 8080, Protocol: corev1.ProtocolTCP}}}}
	}
	if rapid.Bool().Draw(t, "ready") {
		reconciletest.ReadySince(now.Add(-time.Duration(i+1) * time.Minute))(p)
	}
	switch rapid.IntRange(0, 7).Draw(t, "odd pod") {
	case 0:
		p.Status.Phase = corev1.PodSucceeded
	case 1:
		p.Status.PodIP, p.Status.PodIPs = "", nil
	case 2:
		reconciletest.Deleted[*corev1.Pod](now)(p)
	}
	return p
}

func shuffled(t *rapid.T, v View) View {
	v.Pods = rapid.Permutation(v.Pods).Draw(t, "pods in another order")
	v.Slices = rapid.Permutation(v.Slices).Draw(t, "slices in another order")
	return v
}

// applied returns the view after every command succeeded.
func applied(v View, d reconcile.Decision, _ time.Time) View {
	v.Slices = slices.Clone(v.Slices)
	for _, c := range d.Commands {
		at := slices.IndexFunc(v.Slices, func(s *discoveryv1.EndpointSlice) bool { return s.Name == c.Name })
		var slice discoveryv1.EndpointSlice
		if len(c.Body) > 0 {
			if err := json.Unmarshal(c.Body, &slice); err != nil {
				panic(err)
			}
		}
		switch c.Verb {
		case events.VerbCreate:
			slice.Name, slice.UID, slice.ResourceVersion = c.Name, types.UID("uid-"+c.Name), "1"
			v.Slices = append(v.Slices, &slice)
		case events.VerbUpdate:
			v.Slices[at] = &slice
		case events.VerbDelete:
			v.Slices = slices.Delete(v.Slices, at, at+1)
		case events.VerbRecord:
			if len(c.Note) > 0 {
				v.Told = Told{}
				if err := json.Unmarshal(c.Note, &v.Told); err != nil {
					panic(err)
				}
			}
		}
	}
	return v
}

func slice(name, of string) *discoveryv1.EndpointSlice {
	return &discoveryv1.EndpointSlice{ObjectMeta: metav1.ObjectMeta{
		Namespace: reconciletest.Namespace, Name: name, UID: types.UID("uid-" + name),
		Labels: map[string]string{discoveryv1.LabelServiceName: of, discoveryv1.LabelManagedBy: manager},
	}}
}

func node(name, zone string) *corev1.Node {
	return &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{corev1.LabelTopologyZone: zone}},
		Status: corev1.NodeStatus{
			Conditions:  []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}},
			Allocatable: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("2")},
		},
	}
}

func TestObserve(t *testing.T) {
	web, key := svc("web"), events.Key{Namespace: reconciletest.Namespace, Name: "web"}
	going, foreign := slice("going", "web"), slice("foreign", "web")
	reconciletest.Deleted[*discoveryv1.EndpointSlice](now)(going)
	foreign.Labels[discoveryv1.LabelManagedBy] = "another"
	world := reconciletest.NewWorld().Put(kinds.Services.Kind, web).
		Put(kinds.Pods.Kind, podAt("a", "10.1.0.1"), reconciletest.Pod("other", reconciletest.Labelled[*corev1.Pod](nil))).
		Put(kinds.Nodes.Kind, node("n1", "east"), node("n2", "west")).
		Put(kinds.EndpointSlices.Kind, slice("web-1", "web"), slice("db-1", "db"), going, foreign)
	v, ok := controller.Observe(world, key)
	if !ok || len(v.Pods) != 1 || len(v.Slices) != 1 || v.Slices[0].Name != "web-1" {
		t.Fatalf("the view has %+v", v)
	}
	if v.Max != DefaultMax || len(v.Zones) != 1 || v.Zones["n1"] != "east" || v.Capacity != nil {
		t.Errorf("the view has a maximum of %d, the zones %v and the capacity %v", v.Max, v.Zones, v.Capacity)
	}
	web.Annotations = map[string]string{corev1.AnnotationTopologyMode: "Auto"}
	if v, _ = controller.Observe(world, key); v.Capacity["east"] != 2000 || v.Capacity["west"] != 2000 {
		t.Errorf("the capacity is %v", v.Capacity)
	}
	world.Put(kinds.Nodes.Kind, node("n3", ""))
	if v, _ = controller.Observe(world, key); v.Capacity != nil {
		t.Errorf("with a node of no zone the capacity is %v", v.Capacity)
	}
}

func TestWhoseTurn(t *testing.T) {
	web, db := svc("web"), svc("db")
	db.Spec.Selector = map[string]string{"app": "db"}
	p := podAt("a", "10.1.0.1")
	moved := podAt("a", "10.1.0.1")
	moved.Labels = map[string]string{"app": "db"}
	world := reconciletest.NewWorld().Put(kinds.Services.Kind, web, db).Put(kinds.Pods.Kind, p)
	key := func(name string) events.Key { return events.Key{Namespace: reconciletest.Namespace, Name: name} }
	alien := slice("x", "web")
	alien.Labels[discoveryv1.LabelManagedBy] = "another"
	for _, c := range []struct {
		what     string
		kind     kinds.Kind
		was, now metav1.Object
		want     []events.Key
	}{
		{"a pod comes", kinds.Pods.Kind, nil, p, []events.Key{key("web")}},
		{"a pod goes", kinds.Pods.Kind, p, nil, []events.Key{key("web")}},
		{"a pod gets other labels", kinds.Pods.Kind, p, moved, []events.Key{key("db"), key("web")}},
		{"a slice goes", kinds.EndpointSlices.Kind, slice("s", "web"), nil, []events.Key{key("web")}},
		{"a slice changes hands", kinds.EndpointSlices.Kind, slice("s", "web"), slice("s", "db"), []events.Key{key("db"), key("web")}},
		{"a slice of another manager", kinds.EndpointSlices.Kind, nil, alien, nil},
		{"a node comes", kinds.Nodes.Kind, nil, node("n1", "east"), []events.Key{key("web")}},
		{"a node without pods comes", kinds.Nodes.Kind, nil, node("n2", "east"), nil},
		{"a node moves", kinds.Nodes.Kind, node("n1", "east"), node("n1", "west"), []events.Key{key("web")}},
		{"a node goes", kinds.Nodes.Kind, node("n1", "east"), nil, nil},
		{"a heartbeat of a node", kinds.Nodes.Kind, node("n1", "east"), node("n1", "east"), nil},
	} {
		if got := world.Keys(controller, c.kind, c.was, c.now); !slices.Equal(got, c.want) {
			t.Errorf("%s: turns of %v, want %v", c.what, got, c.want)
		}
	}
}
