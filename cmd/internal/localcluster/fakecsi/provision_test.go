package main

import (
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

const (
	now  = storagev1.VolumeBindingImmediate
	late = storagev1.VolumeBindingWaitForFirstConsumer
	del  = corev1.PersistentVolumeReclaimDelete
	keep = corev1.PersistentVolumeReclaimRetain
)

func TestVolumeOfAClaim(t *testing.T) {
	fast, block := "fast", corev1.PersistentVolumeBlock
	c := wanted("data")
	c.Spec.VolumeAttributesClassName = &fast
	want := &corev1.PersistentVolume{
		ObjectMeta: metav1.ObjectMeta{
			Name: "pvc-uid-data", Annotations: map[string]string{"pv.kubernetes.io/provisioned-by": "simulated.millrace.io"},
			Finalizers: []string{"external-provisioner.volume.kubernetes.io/finalizer"},
		},
		Spec: corev1.PersistentVolumeSpec{
			Capacity: sized("1Gi"), AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce}, MountOptions: []string{"noatime"},
			PersistentVolumeReclaimPolicy: del, StorageClassName: "standard", VolumeAttributesClassName: &fast,
			PersistentVolumeSource: corev1.PersistentVolumeSource{CSI: &corev1.CSIPersistentVolumeSource{Driver: "simulated.millrace.io", VolumeHandle: "uid-data", FSType: "ext4"}},
			ClaimRef:               &corev1.ObjectReference{APIVersion: "v1", Kind: "PersistentVolumeClaim", Namespace: "shop", Name: "data", UID: "uid-data"},
		},
	}
	if diff := cmp.Diff(want, volumeFor(c, class(now, del))); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	c.Spec.VolumeMode = &block
	v := volumeFor(c, class(now, keep))
	if len(v.Finalizers) > 0 || v.Spec.PersistentVolumeReclaimPolicy != keep || v.Spec.CSI.FSType != "" || v.Spec.VolumeMode != &block {
		t.Errorf("a raw disk that is kept is %+v", v)
	}
	plain := class(now, del)
	plain.ReclaimPolicy = nil
	if v := volumeFor(c, plain); v.Spec.PersistentVolumeReclaimPolicy != del || len(v.Finalizers) != 1 {
		t.Errorf("of a class without a policy it is %+v", v)
	}
}

func TestWhatIsProvisioned(t *testing.T) {
	other := class(now, del)
	other.Provisioner = "example.com"
	for what, f := range map[string]struct {
		class *storagev1.StorageClass
		edit  func(*corev1.PersistentVolumeClaim)
		made  bool
	}{
		"a claim":                            {class(now, del), func(*corev1.PersistentVolumeClaim) {}, true},
		"as an old binder asks":              {class(now, del), func(c *corev1.PersistentVolumeClaim) { delete(c.Annotations, provisioner) }, true},
		"not asked yet":                      {class(now, del), func(c *corev1.PersistentVolumeClaim) { c.Annotations = nil }, false},
		"asked of another":                   {class(now, del), func(c *corev1.PersistentVolumeClaim) { c.Annotations[provisioner] = "example.com" }, false},
		"of another's class":                 {other, func(*corev1.PersistentVolumeClaim) {}, false},
		"being deleted":                      {class(now, del), func(c *corev1.PersistentVolumeClaim) { at := metav1.Now(); c.DeletionTimestamp = &at }, false},
		"without a node, of a class by node": {class(late, del), func(*corev1.PersistentVolumeClaim) {}, false},
		"with a node, of a class by node":    {class(late, del), func(c *corev1.PersistentVolumeClaim) { c.Annotations[selectedNode] = "n1" }, true},
		"with a selector":                    {class(now, del), func(c *corev1.PersistentVolumeClaim) { c.Spec.Selector = &metav1.LabelSelector{} }, false},
		"a copy": {class(now, del), func(c *corev1.PersistentVolumeClaim) {
			c.Spec.DataSource = &corev1.TypedLocalObjectReference{Kind: "PersistentVolumeClaim", Name: "x"}
		}, false},
		"of the class in its annotation": {class(now, del), func(c *corev1.PersistentVolumeClaim) {
			none := ""
			c.Annotations[corev1.BetaStorageClassAnnotation], c.Spec.StorageClassName = "standard", &none
		}, true},
	} {
		c := wanted("data")
		f.edit(c)
		d, client := on(c, f.class)
		synced(t, d, aClaim, "shop", "data")
		synced(t, d, aClaim, "shop", "data") // which makes no second one, and is no fault
		all, err := client.CoreV1().PersistentVolumes().List(t.Context(), metav1.ListOptions{})
		if err != nil || (len(all.Items) == 1) != f.made {
			t.Errorf("%s: %d volumes are made (%v), want one: %v", what, len(all.Items), err, f.made)
		}
	}
	d, _ := on(wanted("data"))
	if err := d.sync(t.Context(), key{aClaim, "shop", "data"}); err == nil {
		t.Error("it does not come back to a claim whose class is not there")
	}
}

