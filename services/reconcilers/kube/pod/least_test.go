package pod_test

import (
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/millrace/millrace/services/reconcilers/kube/pod"
)

func TestLeast(t *testing.T) {
	running := func(name string, change func(*corev1.Pod)) *corev1.Pod {
		p := ready(now.Add(-time.Hour))
		p.Name, p.Spec.NodeName, p.Status.Phase = name, "n", corev1.PodRunning
		p.CreationTimestamp = metav1.NewTime(now.Add(-2 * time.Hour))
		change(p)
		return p
	}
	always := corev1.ContainerRestartPolicyAlways
	pods := []*corev1.Pod{
		running("unassigned", func(p *corev1.Pod) { p.Spec.NodeName = "" }),
		running("pending", func(p *corev1.Pod) { p.Status.Phase = corev1.PodPending }),
		running("unknown", func(p *corev1.Pod) { p.Status.Phase = corev1.PodUnknown }),
		running("not ready", func(p *corev1.Pod) { p.Status.Conditions = nil }),
		running("ready since an unknown time", func(p *corev1.Pod) { p.Status.Conditions[1].LastTransitionTime = metav1.Time{} }),
		running("ready a second later", func(p *corev1.Pod) {
			p.Status.Conditions[1].LastTransitionTime = metav1.NewTime(now.Add(time.Second - time.Hour))
		}),
		running("restarted", func(p *corev1.Pod) { p.Status.ContainerStatuses = []corev1.ContainerStatus{{RestartCount: 3}} }),
		running("restarted beside", func(p *corev1.Pod) {
			p.Spec.InitContainers = []corev1.Container{{Name: "side", RestartPolicy: &always}}
			p.Status.InitContainerStatuses = []corev1.ContainerStatus{{Name: "side", RestartCount: 1}}
		}),
		running("younger", func(p *corev1.Pod) { p.CreationTimestamp = metav1.NewTime(now.Add(-time.Hour)) }),
		running("a", func(*corev1.Pod) {}),
		running("b", func(*corev1.Pod) {}),
	}
	given := slices.Clone(pods)
	slices.Reverse(given)
	if got, want := namesOf(pod.Least(given)), namesOf(pods); !slices.Equal(got, want) {
		t.Errorf("in the order %q, want %q", got, want)
	}
}
