package pending

import (
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/millrace/millrace/cmd/internal/reader/readertest"
	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/pkg/events/record/recordtest"
)

const exceeded = `pods "api-1-x" is forbidden: exceeded quota: two, requested: pods=1, used: pods=2, limited: pods=2`

// quota is a Deployment "api" whose ReplicaSet is refused a pod.
func quota(w *readertest.World) {
	w.Helper()
	three := int32(3)
	api := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: "feat", Name: "api"}, Spec: appsv1.DeploymentSpec{Replicas: &three}}
	w.Record(kinds.Deployments.Kind, api)
	set := &appsv1.ReplicaSet{ObjectMeta: metav1.ObjectMeta{Namespace: "feat", Name: "api-1", OwnerReferences: ownedBy("Deployment", api)}, Spec: appsv1.ReplicaSetSpec{Replicas: &three}}
	d, err := w.Write(kinds.ReplicaSets.Kind, set, events.FieldManager)
	readertest.Must(w.T, err)
	at, err := w.Say(w.Context(), d)
	readertest.Must(w.T, err)
	turn, err := w.Decide(w.Context(), recordtest.ReplicaSets, events.LaneWrite, d, "too few pods", []events.Command{{Verb: events.VerbCreate, Kind: "pods", Namespace: "feat"}}, recordtest.Trigger(d, at))
	readertest.Must(w.T, err)
	readertest.Must(w.T, w.Outcome(w.Context(), recordtest.ReplicaSets, events.LaneWrite, d, turn, events.Result{Status: events.Refused, Ref: events.Ref{Kind: "pods", Namespace: "feat"}, Reason: "Forbidden", Message: exceeded}))
	for _, name := range []string{"api-1-a", "api-1-b"} {
		w.PendingPod(name, ownedBy("ReplicaSet", set)...)
	}
	other := &appsv1.ReplicaSet{ObjectMeta: metav1.ObjectMeta{Namespace: "feat", Name: "other-1", UID: "other"}}
	w.PendingPod("other-1-a", ownedBy("ReplicaSet", other)...)
	// Another controller has decided about a key with the same name, of a budget.
	budget := events.Delta{Kind: "poddisruptionbudgets.policy", Ref: events.Ref{Kind: "poddisruptionbudgets.policy", Namespace: "feat", Name: "api"}}
	_, err = w.Decide(w.Context(), "disruption-controller", events.LaneStatus, budget, "the status has changed", nil)
	readertest.Must(w.T, err)
}

func ownedBy(kind string, owner metav1.Object) []metav1.OwnerReference {
	yes := true
	return []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: kind, Name: owner.GetName(), UID: owner.GetUID(), Controller: &yes}}
}

// TestWhyNotFollowsToTheReason: from a Deployment to the refusal that is known at its
// ReplicaSet and to its pending pods, and from a pod to its owner.
func TestWhyNotFollowsToTheReason(t *testing.T) {
	w := readertest.NewWorld(t, Commands)
	quota(w)
	w.PendingPod("bare")
	pulling := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "feat", Name: "pulling"}}
	pulling.Status.Phase = corev1.PodPending
	pulling.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionFalse, Reason: "ContainersNotReady"}}
	pulling.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: "main", State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "ImagePullBackOff", Message: "no such image"}}}}
	w.Record(kinds.Pods.Kind, pulling)
	for args, want := range map[string][]string{
		"deploy/api": {
			"replicasets.apps:feat/api-1: replicaset-controller could not, at ", exceeded, "millrace why-not replicasets.apps/api-1 -n feat",
			"pods:feat/api-1-a: PodScheduled False Unschedulable: 0/10 nodes are available: 10 Insufficient cpu. (and 1 more pods say the same)",
			"deployment-controller and feat/api", "disruption-controller has decided about it, too: --controller=disruption-controller",
		},
		"rs/api-1":                           {"replicasets.apps:feat/api-1: replicaset-controller could not, at ", exceeded, "PodScheduled False", "replicaset-controller and feat/api-1"},
		"pod/api-1-a":                        {"PodScheduled False Unschedulable", "it belongs to replicaset/api-1", "millrace why-not replicaset/api-1 -n feat", "no controller of Millrace acts for pods:feat/api-1-a"},
		"pod/bare":                           {"PodScheduled False Unschedulable", "it has no owner: no controller makes it again"},
		"pod/pulling":                        {"container main waits: ImagePullBackOff: no such image"},
		"cm/colours":                         {"no controller of Millrace acts for configmaps:feat/colours"},
		"deploy/api --controller=disruption": {"disruption-controller and feat/api"},
		"deploy/api --controller=disruption-controller": {"disruption-controller and feat/api"},
	} {
		said, err := w.Millrace(append([]string{"why-not", "-n=feat"}, strings.Fields(args)...)...)
		if err != nil {
			t.Errorf("millrace why-not %s: %v", args, err)
		}
		for _, part := range want {
			if !strings.Contains(said, part) {
				t.Errorf("millrace why-not %s lacks %q:\n%s", args, part, said)
			}
		}
		if strings.Contains(said, "ContainersNotReady") {
			t.Errorf("millrace why-not %s says what follows from its reason:\n%s", args, said)
		}
	}
}

