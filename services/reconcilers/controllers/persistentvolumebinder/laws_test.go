package persistentvolumebinder

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"pgregory.net/rapid"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/services/reconcilers/reconcile"
	"github.com/millrace/millrace/services/reconcilers/reconciletest"
)

func TestLaws(t *testing.T) {
	more := []reconciletest.Law[View]{
		reconciletest.Indifferent(func(t *rapid.T, v View) View {
			v.Volumes = rapid.Permutation(v.Volumes).Draw(t, "order")
			return v
		}),
		{Name: "exclusive", Holds: exclusive}, {Name: "careful", Holds: careful}, {Name: "complete", Holds: complete},
		{Name: "storable", Holds: storable},
	}
	t.Run("claims", func(t *testing.T) { reconciletest.Laws(t, Controller, rapid.Custom(anyClaimView), now, more...) })
	t.Run("volumes", func(t *testing.T) { reconciletest.Laws(t, Controller, rapid.Custom(anyVolumeView), now, more...) })
}

// A claim and volumes, made by hand.

func pvc(name, size string) *corev1.PersistentVolumeClaim {
	c := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: reconciletest.Namespace, Name: name, UID: types.UID("uid-" + name), ResourceVersion: "1"}}
	c.Spec.AccessModes = []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce}
	c.Spec.Resources.Requests = corev1.ResourceList{corev1.ResourceStorage: resource.MustParse(size)}
	c.Status.Phase = corev1.ClaimPending
	return c
}

func pv(name, size string) *corev1.PersistentVolume {
	v := &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID("uid-" + name), ResourceVersion: "1"}}
	v.Spec.AccessModes = []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce}
	v.Spec.Capacity = corev1.ResourceList{corev1.ResourceStorage: resource.MustParse(size)}
	v.Spec.PersistentVolumeReclaimPolicy = corev1.PersistentVolumeReclaimRetain
	v.Status.Phase = corev1.VolumeAvailable
	return v
}

func refTo(c *corev1.PersistentVolumeClaim) *corev1.ObjectReference {
	ref := reconcile.About(kinds.PersistentVolumeClaims.Kind, c)
	return &ref
}

func one[T any](t *rapid.T, what string, of ...T) T { return rapid.SampledFrom(of).Draw(t, what) }

func marked(t *rapid.T, obj metav1.Object, names ...string) {
	notes := map[string]string{}
	for _, name := range names {
		if rapid.IntRange(0, 4).Draw(t, name) == 4 {
			notes[name] = one(t, "value of "+name, "csi.example.com", "kubernetes.io/gce-pd", "kubernetes.io/host-path", "kubernetes.io/x", "")
		}
	}
	if len(notes) > 0 {
		obj.SetAnnotations(notes)
	}
}

func anyClaim(t *rapid.T) *corev1.PersistentVolumeClaim {
	c := pvc("a", one(t, "size", "1Gi", "2Gi"))
	c.Spec.AccessModes = one(t, "modes", []corev1.PersistentVolumeAccessMode{"ReadWriteOnce"}, []corev1.PersistentVolumeAccessMode{"ReadWriteMany"}, nil)
	c.Spec.VolumeName = one(t, "names", "", "", "v")
	c.Spec.StorageClassName = one(t, "class", nil, new(string), &fast)
	c.Spec.VolumeMode = one(t, "mode", nil, &block)
	c.Spec.Selector = one(t, "selector", nil, nil, &metav1.LabelSelector{MatchLabels: map[string]string{"a": "b"}})
	c.Status.Phase = one(t, "phase", corev1.ClaimPending, corev1.ClaimBound, corev1.ClaimLost, "")
	marked(t, c, completed, byController, provisioner, betaProvisioner, migratedTo, selectedNode)
	return c
}

var (
	fast  = "fast"
	block = corev1.PersistentVolumeBlock
)

func anyVolume(t *rapid.T, name string, claim *corev1.PersistentVolumeClaim) *corev1.PersistentVolume {
	v := pv(name, one(t, "size", "1Gi", "2Gi", "3Gi"))
	v.Spec.AccessModes = one(t, "modes", []corev1.PersistentVolumeAccessMode{"ReadWriteOnce"}, []corev1.PersistentVolumeAccessMode{"ReadWriteMany", "ReadWriteOnce"})
	v.Spec.StorageClassName = one(t, "class", "", fast)
	v.Spec.VolumeMode = one(t, "mode", nil, &block)
	v.Labels = one(t, "labels", nil, map[string]string{"a": "b"})
	v.Spec.PersistentVolumeReclaimPolicy = one(t, "policy", corev1.PersistentVolumeReclaimRetain, corev1.PersistentVolumeReclaimDelete, corev1.PersistentVolumeReclaimRecycle, "Burn")
	v.Status.Phase = one(t, "phase", corev1.VolumeAvailable, corev1.VolumeAvailable, corev1.VolumeBound, corev1.VolumeReleased, corev1.VolumeFailed, "")
	other := pvc("other", "1Gi")
	unbound := refTo(claim)
	unbound.UID = ""
	replaced := refTo(claim)
	replaced.UID = "another"
	v.Spec.ClaimRef = one(t, "bound to", nil, refTo(claim), nil, nil, unbound, replaced, refTo(other))
	v.Spec.HostPath = one(t, "directory", nil, &corev1.HostPathVolumeSource{Path: "/tmp/x"}, &corev1.HostPathVolumeSource{Path: "/x"})
	if rapid.Bool().Draw(t, "deleted") && rapid.Bool().Draw(t, "really") {
		reconciletest.Deleted[*corev1.PersistentVolume](now)(v)
	}
	v.Finalizers = one(t, "finalizers", nil, []string{inTreeGuard}, []string{"x", externalGuard})
	marked(t, v, byController, provisionedBy, migratedTo)
	return v
}

