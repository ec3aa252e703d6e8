package pvcprotection

import (
	"encoding/json"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/services/reconcilers/kube/gate"
	"github.com/millrace/millrace/services/reconcilers/reconciletest"
)

// With the gate on, the condition Unused follows the pods that refer to a claim, with a node or
// without, until they have ended.
func TestUnusedSince(t *testing.T) {
	waiting := user("p", "c")
	waiting.Spec.NodeName = ""
	ended := user("p", "c")
	ended.Status.Phase = corev1.PodSucceeded
	leaving := user("p", "c")
	leaving.DeletionTimestamp = &metav1.Time{Time: now}
	stopping := leaving.DeepCopy()
	stopping.Status.ContainerStatuses = []corev1.ContainerStatus{{State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}}}
	theirs := ephemeral("p")
	on := New(gate.Set{gate.PersistentVolumeClaimUnusedSinceTime: true})
	for what, c := range map[string]struct {
		claim string
		pods  []*corev1.Pod
		said  corev1.ConditionStatus
		want  corev1.ConditionStatus // empty: nothing is written
	}{
		"none, and nothing said":             {"c", nil, "", "True"},
		"none, as was said":                  {"c", nil, "True", ""},
		"none any more":                      {"c", nil, "False", "True"},
		"one that has no node":               {"c", []*corev1.Pod{waiting}, "True", "False"},
		"one, as was said":                   {"c", []*corev1.Pod{user("p", "c")}, "False", ""},
		"one that has ended":                 {"c", []*corev1.Pod{ended}, "False", "True"},
		"one that is deleted and still runs": {"c", []*corev1.Pod{stopping}, "False", ""},
		"one that is deleted and has gone":   {"c", []*corev1.Pod{leaving}, "False", "True"},
		"one of another claim":               {"c", []*corev1.Pod{user("p", "d")}, "False", "True"},
		"one whose own claim it is not":      {"p-data", []*corev1.Pod{theirs}, "", "True"},
	} {
		claim := pvc(c.claim)
		if c.said != "" {
			claim.Status.Conditions = []corev1.PersistentVolumeClaimCondition{{Type: corev1.PersistentVolumeClaimUnused, Status: c.said}}
		}
		world := reconciletest.NewWorld(kinds.Pods.Kind).Put(kinds.PersistentVolumeClaims.Kind, claim)
		for _, p := range c.pods {
			world.Put(kinds.Pods.Kind, p)
		}
		key := events.Key{Namespace: claim.Namespace, Name: claim.Name}
		d, _ := on.Ask(world, key, now)
		var told corev1.ConditionStatus
		if len(d.Commands) > 0 {
			var next corev1.PersistentVolumeClaim
			if err := json.Unmarshal(d.Commands[0].Body, &next); err != nil || d.Commands[0].Subresource != "status" || len(next.Status.Conditions) != 1 {
				t.Fatalf("%s: %v, %s", what, err, d.Commands[0].Body)
			}
			told = next.Status.Conditions[0].Status
		}
		if told != c.want {
			t.Errorf("%s: the written condition is %q, want %q: %s", what, told, c.want, d.Because)
		}
		if d, _ := Controller.Ask(world, key, now); len(d.Commands) > 0 {
			t.Errorf("%s: without the gate it does %v", what, d.Commands)
		}
	}
	own := pvc("p-data")
	own.OwnerReferences = []metav1.OwnerReference{{APIVersion: "v1", Kind: "Pod", Name: "p", UID: theirs.UID, Controller: ptr.To(true)}}
	if got := useOf(reconciletest.NewWorld().Put(kinds.Pods.Kind, theirs), own); got != used {
		t.Errorf("a pod's own claim is %s", got)
	}
}
