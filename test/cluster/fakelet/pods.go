package main

import (
	"context"
	"fmt"
	"log"
	"regexp"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/util/retry"
)

// command is what a pod runs, in one line.
func command(p *corev1.Pod) string {
	c := p.Spec.Containers[0]
	return strings.Join(append(append([]string{}, c.Command...), c.Args...), " ")
}

// failing finds the commands that never succeed.
var failing = regexp.MustCompile(`^(/bin/)?false\b|^(/bin/)?sh -c exit [1-9]`)

// dataFile finds the file by which a job pod knows of an earlier run.
var dataFile = regexp.MustCompile(`/data/foo(-\$JOB_COMPLETION_INDEX)?`)

// pod plays whatever kwok cannot know of a pod.
func (f *fakelet) pod(p *corev1.Pod) {
	f.reject(p)
	f.resumed(p)
	if p.Status.Phase != corev1.PodRunning || p.DeletionTimestamp != nil {
		return
	}
	cmd := command(p)
	if p.Spec.RestartPolicy != corev1.RestartPolicyNever && failing.MatchString(cmd) {
		f.restarts(p)
	} else if file := dataFile.FindString(cmd); file != "" {
		f.remember(p, strings.ReplaceAll(file, "$JOB_COMPLETION_INDEX", p.Annotations["batch.kubernetes.io/job-completion-index"]))
	}
}