// TestAReasonIsToldOnce, by the object that is nearest to it: a Deployment repeats the
// condition of its ReplicaSet.
func TestAReasonIsToldOnce(t *testing.T) {
	w := readertest.NewWorld(t, Commands)
	one := int32(1)
	web := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: "feat", Name: "web"}, Spec: appsv1.DeploymentSpec{Replicas: &one}}
	web.Status.Conditions = []appsv1.DeploymentCondition{
		{Type: appsv1.DeploymentAvailable, Status: corev1.ConditionFalse, Reason: "MinimumReplicasUnavailable", Message: "none"},
		{Type: appsv1.DeploymentReplicaFailure, Status: corev1.ConditionTrue, Reason: "FailedCreate", Message: exceeded},
	}
	w.Record(kinds.Deployments.Kind, web)
	set := &appsv1.ReplicaSet{ObjectMeta: metav1.ObjectMeta{Namespace: "feat", Name: "web-1", OwnerReferences: ownedBy("Deployment", web)}, Spec: appsv1.ReplicaSetSpec{Replicas: &one}}
	set.Status.Conditions = []appsv1.ReplicaSetCondition{{Type: appsv1.ReplicaSetReplicaFailure, Status: corev1.ConditionTrue, Reason: "FailedCreate", Message: exceeded}}
	w.Record(kinds.ReplicaSets.Kind, set)
	said, err := w.Millrace("why-not", "deploy/web", "-n=feat")
	want := "replicasets.apps:feat/web-1: ReplicaFailure True FailedCreate: " + exceeded + "\n   millrace why-not replicasets.apps/web-1 -n feat\n" +
		"deployments.apps:feat/web: Available False MinimumReplicasUnavailable: none\n\n"
	if err != nil || !strings.HasPrefix(said, want) {
		t.Errorf("%v\n%s\nwant\n%s", err, said, want)
	}
}

// TestWhatIsPausedSaysSo, and a Deployment that is as it is wanted says nothing.
func TestWhatIsPausedSaysSo(t *testing.T) {
	w := readertest.NewWorld(t, Commands)
	none, now := int32(0), metav1.Now()
	w.Record(kinds.Deployments.Kind, &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: "feat", Name: "paused"}, Spec: appsv1.DeploymentSpec{Replicas: &none, Paused: true}})
	w.Record(kinds.ConfigMaps.Kind, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "feat", Name: "leaving", DeletionTimestamp: &now, Finalizers: []string{"example.com/hold"}}})
	for object, want := range map[string]string{
		"deploy/paused": "deployments.apps:feat/paused: it is paused (spec.paused)", "cm/leaving": "waits for its finalizers example.com/hold",
	} {
		if said, err := w.Millrace("why-not", object, "-n=feat"); err != nil || !strings.Contains(said, want) {
			t.Errorf("millrace why-not %s: %v\n%s\nwant %q", object, err, said, want)
		}
	}
	if said, err := w.Millrace("why-not", "deploy/web", "-n=shop"); err != nil || !strings.HasPrefix(said, "deployment-controller and shop/web\n") {
		t.Errorf("what is as it is wanted: %v\n%s", err, said)
	}
}
