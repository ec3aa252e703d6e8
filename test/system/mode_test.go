package system

import (
	"fmt"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/millrace/millrace/cmd/clustertest"
	"github.com/millrace/millrace/pkg/events"
)

// TestModesThatWriteNothing: in the modes dry-run and off Millrace decides and stores outcomes, but nothing
// is stored on the API server.
func TestModesThatWriteNothing(t *testing.T) {
	s := here(t)
	for mode, want := range map[string]events.Status{"dry-run": events.DryRun, "off": events.Refused} {
		t.Run(mode, func(t *testing.T) {
			since := s.mark(t)
			m := s.run(t, "--mode="+mode)
			name := "mode-" + mode
			must(t, s.arenas.CreateNamespace(t.Context(), name))
			a, err := s.arenas.Watch(t.Context(), name)
			must(t, err)
			t.Cleanup(a.Close)
			must(t, a.Deploy(t.Context(), "web", first, 3))
			b := connect(t, m.nats)
			within(t, patience, "a ReplicaSet's creation comes to "+string(want), func() string {
				var seen []string
				for _, r := range outcomes(t, b) {
					if r.Status == want && r.Ref.Kind == "replicasets.apps" && r.Ref.Namespace == name {
						return ""
					}
					seen = append(seen, fmt.Sprint(r.Status, " ", r.Ref))
				}
				return fmt.Sprintf("the outcomes are %v", seen)
			})
			m.stop(t)
			for _, w := range s.writes(t, since) {
				if w.stored() {
					t.Errorf("the writer made a write, want none in this mode: %v", w)
				}
			}
			must(t, a.DeleteDeployments(t.Context()))
			until(t, a, clustertest.Empty())
		})
	}
}

// TestSubset runs one controller of a pair: it does its work, and the work of the other one is not done.
func TestSubset(t *testing.T) {
	s := here(t)
	since := s.mark(t)
	m := s.run(t, "--controllers=replicaset,serviceaccount")
	a := s.arena(t, "subset")
	set := replicaSet("web", 2)
	_, err := s.kube.AppsV1().ReplicaSets(a.Namespace).Create(t.Context(), set, metav1.CreateOptions{})
	must(t, err)
	must(t, a.Deploy(t.Context(), "other", first, 2))
	until(t, a, clustertest.Ready(2))
	within(t, patience, "the set's status", func() string {
		now, err := s.kube.AppsV1().ReplicaSets(a.Namespace).Get(t.Context(), set.Name, metav1.GetOptions{})
		if err == nil && now.Status.ReadyReplicas != 2 {
			return fmt.Sprintf("it is %+v", now.Status)
		}
		return ask(err)
	})
	m.stop(t)
	for _, w := range s.writes(t, since) {
		switch w.Impersonated.Username {
		case "system:serviceaccount:kube-system:replicaset-controller", "system:serviceaccount:kube-system:service-account-controller":
		default:
			t.Errorf("a controller wrote that --controllers does not name: %v", w)
		}
	}
	if created := a.Created(); created != 2 {
		t.Errorf("%d pods were created, want the ReplicaSet's 2", created)
	}
	background := metav1.DeletePropagationBackground
	all := s.run(t)
	must(t, s.kube.AppsV1().ReplicaSets(a.Namespace).Delete(t.Context(), set.Name, metav1.DeleteOptions{PropagationPolicy: &background}))
	clear(t, a)
	all.stop(t)
}

func replicaSet(name string, replicas int32) *appsv1.ReplicaSet {
	labels := map[string]string{"app": name}
	return &appsv1.ReplicaSet{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: appsv1.ReplicaSetSpec{
			Replicas: &replicas, Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: labels},
				Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "main", Image: first}}},
			},
		},
	}
}

// TestLongRestart restarts a process in a cluster that has changed meanwhile.
func TestLongRestart(t *testing.T) {
	s := here(t)
	m := s.run(t)
	a := s.arena(t, "absence")
	must(t, a.Deploy(t.Context(), "web", first, 3))
	until(t, a, clustertest.RolledOut("web", first, 3))
	m.stop(t)
	must(t, a.DeletePods(t.Context()))
	until(t, a, clustertest.NoPods())
	must(t, a.SetImage(t.Context(), "web", second))
	begun := time.Now()
	m.again(t, s)
	until(t, a, clustertest.RolledOut("web", second, 3))
	t.Logf("rolled out %v after the start", time.Since(begun))
	clear(t, a)
}
