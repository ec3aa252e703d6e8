package kinds_test

import (
	"encoding/json"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/millrace/millrace/pkg/events/kinds"
)

// An object is the same in JSON and protobuf, in full or as metadata.
func TestBodiesAreRead(t *testing.T) {
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "p", UID: "u"}, Spec: corev1.PodSpec{NodeName: "n"}}
	partial := &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Name: "p", UID: "u"}}
	for name, c := range map[string]struct {
		kind kinds.Kind
		of   runtime.Object
	}{"full": {kinds.Pods.Kind, pod}, "metadata": {kinds.Secrets.Kind, partial}} {
		proto, err := kinds.Encode(c.kind, c.of)
		if err != nil {
			t.Fatal(err)
		}
		text, err := json.Marshal(c.of)
		if err != nil {
			t.Fatal(err)
		}
		for contentType, body := range map[string][]byte{kinds.Protobuf: proto, kinds.JSON: text} {
			got, err := kinds.Decode(c.kind, contentType, body)
			if err != nil || got.GetName() != "p" || got.GetUID() != "u" {
				t.Errorf("%s in %s: %+v, %v", name, contentType, got, err)
			}
			if _, is := got.(*metav1.PartialObjectMetadata); is != (name == "metadata") {
				t.Errorf("%s in %s is a %T", name, contentType, got)
			}
			if p, is := got.(*corev1.Pod); is && p.Spec.NodeName != "n" {
				t.Errorf("the pod in %s is on %q", contentType, p.Spec.NodeName)
			}
		}
		if got, err := kinds.Decode(c.kind, "text/plain", text); err == nil {
			t.Errorf("%s in text is %+v", name, got)
		}
	}
	for _, contentType := range []string{kinds.Protobuf, kinds.JSON} {
		if got, err := kinds.Decode(kinds.Pods.Kind, contentType, []byte("{")); err == nil || got != nil || strings.Contains(err.Error(), "no metadata") {
			t.Errorf("damage in %s is %+v, %v", contentType, got, err)
		}
	}
	if body, err := kinds.Encode(kinds.Pods.Kind, &unstructured.Unstructured{}); err == nil || body != nil {
		t.Errorf("a custom resource has the body %q", body)
	}
	status, err := kinds.Encode(kinds.Kind{Version: "v1", Kind: "Status"}, &metav1.Status{Message: "too old"})
	if err != nil {
		t.Fatal(err)
	}
	if got, err := kinds.Decode(kinds.Pods.Kind, kinds.Protobuf, status); err == nil {
		t.Errorf("an error of the API server is %+v", got)
	}
}

// Lookup finds a kind of this package by its name, with its group if it has one.
func TestKindsAreFoundByName(t *testing.T) {
	for _, want := range []kinds.Kind{kinds.Pods.Kind, kinds.Deployments.Kind, kinds.Secrets.Kind, kinds.StorageVersions.Kind} {
		if got, known := kinds.Lookup(want.Name); !known || got != want {
			t.Errorf("Lookup of %s: %+v, %t", want.Name, got, known)
		}
	}
	if got, known := kinds.Lookup("widgets.example.com"); known {
		t.Errorf("a custom kind is known as %+v", got)
	}
	if core, apps := kinds.NameOf("", "pods"), kinds.NameOf("apps", "deployments"); core != "pods" || apps != "deployments.apps" {
		t.Errorf("%q and %q", core, apps)
	}
}
