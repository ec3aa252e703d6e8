package storage_test

import (
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"pgregory.net/rapid"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/services/writer/plan"
	"github.com/millrace/millrace/test/oracle/exemption"
	"github.com/millrace/millrace/test/oracle/oracletest"
	"github.com/millrace/millrace/test/oracle/stage"
	"github.com/millrace/millrace/test/oracle/storage"
	"github.com/millrace/millrace/test/sim/apiserver"
)

func TestVolumesAreBoundAsUpstreams(t *testing.T) {
	oracletest.Fewer(t, 4)
	for name, life := range map[string]stage.Life{"defaults": storage.VolumeBinder, "static": storage.StaticVolumeBinder} {
		t.Run(name, func(t *testing.T) {
			rapid.Check(t, func(r *rapid.T) {
				v := &store{}
				for range rapid.IntRange(1, 12).Draw(r, "chapters") {
					v.act(r)
					v.Chapter()
				}
				v.Compare(t, r, life)
			})
		})
	}
}

// TestRefusedVolumesAreBoundAsUpstreams is the same on an API server that refuses some writes; both
// controllers retry them within the chapter.
func TestRefusedVolumesAreBoundAsUpstreams(t *testing.T) {
	oracletest.Fewer(t, 4)
	rapid.Check(t, func(r *rapid.T) { refusedStore(r).Compare(t, r, storage.RefusedVolumeBinder) })
}

// mostRefused chapters make 15 syncs of a claim: upstream's recorder drops the 26th Event about an object.
const mostRefused = 5

func refusedStore(r *rapid.T) *store {
	v := &store{}
	for range rapid.IntRange(1, mostRefused).Draw(r, "chapters") {
		v.Refuse(r, bindingRequests)
		v.act(r)
		v.Chapter()
	}
	return v
}

// bindingRequests are the writes of the binder: claims and volumes, and their statuses.
var bindingRequests = []stage.Refusal{
	{Verb: plan.Update, Kind: kinds.PersistentVolumeClaims.Name}, {Verb: plan.Update, Kind: kinds.PersistentVolumeClaims.Name, Status: true},
	{Verb: plan.Update, Kind: kinds.PersistentVolumes.Name}, {Verb: plan.Update, Kind: kinds.PersistentVolumes.Name, Status: true},
}

// store has claims and volumes. One thing happens at a time, and claims are of different classes, because
// upstream picks by chance which of several claims comes first.
type store struct {
	oracletest.Village
	made int
}

// ofClass maps the claims to their classes, each to one of its own; the class of the first claim is the
// default one, if there is one.
var ofClass = map[string]string{"plain": "", "none": "", "outside": "outside", "moved": "moved", "late": "late", "byhand": "byhand", "directory": "directory", "named": "named"}

var storeClaims = []string{"plain", "none", "outside", "moved", "late", "byhand", "directory", "named"}

var provisioners = map[string]string{
	"outside": "csi.example.com", "moved": "kubernetes.io/gce-pd", "late": "csi.example.com", "byhand": "kubernetes.io/no-provisioner", "directory": "kubernetes.io/host-path",
	"usual": "csi.example.com", "named": "kubernetes.io/nfs",
}

func pvcRef(name string) events.Ref {
	return events.Ref{Kind: kinds.PersistentVolumeClaims.Name, Namespace: oracletest.Namespace, Name: name}
}

func pvRef(name string) events.Ref { return events.Ref{Kind: kinds.PersistentVolumes.Name, Name: name} }

