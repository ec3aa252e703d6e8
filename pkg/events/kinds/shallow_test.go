package kinds_test

import (
	"reflect"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/millrace/millrace/pkg/events/kinds"
)

// Owners finds the owners in every Go type that can be on the bus.
func TestTheOwnersInEveryTypeAreFound(t *testing.T) {
	found := 0
	for gvk := range kinds.Scheme().AllKnownTypes() {
		made, err := kinds.Scheme().New(gvk)
		if err != nil {
			t.Fatal(err)
		}
		object, ok := made.(metav1.Object)
		if _, partial := made.(*metav1.PartialObjectMetadata); !ok || partial {
			continue
		}
		yes := true
		object.SetNamespace("ns")
		object.SetName("web")
		object.SetUID("u")
		object.SetResourceVersion("7")
		object.SetLabels(map[string]string{"a": "b"})
		owners := []metav1.OwnerReference{
			{APIVersion: "v1", Kind: "Node", Name: "n", UID: "v", Controller: &yes}, {APIVersion: "v1", Kind: "Pod", Name: "p", UID: "w"},
		}
		object.SetOwnerReferences(owners)
		kind := kinds.Kind{Name: "any", Version: gvk.Version, Kind: gvk.Kind, Form: kinds.Full}
		body, err := kinds.Encode(kind, object.(runtime.Object))
		if err != nil {
			t.Fatalf("%v: %v", gvk, err)
		}
		got, err := kinds.Owners(body)
		if err != nil {
			t.Fatalf("%v: %v", gvk, err)
		}
		if !reflect.DeepEqual(got, owners) {
			t.Errorf("%v: the owners are %+v, want %+v", gvk, got, owners)
		}
		found++
	}
	if found < 20 {
		t.Errorf("only %d types were looked at", found)
	}
	for _, broken := range []string{
		"", "{}", "k8s\x00\xff", "k8s\x00\x12\x02\x0a\x09", "k8s\x00\x12\x04\x0a\x02\x6a\x01", "k8s\x00\x0a\x09",
		"k8s\x00\x12\x05\x0a\x03\x6a\x01\xff",
	} {
		if owners, err := kinds.Owners([]byte(broken)); err == nil {
			t.Errorf("%q has the owners %v", broken, owners)
		}
	}
}