// TestAVolumeGoesWithItsClaim: once a volume is released and attached to no node, the driver first
// deletes it, and then removes its finalizers.
func TestAVolumeGoesWithItsClaim(t *testing.T) {
	at := metav1.Now()
	all := []string{"kubernetes.io/pv-protection", provisionerFinalizer, attacherFinalizer}
	for what, f := range map[string]struct {
		edit       func(*corev1.PersistentVolume)
		attached   bool
		finalizers []string // nil: it is deleted
	}{
		"bound":                     {func(v *corev1.PersistentVolume) { v.Status.Phase = corev1.VolumeBound }, false, all},
		"bound, and being deleted":  {func(v *corev1.PersistentVolume) { v.Status.Phase, v.DeletionTimestamp = corev1.VolumeBound, &at }, false, all[:2]},
		"released":                  {func(*corev1.PersistentVolume) {}, false, nil},
		"released, still attached":  {func(*corev1.PersistentVolume) {}, true, all},
		"being deleted":             {func(v *corev1.PersistentVolume) { v.DeletionTimestamp = &at }, false, all[:1]},
		"being deleted, attached":   {func(v *corev1.PersistentVolume) { v.DeletionTimestamp = &at }, true, all},
		"kept":                      {func(v *corev1.PersistentVolume) { v.Spec.PersistentVolumeReclaimPolicy = keep }, false, []string{all[0], all[2]}},
		"by hand":                   {func(v *corev1.PersistentVolume) { v.Annotations = nil }, false, all},
		"by another":                {func(v *corev1.PersistentVolume) { v.Annotations[provisionedBy] = "example.com" }, false, all},
		"of another driver":         {func(v *corev1.PersistentVolume) { v.Spec.CSI.Driver = "example.com" }, false, all},
		"to be deleted, not marked": {func(v *corev1.PersistentVolume) { v.Finalizers = all[:1] }, true, all[:2]},
	} {
		v := disk(wanted("data"), corev1.VolumeReleased)
		v.Finalizers = slices.Clone(all)
		f.edit(v)
		d, client := on(v)
		if f.attached {
			d, client = on(v, attachment("n1", v))
		}
		synced(t, d, aVolume, "", v.Name)
		got, err := client.CoreV1().PersistentVolumes().Get(t.Context(), v.Name, metav1.GetOptions{})
		if f.finalizers == nil {
			if !apierrors.IsNotFound(err) {
				t.Errorf("%s: it is not deleted (%v)", what, err)
			}
			continue
		}
		if err != nil || !slices.Equal(got.Finalizers, f.finalizers) {
			t.Errorf("%s: its finalizers are %v (%v), want %v", what, got.Finalizers, err, f.finalizers)
		}
	}
}

// TestADeleteIsOfTheVolumeThatWasSeen: a delete does not remove another volume with the same name.
func TestADeleteIsOfTheVolumeThatWasSeen(t *testing.T) {
	v := disk(wanted("data"), corev1.VolumeReleased)
	d, client := on(v)
	synced(t, d, aVolume, "", v.Name)
	for _, a := range client.Actions() {
		if a, ok := a.(interface{ GetDeleteOptions() metav1.DeleteOptions }); ok {
			if p := a.GetDeleteOptions().Preconditions; p == nil || p.UID == nil || *p.UID != types.UID("v") {
				t.Errorf("the delete is conditional on %v", p)
			}
			return
		}
	}
	t.Error("there is no delete")
}
