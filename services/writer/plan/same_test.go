package plan

import (
	"encoding/json"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/millrace/millrace/pkg/events/query"
)

// Fields that the API server manages are no change, nor is the half of the object that the
// subresource does not write; everything else is.
func TestWhatAnUpdateHasMadeAlready(t *testing.T) {
	const meant = `{"kind":"Deployment","metadata":{"name":"web","namespace":"ns","resourceVersion":"1","labels":{"a":"b"},"finalizers":["x"]},
		"spec":{"replicas":2,"paused":false,"ports":[{"port":80},{"port":81}]},"status":{"replicas":1,"conditions":[{"type":"A"}]}}`
	for name, c := range map[string]struct {
		live        string
		object, sub bool // the update's effect exists, of the object and of its status
	}{
		"the same": {meant, true, true},
		"what the API server manages": {`{"apiVersion":"apps/v1","metadata":{"name":"web","namespace":"ns","resourceVersion":"9","generation":3,"selfLink":"/x",
			"creationTimestamp":"2030-01-01T00:00:00Z","deletionTimestamp":"2030-01-01T00:00:00Z","deletionGracePeriodSeconds":30,"managedFields":[{"manager":"m"}],
			"labels":{"a":"b"},"finalizers":["x"]},"spec":{"replicas":2,"ports":[{"port":80},{"port":81}]},"status":{"replicas":1,"conditions":[{"type":"A"}]}}`, true, true},
		"another status":       {`{"metadata":{"labels":{"a":"b"},"finalizers":["x"]},"spec":{"replicas":2,"ports":[{"port":80},{"port":81}]},"status":{"replicas":5}}`, true, false},
		"another spec":         {`{"metadata":{"labels":{"a":"b"},"finalizers":["x"]},"spec":{"replicas":3,"ports":[{"port":80},{"port":81}]},"status":{"replicas":1,"conditions":[{"type":"A"}]}}`, false, true},
		"a label less":         {`{"metadata":{"finalizers":["x"]},"spec":{"replicas":2,"ports":[{"port":80},{"port":81}]},"status":{"replicas":1,"conditions":[{"type":"A"}]}}`, false, false},
		"a label more":         {`{"metadata":{"labels":{"a":"b","c":"d"},"finalizers":["x"]},"spec":{"replicas":2,"ports":[{"port":80},{"port":81}]},"status":{"replicas":1,"conditions":[{"type":"A"}]}}`, false, false},
		"a finalizer more":     {`{"metadata":{"labels":{"a":"b"},"finalizers":["x","y"]},"spec":{"replicas":2,"ports":[{"port":80},{"port":81}]},"status":{"replicas":1,"conditions":[{"type":"A"}]}}`, false, false},
		"a port less":          {`{"metadata":{"labels":{"a":"b"},"finalizers":["x"]},"spec":{"replicas":2,"ports":[{"port":80}]},"status":{"replicas":1,"conditions":[{"type":"A"}]}}`, false, true},
		"a port more":          {`{"metadata":{"labels":{"a":"b"},"finalizers":["x"]},"spec":{"replicas":2,"ports":[{"port":80},{"port":81},{"port":82}]},"status":{"replicas":1,"conditions":[{"type":"A"}]}}`, false, true},
		"ports in other order": {`{"metadata":{"labels":{"a":"b"},"finalizers":["x"]},"spec":{"replicas":2,"ports":[{"port":81},{"port":80}]},"status":{"replicas":1,"conditions":[{"type":"A"}]}}`, false, true},
		"a condition more":     {`{"metadata":{"labels":{"a":"b"},"finalizers":["x"]},"spec":{"replicas":2,"ports":[{"port":80},{"port":81}]},"status":{"replicas":1,"conditions":[{"type":"A"},{"type":"B"}]}}`, true, false},
		"no object":            {`[]`, false, false},
	} {
		for subresource, want := range map[string]bool{"": c.object, "status": c.sub} {
			if got := updated(json.RawMessage(meant), json.RawMessage(c.live), subresource); got != want {
				t.Errorf("%s: an update of %q is there: %t, want %t", name, subresource, got, want)
			}
		}
	}
}

// A request is approved if its status says so; an unchanged rest proves nothing.
func TestAnApprovalIsInTheStatus(t *testing.T) {
	const approved = `{"spec":{"username":"a"},"status":{"conditions":[{"type":"Approved"}]}}`
	for live, want := range map[string]bool{
		approved:                    true,
		`{"spec":{"username":"a"}}`: false,
		`{"spec":{"username":"a"},"status":{"conditions":[{"type":"Denied"}]}}`:                               false,
		`{"spec":{"username":"b"},"status":{"conditions":[{"type":"Approved"}]}}`:                             false,
		`{"spec":{"username":"a"},"status":{"conditions":[{"type":"Approved"}],"certificate":"of a signer"}}`: false,
	} {
		if got := updated(json.RawMessage(approved), json.RawMessage(live), query.SubApproval); got != want {
			t.Errorf("%s is approved as it was meant: %t", live, got)
		}
	}
}