func anyLive(t *rapid.T) *Live {
	if rapid.Bool().Draw(t, "not asked") {
		return nil
	}
	ago := time.Duration(rapid.IntRange(0, 60).Draw(t, "asked seconds ago")) * time.Second
	live := &Live{At: now.Add(-ago), There: rapid.Bool().Draw(t, "there")}
	if live.There {
		live.Claim = one[types.UID](t, "claim", "uid-a", "another", "")
	}
	return live
}

func anyClaimView(t *rapid.T) View {
	claim := anyClaim(t)
	world := reconciletest.NewWorld().Put(kinds.PersistentVolumeClaims.Kind, claim)
	for _, name := range []string{"u", "v", "w"}[:3-rapid.IntRange(0, 3).Draw(t, "volumes left out")] {
		world.Put(kinds.PersistentVolumes.Kind, anyVolume(t, name, claim))
	}
	if rapid.Bool().Draw(t, "a class") {
		class := &storagev1.StorageClass{ObjectMeta: metav1.ObjectMeta{Name: fast}, Provisioner: one(t, "by", "csi.example.com", "kubernetes.io/gce-pd", "kubernetes.io/no-provisioner", hostPath, nfs)}
		class.VolumeBindingMode = one(t, "binds", nil, new(storagev1.VolumeBindingImmediate), new(storagev1.VolumeBindingWaitForFirstConsumer))
		class.MountOptions = one(t, "options", nil, []string{"ro"})
		if rapid.Bool().Draw(t, "default") {
			class.Annotations = map[string]string{"storageclass.kubernetes.io/is-default-class": "true"}
		}
		world.Put(kinds.StorageClasses.Kind, class)
	}
	if rapid.Bool().Draw(t, "a pod") {
		p := reconciletest.Pod("p")
		p.Spec.Volumes = []corev1.Volume{{VolumeSource: corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "a"}}}}
		world.Put(kinds.Pods.Kind, p)
	}
	v, _ := observe(world, keyOfClaim(claim.Namespace, claim.Name))
	v.Live = anyLive(t)
	v.toldBefore(t)
	return v
}

func anyVolumeView(t *rapid.T) View {
	claim := anyClaim(t)
	world := reconciletest.NewWorld(kinds.PersistentVolumeClaims.Kind).Put(kinds.PersistentVolumes.Kind, anyVolume(t, "v", claim))
	if rapid.Bool().Draw(t, "a claim") {
		world.Put(kinds.PersistentVolumeClaims.Kind, claim)
	}
	v, _ := observe(world, keyOfVolume("v"))
	v.Live = anyLive(t)
	v.toldBefore(t)
	return v
}

// toldBefore marks the Events of the present decision as recorded some minutes ago.
func (v *View) toldBefore(t *rapid.T) {
	if !rapid.Bool().Draw(t, "told before") {
		return
	}
	v.ToldAt = now.Add(-time.Duration(rapid.IntRange(0, 20).Draw(t, "minutes ago")) * time.Minute)
	for _, c := range decide(*v, now).Commands {
		var n told
		if json.Unmarshal(c.Note, &n) == nil {
			v.Told = append(v.Told, n.Told)
		}
	}
}

// exclusive: a claim is written only into a volume that no other claim has, a volume only into a
// claim that has none, and a binding is undone only if the claim has another volume.
func exclusive(_ *rapid.T, c reconcile.Controller[View], v View, now time.Time) error {
	for _, command := range c.Decide(v, now).Commands {
		switch {
		case command.Verb != events.VerbUpdate || command.Subresource != "":
		case command.Kind == kinds.PersistentVolumes.Name:
			var next corev1.PersistentVolume
			if err := json.Unmarshal(command.Body, &next); err != nil {
				return err
			}
			if err := v.mayBind(&next); err != nil {
				return err
			}
		default:
			var next corev1.PersistentVolumeClaim
			if err := json.Unmarshal(command.Body, &next); err != nil {
				return err
			}
			name := next.Spec.VolumeName
			if was := v.Claim.Spec.VolumeName; was != "" && was != name {
				return fmt.Errorf("the claim names %s and not %s any more", name, was)
			}
			if has(&next, completed) && !has(v.Claim, completed) && !slices.ContainsFunc(append(v.Volumes, v.Named), func(o *corev1.PersistentVolume) bool {
				return o != nil && o.Name == name && o.Spec.ClaimRef != nil && o.Spec.ClaimRef.UID == v.Claim.UID
			}) {
				return errors.New("the binding is called complete, and the volume does not have the claim")
			}
		}
	}
	return nil
}

