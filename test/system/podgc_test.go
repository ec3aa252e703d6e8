package system

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/millrace/millrace/cmd/clustertest"
)

// TestPodsThatNobodyElseEnds deletes nodes, breaks them, and fills one with ended pods. The threshold keeps
// two ended pods in the whole cluster, the youngest: so all other pods that end here, and count until they
// are deleted, must be older.
func TestPodsThatNobodyElseEnds(t *testing.T) {
	s := here(t)
	s.run(t, "--terminated-pod-gc-threshold=2")
	const name = "collected-pods"
	must(t, s.arenas.CreateNamespace(t.Context(), name))
	s.abandon(t, name)
	s.node(t, "goes")
	s.node(t, "breaks")
	s.node(t, "fills")
	orphan, stuck := s.podOn(t, name, "orphan", "goes"), s.podOn(t, name, "stuck", "breaks")
	lasts := s.lastOf(t, orphan)
	must(t, s.kube.CoreV1().Nodes().Delete(t.Context(), "goes", metav1.DeleteOptions{}))

	t.Run("a node is gone", func(t *testing.T) {
		s.goes(t, orphan)
		last := lasts()
		said := ""
		for _, c := range last.Status.Conditions {
			said += fmt.Sprint(c.Type, " ", c.Status, " ", c.Reason, "; ")
		}
		if last.Status.Phase != corev1.PodFailed || !strings.Contains(said, "DisruptionTarget True DeletionByPodGC") {
			t.Errorf("the pod was deleted in the phase %s with the conditions %s; want Failed, with DisruptionTarget by DeletionByPodGC", last.Status.Phase, said)
		}
	})
	t.Run("too many have ended", func(t *testing.T) { s.tooMany(t, name) })
	t.Run("a node is out of service", func(t *testing.T) {
		must(t, s.kube.CoreV1().Pods(name).Delete(t.Context(), stuck.Name, metav1.DeleteOptions{}))
		if _, err := s.kube.CoreV1().Pods(name).Get(t.Context(), stuck.Name, metav1.GetOptions{}); err != nil {
			t.Fatalf("the pod of a node without a kubelet has gone, want it to wait: %v", err)
		}
		out := `{"spec":{"taints":[{"key":"node.kubernetes.io/out-of-service","value":"nodeshutdown","effect":"NoExecute"}]}}`
		_, err := s.kube.CoreV1().Nodes().Patch(t.Context(), "breaks", types.MergePatchType, []byte(out), metav1.PatchOptions{})
		must(t, err)
		s.goes(t, stuck)
	})
	if left := s.ended(t); left != kept {
		t.Errorf("of the pods that have ended, %s are left, want %s", left, kept)
	}
}

// node is a node without a kubelet.
func (s *site) node(t *testing.T, name string) {
	t.Helper()
	_, err := s.kube.CoreV1().Nodes().Create(t.Context(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{
		Name: name, Labels: map[string]string{clustertest.Unmanned: "true"},
	}}, metav1.CreateOptions{})
	must(t, err)
	t.Cleanup(func() { // the test may have deleted it
		_ = s.kube.CoreV1().Nodes().Delete(context.WithoutCancel(t.Context()), name, metav1.DeleteOptions{})
	})
}

func (s *site) podOn(t *testing.T, namespace, name, node string) *corev1.Pod {
	t.Helper()
	within(t, patience, "pod "+name+" can be created", func() string {
		_, err := s.kube.CoreV1().Pods(namespace).Create(t.Context(), &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Name: name},
			Spec:       corev1.PodSpec{NodeName: node, Containers: []corev1.Container{{Name: "c", Image: "none/runs:it"}}},
		}, metav1.CreateOptions{})
		return made(err)
	})
	p, err := s.kube.CoreV1().Pods(namespace).Get(t.Context(), name, metav1.GetOptions{})
	must(t, err)
	return p
}

// lastOf returns a pod's last state before its deletion.
func (s *site) lastOf(t *testing.T, p *corev1.Pod) func() *corev1.Pod {
	t.Helper()
	from := metav1.SingleObject(p.ObjectMeta)
	open := func() watch.Interface {
		changes, err := s.kube.CoreV1().Pods(p.Namespace).Watch(t.Context(), from)
		must(t, err)
		t.Cleanup(changes.Stop)
		return changes
	}
	changes := open()
	return func() *corev1.Pod {
		for { // the API server may end a watch at any time; the next watch continues at the same version
			for change := range changes.ResultChan() {
				now, ok := change.Object.(*corev1.Pod)
				if !ok {
					t.Fatalf("the watch ended before the pod: %+v", change.Object)
				}
				if change.Type == watch.Deleted {
					return now
				}
				from.ResourceVersion = now.ResourceVersion
			}
			changes = open()
		}
	}
}

// goes waits until a pod is deleted.
func (s *site) goes(t *testing.T, p *corev1.Pod) {
	t.Helper()
	// Upstream: a node has to be away for 40 s, and is looked at every 20 s.
	within(t, patience+time.Minute, "pod "+p.Name+" goes", func() string {
		_, err := s.kube.CoreV1().Pods(p.Namespace).Get(t.Context(), p.Name, metav1.GetOptions{})
		return gone(err)
	})
}

// kept are the pods of tooMany that stay.
const kept = "[collected-pods/done-2 collected-pods/done-3]"

// tooMany ends four pods that are younger than all other ended ones. The last two of all in the cluster are
// kept.
func (s *site) tooMany(t *testing.T, namespace string) {
	for i := range 4 {
		p := s.podOn(t, namespace, fmt.Sprint("done-", i), "fills")
		_, err := s.kube.CoreV1().Pods(namespace).Patch(t.Context(), p.Name, types.MergePatchType, []byte(`{"status":{"phase":"Succeeded"}}`), metav1.PatchOptions{}, "status")
		must(t, err)
	}
	within(t, patience, "of the pods that have ended two are left", func() string {
		if left := s.ended(t); left != kept {
			return "there are " + left
		}
		return ""
	})
}

// ended are the ended pods of the whole cluster.
func (s *site) ended(t *testing.T) string {
	t.Helper()
	all, err := s.kube.CoreV1().Pods("").List(t.Context(), metav1.ListOptions{FieldSelector: "status.phase!=Pending,status.phase!=Running,status.phase!=Unknown"})
	must(t, err)
	var names []string
	for _, p := range all.Items {
		names = append(names, p.Namespace+"/"+p.Name)
	}
	slices.Sort(names)
	return fmt.Sprint(names)
}