func (v *store) act(r *rapid.T) {
	claim, volume := rapid.SampledFrom(storeClaims).Draw(r, "claim"), rapid.SampledFrom([]string{"v", "w", "x"}).Draw(r, "volume")
	switch rapid.IntRange(0, 13).Draw(r, "act") {
	case 0, 1, 2:
		v.claim(r, claim, volume)
	case 3, 4:
		v.volume(r, volume)
	case 5, 6:
		v.class(r)
	case 7:
		v.Remove(pvcRef(claim))
	case 8:
		v.Remove(pvRef(volume))
	case 9, 10:
		policy := rapid.SampledFrom([]corev1.PersistentVolumeReclaimPolicy{"Retain", "Delete"}).Draw(r, "policy")
		v.Does(func(api *apiserver.API) { provision(api, claim, policy) }, "provision for %s %s", claim, policy)
	case 11:
		v.scheduler(r, volume)
	case 12:
		v.Does(func(api *apiserver.API) {
			api.Change(pvRef(volume), func(o metav1.Object) {
				if pv := o.(*corev1.PersistentVolume); pv.Status.Phase == corev1.VolumeReleased && !contested(api, pv) {
					pv.Spec.ClaimRef = nil
				}
			})
		}, "free %s", volume)
	default:
		policy := rapid.SampledFrom([]corev1.PersistentVolumeReclaimPolicy{"Retain", "Delete", "Recycle"}).Draw(r, "policy")
		v.Does(func(api *apiserver.API) {
			api.Change(pvRef(volume), func(o metav1.Object) { o.(*corev1.PersistentVolume).Spec.PersistentVolumeReclaimPolicy = policy })
		}, "%s is to %s", volume, policy)
	}
}

func (v *store) claim(r *rapid.T, name, volume string) {
	v.made++
	c := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: oracletest.Namespace, Name: name, UID: types.UID(fmt.Sprint(name, "-", v.made))}}
	c.Status.Phase = corev1.ClaimPending
	c.Spec.AccessModes = []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce}
	c.Spec.Resources.Requests = corev1.ResourceList{corev1.ResourceStorage: resource.MustParse(rapid.SampledFrom([]string{"1Gi", "2Gi"}).Draw(r, "size"))}
	if name != "plain" {
		c.Spec.StorageClassName = oracletest.Ptr(ofClass[name])
	}
	switch name {
	case "named":
		c.Spec.VolumeName = volume
	case "none": // plain selects another label
		c.Spec.Selector = &metav1.LabelSelector{MatchLabels: map[string]string{"for": "none"}}
	case "plain":
		c.Spec.Selector = &metav1.LabelSelector{MatchLabels: map[string]string{"for": "plain"}}
	}
	if rapid.IntRange(0, 4).Draw(r, "block") == 0 {
		c.Spec.VolumeMode = oracletest.Ptr(corev1.PersistentVolumeBlock)
	}
	if rapid.IntRange(0, 4).Draw(r, "attributes") == 0 {
		c.Spec.VolumeAttributesClassName = oracletest.Ptr("gold")
	}
	v.Does(func(api *apiserver.API) {
		if api.Get(pvcRef(name)) == nil {
			api.Load(kinds.PersistentVolumeClaims.Name, c)
		}
	}, "create %s %v", c.UID, c.Spec)
}

