package system

import (
	"context"
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// simulated is the storage driver of the local cluster.
const simulated = "simulated.millrace.io"

// drive starts the storage driver of the local cluster with its default class, and stops it at the end of the
// test.
func (s *site) drive(t *testing.T) {
	t.Helper()
	driver, err := s.StartStorage(t.Context())
	must(t, err)
	t.Cleanup(func() {
		ctx := context.WithoutCancel(t.Context())
		must(t, s.kube.StorageV1().StorageClasses().Delete(ctx, "standard", metav1.DeleteOptions{}))
		must(t, s.kube.StorageV1().CSIDrivers().Delete(ctx, simulated, metav1.DeleteOptions{}))
		must(t, driver.Stop())
	})
}

// user is a pod that uses claims.
func user(name string, claims ...string) *corev1.Pod {
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "none/runs:it"}}}}
	for _, claim := range claims {
		p.Spec.Volumes = append(p.Spec.Volumes, corev1.Volume{Name: claim, VolumeSource: corev1.VolumeSource{
			PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: claim},
		}})
	}
	return p
}

// TestVolumesFromMadeToDeleted: a claim gets a volume of the default class; a claim of a class that waits for
// the first consumer gets one on the pod's node. While the pod runs, both are attached and listed there; one
// grows. After the pod's end they are detached, and deleted with their claims.
func TestVolumesFromMadeToDeleted(t *testing.T) {
	here := here(t)
	here.run(t)
	here.drive(t)
	s := here.storage(t, "lives")
	claims, pods := s.kube.CoreV1().PersistentVolumeClaims(s.name), s.kube.CoreV1().Pods(s.name)
	class, grows, mode := s.name+"-late", true, storagev1.VolumeBindingWaitForFirstConsumer
	_, err := s.kube.StorageV1().StorageClasses().Create(t.Context(), &storagev1.StorageClass{
		ObjectMeta: metav1.ObjectMeta{Name: class}, Provisioner: simulated, VolumeBindingMode: &mode, AllowVolumeExpansion: &grows,
	}, metav1.CreateOptions{})
	must(t, err)
	for name, class := range map[string]*string{"data": nil, "late": &class} {
		_, err := claims.Create(t.Context(), &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: corev1.PersistentVolumeClaimSpec{
			StorageClassName: class, AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
			Resources: corev1.VolumeResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")}},
		}}, metav1.CreateOptions{})
		must(t, err)
	}
	data := s.made("data")
	if data.Spec.StorageClassName != "standard" || data.Spec.CSI == nil || data.Spec.CSI.Driver != simulated {
		t.Errorf("the volume of the claim has the spec %+v, want the class standard and the simulated CSI driver", data.Spec)
	}
	s.told("late", "WaitForFirstConsumer", "waiting for first consumer")

	within(t, patience, "the pod can be created", func() string {
		_, err := pods.Create(t.Context(), user("web", "data", "late"), metav1.CreateOptions{})
		return made(err)
	})
	late := s.made("late")
	var node string
	within(t, patience, "the pod runs", func() string {
		p, err := pods.Get(t.Context(), "web", metav1.GetOptions{})
		if err == nil && p.Status.Phase != corev1.PodRunning {
			return "it is " + string(p.Status.Phase)
		}
		node = p.Spec.NodeName
		return ask(err)
	})
	s.attached(node, data, late)

	_, err = claims.Patch(t.Context(), "data", types.MergePatchType, []byte(`{"spec":{"resources":{"requests":{"storage":"3Gi"}}}}`), metav1.PatchOptions{})
	must(t, err)
	s.grown("data", "3Gi")
	s.attached(node, data, late)

	must(t, pods.Delete(t.Context(), "web", metav1.DeleteOptions{}))
	s.attached(node)
	for _, name := range []string{"data", "late"} {
		must(t, claims.Delete(t.Context(), name, metav1.DeleteOptions{}))
	}
	for _, v := range []*corev1.PersistentVolume{data, late} {
		within(t, patience, v.Spec.ClaimRef.Name+" goes, and its volume", func() string {
			if _, err := claims.Get(t.Context(), v.Spec.ClaimRef.Name, metav1.GetOptions{}); gone(err) != "" {
				return "the claim is there: " + gone(err)
			}
			_, err := s.kube.CoreV1().PersistentVolumes().Get(t.Context(), v.Name, metav1.GetOptions{})
			return gone(err)
		})
	}
}

// made waits until a claim is bound, and returns its volume.
func (s *storage) made(claim string) (v *corev1.PersistentVolume) {
	s.t.Helper()
	within(s.t, patience, claim+" has a volume", func() string {
		c, err := s.kube.CoreV1().PersistentVolumeClaims(s.name).Get(s.t.Context(), claim, metav1.GetOptions{})
		if err != nil {
			return err.Error()
		}
		if c.Status.Phase != corev1.ClaimBound {
			return "it is " + string(c.Status.Phase)
		}
		v, err = s.kube.CoreV1().PersistentVolumes().Get(s.t.Context(), c.Spec.VolumeName, metav1.GetOptions{})
		return ask(err)
	})
	return v
}

// attached waits until exactly these volumes are attached, all to one node, and the node's status lists them.
func (s *storage) attached(node string, volumes ...*corev1.PersistentVolume) {
	s.t.Helper()
	want := map[string]bool{}
	for _, v := range volumes {
		want[v.Name] = true
	}
	within(s.t, patience, fmt.Sprintf("%d volumes are attached", len(volumes)), func() string {
		all, err := s.kube.StorageV1().VolumeAttachments().List(s.t.Context(), metav1.ListOptions{})
		if err != nil {
			return err.Error()
		}
		for _, a := range all.Items {
			if !a.Status.Attached || a.Spec.NodeName != node || !want[*a.Spec.Source.PersistentVolumeName] {
				return fmt.Sprintf("there is %+v, %+v", a.Spec, a.Status)
			}
		}
		n, err := s.kube.CoreV1().Nodes().Get(s.t.Context(), node, metav1.GetOptions{})
		if err == nil && (len(all.Items) != len(want) || len(n.Status.VolumesAttached) != len(want)) {
			return fmt.Sprintf("there are %d attachments, and %s lists %v", len(all.Items), node, n.Status.VolumesAttached)
		}
		return ask(err)
	})
}

// grown waits until a claim and its volume have a size, and the claim has no resize status any more.
func (s *storage) grown(claim, size string) {
	s.t.Helper()
	within(s.t, patience, claim+" has "+size, func() string {
		c, err := s.kube.CoreV1().PersistentVolumeClaims(s.name).Get(s.t.Context(), claim, metav1.GetOptions{})
		if err != nil {
			return err.Error()
		}
		v, err := s.kube.CoreV1().PersistentVolumes().Get(s.t.Context(), c.Spec.VolumeName, metav1.GetOptions{})
		has, of := c.Status.Capacity[corev1.ResourceStorage], v.Spec.Capacity[corev1.ResourceStorage]
		if err == nil && (has.String() != size || of.String() != size || len(c.Status.Conditions) > 0) {
			return fmt.Sprintf("it has %s, its volume %s, and it says %v", has.String(), of.String(), c.Status.Conditions)
		}
		return ask(err)
	})
}
