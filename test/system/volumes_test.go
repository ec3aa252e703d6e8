package system

import (
	"context"
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// TestAPodsOwnVolume: the controller creates a pod's claim, which is deleted with the pod; it does not take a
// claim of another owner, and the pod gets an Event about that.
func TestAPodsOwnVolume(t *testing.T) {
	s := here(t)
	s.run(t)
	const name = "own-volumes"
	must(t, s.arenas.CreateNamespace(t.Context(), name))
	s.abandon(t, name)
	claims, pods := s.kube.CoreV1().PersistentVolumeClaims(name), s.kube.CoreV1().Pods(name)
	spec := corev1.PersistentVolumeClaimSpec{
		AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
		Resources:   corev1.VolumeResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")}},
	}
	_, err := claims.Create(t.Context(), &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Name: "web-taken"}, Spec: spec}, metav1.CreateOptions{})
	must(t, err)
	within(t, patience, "the pod can be created", func() string {
		own := func(name string) corev1.Volume {
			template := &corev1.PersistentVolumeClaimTemplate{Spec: spec}
			return corev1.Volume{Name: name, VolumeSource: corev1.VolumeSource{Ephemeral: &corev1.EphemeralVolumeSource{VolumeClaimTemplate: template}}}
		}
		_, err = pods.Create(t.Context(), &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "web"}, Spec: corev1.PodSpec{
			Volumes: []corev1.Volume{own("cache"), own("taken")}, Containers: []corev1.Container{{Name: "c", Image: "none/runs:it"}},
		}}, metav1.CreateOptions{})
		return made(err)
	})
	pod, err := pods.Get(t.Context(), "web", metav1.GetOptions{})
	must(t, err)
	has := func(claim string) {
		within(t, patience, "the pod has "+claim, func() string {
			c, err := claims.Get(t.Context(), claim, metav1.GetOptions{})
			if err == nil && !metav1.IsControlledBy(c, pod) {
				return "it has another owner"
			}
			return ask(err)
		})
	}
	has("web-cache")
	within(t, patience, "the pod says what is in its way", func() string {
		told, err := s.kube.CoreV1().Events(name).List(t.Context(), metav1.ListOptions{FieldSelector: "reason=FailedBinding"})
		if err != nil {
			return err.Error()
		}
		said := "nothing is said"
		for _, e := range told.Items {
			if strings.Contains(e.Message, "ephemeral volume taken: PVC own-volumes/web-taken was not created for pod") && e.Source.Component == "ephemeral_volume" {
				return ""
			}
			said = e.Source.Component + " says: " + e.Message
		}
		return said
	})
	must(t, claims.Delete(t.Context(), "web-taken", metav1.DeleteOptions{}))
	has("web-taken")
	must(t, pods.Delete(t.Context(), "web", metav1.DeleteOptions{}))
	for _, claim := range []string{"web-cache", "web-taken"} {
		within(t, patience, claim+" goes with its pod", func() string {
			_, err := claims.Get(t.Context(), claim, metav1.GetOptions{})
			return gone(err)
		})
	}
}

// TestAClassThatIsUsed: a class stays while an object names it.
func TestAClassThatIsUsed(t *testing.T) {
	s := here(t)
	m := s.run(t)
	const name = "gold"
	classes, volumes := s.kube.StorageV1().VolumeAttributesClasses(), s.kube.CoreV1().PersistentVolumes()
	_, err := classes.Create(t.Context(), &storagev1.VolumeAttributesClass{ObjectMeta: metav1.ObjectMeta{Name: name}, DriverName: "example.com", Parameters: map[string]string{"iops": "1"}}, metav1.CreateOptions{})
	must(t, err)
	class := name
	_, err = volumes.Create(t.Context(), &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: "golden"}, Spec: corev1.PersistentVolumeSpec{
		Capacity: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")}, AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
		VolumeAttributesClassName: &class, PersistentVolumeSource: corev1.PersistentVolumeSource{CSI: &corev1.CSIPersistentVolumeSource{Driver: "example.com", VolumeHandle: "g"}},
	}}, metav1.CreateOptions{})
	must(t, err)
	within(t, patience, "the class is protected", func() string {
		c, err := classes.Get(t.Context(), name, metav1.GetOptions{})
		if err == nil && len(c.Finalizers) == 0 {
			return "it has no finalizer"
		}
		return ask(err)
	})
	// A volume that Millrace has not seen protects nothing.
	r := asker{site: s, nats: m.nats}
	r.awaitLook(t, "persistentvolumes/golden", "volumeattributesclass-protection-controller")
	must(t, classes.Delete(t.Context(), name, metav1.DeleteOptions{}))
	c, err := classes.Get(t.Context(), name, metav1.GetOptions{})
	if err != nil || c.DeletionTimestamp == nil {
		t.Errorf("the deleted class that a volume names is %+v, %v; want it to wait with its deletionTimestamp", c, err)
	}
	must(t, volumes.Delete(t.Context(), "golden", metav1.DeleteOptions{}))
	within(t, patience, "the class goes with the last volume that names it", func() string {
		_, err := classes.Get(t.Context(), name, metav1.GetOptions{})
		return gone(err)
	})
}

