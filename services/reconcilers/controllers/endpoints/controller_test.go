package endpoints

import (
	"encoding/json"
	"fmt"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"pgregory.net/rapid"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/services/reconcilers/reconcile"
	"github.com/millrace/millrace/services/reconcilers/reconciletest"
)

var now = reconciletest.Now

func TestStories(t *testing.T) { reconciletest.Stories(t, Controller) }

func TestLaws(t *testing.T) {
	reconciletest.Laws(t, Controller, rapid.Custom(anyView), now,
		reconciletest.Indifferent(func(t *rapid.T, v View) View {
			v.Pods = rapid.Permutation(v.Pods).Draw(t, "order")
			return v
		}),
		reconciletest.Content(2, applied))
}

func svc() *corev1.Service {
	return &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web", UID: "u", CreationTimestamp: metav1.NewTime(now.Add(-time.Hour))},
		Spec: corev1.ServiceSpec{
			ClusterIP: "10.0.0.1", IPFamilies: []corev1.IPFamily{corev1.IPv4Protocol}, Selector: map[string]string{"app": "web"},
			Ports: []corev1.ServicePort{{Name: "http", Port: 80, Protocol: corev1.ProtocolTCP, TargetPort: intstr.FromInt32(8080)}},
		},
	}
}

func podAt(name, ip string) *corev1.Pod {
	p := reconciletest.Pod(name, reconciletest.On("n1"), reconciletest.In[*corev1.Pod]("shop"))
	p.Status.PodIP, p.Status.PodIPs = ip, []corev1.PodIP{{IP: ip}}
	return p
}

func anyView(t *rapid.T) View {
	v := View{Service: svc()}
	if rapid.Bool().Draw(t, "two ports") {
		v.Service.Spec.Ports = append(v.Service.Spec.Ports, corev1.ServicePort{Name: "metrics", Protocol: corev1.ProtocolTCP, TargetPort: intstr.FromString("metrics")})
	}
	if rapid.Bool().Draw(t, "labels") {
		v.Service.Labels = map[string]string{"a": "b"}
	}
	v.Service.Spec.PublishNotReadyAddresses = rapid.Bool().Draw(t, "publish")
	for i := range rapid.IntRange(0, 5).Draw(t, "pods") {
		p := podAt(fmt.Sprintf("web-%d", i), fmt.Sprintf("10.1.0.%d", 1+rapid.IntRange(0, 3).Draw(t, "address")))
		if rapid.Bool().Draw(t, "has the port") {
			p.Spec.Containers = []corev1.Container{{Ports: []corev1.ContainerPort{{Name: "metrics", ContainerPort: 9, Protocol: corev1.ProtocolTCP}}}}
		}
		if rapid.Bool().Draw(t, "ready") {
			reconciletest.ReadySince(now.Add(-time.Minute))(p)
		}
		switch rapid.IntRange(0, 6).Draw(t, "odd pod") {
		case 0:
			p.Status.Phase = corev1.PodFailed
		case 1:
			reconciletest.Deleted[*corev1.Pod](now)(p)
		case 2:
			p.Status.PodIP, p.Status.PodIPs = "", nil
		}
		v.Pods = append(v.Pods, p)
	}
	if rapid.Bool().Draw(t, "published") {
		past := v
		past.Pods = v.Pods[:rapid.IntRange(0, len(v.Pods)).Draw(t, "known")]
		v.Endpoints = applied(past, decide(past, now), now).Endpoints
		v.Endpoints.UID, v.Endpoints.ResourceVersion = "e", "7"
	}
	switch rapid.IntRange(0, 7).Draw(t, "odd service") {
	case 0:
		v.Service = nil
	case 1:
		v.Service.Spec.Type = corev1.ServiceTypeExternalName
	case 2:
		v.Service.Spec.ClusterIP, v.Service.Spec.Ports = corev1.ClusterIPNone, nil
	case 3:
		v.Service.Spec.IPFamilies[0] = corev1.IPv6Protocol
	}
	return v
}

func applied(v View, d reconcile.Decision, _ time.Time) View {
	for _, c := range d.Commands {
		v.Endpoints = nil
		if c.Verb == events.VerbDelete {
			continue
		}
		v.Endpoints = &corev1.Endpoints{}
		if err := json.Unmarshal(c.Body, v.Endpoints); err != nil {
			panic(err)
		}
	}
	return v
}

// Beyond its capacity the object has ready addresses first, and an annotation that it is incomplete.
func TestTooMany(t *testing.T) {
	for _, c := range []struct{ ready, not, wantReady, wantNot int }{
		{900, 100, 900, 100}, {900, 200, 900, 100}, {1200, 50, 1000, 0}, {0, 1001, 0, 1000},
	} {
		v := View{Service: svc()}
		for i := range c.ready + c.not {
			p := podAt(fmt.Sprintf("web-%04d", i), fmt.Sprintf("10.1.%d.%d", i/200, i%200))
			if i < c.ready {
				reconciletest.ReadySince(now)(p)
			}
			v.Pods = append(v.Pods, p)
		}
		v = applied(v, decide(v, now), now)
		ready, not := 0, 0
		for _, s := range v.Endpoints.Subsets {
			ready, not = ready+len(s.Addresses), not+len(s.NotReadyAddresses)
		}
		marked := v.Endpoints.Annotations[corev1.EndpointsOverCapacity] == "truncated"
		if ready != c.wantReady || not != c.wantNot || marked != (c.ready+c.not > capacity) {
			t.Errorf("of %d ready and %d other pods the Endpoints have %d and %d, marked: %v", c.ready, c.not, ready, not, marked)
		}
		if d := decide(v, now); len(d.Commands) > 0 {
			t.Errorf("with %d and %d it is never content: %s", c.ready, c.not, d.Because)
		}
	}
}

func TestObserve(t *testing.T) {
	key := events.Key{Namespace: "shop", Name: "web"}
	world := reconciletest.NewWorld(kinds.Services.Kind, kinds.Endpoints.Kind)
	if _, ok := observe(world, key); ok {
		t.Error("there is a view of nothing")
	}
	world.Put(kinds.Endpoints.Kind, &corev1.Endpoints{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web"}})
	if v, ok := observe(world, key); !ok || v.Endpoints == nil || v.Service != nil {
		t.Errorf("without the service the view has %+v", v)
	}
	world.Put(kinds.Services.Kind, svc()).Put(kinds.Pods.Kind, podAt("a", "10.1.0.1"))
	if v, _ := observe(world, key); v.Service == nil || len(v.Pods) != 1 {
		t.Errorf("with it the view has %+v", v)
	}
}

func TestWhoseTurnEndpointsMakeIt(t *testing.T) {
	theirs := &corev1.Endpoints{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web"}}
	ours := theirs.DeepCopy()
	ours.Labels = map[string]string{managedBy: manager}
	key := []events.Key{{Namespace: "shop", Name: "web"}}
	for _, c := range []struct {
		what     string
		was, now metav1.Object
		want     []events.Key
	}{
		{"ours changed", ours, ours, key}, {"ours gone", ours, nil, key}, {"theirs gone", theirs, nil, key},
		{"theirs new", nil, theirs, nil}, {"theirs changed", theirs, theirs, nil},
	} {
		if got := reconciletest.NewWorld().Keys(Controller, kinds.Endpoints.Kind, c.was, c.now); !slices.Equal(got, c.want) {
			t.Errorf("%s: turns of %v, want %v", c.what, got, c.want)
		}
	}
}