// remember plays a job pod that leaves a file behind, and ends differently when
// it finds one that an earlier run left.
func (f *fakelet) remember(p *corev1.Pod, file string) {
	volume := string(p.UID)
	for _, v := range p.Spec.Volumes {
		if v.HostPath != nil {
			volume = p.Spec.NodeName + v.HostPath.Path
		}
	}
	restarts := int32(0)
	if len(p.Status.ContainerStatuses) > 0 {
		restarts = p.Status.ContainerStatuses[0].RestartCount
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	run := fmt.Sprintf("%s/%d", p.UID, restarts)
	if f.seen[run] {
		return
	}
	f.seen[run] = true
	found := f.vol[volume][file]
	f.touch(volume, file)
	time.AfterFunc(300*time.Millisecond, func() { f.conclude(p, found) })
}

// conclude ends a run of such a pod.
func (f *fakelet) conclude(p *corev1.Pod, found bool) {
	cmd, code := command(p), int32(1)
	if strings.Contains(cmd, "exit 42") {
		code = 42
	}
	own := p.Spec.Containers[0].RestartPolicy
	final := p.Spec.RestartPolicy == corev1.RestartPolicyNever && (own == nil || *own == corev1.ContainerRestartPolicyNever)
	switch {
	case found:
		f.end(p, corev1.PodSucceeded, 0)
	case strings.Contains(cmd, "sleep 1000000"):
		f.ready(p.Namespace, p.Name, true)
	case final:
		f.end(p, corev1.PodFailed, code)
	default:
		f.status(p.Namespace, p.Name, func(s *corev1.PodStatus) {
			for i := range s.ContainerStatuses {
				s.ContainerStatuses[i].RestartCount++
			}
		})
	}
}

// status changes the status of a pod, again where it changed meanwhile.
func (f *fakelet) status(ns, name string, change func(*corev1.PodStatus)) {
	err := retry.RetryOnConflict(retry.DefaultBackoff, func() error {
		p, err := f.c.CoreV1().Pods(ns).Get(context.Background(), name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		change(&p.Status)
		_, err = f.c.CoreV1().Pods(ns).UpdateStatus(context.Background(), p, metav1.UpdateOptions{})
		return err
	})
	if err != nil {
		log.Printf("status of %s/%s: %v", ns, name, err)
	}
}

// setReady sets the readiness of a pod and of its containers.
func setReady(s *corev1.PodStatus, ready bool) {
	v := corev1.ConditionFalse
	if ready {
		v = corev1.ConditionTrue
	}
	for i := range s.Conditions {
		c := &s.Conditions[i]
		if (c.Type == corev1.PodReady || c.Type == corev1.ContainersReady) && c.Status != v {
			c.Status, c.LastTransitionTime = v, metav1.Now()
		}
	}
	for i := range s.ContainerStatuses {
		s.ContainerStatuses[i].Ready = ready
	}
}

// ready turns the readiness of a pod on or off.
func (f *fakelet) ready(ns, name string, ready bool) {
	f.status(ns, name, func(s *corev1.PodStatus) { setReady(s, ready) })
}

// end ends every container of a pod.
func (f *fakelet) end(p *corev1.Pod, phase corev1.PodPhase, code int32) {
	f.status(p.Namespace, p.Name, func(s *corev1.PodStatus) {
		setReady(s, false)
		s.Phase = phase
		for i := range s.ContainerStatuses {
			s.ContainerStatuses[i].State = corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{
				ExitCode: code, Reason: "Completed", FinishedAt: metav1.Now(), StartedAt: metav1.Now()}}
		}
	})
}

// probeFile is the file that turns a paused pod of a stateful set ready.
var probeFile = regexp.MustCompile(`dd if=/dev/zero of=(/data/\S+)`)

// disk names what keeps a pod's files: its claim, else the pod itself.
func disk(p *corev1.Pod) string {
	for _, v := range p.Spec.Volumes {
		if v.PersistentVolumeClaim != nil {
			return p.Namespace + "/" + v.PersistentVolumeClaim.ClaimName
		}
	}
	return string(p.UID)
}

// touch leaves a file on a disk; the caller holds mu.
func (f *fakelet) touch(disk, file string) {
	if f.vol[disk] == nil {
		f.vol[disk] = map[string]bool{}
	}
	f.vol[disk][file] = true
}

// resumed turns a pod ready whose probe starts late, or looks for a file that an earlier pod left on the claim.
func (f *fakelet) resumed(p *corev1.Pod) {
	pr := p.Spec.Containers[0].ReadinessProbe
	if pr != nil && pr.Exec == nil && pr.InitialDelaySeconds >= 5 && pr.InitialDelaySeconds <= 60 && p.Status.Phase == corev1.PodRunning {
		f.mu.Lock()
		defer f.mu.Unlock()
		if step := string(p.UID) + "/late"; !f.seen[step] {
			f.seen[step] = true
			time.AfterFunc(time.Duration(pr.InitialDelaySeconds)*time.Second, func() { f.ready(p.Namespace, p.Name, true) })
		}
		return
	}
	if pr == nil || pr.Exec == nil || p.Status.Phase != corev1.PodRunning || len(p.Status.ContainerStatuses) == 0 || p.Status.ContainerStatuses[0].Ready {
		return
	}
	cmd := pr.Exec.Command
	f.mu.Lock()
	defer f.mu.Unlock()
	if len(cmd) == 3 && cmd[0] == "test" && f.vol[disk(p)][cmd[2]] {
		go f.ready(p.Namespace, p.Name, true)
	}
}

// restarts plays the kubelet for a container that always fails and may restart: the pod
// stays Running and its restart count grows.
func (f *fakelet) restarts(p *corev1.Pod) {
	n := int32(0)
	if len(p.Status.ContainerStatuses) > 0 {
		n = p.Status.ContainerStatuses[0].RestartCount
	}
	step := fmt.Sprintf("%s/%d", p.UID, n)
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.seen[step] || n > 20 {
		return
	}
	f.seen[step] = true
	time.AfterFunc(time.Duration(n+1)*time.Second, func() {
		f.status(p.Namespace, p.Name, func(s *corev1.PodStatus) {
			setReady(s, false)
			for i := range s.ContainerStatuses {
				c := &s.ContainerStatuses[i]
				c.RestartCount++
				c.LastTerminationState = corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{ExitCode: 1, Reason: "Error", StartedAt: metav1.Now(), FinishedAt: metav1.Now()}}
				c.State = corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "CrashLoopBackOff"}}
			}
		})
	})
}

// reject plays the kubelet's admission: a pod put on a node by hand, whose host port another
// pod there already has, fails.
func (f *fakelet) reject(p *corev1.Pod) {
	if p.Status.Phase != corev1.PodPending || p.Spec.NodeName == "" || p.DeletionTimestamp != nil {
		return
	}
	ports := map[int32]bool{}
	for _, c := range p.Spec.Containers {
		for _, cp := range c.Ports {
			if cp.HostPort != 0 {
				ports[cp.HostPort] = true
			}
		}
	}
	if len(ports) == 0 {
		return
	}
	for _, o := range f.byIP.List() {
		q := o.(*corev1.Pod)
		if q.UID == p.UID || q.Spec.NodeName != p.Spec.NodeName || q.Status.Phase == corev1.PodFailed || q.Status.Phase == corev1.PodSucceeded {
			continue
		}
		for _, c := range q.Spec.Containers {
			for _, cp := range c.Ports {
				if ports[cp.HostPort] {
					go f.status(p.Namespace, p.Name, func(s *corev1.PodStatus) {
						s.Phase, s.Reason, s.Message = corev1.PodFailed, "NodePorts", "Pod was rejected: host port is taken"
					})
					return
				}
			}
		}
	}
}
