package service_test

import (
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/services/reconcilers/kube/service"
	"github.com/millrace/millrace/services/reconcilers/reconcile"
	"github.com/millrace/millrace/services/reconcilers/reconciletest"
)

func svc(name string, selector map[string]string) *corev1.Service {
	return &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Namespace: reconciletest.Namespace, Name: name},
		Spec:       corev1.ServiceSpec{Selector: selector},
	}
}

func TestWhoStandsForAPod(t *testing.T) {
	web := map[string]string{"app": "web"}
	world := reconciletest.NewWorld().Put(kinds.Services.Kind,
		svc("all", map[string]string{}), svc("db", map[string]string{"app": "db"}), svc("none", nil), svc("web", web))
	object := func(labels map[string]string) reconcile.Object {
		return reconcile.Object{Kind: kinds.Pods.Kind, Object: reconciletest.Pod("p", reconciletest.Labelled[*corev1.Pod](labels))}
	}
	names := func(keys []events.Key) (names []string) {
		for _, k := range keys {
			names = append(names, k.Name)
		}
		return names
	}
	now, was := object(web), object(map[string]string{"app": "db"})
	if got := names(service.KeysOfPod(world, reconcile.Object{}, now)); !slices.Equal(got, []string{"all", "web"}) {
		t.Errorf("a new pod concerns %v", got)
	}
	if got := names(service.KeysOfPod(world, was, now)); !slices.Equal(got, []string{"all", "web", "db"}) {
		t.Errorf("a pod that was another's concerns %v", got)
	}
	if got := names(service.KeysOfPod(world, was, reconcile.Object{})); !slices.Equal(got, []string{"all", "db"}) {
		t.Errorf("a pod that is gone concerns %v", got)
	}
}

func TestPort(t *testing.T) {
	always := corev1.ContainerRestartPolicyAlways
	port := func(name string, number int32) []corev1.ContainerPort {
		return []corev1.ContainerPort{{Name: name, ContainerPort: number, Protocol: corev1.ProtocolTCP}}
	}
	p := &corev1.Pod{Spec: corev1.PodSpec{
		Containers: []corev1.Container{{Ports: port("http", 8080)}},
		InitContainers: []corev1.Container{
			{Ports: port("setup", 1)}, {Ports: port("http", 2), RestartPolicy: &always}, {Ports: port("proxy", 15000), RestartPolicy: &always},
		},
	}}
	for _, c := range []struct {
		target intstr.IntOrString
		udp    bool
		want   int32
	}{
		{intstr.FromInt32(9), false, 9},
		{intstr.FromString("http"), false, 8080},
		{intstr.FromString("proxy"), false, 15000},
		{intstr.FromString("setup"), false, 0},
		{intstr.FromString("http"), true, 0},
		{intstr.FromString("other"), false, 0},
	} {
		asked := corev1.ServicePort{Protocol: corev1.ProtocolTCP, TargetPort: c.target}
		if c.udp {
			asked.Protocol = corev1.ProtocolUDP
		}
		if got, ok := service.Port(p, &asked); got != c.want || ok != (c.want != 0) {
			t.Errorf("port %v (UDP %v) is %d, %v", c.target.String(), c.udp, got, ok)
		}
	}
}

func TestAddress(t *testing.T) {
	for text, want := range map[string]string{
		"10.1.0.1": "10.1.0.1", "010.001.000.1": "10.1.0.1", "fd00:0::1": "fd00::1", "::ffff:10.1.0.1": "10.1.0.1", "nonsense": "", "": "",
	} {
		if got, ok := service.Address(text); ok != (want != "") || ok && got.String() != want {
			t.Errorf("%q is %v, %v", text, got, ok)
		}
	}
}

func TestHostname(t *testing.T) {
	s, p := svc("web", nil), reconciletest.Pod("p")
	p.Spec.Hostname = "a"
	if _, ok := service.Hostname(s, p); ok {
		t.Error("a pod of no subdomain has a name in the service's")
	}
	p.Spec.Subdomain = "web"
	if name, ok := service.Hostname(s, p); !ok || name != "a" {
		t.Errorf("the host name is %q, %v; want a", name, ok)
	}
}

// A pod that has an address of either form may answer, until it has ended.
func TestReachable(t *testing.T) {
	for name, c := range map[string]struct {
		status corev1.PodStatus
		want   bool
	}{
		"no address":      {corev1.PodStatus{}, false},
		"one address":     {corev1.PodStatus{PodIP: "10.0.0.1"}, true},
		"several":         {corev1.PodStatus{PodIPs: []corev1.PodIP{{IP: "10.0.0.1"}}}, true},
		"an ended pod":    {corev1.PodStatus{PodIP: "10.0.0.1", Phase: corev1.PodSucceeded}, false},
		"a failed pod":    {corev1.PodStatus{PodIP: "10.0.0.1", Phase: corev1.PodFailed}, false},
		"a pod that runs": {corev1.PodStatus{PodIP: "10.0.0.1", Phase: corev1.PodRunning}, true},
	} {
		if got := service.Reachable(&corev1.Pod{Status: c.status}); got != c.want {
			t.Errorf("%s: reachable is %v", name, got)
		}
	}
}

func TestHeadless(t *testing.T) {
	for address, want := range map[string]bool{corev1.ClusterIPNone: true, "": true, "10.0.0.1": false} {
		if got := service.Headless(&corev1.Service{Spec: corev1.ServiceSpec{ClusterIP: address}}); got != want {
			t.Errorf("with the address %q a service is headless: %v, want %v", address, got, want)
		}
	}
}