func (v View) mayBind(next *corev1.PersistentVolume) error {
	if v.Volume != nil { // its own turn
		was := v.Volume.Spec.ClaimRef
		undone := was != nil && was.UID != "" && (next.Spec.ClaimRef == nil || next.Spec.ClaimRef.UID != was.UID)
		if undone && (v.Holder == nil || v.Holder.UID != was.UID || v.Holder.Spec.VolumeName == "" || v.Holder.Spec.VolumeName == v.Volume.Name) {
			return errors.New("a binding is undone, and the claim has no other volume")
		}
		return nil
	}
	if ref := next.Spec.ClaimRef; ref == nil || ref.UID != v.Claim.UID {
		return errors.New("a volume is bound to another claim than that whose turn it is")
	}
	for _, volume := range append(v.Volumes, v.Named) {
		if volume != nil && volume.Name == next.Name && volume.Spec.ClaimRef != nil && !holds(volume, v.Claim) {
			return fmt.Errorf("%s is bound to another claim", volume.Name)
		}
	}
	return nil
}

// careful: a claim is called lost, and a volume released, only because of a recent answer of the
// API server, or because of facts that cannot change any more.
func careful(_ *rapid.T, c reconcile.Controller[View], v View, now time.Time) error {
	fresh := v.Live != nil && now.Sub(v.Live.At) < 30*time.Second
	for _, command := range c.Decide(v, now).Commands {
		var next struct{ Status struct{ Phase string } }
		if command.Subresource != "status" {
			continue
		}
		if err := json.Unmarshal(command.Body, &next); err != nil {
			return err
		}
		switch phase := next.Status.Phase; {
		case phase == "Lost":
			gone := fresh && (!v.Live.There || v.Live.Claim != "" && v.Live.Claim != v.Claim.UID)
			if v.Claim.Spec.VolumeName != "" && !gone || !has(v.Claim, completed) {
				return errors.New("a claim is called lost, and its volume may be there")
			}
		case phase == "Released":
			gone := fresh && (!v.Live.There || v.Live.Claim != v.Volume.Spec.ClaimRef.UID)
			spare := v.Holder != nil && v.Holder.Spec.VolumeName != "" && v.Holder.Spec.VolumeName != v.Volume.Name
			if !gone && !spare {
				return errors.New("a volume is released, and its claim may be there")
			}
		}
	}
	return nil
}

// storable: the reconcilers check a turn against the promise with the key's object alone. They refuse
// no command: the check of commands about another object is left to the writer.
func storable(_ *rapid.T, c reconcile.Controller[View], v View, now time.Time) error {
	d, own := c.Describe(), v.own()
	t := events.Turn{Key: keyOfVolume(own.GetName()), Kind: kinds.PersistentVolumes.Name, UID: own.GetUID(), ResourceVersion: own.GetResourceVersion()}
	if v.Claim != nil {
		t.Key, t.Kind = keyOfClaim(own.GetNamespace(), own.GetName()), kinds.PersistentVolumeClaims.Name
	}
	fits := d.Fits(t, func() metav1.Object { return own }, func(events.Ref) metav1.Object { return nil })
	for _, command := range c.Decide(v, now).Commands {
		if err := fits(command); err != nil && !errors.Is(err, events.ErrSuperseded) {
			return err
		}
	}
	return nil
}

// complete: a claim and a volume become Bound only when each names the other, the volume first.
func complete(_ *rapid.T, c reconcile.Controller[View], v View, now time.Time) error {
	for _, command := range c.Decide(v, now).Commands {
		var next struct{ Status struct{ Phase string } }
		if command.Subresource != "status" {
			continue
		}
		if err := json.Unmarshal(command.Body, &next); err != nil {
			return err
		}
		volume, claim := v.Volume, v.Holder
		if v.Claim != nil {
			volume, claim = v.Named, v.Claim
		}
		switch {
		case next.Status.Phase != "Bound":
		case volume == nil || claim == nil || volume.Spec.ClaimRef == nil || volume.Spec.ClaimRef.UID != claim.UID || claim.Spec.VolumeName != volume.Name:
			return errors.New("one is called bound, and does not have the other")
		case v.Claim != nil && (volume.Status.Phase != corev1.VolumeBound || !has(claim, completed)):
			return errors.New("the claim is called bound before the volume")
		}
	}
	return nil
}
