package kinds_test

import (
	"reflect"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/millrace/millrace/pkg/events/kinds"
)

// FuzzOwners: Owners gives the same owners as a full decode.
func FuzzOwners(f *testing.F) {
	pod := func(owners ...string) []byte {
		p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "p", UID: "u"}}
		for _, name := range owners {
			p.OwnerReferences = append(p.OwnerReferences, metav1.OwnerReference{APIVersion: "apps/v1", Kind: "ReplicaSet", Name: name, UID: "r"})
		}
		body, err := kinds.Encode(kinds.Pods.Kind, p)
		if err != nil {
			f.Fatal(err)
		}
		return body
	}
	f.Add(pod())
	f.Add(pod("a", "b"))
	f.Add(append(pod("a"), pod("b")[4:]...)) // two objects in one body
	f.Add([]byte("k8s\x00\x12\x04\x12\x02\xff\xff"))
	f.Fuzz(func(t *testing.T, body []byte) {
		whole, err := kinds.Decode(kinds.Pods.Kind, kinds.Protobuf, body)
		if err != nil {
			return
		}
		owners, err := kinds.Owners(body)
		if err != nil {
			return // the caller then decodes the whole object
		}
		if want := whole.GetOwnerReferences(); len(owners) != len(want) || len(want) > 0 && !reflect.DeepEqual(owners, want) {
			t.Errorf("the owners are %+v, and those of the object %+v", owners, want)
		}
	})
}
