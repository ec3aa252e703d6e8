package system

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// labelDriver is a driver whose volumes can be mounted with SELinux labels.
const labelDriver = "labels.example.com"

// shared creates that driver, a volume of it and a claim that is bound to it, for many pods.
func (s *site) shared(t *testing.T, namespace string) {
	t.Helper()
	drivers := s.kube.StorageV1().CSIDrivers()
	_, err := drivers.Create(t.Context(), &storagev1.CSIDriver{
		ObjectMeta: metav1.ObjectMeta{Name: labelDriver}, Spec: storagev1.CSIDriverSpec{SELinuxMount: new(true), AttachRequired: new(false)},
	}, metav1.CreateOptions{})
	must(t, err)
	t.Cleanup(func() {
		must(t, drivers.Delete(context.WithoutCancel(t.Context()), labelDriver, metav1.DeleteOptions{}))
	})
	s.boundVolume(t, namespace, "shared-1", labelDriver, corev1.ReadWriteMany)
}

// labelled is a container that mounts the volume with an SELinux level.
func labelled(name, level string) corev1.Container {
	return corev1.Container{
		Name: name, Image: "none/runs:it", VolumeMounts: []corev1.VolumeMount{{Name: "data", MountPath: "/data"}},
		SecurityContext: &corev1.SecurityContext{SELinuxOptions: &corev1.SELinuxOptions{Level: level}},
	}
}

// TestPodsWhoseLabelsConflict: two pods that use a volume with different labels get Events, and the metric
// has them while both exist; a pod whose containers want two labels gets an Event, too; a restart repeats no
// Event.
func TestPodsWhoseLabelsConflict(t *testing.T) {
	s := here(t)
	// Without the other controllers no pod can be created in a namespace, and it is never deleted.
	const only = "--controllers=selinux-warning-controller,serviceaccount-controller,namespace-controller,persistentvolumeclaim-protection-controller,persistentvolume-protection-controller"
	m := s.run(t, only)
	const name = "labels"
	must(t, s.arenas.CreateNamespace(t.Context(), name))
	s.shared(t, name)
	pods := s.kube.CoreV1().Pods(name)
	pod := func(pod string, containers ...corev1.Container) {
		s.createPod(t, name, pod, corev1.PodSpec{
			NodeSelector: map[string]string{"example.com/nowhere": ""}, Containers: containers, AutomountServiceAccountToken: new(false), // all containers would mount the token
			Volumes: ofClaim(),
		})
	}
	says := func(pod, reason string, count int, message string) {
		t.Helper()
		within(t, patience, pod+" is told of "+reason, func() string {
			told, err := s.eventsOf(t, name, pod, reason)
			if err != nil || len(told) != count {
				return fmt.Sprintf("%d things are said (%v)", len(told), err)
			}
			for _, e := range told {
				if e.Message == message && e.Source.Component == "selinux_warning" && e.Count == 1 {
					return ""
				}
			}
			return fmt.Sprintf("it is said %+v", told)
		})
	}
	counts := func(pod1, value1, pod2, value2 string, there bool) {
		t.Helper()
		want := fmt.Sprintf(`selinux_warning_controller_selinux_volume_conflict{pod1_name="%s",pod1_namespace="labels",pod1_value="%s",pod2_name="%s",pod2_namespace="labels",pod2_value="%s",property="SELinuxLabel"} 1`+"\n", pod1, value1, pod2, value2)
		within(t, patience, fmt.Sprintf("the metric has %s and %s: %v", pod1, pod2, there), func() string {
			if code, text := m.get(t, "/metrics"); code != http.StatusOK || strings.Contains(text, want) != there {
				return fmt.Sprintf("it answers %d, and not that", code)
			}
			return ""
		})
	}
	const end = ". If both pods land on the same node, only one of them may access the volume."
	conflict := func(mine, other, others string) string {
		return `SELinuxLabel "` + mine + `" conflicts with pod ` + other + ` that uses the same volume as this pod with SELinuxLabel "` + others + `"` + end
	}
	pod("web-1", labelled("c", "s0:c1"))
	pod("web-2", labelled("c", "s0:c2"))
	says("web-1", "SELinuxLabelConflict", 1, conflict(":::s0:c1", "web-2", ":::s0:c2"))
	says("web-2", "SELinuxLabelConflict", 1, conflict(":::s0:c2", "web-1", ":::s0:c1"))
	counts("web-1", ":::s0:c1", "web-2", ":::s0:c2", true)
	counts("web-2", ":::s0:c2", "web-1", ":::s0:c1", true)

	pod("web-3", labelled("c", "s0:c1"), labelled("d", "s0:c2"))
	says("web-3", "MultipleSELinuxLabels", 1, `Volume "data" is mounted twice with different SELinux labels inside this pod`)

	m.stop(t)
	m.again(t, s, only)
	s.abandon(t, name) // while the process that deletes namespaces runs
	counts("web-1", ":::s0:c1", "web-2", ":::s0:c2", true)
	must(t, pods.Delete(t.Context(), "web-2", metav1.DeleteOptions{GracePeriodSeconds: new(int64(0))}))
	counts("web-1", ":::s0:c1", "web-2", ":::s0:c2", false)
	pod("web-4", labelled("c", "s0:c4"))
	says("web-1", "SELinuxLabelConflict", 2, conflict(":::s0:c1", "web-4", ":::s0:c4"))
	says("web-4", "SELinuxLabelConflict", 1, conflict(":::s0:c4", "web-1", ":::s0:c1"))
	says("web-3", "MultipleSELinuxLabels", 1, `Volume "data" is mounted twice with different SELinux labels inside this pod`)
}
