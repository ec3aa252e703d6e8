package translate_test

import (
	"reflect"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/pkg/events/redact"
	"github.com/millrace/millrace/services/watcher/translate"
)

// TestAnObjectIsToldTheSameAsItCame: of an object that goes on as it came the delta is the
// one that its Go type gives, to the byte, whatever is hidden of it and however much of it fits.
func TestAnObjectIsToldTheSameAsItCame(t *testing.T) {
	notes := map[string]string{corev1.LastAppliedConfigAnnotation: `{"data":{"p":"` + canary + `"}}`, "kept": "yes"}
	fields := []metav1.ManagedFieldsEntry{{Manager: "kubectl", Operation: "Update", FieldsV1: &metav1.FieldsV1{Raw: []byte(`{"f:data":{}}`)}}}
	meta := func() metav1.ObjectMeta {
		kept := map[string]string{}
		for key, value := range notes {
			kept[key] = value
		}
		return metav1.ObjectMeta{Namespace: "a", Name: "web", UID: "u", ResourceVersion: "7", Generation: 2, Annotations: kept, ManagedFields: fields}
	}
	path, err := redact.ParsePath(".data")
	if err != nil {
		t.Fatal(err)
	}
	secrets := kinds.Secrets.Kind
	secrets.Form = kinds.Full
	for name, c := range map[string]struct {
		kind kinds.Kind
		make func() runtime.Object
		hide redact.Policy
	}{
		"a pod":             {kinds.Pods.Kind, func() runtime.Object { return &corev1.Pod{ObjectMeta: meta(), Spec: corev1.PodSpec{NodeName: "n"}} }, redact.Policy{Copies: map[kinds.Name][]string{kinds.Pods.Name: nil}}},
		"a pod with a copy": {kinds.Pods.Kind, func() runtime.Object { return &corev1.Pod{ObjectMeta: meta()} }, redact.Policy{}},
		"one with a rule": {kinds.ConfigMaps.Kind, func() runtime.Object {
			return &corev1.ConfigMap{ObjectMeta: meta(), Data: map[string]string{"p": canary}}
		}, redact.Policy{Rules: redact.Rules{{Kind: kinds.ConfigMaps.Name, Path: path}}}},
		"one without a rule": {kinds.ConfigMaps.Kind, func() runtime.Object {
			return &corev1.ConfigMap{ObjectMeta: meta(), Data: map[string]string{"p": "open"}}
		}, redact.Policy{Copies: map[kinds.Name][]string{kinds.ConfigMaps.Name: nil}}},
		"a Secret": {secrets, func() runtime.Object {
			return &corev1.Secret{ObjectMeta: meta(), Data: map[string][]byte{"p": []byte(canary)}}
		}, redact.Policy{}},
	} {
		for _, size := range []translate.Size{translate.Whole, translate.Brief, translate.Bare} {
			sent, err := kinds.Encode(c.kind, c.make())
			if err != nil {
				t.Fatal(err)
			}
			raw, err := kinds.ReadRaw(c.kind, sent)
			if err != nil {
				t.Fatal(err)
			}
			s := translate.Stamp{At: now, Epoch: 2, Size: size, Hide: c.hide, Writers: translate.Unwritten()}
			got, err := translate.Object(c.kind, events.Is, raw, s)
			if err != nil {
				t.Fatal(err)
			}
			want, err := translate.Object(c.kind, events.Is, c.make(), s)
			if err != nil {
				t.Fatal(err)
			}
			if !reflect.DeepEqual(got, want) {
				t.Errorf("%s, size %d: as it came it is told as\n%+v\nand in its type as\n%+v", name, size, got, want)
			}
		}
	}
}
