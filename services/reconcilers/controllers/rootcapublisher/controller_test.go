package rootcapublisher

import (
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"pgregory.net/rapid"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/services/reconcilers/reconciletest"
)

var controller = New(Config{RootCA: []byte("CERTIFICATE")})

func TestStories(t *testing.T) { reconciletest.Stories(t, controller) }

func TestLaws(t *testing.T) {
	reconciletest.Laws(t, controller, rapid.Custom(func(t *rapid.T) View {
		v := View{Namespace: "shop", Bundle: "CERTIFICATE", Terminating: rapid.Bool().Draw(t, "terminating")}
		if rapid.Bool().Draw(t, "published") {
			v.Published = published("kube-root-ca.crt")
			words := rapid.SampledFrom([]string{"", "CERTIFICATE", description})
			v.Published.Data = rapid.MapOf(rapid.SampledFrom([]string{certificate, "more"}), words).Draw(t, "data")
			v.Published.Annotations = rapid.MapOf(rapid.SampledFrom([]string{annotation, "more"}), words).Draw(t, "annotations")
		}
		return v
	}), reconciletest.Now)
}

func namespace(name string, phase corev1.NamespacePhase) *corev1.Namespace {
	return &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name, UID: "uid"}, Status: corev1.NamespaceStatus{Phase: phase}}
}

func published(name string) *corev1.ConfigMap {
	return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name, UID: "uid", ResourceVersion: "7"}}
}

func TestObserve(t *testing.T) {
	key := events.Key{Name: "shop"}
	world := reconciletest.NewWorld(kinds.Namespaces.Kind, kinds.ConfigMaps.Kind)
	if _, ok := controller.Observe(world, key); ok {
		t.Error("there is a view of a namespace that is gone")
	}
	world.Put(kinds.Namespaces.Kind, namespace("shop", corev1.NamespaceActive))
	if v, ok := controller.Observe(world, key); !ok || v.Bundle != "CERTIFICATE" || v.Published != nil || v.Terminating {
		t.Errorf("the view is %+v, want the bundle and nothing published", v)
	}
	world.Put(kinds.Namespaces.Kind, namespace("shop", corev1.NamespaceTerminating))
	if v, _ := controller.Observe(world, key); !v.Terminating {
		t.Error("the view does not show that the namespace is being deleted")
	}
	world.Put(kinds.ConfigMaps.Kind, published("kube-root-ca.crt"))
	if v, _ := controller.Observe(world, key); v.Published == nil {
		t.Error("the view lacks the published ConfigMap")
	}
}

func TestWhoseTurn(t *testing.T) {
	world := reconciletest.NewWorld()
	shop := []events.Key{{Name: "shop"}}
	for _, c := range []struct {
		name     string
		kind     kinds.Kind
		was, now metav1.Object
		want     []events.Key
	}{
		{"new namespace", kinds.Namespaces.Kind, nil, namespace("shop", ""), shop},
		{"active namespace changed", kinds.Namespaces.Kind, namespace("shop", ""), namespace("shop", corev1.NamespaceActive), shop},
		{"namespace on its way out", kinds.Namespaces.Kind, namespace("shop", ""), namespace("shop", corev1.NamespaceTerminating), nil},
		{"namespace gone", kinds.Namespaces.Kind, namespace("shop", ""), nil, nil},
		{"ours gone", kinds.ConfigMaps.Kind, published("kube-root-ca.crt"), nil, shop},
		{"ours changed", kinds.ConfigMaps.Kind, published("kube-root-ca.crt"), published("kube-root-ca.crt"), shop},
		{"another one changed", kinds.ConfigMaps.Kind, published("settings"), published("settings"), nil},
	} {
		if got := world.Keys(controller, c.kind, c.was, c.now); !slices.Equal(got, c.want) {
			t.Errorf("%s: turns of %v, want %v", c.name, got, c.want)
		}
	}
}