// TestAVolumeThatIsToBeLarger: if the volume of a claim has an in-tree plugin, the claim names the resizer of
// the driver that replaces the plugin, and an Event says what it waits for.
func TestAVolumeThatIsToBeLarger(t *testing.T) {
	s := here(t)
	s.run(t)
	const name = "larger-volumes"
	must(t, s.arenas.CreateNamespace(t.Context(), name))
	s.abandon(t, name)
	classes, volumes, claims := s.kube.StorageV1().StorageClasses(), s.kube.CoreV1().PersistentVolumes(), s.kube.CoreV1().PersistentVolumeClaims(name)
	class, grows := "growing", true
	_, err := classes.Create(t.Context(), &storagev1.StorageClass{ObjectMeta: metav1.ObjectMeta{Name: class}, Provisioner: "ebs.csi.aws.com", AllowVolumeExpansion: &grows}, metav1.CreateOptions{})
	must(t, err)
	t.Cleanup(func() { must(t, classes.Delete(context.WithoutCancel(t.Context()), class, metav1.DeleteOptions{})) })
	size := func(text string) corev1.ResourceList {
		return corev1.ResourceList{corev1.ResourceStorage: resource.MustParse(text)}
	}
	modes := []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce}
	claim, err := claims.Create(t.Context(), &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Name: "data"}, Spec: corev1.PersistentVolumeClaimSpec{
		AccessModes: modes, StorageClassName: &class, VolumeName: "disk", Resources: corev1.VolumeResourceRequirements{Requests: size("1Gi")},
	}}, metav1.CreateOptions{})
	must(t, err)
	_, err = volumes.Create(t.Context(), &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: "disk"}, Spec: corev1.PersistentVolumeSpec{
		Capacity: size("1Gi"), AccessModes: modes, StorageClassName: class, ClaimRef: &corev1.ObjectReference{Kind: "PersistentVolumeClaim", Namespace: name, Name: "data", UID: claim.UID},
		PersistentVolumeSource: corev1.PersistentVolumeSource{AWSElasticBlockStore: &corev1.AWSElasticBlockStoreVolumeSource{VolumeID: "vol-1"}},
	}}, metav1.CreateOptions{})
	must(t, err)
	t.Cleanup(func() { must(t, volumes.Delete(context.WithoutCancel(t.Context()), "disk", metav1.DeleteOptions{})) })
	// A patch, since the binder may write the claim at the same time.
	_, err = claims.Patch(t.Context(), "data", types.MergePatchType, []byte(`{"status":{"phase":"Bound","capacity":{"storage":"1Gi"},"accessModes":["ReadWriteOnce"]}}`), metav1.PatchOptions{}, "status")
	must(t, err)
	// If the binder writes in between, each try to name the resizer repeats the Event.
	within(t, patience, "the claim is bound", func() string {
		c, err := claims.Get(t.Context(), "data", metav1.GetOptions{})
		if err == nil && c.Annotations["pv.kubernetes.io/bind-completed"] == "" {
			return fmt.Sprintf("it has %v", c.Annotations)
		}
		return ask(err)
	})
	within(t, patience, "the claim can ask for more", func() string {
		_, err := claims.Patch(t.Context(), "data", types.MergePatchType, []byte(`{"spec":{"resources":{"requests":{"storage":"2Gi"}}}}`), metav1.PatchOptions{})
		return ask(err)
	})
	within(t, patience, "the claim names its resizer", func() string {
		c, err := claims.Get(t.Context(), "data", metav1.GetOptions{})
		if err == nil && c.Annotations["volume.kubernetes.io/storage-resizer"] != "ebs.csi.aws.com" {
			return fmt.Sprintf("it has %v", c.Annotations)
		}
		return ask(err)
	})
	within(t, patience, "the claim says what it waits for", func() string {
		told, err := s.kube.CoreV1().Events(name).List(t.Context(), metav1.ListOptions{FieldSelector: "reason=ExternalExpanding"})
		if err == nil && (len(told.Items) != 1 || told.Items[0].Message != "CSI migration enabled for kubernetes.io/aws-ebs; waiting for external resizer to expand the pvc") {
			return fmt.Sprintf("%d things are said", len(told.Items))
		}
		return ask(err)
	})
}
