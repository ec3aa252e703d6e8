package record_test

import (
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/pkg/events/record"
)

// If an object triggered a turn several times, its newest version is explained, because the turn
// went by that. Objects are sorted by their last change.
func TestWhyTellsTheNewestOfWhatAsked(t *testing.T) {
	tell(t, func(w *world) {
		w.Scaled()
		unready := w.Is(pod("a"), "kubelet", nil)
		w.Is(pod("x"), "kubectl-create", nil)
		other := w.Is(pod("x"), "kubelet", func(o metav1.Object) { o.(*corev1.Pod).Status.Phase = corev1.PodFailed })
		deleted := w.Is(pod("a"), "kubectl-delete", func(o metav1.Object) { now := metav1.Now(); o.SetDeletionTimestamp(&now) })
		made := w.Delta(pod("b"), events.Is, events.FieldManager, nil)
		former := trigger(pod("x"), other)
		former.Stream = "STATE_pods" // as earlier versions name it, with the log's sequence
		turn := w.Decide(replicaSets, webSet, "too few Pods", []events.Command{create(pod("b"))},
			trigger(pod("a"), unready), former, trigger(pod("a"), deleted))
		w.Done(replicaSets, webSet, turn, made)
		w.Say(made)
		c, err := w.record.Why(w.Context(), kinds.Pods.Kind, pod("b"), record.Question{})
		w.Must(err)
		want := `pods:shop/b created by replicaset-controller: too few Pods
  asked by pods:shop/a deleting by unknown
  asked by pods:shop/x changed by kubelet
  wanted since replicasets.apps:shop/web-1 changed by deployment-controller: as many as are wanted
    asked by deployments.apps:shop/web changed by kubectl-scale
`
		if got := draw(c, ""); got != want {
			w.Errorf("the cause of the pod is\n%swant\n%s", got, want)
		}
		if len(c.Causes) > 0 && c.Causes[0].Version.ResourceVersion != fmt.Sprint(w.Version-1) {
			w.Errorf("the cause is version %s, want %d", c.Causes[0].Version.ResourceVersion, w.Version-1)
		}
	})
}

// Turns about an object that is being deleted are wanted since the delete, and not since the
// create: not every kind has a generation that changes with it.
func TestWhyLeadsBackToADeletion(t *testing.T) {
	tell(t, func(w *world) {
		w.Scaled()
		w.Is(web, "kubectl-delete", func(o metav1.Object) { now := metav1.Now(); o.SetDeletionTimestamp(&now) })
		w.Is(web, "kubectl-label", func(o metav1.Object) { o.SetLabels(map[string]string{"seen": "yes"}) })
		asked := w.Is(pod("a"), "kubelet", nil)
		set := w.Delta(webSet, events.Is, events.FieldManager, replicas(0))
		command := []events.Command{{Verb: events.VerbPatch, Kind: webSet.Kind, Namespace: "shop", Name: webSet.Name}}
		w.Done(deployments, web, w.Decide(deployments, web, "the Deployment is being deleted", command, trigger(pod("a"), asked)), set)
		w.Say(set)
		c, err := w.record.Why(w.Context(), kinds.ReplicaSets.Kind, webSet, record.Question{Last: true})
		w.Must(err)
		want := `replicasets.apps:shop/web-1 changed by deployment-controller: the Deployment is being deleted
  asked by pods:shop/a changed by kubelet
  wanted since deployments.apps:shop/web deleting by unknown
`
		if got := draw(c, ""); got != want {
			w.Errorf("the cause of the set's change is\n%swant\n%s", got, want)
		}
		if began := c.Began(); began.Version.Event != record.Leaving {
			w.Errorf("the chain of causes begins with %+v, want the deletion", began.Version)
		}
	})
}

