package system

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/millrace/millrace/cmd/clustertest"
)

const (
	attachDriver = "attach.example.com"
	attachName   = corev1.UniqueVolumeName("kubernetes.io/csi/" + attachDriver + "^disk-1")
)

// attacher acts as a driver's external-attacher: it attaches and detaches the requested volumes, and uses a
// finalizer as external-attacher does.
func (s *site) attacher(t *testing.T) {
	t.Helper()
	attachments := s.kube.StorageV1().VolumeAttachments()
	w, err := attachments.Watch(t.Context(), metav1.ListOptions{})
	must(t, err)
	t.Cleanup(w.Stop)
	answer := func(a *storagev1.VolumeAttachment) error {
		patch := `{"metadata":{"finalizers":["attach.example.com/attached"]}}`
		switch {
		case a.DeletionTimestamp != nil && len(a.Finalizers) > 0:
			patch = `{"metadata":{"finalizers":null}}`
		case a.DeletionTimestamp != nil || a.Status.Attached:
			return nil
		}
		if _, err := attachments.Patch(t.Context(), a.Name, types.MergePatchType, []byte(patch), metav1.PatchOptions{}); err != nil || a.DeletionTimestamp != nil {
			return err
		}
		_, err := attachments.Patch(t.Context(), a.Name, types.MergePatchType, []byte(`{"status":{"attached":true}}`), metav1.PatchOptions{}, "status")
		return err
	}
	go func() {
		for e := range w.ResultChan() {
			a, ok := e.Object.(*storagev1.VolumeAttachment)
			if !ok || a.Spec.Attacher != attachDriver || e.Type == watch.Deleted {
				continue
			}
			if err := answer(a); err != nil && t.Context().Err() == nil && gone(err) != "" {
				t.Errorf("the simulated attacher cannot answer %s: %v", a.Name, err)
			}
		}
	}()
}

// diskNode creates a node whose kubelet leaves the attaching of volumes to the controller.
func (s *site) diskNode(t *testing.T, name string) {
	t.Helper()
	nodes := s.kube.CoreV1().Nodes()
	_, err := nodes.Create(t.Context(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{
		Name: name, Labels: map[string]string{clustertest.Unmanned: "true"}, Annotations: map[string]string{"volumes.kubernetes.io/controller-managed-attach-detach": "true"},
	}}, metav1.CreateOptions{})
	must(t, err)
	t.Cleanup(func() { must(t, nodes.Delete(context.WithoutCancel(t.Context()), name, metav1.DeleteOptions{})) })
	s.diskStatus(t, name, corev1.NodeStatus{Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue, Reason: "Test", LastHeartbeatTime: metav1.Now()}}})
}

// diskStatus writes a node's status, as its kubelet would.
func (s *site) diskStatus(t *testing.T, node string, status corev1.NodeStatus) {
	t.Helper()
	said := map[string]any{"volumesInUse": status.VolumesInUse}
	if len(status.Conditions) > 0 {
		said["conditions"] = status.Conditions
	}
	body, err := json.Marshal(map[string]any{"status": said})
	must(t, err)
	_, err = s.kube.CoreV1().Nodes().Patch(t.Context(), node, types.StrategicMergePatchType, body, metav1.PatchOptions{}, "status")
	must(t, err)
}

// TestVolumesFollowTheirPods: the controller attaches a volume to the node of its pod and lists it in the
// node's status. While the kubelet uses the volume, it is attached to no other node, and a pod on another
// node has an Event about that; after the pod has ended and the kubelet has released the volume, it moves to
// the other node.
func TestVolumesFollowTheirPods(t *testing.T) {
	s := here(t)
	m := s.run(t)
	const name = "disks"
	must(t, s.arenas.CreateNamespace(t.Context(), name))
	s.abandon(t, name)
	s.attacher(t)
	s.diskNode(t, "disks-1")
	s.diskNode(t, "disks-2")
	s.boundVolume(t, name, "disk-1", attachDriver, corev1.ReadWriteOnce)
	pods := s.kube.CoreV1().Pods(name)
	pod := func(pod, node string) {
		s.createPod(t, name, pod, corev1.PodSpec{NodeName: node, Containers: []corev1.Container{{Name: "c", Image: "none/runs:it"}}, Volumes: ofClaim()})
	}
	lists := func(node string, wants int) {
		within(t, patience, fmt.Sprintf("%s lists %d volumes", node, wants), func() string {
			n, err := s.kube.CoreV1().Nodes().Get(t.Context(), node, metav1.GetOptions{})
			if err == nil && (len(n.Status.VolumesAttached) != wants || wants > 0 && n.Status.VolumesAttached[0].Name != attachName) {
				return fmt.Sprintf("it lists %v", n.Status.VolumesAttached)
			}
			return ask(err)
		})
	}
	says := func(pod, reason, message string) {
		within(t, patience, pod+" says "+reason, func() string {
			told, err := s.eventsOf(t, name, pod, reason)
			if err == nil && (len(told) != 1 || !strings.HasPrefix(told[0].Message, message) || told[0].Source.Component != "attachdetach-controller") {
				return fmt.Sprintf("%d things are said", len(told))
			}
			return ask(err)
		})
	}
	pod("web-1", "disks-1")
	lists("disks-1", 1)
	says("web-1", "SuccessfulAttachVolume", `AttachVolume.Attach succeeded for volume "disk-1"`)
	s.diskStatus(t, "disks-1", corev1.NodeStatus{VolumesInUse: []corev1.UniqueVolumeName{attachName}})

	pod("web-2", "disks-2")
	says("web-2", "FailedAttachVolume", `Multi-Attach error for volume "disk-1" Volume is already used by pod(s) web-1`)
	at := int64(0)
	must(t, pods.Delete(t.Context(), "web-1", metav1.DeleteOptions{GracePeriodSeconds: &at}))
	asker{site: s, nats: m.nats}.awaitLook(t, "nodes/disks-1", "persistentvolume-attach-detach-controller")
	lists("disks-1", 1)
	lists("disks-2", 0)

	s.diskStatus(t, "disks-1", corev1.NodeStatus{})
	lists("disks-1", 0)
	lists("disks-2", 1)
	says("web-2", "SuccessfulAttachVolume", `AttachVolume.Attach succeeded for volume "disk-1"`)
	must(t, pods.Delete(t.Context(), "web-2", metav1.DeleteOptions{GracePeriodSeconds: &at}))
	lists("disks-2", 0)
	within(t, patience, "nothing is attached any more", func() string {
		all, err := s.kube.StorageV1().VolumeAttachments().List(t.Context(), metav1.ListOptions{})
		if err == nil && len(all.Items) > 0 {
			return fmt.Sprintf("there are %d attachments", len(all.Items))
		}
		return ask(err)
	})
}
