// Package vacprotection protects VolumeAttributesClasses that volumes or claims use,
// by a finalizer: every class gets it, and the controller removes it from a deleted
// class when no object names the class any more.
package vacprotection

import (
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/utils/ptr"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/services/reconcilers/kube/finalizer"
	"github.com/millrace/millrace/services/reconcilers/reconcile"
)

// guard is the finalizer.
const guard = "kubernetes.io/vac-protection"

// protection puts the finalizer on a class, and removes it.
var protection = finalizer.Protection{Kind: kinds.VolumeAttributesClasses.Kind, Finalizer: guard, Noun: "class"}

// Controller is the class protection controller.
var Controller = reconcile.Controller[View]{
	Name:  "volumeattributesclass-protection-controller",
	Queue: "vacprotection",
	Owns:  &kinds.VolumeAttributesClasses.Kind,
	Inputs: []reconcile.Input{
		reconcile.Own(kinds.VolumeAttributesClasses.Kind),
		{Kind: kinds.PersistentVolumeClaims.Kind, Keys: keysOfUser},
		{Kind: kinds.PersistentVolumes.Kind, Keys: keysOfUser},
	},
	Writes: reconcile.Writes{
		{Verb: events.VerbUpdate, Kind: kinds.VolumeAttributesClasses.Name, On: reconcile.Itself, Changes: []string{".metadata.finalizers"}},
	},
	Observe: observe,
	Decide:  decide,
}

// View is what the turn of one class can see.
type View struct {
	Class *storagev1.VolumeAttributesClass `json:"class"`
	// User is a claim or volume that names the class. It is collected only for a
	// deleted class.
	User string `json:"user,omitempty"`
}

// keysOfUser maps a claim or volume to the classes that it names, and named before.
func keysOfUser(_ reconcile.Snapshot, was, now reconcile.Object) []events.Key {
	var keys []events.Key
	for _, obj := range []reconcile.Object{now, was} {
		for _, name := range classes(obj) {
			if key := (events.Key{Name: name}); !slices.Contains(keys, key) {
				keys = append(keys, key)
			}
		}
	}
	return keys
}

// classes are the classes that a claim or volume names: the current one, the
// requested one, and the target of a modification.
func classes(obj reconcile.Object) []string {
	var names []string
	switch o := obj.Object.(type) {
	case *corev1.PersistentVolume:
		names = []string{ptr.Deref(o.Spec.VolumeAttributesClassName, "")}
	case *corev1.PersistentVolumeClaim:
		names = []string{ptr.Deref(o.Spec.VolumeAttributesClassName, ""), ptr.Deref(o.Status.CurrentVolumeAttributesClassName, "")}
		if o.Status.ModifyVolumeStatus != nil {
			names = append(names, o.Status.ModifyVolumeStatus.TargetVolumeAttributesClassName)
		}
	}
	return slices.DeleteFunc(names, func(name string) bool { return name == "" })
}

func observe(s reconcile.Snapshot, k events.Key) (View, bool) {
	class, ok := reconcile.Get(s, kinds.VolumeAttributesClasses, "", k.Name)
	if !ok || class.DeletionTimestamp == nil {
		return View{Class: class}, ok
	}
	return View{Class: class, User: user(s, class.Name)}, true
}

// user is a claim or volume that names a class; "" if there is none.
//
// Upstream: looked for in the cache, too. What was made a moment before the class was
// deleted may be missed.
func user(s reconcile.Snapshot, class string) string {
	for _, kind := range []kinds.Kind{kinds.PersistentVolumes.Kind, kinds.PersistentVolumeClaims.Kind} {
		for _, obj := range s.List(kind.Name, "") {
			if o := (reconcile.Object{Kind: kind, Object: obj}); slices.Contains(classes(o), class) {
				return o.Ref().String()
			}
		}
	}
	return ""
}

func decide(v View, _ time.Time) reconcile.Decision {
	kept, ok := protection.Keep(v.Class)
	switch {
	case ok:
		return kept
	case v.User != "":
		return reconcile.Nothing("the class is deleted, but " + v.User + " uses it")
	default:
		return protection.Release(v.Class, "the class is deleted, and is not in use")
	}
}
