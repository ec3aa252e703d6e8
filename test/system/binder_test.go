package system

import (
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// storage is a namespace with claims; the test acts as its administrator, its scheduler, and the provisioner
// of its classes.
type storage struct {
	*site
	t    *testing.T
	name string
}

func (s *site) storage(t *testing.T, name string) *storage {
	t.Helper()
	must(t, s.arenas.CreateNamespace(t.Context(), name))
	s.abandon(t, name)
	return &storage{s, t, name}
}

// class creates a storage class for the namespace.
func (s *storage) class(name string, mode storagev1.VolumeBindingMode) string {
	s.t.Helper()
	name = s.name + "-" + name
	_, err := s.kube.StorageV1().StorageClasses().Create(s.t.Context(), &storagev1.StorageClass{
		ObjectMeta: metav1.ObjectMeta{Name: name}, Provisioner: "example.com/" + name, VolumeBindingMode: &mode,
	}, metav1.CreateOptions{})
	must(s.t, err)
	return name
}

func (s *storage) claim(name, class string) {
	s.t.Helper()
	_, err := s.kube.CoreV1().PersistentVolumeClaims(s.name).Create(s.t.Context(), &corev1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: corev1.PersistentVolumeClaimSpec{
			StorageClassName: &class, AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
			Resources: corev1.VolumeResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")}},
		},
	}, metav1.CreateOptions{})
	must(s.t, err)
}

// volume creates a volume for a claim; nil means for any claim.
func (s *storage) volume(name, class, size string, claim *corev1.PersistentVolumeClaim) {
	s.t.Helper()
	v := &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: corev1.PersistentVolumeSpec{
		StorageClassName: class, Capacity: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse(size)},
		AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce}, PersistentVolumeReclaimPolicy: corev1.PersistentVolumeReclaimRetain,
		PersistentVolumeSource: corev1.PersistentVolumeSource{CSI: &corev1.CSIPersistentVolumeSource{Driver: "example.com", VolumeHandle: name}},
	}}
	if claim != nil {
		v.Annotations = map[string]string{"pv.kubernetes.io/provisioned-by": "example.com"}
		v.Spec.ClaimRef = &corev1.ObjectReference{APIVersion: "v1", Kind: "PersistentVolumeClaim", Namespace: claim.Namespace, Name: claim.Name, UID: claim.UID}
	}
	_, err := s.kube.CoreV1().PersistentVolumes().Create(s.t.Context(), v, metav1.CreateOptions{})
	must(s.t, err)
}

// bound waits until a claim and a volume are bound to each other, in spec and status.
func (s *storage) bound(claim, volume string) {
	s.t.Helper()
	within(s.t, patience, claim+" is bound to "+volume, func() string {
		c, err := s.kube.CoreV1().PersistentVolumeClaims(s.name).Get(s.t.Context(), claim, metav1.GetOptions{})
		if err != nil {
			return err.Error()
		}
		v, err := s.kube.CoreV1().PersistentVolumes().Get(s.t.Context(), volume, metav1.GetOptions{})
		if err != nil {
			return err.Error()
		}
		if c.Status.Phase != corev1.ClaimBound || v.Status.Phase != corev1.VolumeBound || c.Spec.VolumeName != volume || v.Spec.ClaimRef == nil || v.Spec.ClaimRef.UID != c.UID {
			return fmt.Sprintf("the claim has %q and is %s, the volume has %v and is %s", c.Spec.VolumeName, c.Status.Phase, v.Spec.ClaimRef, v.Status.Phase)
		}
		return ""
	})
}

// told waits for an Event about a claim.
func (s *storage) told(claim, reason, message string) {
	s.t.Helper()
	within(s.t, patience, claim+" is told "+reason, func() string {
		told, err := s.eventsOf(s.t, s.name, claim, reason)
		if err != nil {
			return err.Error()
		}
		for _, e := range told {
			if strings.Contains(e.Message, message) && e.Source.Component == "persistentvolume-controller" {
				return ""
			}
		}
		return fmt.Sprintf("%d others are told", len(told))
	})
}

// asked waits until the annotations of a claim ask the provisioner of a class for a volume.
func (s *storage) asked(claim, class string) (c *corev1.PersistentVolumeClaim) {
	s.t.Helper()
	within(s.t, patience, "a volume is asked for "+claim, func() string {
		var err error
		c, err = s.kube.CoreV1().PersistentVolumeClaims(s.name).Get(s.t.Context(), claim, metav1.GetOptions{})
		if err == nil && (c.Annotations["volume.kubernetes.io/storage-provisioner"] != "example.com/"+class || c.Annotations["volume.beta.kubernetes.io/storage-provisioner"] != "example.com/"+class) {
			return fmt.Sprintf("its annotations are %v", c.Annotations)
		}
		return ask(err)
	})
	return c
}

// TestClaimsGetVolumes: claims get existing volumes and provisioned ones; with a class that waits for the
// first consumer, only after the scheduler has chosen a node. A volume outlives its claim and is released; a
// claim whose volume is deleted is lost.
func TestClaimsGetVolumes(t *testing.T) {
	here := here(t)
	here.run(t)
	s := here.storage(t, "binding")
	claims, volumes := s.kube.CoreV1().PersistentVolumeClaims(s.name), s.kube.CoreV1().PersistentVolumes()

	s.claim("data", "binding-by-hand")
	s.told("data", "ProvisioningFailed", `storageclass.storage.k8s.io "binding-by-hand" not found`)
	s.volume("binding-small", "binding-by-hand", "1Mi", nil)
	s.volume("binding-large", "binding-by-hand", "5Gi", nil)
	s.bound("data", "binding-large")
	s.volume("binding-free", "binding-by-hand", "2Gi", nil)

	made := s.class("made", storagev1.VolumeBindingImmediate)
	s.claim("more", made)
	c := s.asked("more", made)
	s.told("more", "ExternalProvisioning", "example.com/"+made)
	s.volume("binding-more", made, "1Gi", c)
	s.bound("more", "binding-more")

	late := s.class("late", storagev1.VolumeBindingWaitForFirstConsumer)
	s.claim("late", late)
	s.told("late", "WaitForFirstConsumer", "waiting for first consumer")
	_, err := claims.Patch(t.Context(), "late", types.MergePatchType, []byte(`{"metadata":{"annotations":{"volume.kubernetes.io/selected-node":"somewhere"}}}`), metav1.PatchOptions{})
	must(t, err)
	s.volume("binding-late", late, "1Gi", s.asked("late", late))
	s.bound("late", "binding-late")

	must(t, claims.Delete(t.Context(), "data", metav1.DeleteOptions{}))
	within(t, patience, "the volume of a claim that is gone is released", func() string {
		v, err := volumes.Get(t.Context(), "binding-large", metav1.GetOptions{})
		if err == nil && v.Status.Phase != corev1.VolumeReleased {
			return "it is " + string(v.Status.Phase)
		}
		return ask(err)
	})
	s.claim("data", "binding-by-hand")
	s.bound("data", "binding-free")

	must(t, volumes.Delete(t.Context(), "binding-free", metav1.DeleteOptions{}))
	_, err = volumes.Patch(t.Context(), "binding-free", types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`), metav1.PatchOptions{})
	must(t, err)
	s.told("data", "ClaimLost", "Bound claim has lost its PersistentVolume")
	within(t, patience, "a claim whose volume is gone is lost", func() string {
		c, err := claims.Get(t.Context(), "data", metav1.GetOptions{})
		if err == nil && c.Status.Phase != corev1.ClaimLost {
			return "it is " + string(c.Status.Phase)
		}
		return ask(err)
	})
}