// volume creates a volume, which may be reserved. No two have the same size, or different sets of equally
// many modes: upstream would pick one by chance.
func (v *store) volume(r *rapid.T, name string) {
	exemption.Uses("choice-of-volumes")
	v.made++
	pv := &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID(fmt.Sprint(name, "-", v.made))}}
	pv.Spec.Capacity = corev1.ResourceList{corev1.ResourceStorage: resource.MustParse(map[string]string{"v": "1Gi", "w": "2Gi", "x": "3Gi"}[name])}
	pv.Spec.AccessModes = rapid.SampledFrom([][]corev1.PersistentVolumeAccessMode{{"ReadWriteOnce"}, {"ReadWriteOnce"}, {"ReadWriteOnce", "ReadWriteMany"}, {"ReadWriteMany"}}).Draw(r, "modes")
	claim := rapid.SampledFrom(storeClaims).Draw(r, "for")
	pv.Labels, pv.Spec.StorageClassName = map[string]string{"for": claim}, ofClass[claim]
	pv.Spec.VolumeMode = oracletest.Ptr(corev1.PersistentVolumeFilesystem)
	pv.Spec.PersistentVolumeReclaimPolicy = rapid.SampledFrom([]corev1.PersistentVolumeReclaimPolicy{"Retain", "Retain", "Delete", "Recycle"}).Draw(r, "policy")
	pv.Spec.ISCSI = &corev1.ISCSIPersistentVolumeSource{} // no plugin recycles or deletes it
	if rapid.IntRange(0, 3).Draw(r, "directory") == 0 && pv.Spec.PersistentVolumeReclaimPolicy != corev1.PersistentVolumeReclaimRecycle {
		exemption.Uses("volumes-of-nodes")
		pv.Spec.ISCSI, pv.Spec.HostPath = nil, &corev1.HostPathVolumeSource{Path: "/data"}
	}
	if rapid.IntRange(0, 4).Draw(r, "attributes") == 0 {
		pv.Spec.VolumeAttributesClassName = oracletest.Ptr("gold")
	}
	if rapid.IntRange(0, 2).Draw(r, "reserved") == 0 {
		pv.Spec.ClaimRef = &corev1.ObjectReference{Namespace: oracletest.Namespace, Name: claim}
	}
	v.Does(func(api *apiserver.API) {
		free := pv.Spec.ClaimRef == nil
		if api.Get(pvRef(name)) != nil || free && contested(api, pv) || !free && reserved(api, claim) || naming(api, name) > 1 {
			return
		}
		api.Load(kinds.PersistentVolumes.Name, pv)
	}, "create %s for %s %v", pv.UID, claim, pv.Spec)
}

// contested reports whether several waiting claims could get a free volume, or ask for it by name: upstream
// would pick one by chance.
func contested(api *apiserver.API, pv *corev1.PersistentVolume) bool {
	asking := 0
	for _, o := range api.List(kinds.PersistentVolumeClaims.Name) {
		c := o.(*corev1.PersistentVolumeClaim)
		class, labels := c.Spec.StorageClassName, c.Spec.Selector
		fits := c.Spec.VolumeName == "" && (class == nil && pv.Spec.StorageClassName == "" || class != nil && *class == pv.Spec.StorageClassName) &&
			(labels == nil || labels.MatchLabels["for"] == pv.Labels["for"])
		if c.Status.Phase == corev1.ClaimPending && (fits || c.Spec.VolumeName == pv.Name) {
			asking++
		}
	}
	return asking > 1
}

// naming is how many claims name a volume: upstream picks one of several by chance.
func naming(api *apiserver.API, volume string) (n int) {
	for _, o := range api.List(kinds.PersistentVolumeClaims.Name) {
		if o.(*corev1.PersistentVolumeClaim).Spec.VolumeName == volume {
			n++
		}
	}
	return n
}

// reserved reports whether a volume is bound to a claim of a name: upstream picks one of several by chance.
func reserved(api *apiserver.API, claim string) bool {
	for _, o := range api.List(kinds.PersistentVolumes.Name) {
		if ref := o.(*corev1.PersistentVolume).Spec.ClaimRef; ref != nil && ref.Name == claim {
			return true
		}
	}
	return false
}

func (v *store) class(r *rapid.T) {
	names := []string{"outside", "moved", "late", "byhand", "directory", "usual", "named"}
	c := &storagev1.StorageClass{ObjectMeta: metav1.ObjectMeta{Name: rapid.SampledFrom(names).Draw(r, "class")}}
	c.UID, c.Provisioner, c.ReclaimPolicy = types.UID(c.Name), provisioners[c.Name], oracletest.Ptr(corev1.PersistentVolumeReclaimDelete)
	c.VolumeBindingMode = oracletest.Ptr(storagev1.VolumeBindingImmediate)
	if c.Name == "late" {
		c.VolumeBindingMode = oracletest.Ptr(storagev1.VolumeBindingWaitForFirstConsumer)
	}
	if c.Name == "usual" {
		c.Annotations = map[string]string{"storageclass.kubernetes.io/is-default-class": "true"}
	}
	v.Does(func(api *apiserver.API) { api.Load(kinds.StorageClasses.Name, c) }, "class %s", c.Name)
}

