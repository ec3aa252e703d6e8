package kinds_test

import (
	"math/rand"
	"reflect"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/apitesting/fuzzer"
	metafuzzer "k8s.io/apimachinery/pkg/apis/meta/fuzzer"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"

	"github.com/millrace/millrace/pkg/events/kinds"
)

// TestEveryTypeGoesOnAsItCame: for every Go type and any content, ReadRaw reads the metadata,
// and the bytes without managedFields are those that the type would write.
func TestEveryTypeGoesOnAsItCame(t *testing.T) {
	fill := fuzzer.FuzzerFor(metafuzzer.Funcs, rand.NewSource(1), serializer.NewCodecFactory(kinds.Scheme()))
	found := 0
	for gvk := range kinds.Scheme().AllKnownTypes() {
		for range 20 {
			made, err := kinds.Scheme().New(gvk)
			if err != nil {
				t.Fatal(err)
			}
			object, ok := made.(metav1.Object)
			if _, partial := made.(*metav1.PartialObjectMetadata); !ok || partial {
				break
			}
			fill.Fill(made)
			object.SetManagedFields([]metav1.ManagedFieldsEntry{
				{Manager: "kubectl", Operation: "Update", FieldsV1: &metav1.FieldsV1{Raw: []byte(`{"f:spec":{}}`)}}, {Manager: "kubelet", Subresource: "status"},
			})
			kind := kinds.Kind{Name: kinds.Name(strings.TrimSuffix("any."+gvk.Group, ".")), Version: gvk.Version, Kind: gvk.Kind, Form: kinds.Full}
			sent, err := kinds.Encode(kind, made)
			if err != nil {
				t.Fatalf("%v: %v", gvk, err)
			}
			object.SetManagedFields(nil)
			want, err := kinds.Encode(kind, made)
			if err != nil {
				t.Fatalf("%v: %v", gvk, err)
			}
			goesOn(t, kind, sent, want)
			found++
		}
	}
	if found < 20*20 {
		t.Errorf("only %d objects were looked at", found)
	}
}

func goesOn(t *testing.T, kind kinds.Kind, sent, want []byte) {
	t.Helper()
	whole, err := kinds.Decode(kind, kinds.Protobuf, sent)
	if err != nil {
		t.Fatalf("%v: %v", kind.GVK(), err)
	}
	raw, err := kinds.ReadRaw(kind, sent)
	if err != nil {
		t.Fatalf("%v: %v", kind.GVK(), err)
	}
	if want := metaOf(whole); !reflect.DeepEqual(&raw.ObjectMeta, want) {
		t.Fatalf("%v: the metadata is %+v, want %+v", kind.GVK(), raw.ObjectMeta, want)
	}
	if read, err := raw.Read(); err != nil || !reflect.DeepEqual(read, whole) {
		t.Fatalf("%v: read whole it is %+v (%v), want %+v", kind.GVK(), read, err, whole)
	}
	if body, err := raw.Body(); err != nil || string(body) != string(want) {
		t.Fatalf("%v: the body is\n%x (%v)\nwant\n%x", kind.GVK(), body, err, want)
	}
}

func metaOf(object metav1.Object) metav1.Object {
	return object.(metav1.ObjectMetaAccessor).GetObjectMeta()
}

// TestWhatIsNoObjectOfTheKindIsNotTakenForOne: Status errors, other kinds and damage are
// rejected.
func TestWhatIsNoObjectOfTheKindIsNotTakenForOne(t *testing.T) {
	status, err := kinds.Encode(kinds.Kind{Version: "v1", Kind: "Status"}, &metav1.Status{Message: "too old"})
	if err != nil {
		t.Fatal(err)
	}
	node, err := kinds.Encode(kinds.Nodes.Kind, &corev1.Node{})
	if err != nil {
		t.Fatal(err)
	}
	for name, body := range map[string][]byte{
		"an error of the API server": status, "another kind": node, "JSON": []byte("{}"), "nothing": nil, "damage": []byte("k8s\x00\x0a\xff"),
		"no metadata": []byte("k8s\x00\x0a\x09\x0a\x02v1\x12\x03Pod\x12\x02\x12\x00"), "a cut": []byte("k8s\x00\x0a\x09\x0a\x02v1\x12\x03Pod\x12\x02\x0a\x09"),
	} {
		if raw, err := kinds.ReadRaw(kinds.Pods.Kind, body); err == nil {
			t.Errorf("%s is taken for %+v", name, raw)
		}
	}
}

