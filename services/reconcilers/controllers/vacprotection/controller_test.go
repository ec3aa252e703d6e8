package vacprotection

import (
	"encoding/json"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"pgregory.net/rapid"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/services/reconcilers/reconcile"
	"github.com/millrace/millrace/services/reconcilers/reconciletest"
)

func class(name string) *storagev1.VolumeAttributesClass {
	return &storagev1.VolumeAttributesClass{ObjectMeta: metav1.ObjectMeta{Name: name, UID: "u", ResourceVersion: "1"}, DriverName: "d"}
}

func TestStories(t *testing.T) { reconciletest.Stories(t, Controller) }

func TestLaws(t *testing.T) {
	reconciletest.Laws(t, Controller, rapid.Custom(func(t *rapid.T) View {
		v := View{Class: class("gold")}
		v.Class.Finalizers = rapid.SampledFrom([][]string{nil, {guard}, {"x", guard}, {"x"}}).Draw(t, "finalizers")
		if rapid.Bool().Draw(t, "deleted") {
			reconciletest.Deleted[*storagev1.VolumeAttributesClass](reconciletest.Now)(v.Class)
			v.User = rapid.SampledFrom([]string{"", "persistentvolumes v"}).Draw(t, "user")
		}
		return v
	}), reconciletest.Now, reconciletest.Content(2, func(v View, d reconcile.Decision, _ time.Time) View {
		next := View{Class: &storagev1.VolumeAttributesClass{}, User: v.User}
		if err := json.Unmarshal(d.Commands[0].Body, next.Class); err != nil {
			panic(err)
		}
		return next
	}))
}

// users returns objects that name the class, one for each way to do so.
func users(name string) map[string]reconcile.Object {
	claim := func(edit func(*corev1.PersistentVolumeClaim)) reconcile.Object {
		c := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "c"}}
		edit(c)
		return reconcile.Object{Kind: kinds.PersistentVolumeClaims.Kind, Object: c}
	}
	return map[string]reconcile.Object{
		"a volume": {Kind: kinds.PersistentVolumes.Kind, Object: &corev1.PersistentVolume{
			ObjectMeta: metav1.ObjectMeta{Name: "v"}, Spec: corev1.PersistentVolumeSpec{VolumeAttributesClassName: &name},
		}},
		"a claim that wants it": claim(func(c *corev1.PersistentVolumeClaim) { c.Spec.VolumeAttributesClassName = &name }),
		"a claim that has it":   claim(func(c *corev1.PersistentVolumeClaim) { c.Status.CurrentVolumeAttributesClassName = &name }),
		"a claim on its way to it": claim(func(c *corev1.PersistentVolumeClaim) {
			c.Status.ModifyVolumeStatus = &corev1.ModifyVolumeStatus{TargetVolumeAttributesClassName: name}
		}),
	}
}

func TestWhatUsesAClass(t *testing.T) {
	for what, of := range users("gold") {
		for name, used := range map[string]bool{"gold": true, "silver": false} {
			gone := class(name)
			reconciletest.Deleted[*storagev1.VolumeAttributesClass](reconciletest.Now)(gone)
			world := reconciletest.NewWorld(kinds.PersistentVolumeClaims.Kind, kinds.PersistentVolumes.Kind).
				Put(kinds.VolumeAttributesClasses.Kind, gone).Put(of.Kind, of.Object)
			if v, ok := observe(world, events.Key{Name: name}); !ok || (v.User != "") != used {
				t.Errorf("%s: of %s it sees %+v, %v", what, name, v, ok)
			}
		}
		world := reconciletest.NewWorld(kinds.PersistentVolumeClaims.Kind, kinds.PersistentVolumes.Kind)
		other := users("silver")[what]
		if got, want := world.Keys(Controller, of.Kind, of.Object, other.Object), []events.Key{{Name: "silver"}, {Name: "gold"}}; !slices.Equal(got, want) {
			t.Errorf("%s that changes makes it the turn of %v, want %v", what, got, want)
		}
		if got := world.Keys(Controller, of.Kind, of.Object, nil); !slices.Equal(got, []events.Key{{Name: "gold"}}) {
			t.Errorf("%s that is gone makes it the turn of %v", what, got)
		}
	}
}

func TestObserve(t *testing.T) {
	world := reconciletest.NewWorld(kinds.PersistentVolumeClaims.Kind, kinds.PersistentVolumes.Kind)
	if _, ok := observe(world, events.Key{Name: "gold"}); ok {
		t.Error("observe finds a class that is not there")
	}
	of := users("gold")["a volume"]
	world.Put(kinds.VolumeAttributesClasses.Kind, class("gold")).Put(of.Kind, of.Object)
	if v, ok := observe(world, events.Key{Name: "gold"}); !ok || v.Class.Name != "gold" || v.User != "" {
		t.Errorf("of a class that lives the view has %+v, found: %v", v, ok)
	}
}
