package system

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/millrace/millrace/cmd/clustertest"
)

// TestCrash kills everything at once in the middle of a rollout. New processes on the same streams complete
// the rollout within its bounds.
func TestCrash(t *testing.T) {
	s := here(t)
	t.Run("one process", func(t *testing.T) {
		m := s.run(t)
		a := s.arena(t, "crash-one")
		beginRollout(t, a)
		m.kill(t)
		m.again(t, s)
		endRollout(t, a)
	})
	t.Run("separate processes", func(t *testing.T) {
		m := s.separate(t, 1, s.credentials())
		a := s.arena(t, "crash-many")
		beginRollout(t, a)
		for _, name := range serviceNames {
			m.services[name][0].kill(t)
		}
		m.bus.kill(t)
		m.startBus()
		for _, name := range serviceNames {
			m.add(name).ready(t)
		}
		endRollout(t, a)
	})
}

const crowd = 12

// beginRollout returns while a Deployment is in the middle of a rollout.
func beginRollout(t *testing.T, a *clustertest.Arena) {
	t.Helper()
	must(t, a.Deploy(t.Context(), "web", first, crowd))
	until(t, a, clustertest.RolledOut("web", first, crowd))
	must(t, a.SetImage(t.Context(), "web", second))
	until(t, a, clustertest.Replaced(crowd, 0))
}

func endRollout(t *testing.T, a *clustertest.Arena) {
	t.Helper()
	until(t, a, clustertest.RolledOut("web", second, crowd))
	if most, bound := a.Most(), crowd+crowd/4; most > bound {
		t.Errorf("%d pods at a time, want at most %d", most, bound)
	}
	if created := a.Created(); created != 2*crowd {
		t.Errorf("%d pods were created, want one for each of two templates and %d replicas", created, crowd)
	}
	clear(t, a)
}

// TestOutage stops the components that Millrace depends on, and starts them again.
func TestOutage(t *testing.T) {
	s := here(t)
	m := s.separate(t, 1, s.credentials())
	a := s.arena(t, "outage")
	must(t, a.Deploy(t.Context(), "web", first, 3))
	until(t, a, clustertest.RolledOut("web", first, 3))

	t.Run("bus", func(t *testing.T) {
		m.bus.kill(t)
		within(t, patience, "the services say that the bus is away, and need no restart", func() string {
			for _, name := range serviceNames {
				p := m.services[name][0]
				if code, text := p.get(t, "/readyz"); code != http.StatusInternalServerError {
					return fmt.Sprintf("%s is ready: %d %s", name, code, text)
				}
				if code, text := p.get(t, "/livez"); code != http.StatusOK {
					return fmt.Sprintf("%s is not alive: %d %s", name, code, text)
				}
			}
			return ""
		})
		created := a.Created()
		_, err := a.DeletePod(t.Context())
		must(t, err)
		m.startBus()
		until(t, a, clustertest.Replaced(created, 3))
	})
	t.Run("API server", func(t *testing.T) {
		must(t, s.RestartAPIServer(t.Context()))
		s.expectHeal(t, a.Namespace)
	})
	for _, name := range serviceNames {
		p := m.services[name][0]
		if !p.Running() {
			t.Errorf("%s ended during the outages, want it to run on:\n%s", name, tail(p.Log))
		}
		p.ready(t)
	}
	must(t, s.kube.AppsV1().Deployments(a.Namespace).Delete(t.Context(), "web", metav1.DeleteOptions{}))
	within(t, patience, "all is gone", func() string {
		pods, err := s.kube.CoreV1().Pods(a.Namespace).List(t.Context(), everything)
		if err == nil && len(pods.Items) > 0 {
			return fmt.Sprintf("%d pods are left", len(pods.Items))
		}
		return ask(err)
	})
}

// expectHeal deletes a pod of a Deployment of three and waits for its replacement. It polls instead of
// watching, because the API server may have ended all watches.
func (s *site) expectHeal(t *testing.T, namespace string) {
	t.Helper()
	pods := func() ([]corev1.Pod, error) {
		list, err := s.kube.CoreV1().Pods(namespace).List(t.Context(), everything)
		if err != nil {
			return nil, err
		}
		return list.Items, nil
	}
	var victim corev1.Pod
	within(t, patience, "three pods that stay", func() string {
		now, err := pods()
		if err != nil {
			return err.Error()
		}
		// A pod that was deleted before may go at any moment, and its end is no heal.
		now = slices.DeleteFunc(now, func(p corev1.Pod) bool { return p.DeletionTimestamp != nil })
		if len(now) != 3 {
			return fmt.Sprintf("there are %d", len(now))
		}
		victim = now[0]
		return ""
	})
	must(t, s.kube.CoreV1().Pods(namespace).Delete(t.Context(), victim.Name, metav1.DeleteOptions{}))
	within(t, patience, "three running pods and not the deleted one", func() string {
		now, err := pods()
		if err != nil {
			return err.Error()
		}
		var seen []string
		running := 0
		for _, p := range now {
			seen = append(seen, p.Name+" "+string(p.Status.Phase))
			if p.UID != victim.UID && p.Status.Phase == corev1.PodRunning {
				running++
			}
		}
		if running != 3 || len(now) != 3 {
			return "there are " + strings.Join(seen, ", ")
		}
		return ""
	})
}
