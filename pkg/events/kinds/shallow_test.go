package kinds_test

import (
	"reflect"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/millrace/millrace/pkg/events/kinds"
)

// In whatever Go type can be on the bus the metadata is found without reading the rest.
func TestTheMetadataOfEveryTypeIsFound(t *testing.T) {
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
		object.SetOwnerReferences([]metav1.OwnerReference{{APIVersion: "v1", Kind: "Node", Name: "n", UID: "v", Controller: &yes}})
		kind := kinds.Kind{Name: "any", Version: gvk.Version, Kind: gvk.Kind, Form: kinds.Full}
		body, err := kinds.Encode(kind, object.(runtime.Object))
		if err != nil {
			t.Fatalf("%v: %v", gvk, err)
		}
		meta, err := kinds.Shallow(body)
		if err != nil {
			t.Fatalf("%v: %v", gvk, err)
		}
		if got := reflect.ValueOf(object).Elem().FieldByName("ObjectMeta").Interface(); !reflect.DeepEqual(meta.ObjectMeta, got) {
			t.Errorf("%v: the metadata is %+v, want %+v", gvk, meta.ObjectMeta, got)
		}
		found++
	}
	if found < 20 {
		t.Errorf("only %d types were looked at", found)
	}
	for _, broken := range []string{"", "{}", "k8s\x00\xff"} {
		if _, err := kinds.Shallow([]byte(broken)); err == nil {
			t.Errorf("%q has metadata", broken)
		}
	}
}
