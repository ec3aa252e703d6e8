package translate_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/services/watcher/translate"
)

// FuzzObject: whatever an object holds, its delta can be read again, is about the object,
// and says nothing of the content of a Secret. A kind without a Go type here says the same
// of it as one with a type.
func FuzzObject(f *testing.F) {
	for _, seed := range []string{
		`{"metadata":{"name":"a","namespace":"ns","uid":"u","resourceVersion":"7","generation":1,"deletionTimestamp":"2026-01-01T00:00:00Z","managedFields":[{"manager":"m","time":"2026-01-01T00:00:00Z","fieldsV1":{"f:a":{}}}]},"spec":{"replicas":3}}`,
		`{"metadata":{"name":"a","annotations":{"kubectl.kubernetes.io/last-applied-configuration":"{\"data\":{\"p\":\"hunter2-canary\"}}"}},"data":{"p":"aHVudGVyMi1jYW5hcnk="},"stringData":{"p":"hunter2-canary"}}`,
		`{"metadata":{"name":"\u0000","labels":{"":""},"ownerReferences":[{"name":"../x"}],"managedFields":[null,{}]}}`,
	} {
		f.Add([]byte(seed), uint8(0), uint8(0))
		f.Add([]byte(seed), uint8(1), uint8(1))
		f.Add([]byte(seed), uint8(2), uint8(2))
	}
	secrets := kinds.Secrets.Kind
	secrets.Form = kinds.Full // as an API server gives them that was asked for more than their metadata
	described := []kinds.Kind{kinds.Pods.Kind, secrets, kinds.Deployments.Kind, kinds.ConfigMaps.Kind, {Name: "widgets.example.com", Version: "v1", Kind: "Widget", Form: kinds.Full}}
	f.Fuzz(func(t *testing.T, text []byte, which, size uint8) {
		kind := described[int(which)%len(described)]
		obj, ok := object(kind, text)
		if !ok {
			return
		}
		if s, is := obj.(*corev1.Secret); is && !bytes.Contains(text, []byte(confidential)) {
			s.Data = map[string][]byte{"p": []byte(confidential)}
			s.StringData = map[string]string{"p": confidential}
			metav1.SetMetaDataAnnotation(&s.ObjectMeta, corev1.LastAppliedConfigAnnotation, `{"stringData":{"p":"`+confidential+`"}}`)
		} else if is {
			return
		}
		s := translate.Stamp{At: now, Epoch: 2, Size: translate.Size(size % 3), Writers: translate.Unwritten()}
		d, err := translate.Object(kind, events.Is, obj, s)
		if err != nil {
			return // it cannot be encoded, and is told of by its name
		}
		m := obj.(metav1.Object)
		if d.Ref.Name != m.GetName() || d.UID != m.GetUID() || d.ResourceVersion != m.GetResourceVersion() || len(m.GetManagedFields()) > 0 {
			t.Errorf("%s is told as %+v", text, d)
		}
		if kind.Name == kinds.Secrets.Name && (d.Form != kinds.Metadata || bytes.Contains(d.Body, []byte(confidential))) {
			t.Errorf("the content of a Secret is told: %q", d.Body)
		}
		readable(t, kind, d)
	})
}

// confidential is what no seed says.
const confidential = "correct-horse-battery"

// object is an object as the API server gives it.
func object(kind kinds.Kind, text []byte) (runtime.Object, bool) {
	if kind.Name == "widgets.example.com" {
		u := &unstructured.Unstructured{}
		if json.Unmarshal(text, &u.Object) != nil || u.Object == nil {
			return nil, false
		}
		if _, ok := u.Object["metadata"].(map[string]any); !ok {
			return nil, false
		}
		return u, true
	}
	obj, err := kinds.Decode(kind, kinds.JSON, text)
	if err != nil {
		return nil, false
	}
	return obj.(runtime.Object), true
}

// readable sees that a delta can be read where it has a name and a uid.
func readable(t *testing.T, kind kinds.Kind, d events.Delta) {
	t.Helper()
	if d.Ref.Name == "" || d.UID == "" || d.Generation < 0 {
		return // the API server has no such object
	}
	back, err := events.DecodeDelta(d.Ref, events.EncodeDelta(d))
	if err != nil {
		t.Fatalf("%+v cannot be read: %v", d, err)
	}
	kind.Form = back.Form
	if back.ContentType == kinds.JSON {
		if !json.Valid(back.Body) {
			t.Errorf("the body is no JSON: %q", back.Body)
		}
		return
	}
	again, err := kinds.Decode(kind, back.ContentType, back.Body)
	if err != nil || again.GetName() != d.Ref.Name || again.GetUID() != d.UID {
		t.Errorf("the body of %+v is %+v, %v", d, again, err)
	}
}

// FuzzRelist: whatever the bus has said of a kind, in whatever order, a list that was told
// whole is what the state then holds: the same list a second time changes nothing.
func FuzzRelist(f *testing.F) {
	f.Add([]byte{0, 1, 1, 2, 1, 1, 3, 0}, []byte{1, 2, 3}, "7", uint64(1))
	f.Add([]byte{255, 254, 7, 9, 200, 100}, []byte{9, 9, 1, 7}, "", uint64(1<<32-1))
	f.Add([]byte{4, 130, 2, 66, 1, 1}, []byte{2}, "x", uint64(0))
	f.Fuzz(func(t *testing.T, past, list []byte, version string, epoch uint64) {
		state := translate.NewState()
		for i := 0; i+1 < len(past); i += 2 {
			what, object := past[i], past[i+1]
			d := events.Delta{Op: []events.Op{events.Is, events.Gone, events.Mark, events.Gap}[what%4], Sync: what&4 != 0, Epoch: uint64(what >> 6), ResourceVersion: fmt.Sprint(what >> 3)}
			d.Ref, d.UID = refOf(object), uidOf(object)
			if what&8 != 0 {
				state.Forget(d.Ref)
				continue
			}
			state.Fold(d, uint64(i))
		}
		epoch %= 1 << 32
		list = slices.CompactFunc(list, func(a, b byte) bool { return refOf(a) == refOf(b) })
		if distinct(list) != len(list) {
			return // no API server lists a name twice
		}
		for round := range 3 {
			r := state.Compare(version, epoch)
			again, changed := translate.NewState(), 0
			if r.Epoch() < epoch || r.Epoch() >= 1<<32 {
				t.Fatalf("epoch %d follows %d", r.Epoch(), epoch)
			}
			for i, object := range list {
				found := r.See(refOf(object), uidOf(object), fmt.Sprint(object%8))
				if found.Rewound {
					return // the relist begins anew in another epoch
				}
				if found.Changed {
					changed++
				}
				again.Fold(events.Delta{Op: events.Is, Ref: refOf(object), UID: uidOf(object), ResourceVersion: fmt.Sprint(object % 8), Epoch: r.Epoch()}, uint64(i+1))
			}
			if round > 0 && changed > 0 {
				t.Fatalf("the same list changes %d objects, in round %d", changed, round)
			}
			state, epoch, version = again, r.Epoch(), ""
		}
	})
}

func refOf(object byte) events.Ref {
	return events.Ref{Kind: "pods", Namespace: "ns", Name: fmt.Sprint("p", object/16)}
}

func uidOf(object byte) types.UID { return types.UID(fmt.Sprint("u", object/8)) }

// distinct is how many names there are in a list.
func distinct(list []byte) int {
	names := map[events.Ref]bool{}
	for _, object := range list {
		names[refOf(object)] = true
	}
	return len(names)
}
