package system

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	schedulingv1alpha2 "k8s.io/api/scheduling/v1alpha2"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/millrace/millrace/cmd/clustertest"
)

// TestAPodGroupThatPodsAreIn: a PodGroup that is being deleted stays until every pod in it has ended.
func TestAPodGroupThatPodsAreIn(t *testing.T) {
	if !served(t) {
		return
	}
	t.Parallel()
	const gates, name = "--feature-gates=GenericWorkload=true", "ganged"
	s, err := begin(t.Context(), t.TempDir(), clustertest.Tracing{}, gates, "--runtime-config=scheduling.k8s.io/v1alpha2=true")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { must(t, s.Stop()) })
	m := s.run(t, gates)
	must(t, s.arenas.CreateNamespace(t.Context(), name))
	groups, pods := s.kube.SchedulingV1alpha2().PodGroups(name), s.kube.CoreV1().Pods(name)
	group, err := groups.Create(t.Context(), &schedulingv1alpha2.PodGroup{
		ObjectMeta: metav1.ObjectMeta{Name: "gang"},
		Spec:       schedulingv1alpha2.PodGroupSpec{SchedulingPolicy: schedulingv1alpha2.PodGroupSchedulingPolicy{Basic: &schedulingv1alpha2.BasicSchedulingPolicy{}}},
	}, metav1.CreateOptions{})
	must(t, err)
	if len(group.Finalizers) != 1 || group.Finalizers[0] != "scheduling.k8s.io/podgroup-protection" {
		t.Fatalf("the API server gives a new group the finalizers %v, want that of its protection alone", group.Finalizers)
	}
	of := "gang"
	within(t, patience, "the pod can be created", func() string {
		_, err := pods.Create(t.Context(), &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "web"}, Spec: corev1.PodSpec{
			SchedulingGroup: &corev1.PodSchedulingGroup{PodGroupName: &of}, Containers: []corev1.Container{{Name: "c", Image: "none/runs:it"}},
		}}, metav1.CreateOptions{})
		return made(err)
	})
	must(t, groups.Delete(t.Context(), "gang", metav1.DeleteOptions{}))
	r := asker{site: s, nats: m.nats, namespace: name}
	r.awaitLook(t, "podgroups.scheduling.k8s.io/gang", "podgroup-protection-controller")
	if group, err = groups.Get(t.Context(), "gang", metav1.GetOptions{}); err != nil || group.DeletionTimestamp == nil {
		t.Errorf("a deleted group with a pod in it is %+v, %v; want it to wait with its deletionTimestamp", group, err)
	}
	now := int64(0)
	must(t, pods.Delete(t.Context(), "web", metav1.DeleteOptions{GracePeriodSeconds: &now}))
	within(t, patience, "the group goes with its last pod", func() string {
		_, err := groups.Get(t.Context(), "gang", metav1.GetOptions{})
		return gone(err)
	})
}
