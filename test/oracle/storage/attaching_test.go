package storage_test

import (
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"pgregory.net/rapid"

	"github.com/millrace/millrace/services/reconcilers/kube/csi"
	"github.com/millrace/millrace/test/oracle/objects"
	"github.com/millrace/millrace/test/oracle/oracletest"
	"github.com/millrace/millrace/test/oracle/storage"
)

func TestVolumesAreAttachedAsUpstreams(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(r *rapid.T) {
		world := attachingWorld(r)
		diff, err := (&storage.Attaching{World: world}).Compare(t)
		if err != nil {
			r.Fatal(err)
		}
		if diff != "" {
			r.Fatalf("upstream (-) and we (+) attach differently:\n%s\n%s", diff, oracletest.Page(r, world))
		}
	})
}

// attachingWorld has some nodes, volumes, pods that use them, and the attachments so far.
func attachingWorld(t *rapid.T) (world []runtime.Object) {
	no := false
	world = append(world, &storagev1.CSIDriver{ObjectMeta: metav1.ObjectMeta{Name: "lazy.example.com"}, Spec: storagev1.CSIDriverSpec{AttachRequired: &no}})
	nodes := []*corev1.Node{anyDiskNode(t, "n1"), anyDiskNode(t, "n2")}
	for _, name := range []string{"a", "b"} {
		pv, claim := anyDisk(t, name)
		world = append(world, pv, claim)
		for _, n := range nodes {
			v, ok := csi.VolumeOf(pv)
			if !ok || n.Annotations == nil || oracletest.Chance(t, 2, "not attached to "+n.Name) {
				continue
			}
			at := &storagev1.VolumeAttachment{ObjectMeta: metav1.ObjectMeta{Name: v.Attachment(n.Name), UID: types.UID("at-" + name + n.Name), ResourceVersion: "5", CreationTimestamp: metav1.NewTime(objects.Now)}}
			at.Spec = storagev1.VolumeAttachmentSpec{Attacher: v.Driver, NodeName: n.Name, Source: storagev1.VolumeAttachmentSource{PersistentVolumeName: &pv.Name}}
			at.Status.Attached = true
			n.Status.VolumesAttached = append(n.Status.VolumesAttached, corev1.AttachedVolume{Name: v.Name()})
			if oracletest.Chance(t, 2, "in use on "+n.Name) {
				n.Status.VolumesInUse = append(n.Status.VolumesInUse, v.Name())
			}
			world = append(world, at)
			if pv.Spec.AccessModes != nil && pv.Spec.AccessModes[0] == corev1.ReadWriteOnce {
				break
			}
		}
	}
	for i := range rapid.IntRange(0, 4).Draw(t, "pods") {
		world = append(world, anyDiskPod(t, fmt.Sprint("web-", i)))
	}
	return append(world, nodes[0], nodes[1])
}

func anyDiskNode(t *rapid.T, name string) *corev1.Node {
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID(name), ResourceVersion: "9"}}
	if !oracletest.Chance(t, 6, "by itself") {
		n.Annotations = map[string]string{"volumes.kubernetes.io/controller-managed-attach-detach": rapid.SampledFrom([]string{"true", "", "false"}).Draw(t, "managed")}
	}
	n.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: rapid.SampledFrom([]corev1.ConditionStatus{"True", "False", "Unknown"}).Draw(t, "ready")}}
	if oracletest.Chance(t, 5, "out of service") {
		n.Spec.Taints = []corev1.Taint{{Key: corev1.TaintNodeOutOfService, Effect: corev1.TaintEffectNoExecute}}
	}
	return n
}

// anyDisk is a volume, and the claim that may be bound to it.
func anyDisk(t *rapid.T, name string) (*corev1.PersistentVolume, *corev1.PersistentVolumeClaim) {
	source := rapid.SampledFrom([]corev1.PersistentVolumeSource{
		{CSI: &corev1.CSIPersistentVolumeSource{Driver: "d.example.com", VolumeHandle: "handle/" + name}},
		{CSI: &corev1.CSIPersistentVolumeSource{Driver: "d.example.com", VolumeHandle: "handle/" + name}},
		{CSI: &corev1.CSIPersistentVolumeSource{Driver: "lazy.example.com", VolumeHandle: name}},
		{AWSElasticBlockStore: &corev1.AWSElasticBlockStoreVolumeSource{VolumeID: "aws://us-east-1a/vol-" + name}},
		{Cinder: &corev1.CinderPersistentVolumeSource{VolumeID: "vol-" + name}},
		{NFS: &corev1.NFSVolumeSource{Server: "s"}},
	}).Draw(t, "source")
	pv, claim := boundClaim(oracletest.Namespace, name, source)
	pv.Spec.AccessModes = rapid.SampledFrom([][]corev1.PersistentVolumeAccessMode{{corev1.ReadWriteOnce}, {corev1.ReadWriteOnce}, {corev1.ReadWriteMany}, {corev1.ReadOnlyMany}, nil}).Draw(t, "modes")
	switch rapid.IntRange(0, 11).Draw(t, "bound") {
	case 0:
		claim.Status.Phase = corev1.ClaimPending
	case 1:
		pv.Spec.ClaimRef.UID = "another"
	case 2:
		pv.Spec.ClaimRef = nil
	}
	return pv, claim
}

// anyDiskPod is a pod that uses one of the claims.
func anyDiskPod(t *rapid.T, name string) *corev1.Pod {
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: oracletest.Namespace, Name: name, UID: types.UID(name), ResourceVersion: "3", CreationTimestamp: metav1.NewTime(objects.Now)}}
	p.Spec.NodeName = rapid.SampledFrom([]string{"n1", "n2", "n1", "n2", "", "gone"}).Draw(t, "node")
	p.Spec.Volumes = []corev1.Volume{{Name: "v", VolumeSource: corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{
		ClaimName: rapid.SampledFrom([]string{"a", "b"}).Draw(t, "claim"),
	}}}}
	p.Status.Phase = rapid.SampledFrom([]corev1.PodPhase{corev1.PodPending, corev1.PodRunning, corev1.PodRunning, corev1.PodSucceeded, corev1.PodFailed}).Draw(t, "phase")
	if oracletest.Chance(t, 4, "deleted") {
		p.DeletionTimestamp, p.Finalizers = oracletest.Ptr(oracletest.Ago(t, 60, "when")), []string{"example.com/held"}
	}
	if oracletest.Chance(t, 2, "has a container") {
		p.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: "c", State: rapid.SampledFrom([]corev1.ContainerState{
			{Running: &corev1.ContainerStateRunning{}}, {Terminated: &corev1.ContainerStateTerminated{}}, {Waiting: &corev1.ContainerStateWaiting{}}, {},
		}).Draw(t, "state")}}
	}
	return p
}
