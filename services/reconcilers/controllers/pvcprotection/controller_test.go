package pvcprotection

import (
	"encoding/json"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"pgregory.net/rapid"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/services/reconcilers/reconcile"
	"github.com/millrace/millrace/services/reconcilers/reconciletest"
)

var now = reconciletest.Now

func pvc(name string) *corev1.PersistentVolumeClaim {
	return &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{
		Namespace: reconciletest.Namespace, Name: name, UID: "u", ResourceVersion: "1", Finalizers: []string{guard},
	}}
}

func deleted(c *corev1.PersistentVolumeClaim, ago time.Duration) *corev1.PersistentVolumeClaim {
	reconciletest.Deleted[*corev1.PersistentVolumeClaim](now.Add(-ago))(c)
	return c
}

func user(name, claim string) *corev1.Pod {
	p := reconciletest.Pod(name, reconciletest.On("n1"))
	p.Spec.Volumes = []corev1.Volume{{Name: "data", VolumeSource: corev1.VolumeSource{
		PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: claim},
	}}}
	return p
}

func ephemeral(name string) *corev1.Pod {
	p := reconciletest.Pod(name, reconciletest.On("n1"))
	p.Spec.Volumes = []corev1.Volume{{Name: "data", VolumeSource: corev1.VolumeSource{Ephemeral: &corev1.EphemeralVolumeSource{}}}}
	return p
}

func TestStories(t *testing.T) { reconciletest.Stories(t, Controller) }

func TestLaws(t *testing.T) {
	reconciletest.Laws(t, Controller, rapid.Custom(func(t *rapid.T) View {
		v := View{Claim: pvc("c")}
		v.Claim.Finalizers = rapid.SampledFrom([][]string{nil, {guard}, {"x", guard}, {"x"}}).Draw(t, "finalizers")
		if rapid.Bool().Draw(t, "deleted") {
			deleted(v.Claim, time.Duration(rapid.IntRange(0, 4).Draw(t, "ago"))*time.Second)
		}
		if rapid.Bool().Draw(t, "used") {
			v.Users = []*corev1.Pod{user("p", "c")}
		}
		return v
	}), now, reconciletest.Content(2, func(_ View, d reconcile.Decision, _ time.Time) View {
		next := View{Claim: &corev1.PersistentVolumeClaim{}}
		if err := json.Unmarshal(d.Commands[0].Body, next.Claim); err != nil {
			panic(err)
		}
		return next
	}))
}

// Who needs the claim, and who does not.
func TestUses(t *testing.T) {
	mine := deleted(pvc("p-data"), time.Hour)
	owner := ephemeral("p")
	mine.OwnerReferences = []metav1.OwnerReference{{Kind: "Pod", Name: "p", UID: owner.UID, Controller: ptr.To(true)}}
	shut := func(p *corev1.Pod) *corev1.Pod {
		reconciletest.Deleted[*corev1.Pod](now)(p)
		p.DeletionGracePeriodSeconds = ptr.To(int64(0))
		return p
	}
	homeless, done, stranger := user("a", "p-data"), user("a", "p-data"), ephemeral("p")
	homeless.Spec.NodeName, done.Status.Phase, stranger.UID = "", corev1.PodSucceeded, "another"
	for what, c := range map[string]struct {
		pod  *corev1.Pod
		want bool
	}{
		"a pod that runs": {user("a", "p-data"), true}, "one that has ended": {done, true}, "one without a node": {homeless, false},
		"one that is shut down": {shut(user("a", "p-data")), true}, "its own pod": {owner, true},
		"its own pod, shut down": {shut(ephemeral("p")), false}, "a namesake of its own pod": {stranger, false},
	} {
		if got := (View{Claim: mine}).uses(c.pod); got != c.want {
			t.Errorf("%s needs the claim: %v", what, got)
		}
	}
}

func TestObserve(t *testing.T) {
	claim := pvc("p-data")
	world := reconciletest.NewWorld().Put(kinds.PersistentVolumeClaims.Kind, claim).
		Put(kinds.Pods.Kind, user("a", "p-data"), user("b", "other"), ephemeral("p"))
	key := events.Key{Namespace: reconciletest.Namespace, Name: "p-data"}
	if v, ok := observe(world, key); !ok || len(v.Users) > 0 {
		t.Errorf("of a claim that lives it sees %+v, %v", v, ok)
	}
	deleted(claim, time.Hour)
	if v, _ := observe(world, key); len(v.Users) != 2 {
		t.Errorf("its users are %v", v.Users)
	}
	want := []events.Key{key, {Namespace: reconciletest.Namespace, Name: "other"}}
	if got := world.Keys(Controller, kinds.Pods.Kind, user("b", "other"), ephemeral("p")); !slices.Equal(got, want) {
		t.Errorf("a pod makes it the turn of %v", got)
	}
}