// TestDamageIsNamed: the error distinguishes damage from another kind, and damage after the
// metadata is found when the object is decoded.
func TestDamageIsNamed(t *testing.T) {
	pod, err := kinds.Encode(kinds.Pods.Kind, &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "p"}})
	if err != nil {
		t.Fatal(err)
	}
	for name, body := range map[string][]byte{"without its beginning": pod[4:], "cut": pod[:len(pod)-1], "a type that is cut": []byte("k8s\x00\x0a\x02\x0a\x09")} {
		if raw, err := kinds.ReadRaw(kinds.Pods.Kind, body); err == nil || raw != nil || strings.Contains(err.Error(), "the body is of") {
			t.Errorf("a body %s is read as %v, %v; want an error", name, raw, err)
		}
	}
	if _, err := kinds.ReadRaw(kinds.Pods.Kind, pod[4:]); !strings.Contains(err.Error(), "begin") {
		t.Errorf("a body without its beginning: %v, want an error that says so", err)
	}
	const spec = "\x12\x01\xff" // not a valid message
	raw, err := kinds.ReadRaw(kinds.Pods.Kind, []byte("k8s\x00\x0a\x09\x0a\x02v1\x12\x03Pod\x12\x05\x0a\x00"+spec))
	if err != nil {
		t.Fatal(err)
	}
	if object, err := raw.Read(); err == nil || object != nil {
		t.Errorf("an object whose spec is damaged is read as %v", object)
	}
	widget := kinds.Kind{Name: "widgets.example.com", Version: "v1", Kind: "Widget", Form: kinds.Full}
	if raw, err = kinds.ReadRaw(widget, []byte("k8s\x00\x0a\x18\x0a\x0eexample.com/v1\x12\x06Widget\x12\x02\x0a\x00")); err != nil {
		t.Fatal(err)
	}
	if object, err := raw.Read(); err == nil || object != nil {
		t.Errorf("an object without a Go type is read as %v", object)
	}
}

func TestTheNodeOfAPodIsFound(t *testing.T) {
	for _, name := range []string{"", "node-7"} {
		sent, err := kinds.Encode(kinds.Pods.Kind, &corev1.Pod{Spec: corev1.PodSpec{NodeName: name, Containers: []corev1.Container{{Name: "app"}}}})
		if err != nil {
			t.Fatal(err)
		}
		raw, err := kinds.ReadRaw(kinds.Pods.Kind, sent)
		if err != nil || raw.NodeName() != name {
			t.Errorf("the node is %q (%v), want %q", raw.NodeName(), err, name)
		}
	}
	sent, err := kinds.Encode(kinds.Nodes.Kind, &corev1.Node{Spec: corev1.NodeSpec{PodCIDR: "10.0.0.0/24"}})
	if err != nil {
		t.Fatal(err)
	}
	if raw, err := kinds.ReadRaw(kinds.Nodes.Kind, sent); err != nil || raw.NodeName() != "" {
		t.Errorf("a node is bound to %q (%v)", raw.NodeName(), err)
	}
	sent = []byte("k8s\x00\x0a\x0a\x0a\x02v1\x12\x04Node\x12\x07\x0a\x00\x12\x03\x52\x01n") // a spec that has a text where a Pod's has its node
	if raw, err := kinds.ReadRaw(kinds.Nodes.Kind, sent); err != nil || raw.NodeName() != "" {
		t.Errorf("a node is bound to %q (%v)", raw.NodeName(), err)
	}
}

// FuzzRaw: Body gives the bytes that the Go type would write, as far as the type can represent
// them.
func FuzzRaw(f *testing.F) {
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "p", UID: "u", ManagedFields: []metav1.ManagedFieldsEntry{{Manager: "kubectl"}}}}
	body, err := kinds.Encode(kinds.Pods.Kind, p)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(body)
	f.Add(body[:len(body)-3])
	f.Add([]byte("k8s\x00\x12\x04\x12\x02\xff\xff"))
	f.Fuzz(func(t *testing.T, body []byte) {
		raw, err := kinds.ReadRaw(kinds.Pods.Kind, body)
		if err != nil {
			return
		}
		cut, err := raw.Body()
		if err != nil {
			t.Fatalf("metadata that was read cannot be cut: %v", err)
		}
		read, err := raw.Read()
		if err != nil {
			return
		}
		again, err := kinds.Decode(kinds.Pods.Kind, kinds.Protobuf, cut)
		if err != nil {
			t.Fatalf("the body that was cut down cannot be read: %v", err)
		}
		read.(metav1.Object).SetManagedFields(nil)
		if !reflect.DeepEqual(again, read) {
			t.Errorf("the body that was cut down has %+v, want %+v", again, read)
		}
	})
}

