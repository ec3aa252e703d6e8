package main

import (
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/fake"
)

func attachmentOf(t *testing.T, client *fake.Clientset, name string) *storagev1.VolumeAttachment {
	t.Helper()
	a, err := client.StorageV1().VolumeAttachments().Get(t.Context(), name, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return a
}

// TestAVolumeIsAttached: the volume and the attachment have the attacher's finalizer before the
// status says attached.
func TestAVolumeIsAttached(t *testing.T) {
	v := disk(wanted("data"), corev1.VolumeBound)
	d, client := on(v, attachment("n1", v))
	synced(t, d, anAttachment, "", "on-n1")
	synced(t, d, anAttachment, "", "on-n1") // which is nothing any more
	a := attachmentOf(t, client, "on-n1")
	if !a.Status.Attached || !slices.Equal(a.Finalizers, []string{"external-attacher/simulated-millrace-io"}) {
		t.Errorf("the attachment is %+v", a)
	}
	var patched []string
	for _, action := range client.Actions() {
		if action.GetVerb() == "patch" {
			patched = append(patched, strings.TrimSuffix(action.GetResource().Resource+"/"+action.GetSubresource(), "/"))
		}
	}
	if want := []string{"persistentvolumes", "volumeattachments", "volumeattachments/status"}; !slices.Equal(patched, want) {
		t.Errorf("it patches %v, want %v", patched, want)
	}
}

// TestOneNodeAtATime: a volume for one node is not attached to a second one, whose attachment has
// the error, until it is detached from the first.
func TestOneNodeAtATime(t *testing.T) {
	v := disk(wanted("data"), corev1.VolumeBound)
	d, client := on(v, attachment("n1", v), attachment("n2", v))
	synced(t, d, anAttachment, "", "on-n1")
	for range 2 {
		if err := d.sync(t.Context(), key{anAttachment, "", "on-n2"}); err == nil {
			t.Fatal("it does not come back to what could not be attached")
		}
	}
	a := attachmentOf(t, client, "on-n2")
	if a.Status.Attached || a.Status.AttachError == nil || a.Status.AttachError.Message != "PersistentVolume "+v.Name+" is attached to node n1" || a.Status.AttachError.Time.IsZero() {
		t.Errorf("the second attachment is %+v", a.Status)
	}
	patches := 0
	for _, action := range client.Actions() {
		if action.GetVerb() == "patch" && action.GetSubresource() == "status" {
			patches++
		}
	}
	if patches != 2 {
		t.Errorf("%d statuses are written, want one of each", patches)
	}

	first := attachmentOf(t, client, "on-n1")
	at := metav1.Now()
	first.DeletionTimestamp = &at
	if _, err := client.StorageV1().VolumeAttachments().Update(t.Context(), first, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	synced(t, d, anAttachment, "", "on-n1")
	if first = attachmentOf(t, client, "on-n1"); first.Status.Attached || len(first.Finalizers) > 0 {
		t.Errorf("what is detached is %+v", first)
	}
	synced(t, d, anAttachment, "", "on-n1") // which is nothing any more
	synced(t, d, anAttachment, "", "on-n2")
	if a = attachmentOf(t, client, "on-n2"); !a.Status.Attached || a.Status.AttachError != nil {
		t.Errorf("the second attachment is %+v", a.Status)
	}
}

func TestWhatCannotBeAttached(t *testing.T) {
	at := metav1.Now()
	for what, f := range map[string]struct {
		edit func(*corev1.PersistentVolume, *storagev1.VolumeAttachment)
		says string
	}{
		"a volume that is deleted": {func(v *corev1.PersistentVolume, _ *storagev1.VolumeAttachment) { v.DeletionTimestamp = &at }, "is being deleted"},
		"a volume that is not there": {func(_ *corev1.PersistentVolume, a *storagev1.VolumeAttachment) {
			name := "none"
			a.Spec.Source.PersistentVolumeName = &name
		}, "not found"},
		"a volume of another driver": {func(v *corev1.PersistentVolume, _ *storagev1.VolumeAttachment) { v.Spec.CSI.Driver = "example.com" }, "is not of driver"},
		"what is no PersistentVolume": {func(_ *corev1.PersistentVolume, a *storagev1.VolumeAttachment) {
			a.Spec.Source.PersistentVolumeName = nil
		}, "names no PersistentVolume"},
		"(but for one for many nodes)": {func(v *corev1.PersistentVolume, _ *storagev1.VolumeAttachment) {
			v.Spec.AccessModes[0] = corev1.ReadWriteMany
		}, ""},
	} {
		v := disk(wanted("data"), corev1.VolumeBound)
		other, a := attachment("n1", v), attachment("n2", v)
		other.Finalizers = []string{attacherFinalizer}
		f.edit(v, a)
		d, client := on(v, other, a)
		err := d.sync(t.Context(), key{anAttachment, "", a.Name})
		got := attachmentOf(t, client, a.Name).Status
		switch {
		case f.says == "" && (err != nil || !got.Attached):
			t.Errorf("%s: it is %+v, %v", what, got, err)
		case f.says != "" && (err == nil || got.Attached || got.AttachError == nil || !strings.Contains(got.AttachError.Message, f.says)):
			t.Errorf("%s: it is %+v, %v", what, got, err)
		}
	}
}

// TestOthersAttachments: the driver does not change attachments of other drivers.
func TestOthersAttachments(t *testing.T) {
	v := disk(wanted("data"), corev1.VolumeBound)
	a := attachment("n1", v)
	a.Spec.Attacher = "example.com"
	d, client := on(v, a)
	synced(t, d, anAttachment, "", a.Name)
	if got := attachmentOf(t, client, a.Name); got.Status.Attached || len(got.Finalizers) > 0 {
		t.Errorf("it is %+v", got)
	}
}
