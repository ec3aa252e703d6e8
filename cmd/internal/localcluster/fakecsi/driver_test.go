package main

import (
	"context"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/tools/cache"
)

// on is a driver on a fake API server with some objects.
func on(objects ...runtime.Object) (*driver, *fake.Clientset) {
	client := fake.NewClientset(objects...)
	return newDriver(client), client
}

// synced has the driver reconcile an object.
func synced(t *testing.T, d *driver, kind kind, namespace, name string) {
	t.Helper()
	if err := d.sync(t.Context(), key{kind, namespace, name}); err != nil {
		t.Fatalf("%s %s: %v", kind, name, err)
	}
}

func sized(text string) corev1.ResourceList {
	return corev1.ResourceList{corev1.ResourceStorage: resource.MustParse(text)}
}

func class(mode storagev1.VolumeBindingMode, policy corev1.PersistentVolumeReclaimPolicy) *storagev1.StorageClass {
	return &storagev1.StorageClass{ObjectMeta: metav1.ObjectMeta{Name: "standard"}, Provisioner: driverName, VolumeBindingMode: &mode, ReclaimPolicy: &policy, MountOptions: []string{"noatime"}}
}

// wanted is a claim for which the binder has asked this driver for a volume.
func wanted(name string) *corev1.PersistentVolumeClaim {
	class := "standard"
	return &corev1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name, UID: types.UID("uid-" + name), Annotations: map[string]string{provisioner: driverName, betaProvisioner: driverName}},
		Spec: corev1.PersistentVolumeClaimSpec{
			StorageClassName: &class, AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
			Resources: corev1.VolumeResourceRequirements{Requests: sized("1Gi")},
		},
	}
}

// disk is a volume that was provisioned for a claim.
func disk(c *corev1.PersistentVolumeClaim, phase corev1.PersistentVolumePhase) *corev1.PersistentVolume {
	v := volumeFor(c, class(storagev1.VolumeBindingImmediate, corev1.PersistentVolumeReclaimDelete))
	v.UID, v.ResourceVersion, v.Status.Phase = "v", "1", phase
	return v
}

// attachment is a VolumeAttachment of a volume to a node.
func attachment(node string, v *corev1.PersistentVolume) *storagev1.VolumeAttachment {
	return &storagev1.VolumeAttachment{ObjectMeta: metav1.ObjectMeta{Name: "on-" + node, ResourceVersion: "1"}, Spec: storagev1.VolumeAttachmentSpec{
		Attacher: driverName, NodeName: node, Source: storagev1.VolumeAttachmentSource{PersistentVolumeName: &v.Name},
	}}
}

func TestWhereItLooks(t *testing.T) {
	c, v := wanted("data"), disk(wanted("data"), corev1.VolumeBound)
	a, inline, foreign := attachment("n1", v), attachment("n1", v), attachment("n1", v)
	inline.Spec.Source.PersistentVolumeName, foreign.Spec.Attacher = nil, "example.com"
	unasked, bound, other := wanted("data"), wanted("data"), v.DeepCopy()
	unasked.Annotations, bound.Annotations, bound.Spec.VolumeName, other.Spec.CSI.Driver = nil, nil, v.Name, "example.com"
	for what, f := range map[string]struct {
		object any
		want   []key
	}{
		"a claim that waits for it":    {c, []key{{aClaim, "shop", "data"}}},
		"a claim that waits for none":  {unasked, nil},
		"a claim with a volume":        {bound, []key{{aClaim, "shop", "data"}}},
		"a volume of it":               {v, []key{{aVolume, "", v.Name}}},
		"a volume of another driver":   {other, nil},
		"an attachment":                {a, []key{{anAttachment, "", a.Name}, {aVolume, "", v.Name}}},
		"an attachment of no volume":   {inline, []key{{anAttachment, "", a.Name}}},
		"another driver's attachment":  {foreign, nil},
		"an attachment that went away": {cache.DeletedFinalStateUnknown{Key: a.Name, Obj: a}, []key{{anAttachment, "", a.Name}, {aVolume, "", v.Name}}},
	} {
		if got := keysOf(f.object); !slices.Equal(got, f.want) {
			t.Errorf("%s: it looks at %v, want %v", what, got, f.want)
		}
	}
}

// TestItFollowsWhatChanges: the driver reconciles the objects that exist at its start.
func TestItFollowsWhatChanges(t *testing.T) {
	d, client := on(wanted("data"), class(storagev1.VolumeBindingImmediate, corev1.PersistentVolumeReclaimDelete))
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	made, err := client.CoreV1().PersistentVolumes().Watch(ctx, metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer made.Stop()
	d.watch(ctx)
	done := make(chan struct{})
	go func() { d.work(ctx); close(done) }()
	select {
	case e := <-made.ResultChan():
		if v, ok := e.Object.(*corev1.PersistentVolume); !ok || v.Name != "pvc-uid-data" {
			t.Errorf("it makes %v", e.Object)
		}
	case <-ctx.Done():
		t.Error("no volume is made")
	}
	cancel()
	<-done
}

// TestWhatIsGone: a key without an object is a no-op for each kind.
func TestWhatIsGone(t *testing.T) {
	d, client := on()
	for _, kind := range []kind{aClaim, aVolume, anAttachment} {
		synced(t, d, kind, "shop", "gone")
	}
	for _, a := range client.Actions() {
		if a.GetVerb() != "get" {
			t.Errorf("it does %s", a.GetVerb())
		}
	}
	if err := d.sync(t.Context(), key{kind: "node"}); err == nil {
		t.Error("it knows another kind")
	}
}