// An intended child has the same template, not a part of it.
func TestAPartOfATemplateIsAnother(t *testing.T) {
	body := func(containers string) json.RawMessage {
		return json.RawMessage(`{"metadata":{"ownerReferences":[{"uid":"d","controller":true}]},"spec":{"template":{"spec":{"containers":[` + containers + `]}}}}`)
	}
	for _, c := range []struct {
		meant, live string
		same        bool
	}{
		{`{"name":"a"}`, `{"name":"a"}`, true},
		{`{"name":"a"}`, `{"name":"a","imagePullPolicy":"Always"}`, true}, // defaulted
		{`{"name":"a"}`, `{"name":"a"},{"name":"b"}`, false},
		{`{"name":"a"},{"name":"b"}`, `{"name":"a"}`, false},
		{`{"name":"a"},{"name":"b"}`, `{"name":"b"},{"name":"a"}`, false},
		{`{"name":"a"}`, ``, false},
	} {
		if got := created(body(c.meant), body(c.live)); got != c.same {
			t.Errorf("[%s] is what [%s] makes: %t", c.live, c.meant, got)
		}
	}
}

// Lists of owners are equal if each has all fields of the other: a controller is not a plain
// owner.
func TestTheSameOwners(t *testing.T) {
	ref := func(edits ...func(*metav1.OwnerReference)) metav1.OwnerReference {
		r := metav1.OwnerReference{APIVersion: "apps/v1", Kind: "ReplicaSet", Name: "web", UID: "rs", Controller: ptr.To(true), BlockOwnerDeletion: ptr.To(true)}
		for _, edit := range edits {
			edit(&r)
		}
		return r
	}
	other := ref(func(r *metav1.OwnerReference) { r.Name, r.UID = "api", "other" })
	plain := ref(func(r *metav1.OwnerReference) { r.Controller, r.BlockOwnerDeletion = nil, nil })
	for name, c := range map[string]struct {
		a, b []metav1.OwnerReference
		same bool
	}{
		"none":               {nil, []metav1.OwnerReference{}, true},
		"one":                {[]metav1.OwnerReference{ref()}, []metav1.OwnerReference{ref()}, true},
		"in another order":   {[]metav1.OwnerReference{ref(), other}, []metav1.OwnerReference{other, ref()}, true},
		"false is none":      {[]metav1.OwnerReference{plain}, []metav1.OwnerReference{ref(func(r *metav1.OwnerReference) { r.Controller, r.BlockOwnerDeletion = new(bool), new(bool) })}, true},
		"one more":           {[]metav1.OwnerReference{ref()}, []metav1.OwnerReference{ref(), other}, false},
		"another":            {[]metav1.OwnerReference{ref()}, []metav1.OwnerReference{other}, false},
		"a controller":       {[]metav1.OwnerReference{ref()}, []metav1.OwnerReference{ref(func(r *metav1.OwnerReference) { r.Controller = nil })}, false},
		"one that blocks":    {[]metav1.OwnerReference{ref()}, []metav1.OwnerReference{ref(func(r *metav1.OwnerReference) { r.BlockOwnerDeletion = nil })}, false},
		"of another version": {[]metav1.OwnerReference{ref()}, []metav1.OwnerReference{ref(func(r *metav1.OwnerReference) { r.APIVersion = "apps/v2" })}, false},
		"of another kind":    {[]metav1.OwnerReference{ref()}, []metav1.OwnerReference{ref(func(r *metav1.OwnerReference) { r.Kind = "Deployment" })}, false},
		"of another name":    {[]metav1.OwnerReference{ref()}, []metav1.OwnerReference{ref(func(r *metav1.OwnerReference) { r.Name = "api" })}, false},
		"a namesake":         {[]metav1.OwnerReference{ref()}, []metav1.OwnerReference{ref(func(r *metav1.OwnerReference) { r.UID = "before" })}, false},
		"one instead of one that was there twice": {[]metav1.OwnerReference{ref(), ref()}, []metav1.OwnerReference{ref(), other}, false},
	} {
		if got, turned := sameOwners(c.a, c.b), sameOwners(c.b, c.a); got != c.same || turned != c.same {
			t.Errorf("%s: the same: %t, the other way round %t, want %t", name, got, turned, c.same)
		}
	}
}