// The end of an object is ordered by the manager that deleted it, and not by later writes while
// it waited for its finalizers.
func TestWhyGoesBackToTheFirstWordOfAnEnd(t *testing.T) {
	tell(t, func(w *world) {
		w.Scaled()
		w.Is(pod("a"), "kubectl-delete", func(o metav1.Object) { now := metav1.Now(); o.SetDeletionTimestamp(&now) })
		first := w.Version
		w.Is(pod("a"), "kubelet", func(o metav1.Object) { o.(*corev1.Pod).Status.Phase = corev1.PodFailed })
		w.Is(pod("a"), "kubectl-label", func(o metav1.Object) { o.SetFinalizers(nil); o.SetLabels(map[string]string{"seen": "yes"}) })
		w.Say(w.Delta(pod("a"), events.Gone, "kubelet", nil))
		c, err := w.record.Why(w.Context(), kinds.Pods.Kind, pod("a"), record.Question{})
		w.Must(err)
		if got, want := draw(c, ""), "pods:shop/a gone by unknown\n  ordered by pods:shop/a deleting by unknown\n"; got != want {
			w.Fatalf("the cause of the pod's end is\n%swant\n%s", got, want)
		}
		if got := c.Causes[0].Version.ResourceVersion; got != fmt.Sprint(first) {
			w.Errorf("the deletion was ordered by version %s, want %d", got, first)
		}
	})
}

// Objects that triggered a turn in the same way are explained once, and counted; a status change
// of one of them is not the first cause.
func TestWhyCountsWhatAskedAlike(t *testing.T) {
	tell(t, func(w *world) {
		w.Scaled()
		var asked []events.Trigger
		for _, name := range []string{"x", "y", "z"} {
			w.Is(pod(name), "kubectl-create", nil)
		}
		for _, name := range []string{"x", "y", "z"} {
			at := w.Is(pod(name), "kubelet", func(o metav1.Object) { o.(*corev1.Pod).Status.Phase = corev1.PodFailed })
			asked = append(asked, trigger(pod(name), at))
		}
		made := w.Delta(pod("b"), events.Is, events.FieldManager, nil)
		w.Done(replicaSets, webSet, w.Decide(replicaSets, webSet, "too few Pods", []events.Command{create(pod("b"))}, asked...), made)
		w.Say(made)
		c, err := w.record.Why(w.Context(), kinds.Pods.Kind, pod("b"), record.Question{})
		w.Must(err)
		want := `pods:shop/b created by replicaset-controller: too few Pods
  asked by pods:shop/z changed by kubelet
  wanted since replicasets.apps:shop/web-1 changed by deployment-controller: as many as are wanted
    asked by deployments.apps:shop/web changed by kubectl-scale
`
		if got := draw(c, ""); got != want {
			w.Fatalf("the pod was made\n%swant\n%s", got, want)
		}
		if c.Causes[0].Like != 2 || c.Causes[1].Like != 0 {
			w.Errorf("like causes: %d and %d, want 2 and 0", c.Causes[0].Like, c.Causes[1].Like)
		}
		if began := c.Began(); began.Version.By.Manager != "kubectl-scale" {
			w.Errorf("the chain of causes begins with %+v, want the scaling", began.Version)
		}
	})
}

// A field has its value since the create of its object, and not since an earlier object of that
// name changed it.
func TestWhyAFieldIsOfOneObject(t *testing.T) {
	tell(t, func(w *world) {
		bound := func(o metav1.Object) { o.(*corev1.Pod).Spec.NodeName = "n1" }
		w.Is(pod("a"), "kubectl-create", nil)
		w.Is(pod("a"), "kube-scheduler", bound)
		w.Say(w.Delta(pod("a"), events.Gone, "kubelet", nil))
		w.Is(pod("a"), "kubectl-create", bound)
		created := w.Version
		w.Is(pod("a"), "kubelet", func(o metav1.Object) { o.(*corev1.Pod).Status.Phase = corev1.PodRunning })
		c, err := w.record.Why(w.Context(), kinds.Pods.Kind, pod("a"), record.Question{Field: "spec.nodeName"})
		w.Must(err)
		if got := c.Version.ResourceVersion; got != fmt.Sprint(created) {
			w.Errorf("the field is so since version %s, want %d: %s", got, created, draw(c, ""))
		}
	})
}
