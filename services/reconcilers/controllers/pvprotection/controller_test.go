package pvprotection

import (
	"encoding/json"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"pgregory.net/rapid"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/services/reconcilers/reconcile"
	"github.com/millrace/millrace/services/reconcilers/reconciletest"
)

func TestStories(t *testing.T) { reconciletest.Stories(t, Controller) }

func TestLaws(t *testing.T) {
	reconciletest.Laws(t, Controller, rapid.Custom(func(t *rapid.T) View {
		v := View{Volume: &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: "v", UID: "u", ResourceVersion: "1"}}}
		v.Volume.Finalizers = rapid.SampledFrom([][]string{nil, {guard}, {"x", guard}, {"x"}}).Draw(t, "finalizers")
		v.Volume.Status.Phase = rapid.SampledFrom([]corev1.PersistentVolumePhase{"", corev1.VolumeBound, corev1.VolumeReleased}).Draw(t, "phase")
		if rapid.Bool().Draw(t, "deleted") {
			reconciletest.Deleted[*corev1.PersistentVolume](reconciletest.Now)(v.Volume)
		}
		return v
	}), reconciletest.Now, reconciletest.Content(2, func(v View, d reconcile.Decision, _ time.Time) View {
		next := View{Volume: &corev1.PersistentVolume{}}
		if err := json.Unmarshal(d.Commands[0].Body, next.Volume); err != nil {
			panic(err)
		}
		return next
	}))
}

func TestObserve(t *testing.T) {
	world := reconciletest.NewWorld().Put(kinds.PersistentVolumes.Kind, &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: "v"}})
	if v, ok := observe(world, events.Key{Name: "v"}); !ok || v.Volume.Name != "v" {
		t.Errorf("the view is %+v, found: %v", v, ok)
	}
	if _, ok := observe(world, events.Key{Name: "w"}); ok {
		t.Error("observe finds a volume that is not there")
	}
}
