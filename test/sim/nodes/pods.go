package nodes

import (
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/millrace/millrace/test/sim/cluster"

	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/test/sim/apiserver"
)

// BoundNode is the node of a pod, or the only one that its affinity allows.
func BoundNode(pod *corev1.Pod) string {
	a := pod.Spec.Affinity
	if pod.Spec.NodeName != "" || a == nil || a.NodeAffinity == nil || a.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution == nil {
		return pod.Spec.NodeName
	}
	return a.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution.NodeSelectorTerms[0].MatchFields[0].Values[0]
}

// Working reports whether a container of a pod runs.
func Working(pod *corev1.Pod) bool {
	return slices.ContainsFunc(pod.Status.ContainerStatuses, func(c corev1.ContainerStatus) bool { return c.State.Running != nil })
}

// Runs reports whether a pod ends by itself.
func Runs(pod *corev1.Pod) bool { return pod.Spec.RestartPolicy == corev1.RestartPolicyNever }

// End ends a pod of a Job, most often with success.
func End(w *cluster.Cluster, obj metav1.Object) {
	phase, code := corev1.PodSucceeded, int32(0)
	image := cluster.ImageOfPod(obj.(*corev1.Pod))
	if image == Failing || image != Leading && w.Roll(5) == 1 {
		phase, code = corev1.PodFailed, 1
	}
	Ended(w, obj, phase, code)
}

// Kill ends a pod that was killed.
func Kill(w *cluster.Cluster, obj metav1.Object) { Ended(w, obj, corev1.PodFailed, 137) }

// Ended ends a pod with a phase and an exit code.
func Ended(w *cluster.Cluster, obj metav1.Object, phase corev1.PodPhase, code int32) {
	pod := obj.(*corev1.Pod)
	pod.Status.Phase, pod.Status.Conditions = phase, nil
	pod.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: "main", State: corev1.ContainerState{
		Terminated: &corev1.ContainerStateTerminated{ExitCode: code, FinishedAt: metav1.NewTime(w.Now.Truncate(time.Second))},
	}}}
}

// Reject is what a node does with a pod that it does not admit.
func Reject(obj metav1.Object) {
	obj.(*corev1.Pod).Status = corev1.PodStatus{Phase: corev1.PodFailed, Reason: "NodeAffinity"}
}

// Run is what a node does with a pod that it starts.
func Run(w *cluster.Cluster, obj metav1.Object) {
	pod := obj.(*corev1.Pod)
	pod.Status.Phase, pod.Status.PodIP = corev1.PodRunning, addressOf(pod)
	pod.Status.PodIPs = []corev1.PodIP{{IP: pod.Status.PodIP}}
	pod.Status.Conditions = []corev1.PodCondition{{
		Type: corev1.PodReady, Status: corev1.ConditionTrue, LastTransitionTime: metav1.NewTime(w.Now.Truncate(time.Second)),
	}}
}

// FinishPod ends a pod.
func FinishPod(w *cluster.Cluster) {
	if pod, ok := w.AnyPod().(*corev1.Pod); ok && pod.Status.Phase == corev1.PodRunning {
		w.Note("node: %s has done its work", pod.Name)
		w.API.Change(apiserver.RefOf(kinds.Pods.Name, pod), func(obj metav1.Object) { Ended(w, obj, corev1.PodSucceeded, 0) })
	}
}

// Leading is the image of pods that always succeed at once.
const Leading = "leader:v0"

// Failing is the image of pods that always fail, with the exit code 1.
const Failing = "fail:v0"
