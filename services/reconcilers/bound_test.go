package reconcilers_test

import (
	"errors"
	"reflect"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/services/reconcilers/reconcile"
)

// A command that does not fit its object, of a turn that saw another version of the
// object, is superseded: it is no forgery, and the writer does not carry it out.
func TestAnotherVersionOfTheObjectIsNoForgery(t *testing.T) {
	for name, verb := range map[string]events.Verb{
		"replicaset-controller": events.VerbCreate, "persistentvolume-protection-controller": events.VerbUpdate,
		"legacy-serviceaccount-token-cleaner-controller": events.VerbDelete,
	} {
		h := first(t, name, verb)
		saw := h.turn
		h.own = forgetful(t, h.own)
		if err := h.fits(h.command); err == nil || errors.Is(err, events.ErrSuperseded) {
			t.Errorf("%s: a forgery gives %v", name, err)
		}
		if h.turn.ResourceVersion = saw.ResourceVersion + "0"; !errors.Is(h.fits(h.command), events.ErrSuperseded) {
			t.Errorf("%s: decided on another version, it gives %v", name, h.fits(h.command))
		}
		if h.own = nil; h.fits(h.command) == nil {
			t.Errorf("%s: without an object it fits", name)
		}
	}
}

// forgetful returns an object of the same kind and version without other fields.
func forgetful(t *testing.T, obj metav1.Object) metav1.Object {
	t.Helper()
	next, ok := reflect.New(reflect.TypeOf(obj).Elem()).Interface().(metav1.Object)
	if !ok {
		t.Fatalf("%T is no object", obj)
	}
	next.SetResourceVersion(obj.GetResourceVersion())
	return next
}

// first returns the first command of a verb in a controller's stories.
func first(tb testing.TB, name string, verb events.Verb) honest {
	tb.Helper()
	c, ok := named(tb, name)
	if !ok {
		tb.Fatalf("there is no %s", name)
	}
	for _, h := range told(tb, c) {
		if h.command.Verb == verb {
			return h
		}
	}
	tb.Fatalf("no story of %s has a %s", name, verb)
	return honest{}
}

func named(tb testing.TB, name string) (reconcile.Any, bool) {
	for _, c := range every(tb) {
		if c.Describe().Name == name {
			return c, true
		}
	}
	return nil, false
}

// The writer makes this check for every command before it sends it.
func BenchmarkFits(b *testing.B) {
	for what, of := range map[string]struct {
		controller string
		verb       events.Verb
	}{
		"status patch":  {"taint-eviction-controller", events.VerbPatch},
		"status update": {"deployment-controller", events.VerbUpdate},
		"pod":           {"replicaset-controller", events.VerbCreate},
		"stateful pod":  {"statefulset-controller", events.VerbCreate},
		"daemon pod":    {"daemonset-controller", events.VerbCreate},
		"full update":   {"persistentvolumeclaim-protection-controller", events.VerbUpdate},
		"delete":        {"garbage-collector-controller", events.VerbDelete},
	} {
		h := first(b, of.controller, of.verb)
		b.Run(what, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if err := h.fits(h.command); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
