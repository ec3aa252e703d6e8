package arena

import (
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
)

func claim(uid string, phase corev1.PersistentVolumeClaimPhase) *corev1.PersistentVolumeClaim {
	return &corev1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{UID: types.UID(uid)}, Status: corev1.PersistentVolumeClaimStatus{Phase: phase},
	}
}

func TestATallyCountsWhatIsSo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		counted := &Tally{notice: newNotice(), what: "claims are bound", so: isBound, met: map[types.UID]bool{}}
		tell := func(kind watch.EventType, object runtime.Object) {
			counted.heard(watch.Event{Type: kind, Object: object}, time.Now(), counted.take)
		}
		go func() {
			tell(watch.Added, claim("a", corev1.ClaimPending))
			tell(watch.Added, claim("b", corev1.ClaimBound))
			time.Sleep(time.Second)
			tell(watch.Modified, claim("a", corev1.ClaimBound))
			time.Sleep(time.Second)
			tell(watch.Deleted, claim("a", corev1.ClaimBound))
			tell(watch.Deleted, claim("b", corev1.ClaimBound))
		}()
		begun := time.Now()
		at, err := counted.Until(t.Context(), 2)
		if err != nil || at.Sub(begun) != time.Second {
			t.Errorf("two were bound after %v, %v; want a second", at.Sub(begun), err)
		}
		if err := counted.Gone(t.Context()); err != nil || time.Since(begun) != 2*time.Second {
			t.Errorf("none was left after %v, %v; want two seconds", time.Since(begun), err)
		}
	})
}

func TestATallyEndsWithItsWatch(t *testing.T) {
	counted := &Tally{notice: newNotice(), what: "claims are bound", so: isBound, met: map[types.UID]bool{}}
	counted.heard(watch.Event{Type: watch.Error, Object: &metav1.Status{Reason: metav1.StatusReasonExpired}}, time.Now(), counted.take)
	if _, err := counted.Until(t.Context(), 1); err == nil {
		t.Error("a tally whose watch has ended waits, or says that it is so")
	}
}
