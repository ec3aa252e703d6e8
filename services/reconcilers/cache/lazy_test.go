package cache

import (
	"bytes"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/services/reconcilers/reconcile"
)

// The decoded form of an old version is dropped when a newer one comes, and decoded again when
// a view goes back to it.
func TestAnOldVersionIsLetGoOf(t *testing.T) {
	h := NewHistory(0)
	h.Begin(kinds.Pods.Kind, 0, nil, true)
	ask := func(at int) {
		t.Helper()
		s, err := h.ViewAt(events.Position{"pods": uint64(at)}, nil)
		if err != nil {
			t.Fatal(err)
		}
		want := aPod("p", "", at).ResourceVersion
		if pod, ok := s.Get("pods", "default", "p"); !ok || pod.GetResourceVersion() != want {
			t.Errorf("at message %d there is %v, %t", at, pod, ok)
		}
	}
	kept := func(what string, want ...bool) {
		t.Helper()
		for i, s := range h.tracks["pods"].steps {
			if got := s.now.object.Object.(*lazy).Object != nil; got != want[i] {
				t.Errorf("%s: version %d is kept as it was read: %t", what, i+1, got)
			}
		}
	}
	for version := 1; version <= 2; version++ {
		h.Fold("pods", read1(delta(kinds.Pods.Kind, events.Is, aPod("p", "web", version), uint64(version))))
		if version == 1 {
			kept("before a question", false)
			ask(1)
			kept("after a question", true)
		}
	}
	kept("after a newer version", false, false)
	ask(1)
	ask(2)

	read := &state{object: reconcile.Object{Object: aPod("q", "", 1)}}
	if dropDecoded(read); read.object.Object == nil {
		t.Error("dropDecoded drops an object that was decoded from the beginning")
	}
	dropDecoded(nil)
}

// How much of a body is decoded when it comes, and what a controller sees of it. A publisher
// that is not a watcher may store a body of which only the owners can be decoded.
func TestHowMuchOfABodyIsRead(t *testing.T) {
	const json = `{"apiVersion":"v1","kind":"Pod","metadata":{"name":"p","namespace":"default","uid":"uid-p","resourceVersion":"1",` +
		`"ownerReferences":[{"apiVersion":"apps/v1","kind":"ReplicaSet","name":"web","uid":"uid-web","controller":true}]}}`
	light := kinds.Pods.Kind
	light.Form = kinds.Metadata
	for what, c := range map[string]struct {
		kind           kinds.Kind
		change         func(*events.Delta)
		later, shown   bool
		lacking, owned bool
	}{
		"in protobuf":         {kinds.Pods.Kind, func(*events.Delta) {}, true, true, false, true},
		"of no form":          {kinds.Pods.Kind, func(d *events.Delta) { d.Form = "" }, true, true, false, true},
		"in whole for a part": {light, func(*events.Delta) {}, true, true, false, true},
		"in JSON":             {kinds.Pods.Kind, func(d *events.Delta) { d.ContentType, d.Body = kinds.JSON, []byte(json) }, false, true, false, true},
		"torn":                {kinds.Pods.Kind, func(d *events.Delta) { d.Body = []byte("torn") }, false, false, true, false},
		"only its owners": {kinds.Pods.Kind, func(d *events.Delta) {
			d.Body = bytes.Replace(d.Body, []byte("Pod"), []byte("Pox"), 1) // of an unknown kind
		}, true, false, false, false},
	} {
		h := NewHistory(0)
		h.Begin(c.kind, 0, nil, true)
		f := Read(c.kind, changed(t, delta(kinds.Pods.Kind, events.Is, aPod("p", "web", 1), 1), c.change))
		if _, later := f.object.Object.(*lazy); later != c.later {
			t.Errorf("%s: the object is decoded when it is asked for: %t, want %t", what, later, c.later)
		}
		h.Fold("pods", []Fact{f})
		s, err := h.ViewAt(events.Position{"pods": 1}, nil)
		if err != nil {
			t.Fatal(err)
		}
		pod, there := s.Get("pods", "default", "p")
		if _, whole := pod.(*corev1.Pod); there != c.shown || whole != c.shown {
			t.Errorf("%s: Get finds the object: %t, want %t; it is a %T", what, there, c.shown, pod)
		}
		_, by := s.ByUID("uid-p")
		if n := len(s.List("pods", "")); by != c.shown || (n == 1) != c.shown || len(s.Incomplete) == 1 != c.lacking {
			t.Errorf("%s: ByUID finds the object: %t, %d are listed, incomplete are %v", what, by, n, s.Incomplete)
		}
		if n, m := len(s.ControlledBy("pods", "uid-web")), len(s.Dependents("uid-web")); (n == 1) != c.owned || (m == 1) != c.owned {
			t.Errorf("%s: %d are controlled, %d are dependents", what, n, m)
		}
	}
}

// A deletion of an object that was never reported leaves a tombstone: an older version that is
// reported afterwards does not bring the object back.
func TestHistoryKnowsAnEndBeforeTheLife(t *testing.T) {
	h := NewHistory(0)
	h.Begin(kinds.Pods.Kind, 0, nil, true)
	h.Fold("pods", read1(delta(kinds.Pods.Kind, events.Gone, aPod("p", "", 5), 1)))
	h.Fold("pods", read1(delta(kinds.Pods.Kind, events.Is, aPod("p", "", 4), 2)))
	s, err := h.ViewAt(events.Position{"pods": 2}, nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, there := s.Get("pods", "default", "p"); there {
		t.Error("an object that is gone is found")
	}
}

// An object of which only the owners can be decoded counts as one that does not exist.
func TestAnObjectOfOwnersAloneDoesNotExist(t *testing.T) {
	t.Parallel()
	l := &lazy{kind: kinds.Pods.Kind, body: []byte("no pod"), owners: aPod("p", "web", 1).OwnerReferences}
	if obj := whole(l); obj != nil {
		t.Errorf("an object that cannot be decoded is %v, want none", obj)
	}
}
