package keys

import (
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/services/reconcilers/reconcile"
)

func TestASetHasEachKeyOnce(t *testing.T) {
	var s Set
	if s.All() != nil || s.Has(events.Key{}) {
		t.Errorf("an empty set has %v", s.All())
	}
	a, b := events.Key{Namespace: "ns", Name: "a"}, events.Key{Kind: "pods", Namespace: "ns", Name: "a"}
	for _, key := range []events.Key{b, a, {Namespace: "ns"}, b, a} {
		s.Add(key)
	}
	if !slices.Equal(s.All(), []events.Key{b, a}) {
		t.Errorf("All is %v, want b and a", s.All())
	}
	if !s.Has(a) || !s.Has(b) || s.Has(events.Key{Namespace: "ns"}) {
		t.Error("Has is wrong about the keys that were added")
	}
}

func pod(uid, node string) reconcile.Object {
	return reconcile.Object{Kind: kinds.Pods.Kind, Object: &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: node, UID: types.UID(uid)}}}
}

func TestWhichSidesOfAChangeCount(t *testing.T) {
	node := reconcile.Object{Kind: kinds.Nodes.Kind, Object: &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "a", UID: "a"}}}
	for what, c := range map[string]struct {
		was, now reconcile.Object
		want     []string
	}{
		"nothing":                     {},
		"a new object":                {now: pod("a", "x"), want: []string{"x"}},
		"one that is gone":            {was: pod("a", "x"), want: []string{"x"}},
		"one that changes":            {was: pod("a", "x"), now: pod("a", "y"), want: []string{"y", "x"}},
		"one that stays the same":     {was: pod("a", "x"), now: pod("a", "x")},
		"another one of the same":     {was: pod("a", "x"), now: pod("b", "x"), want: []string{"x", "x"}},
		"an object of another kind":   {was: node, now: node},
		"one side is of another kind": {was: node, now: pod("a", "x"), want: []string{"x"}},
	} {
		var got []string
		for _, p := range Sides(c.was, c.now, func(a, b *corev1.Pod) bool { return a.Name == b.Name }) {
			got = append(got, p.Name)
		}
		if !slices.Equal(got, c.want) {
			t.Errorf("%s: %v, want %v", what, got, c.want)
		}
	}
}

func TestTheNewestSideOfAChange(t *testing.T) {
	if of := Newest(pod("a", "x"), pod("a", "y")); of.GetName() != "y" {
		t.Errorf("the newest of a change is %s, want y", of.GetName())
	}
	if of := Newest(pod("a", "x"), reconcile.Object{}); of.GetName() != "x" {
		t.Errorf("the newest of a deletion is %s, want x", of.GetName())
	}
}
