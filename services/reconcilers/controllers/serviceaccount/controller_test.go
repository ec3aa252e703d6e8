package serviceaccount

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

func TestStories(t *testing.T) { reconciletest.Stories(t, Controller) }

func TestLaws(t *testing.T) {
	reconciletest.Laws(t, Controller, rapid.Custom(func(t *rapid.T) View {
		v := View{Namespace: namespace("shop", rapid.SampledFrom([]corev1.NamespacePhase{
			corev1.NamespaceActive, corev1.NamespaceTerminating, "",
		}).Draw(t, "phase"))}
		if rapid.Bool().Draw(t, "missing") {
			v.Missing = accounts
		}
		return v
	}), reconciletest.Now)
}

func namespace(name string, phase corev1.NamespacePhase) *corev1.Namespace {
	return &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name, UID: "uid"}, Status: corev1.NamespaceStatus{Phase: phase}}
}

func account(name string) *corev1.ServiceAccount {
	return &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name}}
}

func TestObserve(t *testing.T) {
	key := events.Key{Name: "shop"}
	world := reconciletest.NewWorld(kinds.Namespaces.Kind, kinds.ServiceAccounts.Kind)
	if _, ok := observe(world, key); ok {
		t.Error("there is a view of a namespace that is gone")
	}
	world.Put(kinds.Namespaces.Kind, namespace("shop", corev1.NamespaceActive))
	world.Put(kinds.ServiceAccounts.Kind, account("builder"))
	if v, _ := observe(world, key); !slices.Equal(v.Missing, []string{"default"}) {
		t.Errorf("the view is %+v, want the default account missing", v)
	}
	world.Put(kinds.ServiceAccounts.Kind, account("default"))
	if v, _ := observe(world, key); len(v.Missing) != 0 {
		t.Errorf("missing are %v, want none", v.Missing)
	}
}

func TestWhoseTurn(t *testing.T) {
	world := reconciletest.NewWorld()
	for _, c := range []struct {
		name     string
		kind     kinds.Kind
		was, now metav1.Object
		want     []events.Key
	}{
		{"new namespace", kinds.Namespaces.Kind, nil, namespace("shop", ""), []events.Key{{Name: "shop"}}},
		{"changed namespace", kinds.Namespaces.Kind, namespace("shop", ""), namespace("shop", corev1.NamespaceActive), []events.Key{{Name: "shop"}}},
		{"account gone", kinds.ServiceAccounts.Kind, account("default"), nil, []events.Key{{Name: "shop"}}},
		{"other account gone", kinds.ServiceAccounts.Kind, account("builder"), nil, nil},
		{"account changed", kinds.ServiceAccounts.Kind, account("default"), account("default"), nil},
		{"account new", kinds.ServiceAccounts.Kind, nil, account("default"), nil},
	} {
		if got := world.Keys(Controller, c.kind, c.was, c.now); !slices.Equal(got, c.want) {
			t.Errorf("%s: turns of %v, want %v", c.name, got, c.want)
		}
	}
}