func BenchmarkRaw(b *testing.B) {
	sent, err := kinds.Encode(kinds.Pods.Kind, managedPod())
	if err != nil {
		b.Fatal(err)
	}
	b.Run("as it came", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			raw, err := kinds.ReadRaw(kinds.Pods.Kind, sent)
			if err != nil {
				b.Fatal(err)
			}
			if _, err := raw.Body(); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("through its type", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			pod, err := kinds.Decode(kinds.Pods.Kind, kinds.Protobuf, sent)
			if err != nil {
				b.Fatal(err)
			}
			pod.SetManagedFields(nil)
			if _, err := kinds.Encode(kinds.Pods.Kind, pod.(runtime.Object)); err != nil {
				b.Fatal(err)
			}
		}
	})
}

// managedPod is an ordinary pod with the entries of three managers.
func managedPod() *corev1.Pod {
	entry := func(manager string, fields string) metav1.ManagedFieldsEntry {
		now := metav1.Now()
		return metav1.ManagedFieldsEntry{Manager: manager, Operation: "Update", APIVersion: "v1", Time: &now, FieldsType: "FieldsV1", FieldsV1: &metav1.FieldsV1{Raw: []byte(fields)}}
	}
	yes := true
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{
		Name: "web-7d4b9c-x2x7p", Namespace: "shop", UID: "0f4d0d0a-2a0e-4a5e-8b0c-1d6f8a7d0001", ResourceVersion: "104233", Labels: map[string]string{"app": "web", "pod-template-hash": "7d4b9c"},
		OwnerReferences: []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "ReplicaSet", Name: "web-7d4b9c", UID: "2a0e", Controller: &yes, BlockOwnerDeletion: &yes}},
		ManagedFields: []metav1.ManagedFieldsEntry{
			entry("millrace", `{"f:metadata":{"f:generateName":{},"f:labels":{".":{},"f:app":{},"f:pod-template-hash":{}},"f:ownerReferences":{".":{},"k:{\"uid\":\"2a0e\"}":{}}},"f:spec":{"f:containers":{"k:{\"name\":\"app\"}":{".":{},"f:image":{},"f:imagePullPolicy":{},"f:name":{},"f:resources":{}}},"f:dnsPolicy":{},"f:restartPolicy":{},"f:schedulerName":{}}}`),
			entry("kubelet", `{"f:status":{"f:conditions":{"k:{\"type\":\"Ready\"}":{".":{},"f:lastTransitionTime":{},"f:status":{},"f:type":{}}},"f:containerStatuses":{},"f:hostIP":{},"f:phase":{},"f:podIP":{}}}`),
		},
	}}
	for _, name := range []string{"app", "proxy"} {
		p.Spec.Containers = append(p.Spec.Containers, corev1.Container{
			Name: name, Image: "registry.example/" + name + ":1.4.2", ImagePullPolicy: corev1.PullIfNotPresent,
			Env:          []corev1.EnvVar{{Name: "MODE", Value: "production"}, {Name: "PORT", Value: "8080"}},
			VolumeMounts: []corev1.VolumeMount{{Name: "token", MountPath: "/var/run/secrets/kubernetes.io/serviceaccount", ReadOnly: true}},
		})
		p.Status.ContainerStatuses = append(p.Status.ContainerStatuses, corev1.ContainerStatus{Name: name, Ready: true, Image: "registry.example/" + name + ":1.4.2", ContainerID: "containerd://2f0c"})
	}
	for _, of := range []corev1.PodConditionType{corev1.PodScheduled, corev1.PodInitialized, corev1.ContainersReady, corev1.PodReady} {
		p.Status.Conditions = append(p.Status.Conditions, corev1.PodCondition{Type: of, Status: corev1.ConditionTrue, LastTransitionTime: metav1.Now()})
	}
	return p
}
