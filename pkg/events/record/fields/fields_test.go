package fields_test

import (
	"encoding/json"
	"reflect"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"pgregory.net/rapid"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/pkg/events/record/fields"
)

func TestDiffNamesTheFields(t *testing.T) {
	was := tree(t, `{"metadata":{"resourceVersion":"1","generation":1,"labels":{"app.kubernetes.io/name":"a"}},
		"spec":{"replicas":3,"containers":[{"name":"a","image":"x:1"},{"name":"b","image":"y"}],"args":["1","2"],"volumes":[]},
		"status":{"conditions":[{"type":"Ready","status":"False"}]}}`)
	is := tree(t, `{"metadata":{"resourceVersion":"2","generation":2,"labels":{"app.kubernetes.io/name":"b"}},
		"spec":{"replicas":5,"containers":[{"name":"b","image":"y"},{"name":"a","image":"x:2"}],"args":["1","3"],"paused":true,"volumes":[{"name":"v"}]},
		"status":{"conditions":[{"type":"Ready","status":"True"}]}}`)
	want := []fields.Change{
		{"metadata.labels[app.kubernetes.io/name]", "a", "b"},
		{"spec.args", []any{"1", "2"}, []any{"1", "3"}},
		{"spec.containers[a].image", "x:1", "x:2"},
		{"spec.paused", nil, true},
		{"spec.replicas", 3.0, 5.0},
		{"spec.volumes", []any{}, []any{map[string]any{"name": "v"}}},
		{"status.conditions[Ready].status", "False", "True"},
	}
	if got := fields.Diff(was, is); !reflect.DeepEqual(got, want) {
		t.Errorf("the changes are\n%+v, want\n%+v", got, want)
	}
}

// Differences are reported value by value, by path; empty values count as missing.
func TestApartNamesTheValues(t *testing.T) {
	was := tree(t, `{"metadata":{"labels":{"a":"1"}},"spec":{"containers":[{"name":"a","image":"x:1"}],"args":["1"],"note":"","gone":true,"none":null,"list":[]}}`)
	is := tree(t, `{"metadata":{"labels":{}},"spec":{"containers":[{"name":"a","image":"x:2"},{"name":"b"}],"args":["1"],"list":[1]}}`)
	want := []fields.Change{
		{"metadata.labels.a", "1", nil},
		{"spec.containers[a].image", "x:1", "x:2"},
		{"spec.containers[b].name", nil, "b"},
		{"spec.gone", true, nil},
		{"spec.list", nil, []any{1.0}},
	}
	if got := fields.Apart(was, is); !reflect.DeepEqual(got, want) {
		t.Errorf("the differing fields are\n%+v, want\n%+v", got, want)
	}
	if got := fields.Apart(is, is); got != nil {
		t.Errorf("a tree differs from itself in %+v", got)
	}
}

func TestDiffOfTheSameIsNothing(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		list := rapid.SliceOfDistinct(rapid.StringMatching("[a-z]{1,3}"), rapid.ID).Draw(t, "names")
		var there, back []any
		for _, name := range list {
			there = append(there, map[string]any{"name": name})
		}
		for i := range there {
			back = append(back, there[len(there)-1-i])
		}
		if len(list) == 0 {
			return
		}
		if got := fields.Diff(fields.Tree{"list": there}, fields.Tree{"list": back}); len(got) > 0 {
			t.Fatalf("lists in another order of names differ in %+v", got)
		}
		if got := fields.Diff(fields.Tree{"list": there}, fields.Tree{}); len(got) != 1 {
			t.Fatalf("a list that is gone makes the changes %+v, want 1", got)
		}
	})
}

func TestWithin(t *testing.T) {
	for _, c := range []struct {
		path, asked string
		want        bool
	}{
		{"spec.replicas", "spec.replicas", true}, {"spec.replicas", ".spec", true}, {"spec", "spec.replicas", true},
		{"spec.replicasX", "spec.replicas", false}, {"spec.containers[a].image", "spec.containers", true}, {"status", "spec", false},
		{"status", "[a]", false},
	} {
		if got := (fields.Change{Path: c.path}).Within(c.asked); got != c.want {
			t.Errorf("%s within %s: %v", c.path, c.asked, got)
		}
	}
}

func TestBodiesOfEveryForm(t *testing.T) {
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "a"}, Spec: corev1.PodSpec{NodeName: "n"}}
	body, err := kinds.Encode(kinds.Pods.Kind, pod)
	if err != nil {
		t.Fatal(err)
	}
	meta := kinds.Pods.Kind
	meta.Form = kinds.Metadata
	brief, err := kinds.Encode(meta, &metav1.PartialObjectMetadata{ObjectMeta: pod.ObjectMeta})
	if err != nil {
		t.Fatal(err)
	}
	for name, d := range map[string]events.Delta{
		"protobuf": {Form: kinds.Full, ContentType: kinds.Protobuf, Body: body},
		"metadata": {Form: kinds.Metadata, ContentType: kinds.Protobuf, Body: brief},
		"json":     {ContentType: kinds.JSON, Body: []byte(`{"apiVersion":"v1","kind":"Pod","metadata":{"name":"a"}}`)},
	} {
		got, err := fields.Of(kinds.Pods.Kind, d)
		if err != nil || got["kind"] != "Pod" || got["apiVersion"] != "v1" || got["metadata"].(map[string]any)["name"] != "a" {
			t.Errorf("%s: the fields are %v, %v; want those of Pod a", name, got, err)
		}
		if spec, there := got["spec"].(map[string]any); there != (name == "protobuf") || there && spec["nodeName"] != "n" {
			t.Errorf("%s: the spec is %v", name, spec)
		}
	}
	for _, contentType := range []string{kinds.JSON, kinds.Protobuf} {
		if got, err := fields.Of(kinds.Pods.Kind, events.Delta{ContentType: contentType, Body: []byte("{")}); err == nil {
			t.Errorf("damaged %s is %v", contentType, got)
		}
	}
}

// A body with a part that is no JSON, which the API server would not send, is an error.
func TestABodyWithBadPartsIsAnError(t *testing.T) {
	kind := kinds.ControllerRevisions.Kind
	revision := &appsv1.ControllerRevision{Data: runtime.RawExtension{Raw: []byte("{")}}
	body, err := kinds.Encode(kind, revision)
	if err != nil {
		t.Fatal(err)
	}
	if got, err := fields.Of(kind, events.Delta{Form: kinds.Full, ContentType: kinds.Protobuf, Body: body}); err == nil || got != nil {
		t.Errorf("a broken body is decoded as %v", got)
	}
}

func tree(t *testing.T, text string) (out fields.Tree) {
	t.Helper()
	if err := json.Unmarshal([]byte(text), &out); err != nil {
		t.Fatal(err)
	}
	return out
}