// provision acts as a provisioner and creates the volume that a claim asks for.
func provision(api *apiserver.API, claim string, policy corev1.PersistentVolumeReclaimPolicy) {
	c, ok := api.Get(pvcRef(claim)).(*corev1.PersistentVolumeClaim)
	if !ok || c.Spec.VolumeName != "" {
		return
	}
	by, name := c.Annotations["volume.kubernetes.io/storage-provisioner"], "pvc-"+string(c.UID)
	if by == "" || by == "kubernetes.io/host-path" || api.Get(pvRef(name)) != nil || reserved(api, claim) {
		return
	}
	pv := &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID(name), Annotations: map[string]string{"pv.kubernetes.io/provisioned-by": by}}}
	pv.Finalizers = []string{"external-provisioner.volume.kubernetes.io/finalizer"}
	if by == "pd.csi.storage.gke.io" { // as a volume from the time when the provisioner was in-tree
		pv.Annotations["pv.kubernetes.io/provisioned-by"] = "kubernetes.io/gce-pd"
		pv.Finalizers = append(pv.Finalizers, "kubernetes.io/pv-controller")
	}
	pv.Spec.AccessModes, pv.Spec.VolumeMode = c.Spec.AccessModes, c.Spec.VolumeMode
	if pv.Spec.VolumeMode == nil {
		pv.Spec.VolumeMode = oracletest.Ptr(corev1.PersistentVolumeFilesystem)
	}
	pv.Spec.Capacity = corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("5Gi")}
	pv.Spec.VolumeAttributesClassName, pv.Spec.PersistentVolumeReclaimPolicy = c.Spec.VolumeAttributesClassName, policy
	pv.Spec.StorageClassName = *c.Spec.StorageClassName
	pv.Spec.CSI = &corev1.CSIPersistentVolumeSource{Driver: by}
	pv.Spec.ClaimRef = &corev1.ObjectReference{Kind: "PersistentVolumeClaim", APIVersion: "v1", Namespace: oracletest.Namespace, Name: claim, UID: c.UID}
	api.Load(kinds.PersistentVolumes.Name, pv)
}

// scheduler acts as the scheduler for the claim that waits for a pod.
func (v *store) scheduler(r *rapid.T, volume string) {
	switch rapid.IntRange(0, 2).Draw(r, "scheduler") {
	case 0:
		p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: oracletest.Namespace, Name: rapid.SampledFrom([]string{"p", "q"}).Draw(r, "pod")}}
		p.UID = types.UID(p.Name)
		p.Spec.Volumes = []corev1.Volume{{Name: "d", VolumeSource: corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "late"}}}}
		v.Does(func(api *apiserver.API) { api.Load(kinds.Pods.Name, p) }, "pod %s", p.Name)
	case 1:
		v.Does(func(api *apiserver.API) {
			api.Change(pvcRef("late"), func(o metav1.Object) {
				if o.(*corev1.PersistentVolumeClaim).Spec.VolumeName == "" {
					o.SetAnnotations(map[string]string{"volume.kubernetes.io/selected-node": "n"})
				}
			})
		}, "select a node")
	default:
		v.Does(func(api *apiserver.API) {
			c, ok := api.Get(pvcRef("late")).(*corev1.PersistentVolumeClaim)
			if !ok || c.Spec.VolumeName != "" || reserved(api, "late") {
				return
			}
			api.Change(pvRef(volume), func(o metav1.Object) {
				pv := o.(*corev1.PersistentVolume)
				if pv.Spec.StorageClassName != "late" || pv.Spec.ClaimRef != nil {
					return
				}
				pv.Annotations = map[string]string{"pv.kubernetes.io/bound-by-controller": "yes"}
				pv.Spec.ClaimRef = &corev1.ObjectReference{Kind: "PersistentVolumeClaim", APIVersion: "v1", Namespace: oracletest.Namespace, Name: "late", UID: c.UID}
			})
		}, "choose %s", volume)
	}
}
