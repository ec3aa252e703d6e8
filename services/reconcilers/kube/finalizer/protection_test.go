package finalizer_test

import (
	"encoding/json"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/services/reconcilers/kube/finalizer"
	"github.com/millrace/millrace/services/reconcilers/reconcile"
)

// finalizersIn are the finalizers that an update gives an object.
func finalizersIn(t *testing.T, c events.Command) []string {
	t.Helper()
	next := &corev1.PersistentVolume{}
	if err := json.Unmarshal(c.Body, next); err != nil {
		t.Fatal(err)
	}
	return next.Finalizers
}

// An object that is not deleted gets the finalizer beside those that it has; about a deleted one
// with the finalizer the controller decides. The object itself stays as it is.
func TestProtection(t *testing.T) {
	p := finalizer.Protection{Kind: kinds.PersistentVolumes.Kind, Finalizer: "guard", Noun: "volume"}
	for name, c := range map[string]struct {
		deleted bool
		has     []string
		because string // "": the controller decides
		wants   []string
	}{
		"new":                             {false, []string{"x"}, "the volume is not protected yet", []string{"x", "guard"}},
		"protected":                       {false, []string{"guard"}, "the volume is protected", nil},
		"deleted, with another finalizer": {true, []string{"x"}, "the volume is deleted, and has no finalizer of this controller", nil},
		"deleted":                         {true, []string{"guard", "x"}, "", nil},
	} {
		v := &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: "v", UID: "u", ResourceVersion: "5", Finalizers: slices.Clone(c.has)}}
		if c.deleted {
			v.DeletionTimestamp = &metav1.Time{}
		}
		d, ok := p.Keep(v)
		if ok != (c.because != "") || d.Because != c.because || len(d.Commands) != min(len(c.wants), 1) {
			t.Errorf("%s: got %q with %d commands, decided: %t; want %q", name, d.Because, len(d.Commands), ok, c.because)
		}
		for _, command := range d.Commands {
			if got := finalizersIn(t, command); !slices.Equal(got, c.wants) {
				t.Errorf("%s: the object gets the finalizers %q, want %q", name, got, c.wants)
			}
		}
		if !slices.Equal(v.Finalizers, c.has) {
			t.Errorf("%s: the object has the finalizers %q now, want %q as before", name, v.Finalizers, c.has)
		}
	}
}

// Release removes the finalizer alone, if the object is unchanged, and under further conditions.
func TestRelease(t *testing.T) {
	p := finalizer.Protection{Kind: kinds.PersistentVolumes.Kind, Finalizer: "guard", Noun: "volume"}
	v := &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: "v", UID: "u", ResourceVersion: "5", Finalizers: []string{"guard", "x"}}}
	d := p.Release(v, "nothing uses it", reconcile.IfUnused())
	if d.Because != "nothing uses it" || len(d.Commands) != 1 {
		t.Fatalf("got %q with %d commands, want one because nothing uses it", d.Because, len(d.Commands))
	}
	c := d.Commands[0]
	if got := finalizersIn(t, c); !slices.Equal(got, []string{"x"}) {
		t.Errorf("the object gets the finalizers %q, want x alone", got)
	}
	if c.If == nil || c.If.UID != "u" || c.If.ResourceVersion != "5" || !c.If.Unused {
		t.Errorf("the object is released on the condition %+v, want uid u, version 5, unused", c.If)
	}
}
