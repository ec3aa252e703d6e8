package storage_test

import (
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"pgregory.net/rapid"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/test/oracle/objects"
	"github.com/millrace/millrace/test/oracle/oracletest"
	"github.com/millrace/millrace/test/oracle/storage"
	"github.com/millrace/millrace/test/sim/apiserver"
)

func TestLabelsConflictAsUpstreams(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(r *rapid.T) {
		world := labelledWorld(r)
		diff, err := new(storage.Labels).Compare(t, world)
		if err != nil {
			r.Fatal(err)
		}
		if diff != "" {
			r.Fatalf("upstream (-) and we (+) warn differently:\n%s\n%s", diff, oracletest.Page(r, world))
		}
	})
}

// labelDrivers are drivers whose volumes can be mounted with labels, others, and one that does not exist.
var labelDrivers = []string{"yes.example.com", "yes.example.com", "yes.example.com", "no.example.com", "silent.example.com", "absent.example.com"}

// labelledWorld has some drivers, volumes (of which two may be the same), and pods.
func labelledWorld(t *rapid.T) (world []runtime.Object) {
	for name, mounts := range map[string]*bool{"yes.example.com": oracletest.Ptr(true), "no.example.com": oracletest.Ptr(false), "silent.example.com": nil, "ebs.csi.aws.com": oracletest.Ptr(true)} {
		world = append(world, &storagev1.CSIDriver{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: storagev1.CSIDriverSpec{SELinuxMount: mounts}})
	}
	for _, name := range []string{"a", "b"} {
		source := anySource(t)
		for _, namespace := range []string{oracletest.Namespace, "other"} { // bound to claims of two namespaces
			pv, claim := boundClaim(namespace, name, source)
			loosen(t, pv, claim)
			world = append(world, pv, claim)
		}
	}
	for i := range rapid.IntRange(1, 5).Draw(t, "pods") {
		p := anyLabelledPod(t, rapid.SampledFrom([]string{oracletest.Namespace, oracletest.Namespace, "other"}).Draw(t, "namespace"), fmt.Sprint("web-", i))
		p.Status.Phase = rapid.SampledFrom([]corev1.PodPhase{corev1.PodPending, corev1.PodRunning, corev1.PodRunning, corev1.PodRunning, corev1.PodSucceeded, corev1.PodFailed}).Draw(t, "phase")
		own := &p.Spec.Volumes[len(p.Spec.Volumes)-1]
		if oracletest.Chance(t, 5, "a claim of its own") {
			own.VolumeSource = corev1.VolumeSource{Ephemeral: &corev1.EphemeralVolumeSource{}}
			pv, claim := boundClaim(p.Namespace, p.Name+"-"+own.Name, anySource(t))
			if !oracletest.Chance(t, 4, "of another") {
				claim.OwnerReferences = []metav1.OwnerReference{{APIVersion: "v1", Kind: "Pod", Name: p.Name, UID: p.UID, Controller: oracletest.Ptr(true)}}
			}
			world = append(world, pv, claim)
		}
		if own.EmptyDir == nil && own.HostPath == nil && own.CSI == nil {
			// If a pod has a volume twice, upstream uses the settings of either.
			p.Spec.Volumes[0].PersistentVolumeClaim.ClaimName = "missing"
		}
		world = append(world, p)
	}
	return world
}

func anySource(t *rapid.T) corev1.PersistentVolumeSource {
	handle := rapid.SampledFrom([]string{"1", "2"}).Draw(t, "handle")
	return rapid.SampledFrom([]corev1.PersistentVolumeSource{
		{CSI: &corev1.CSIPersistentVolumeSource{Driver: rapid.SampledFrom(labelDrivers).Draw(t, "driver"), VolumeHandle: handle}},
		{CSI: &corev1.CSIPersistentVolumeSource{Driver: rapid.SampledFrom(labelDrivers).Draw(t, "driver again"), VolumeHandle: handle}},
		{CSI: &corev1.CSIPersistentVolumeSource{Driver: "ebs.csi.aws.com", VolumeHandle: "vol-" + handle}},
		{AWSElasticBlockStore: &corev1.AWSElasticBlockStoreVolumeSource{VolumeID: "aws://us-east-1a/vol-" + handle}},
		{AWSElasticBlockStore: &corev1.AWSElasticBlockStoreVolumeSource{VolumeID: "aws://"}}, // an invalid id
		{ISCSI: &corev1.ISCSIPersistentVolumeSource{TargetPortal: "10.0.0.1:3260", IQN: "iqn.2030-01.com.example:disk", Lun: int32(len(handle))}},
		{FC: anyChannel(t)},
		{NFS: &corev1.NFSVolumeSource{Server: "s", Path: "/" + handle}},
		{HostPath: &corev1.HostPathVolumeSource{Path: "/" + handle}},
	}).Draw(t, "source")
}

func anyChannel(t *rapid.T) *corev1.FCVolumeSource {
	return rapid.SampledFrom([]*corev1.FCVolumeSource{
		{TargetWWNs: []string{"50060e801049cfd1", "50060e801049cfd2"}, Lun: oracletest.Ptr(int32(3))}, {TargetWWNs: []string{"50060e801049cfd1"}},
		{WWIDs: []string{"3600508b400105e210000900000490000"}},
	}).Draw(t, "channel")
}

// boundClaim is a volume and a claim that are bound to each other.
func boundClaim(namespace, name string, source corev1.PersistentVolumeSource) (*corev1.PersistentVolume, *corev1.PersistentVolumeClaim) {
	id := namespace + "-" + name
	pv := &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: "pv-" + id, UID: types.UID("pv-" + id), ResourceVersion: "7"}}
	pv.Spec.PersistentVolumeSource = source
	claim := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, UID: types.UID("claim-" + id), ResourceVersion: "8"}}
	claim.Spec.VolumeName, claim.Status.Phase = pv.Name, corev1.ClaimBound
	pv.Spec.ClaimRef = &corev1.ObjectReference{Namespace: namespace, Name: name, UID: claim.UID}
	return pv, claim
}

// loosen may leave the binding of a volume and a claim incomplete.
func loosen(t *rapid.T, pv *corev1.PersistentVolume, claim *corev1.PersistentVolumeClaim) {
	switch rapid.IntRange(0, 15).Draw(t, "bound") {
	case 0:
		claim.Status.Phase = corev1.ClaimPending
	case 1:
		pv.Spec.ClaimRef.UID = "another"
	case 2:
		pv.Spec.ClaimRef = nil
	case 3:
		claim.Spec.VolumeName = ""
	}
}

func anyContext(t *rapid.T, what string) *corev1.SELinuxOptions {
	if oracletest.Chance(t, 4, what+" says nothing") {
		return nil
	}
	return &corev1.SELinuxOptions{
		User: rapid.SampledFrom([]string{"", "", "", "system_u"}).Draw(t, what+" user"), Type: rapid.SampledFrom([]string{"", "", "container_t", "spc_t"}).Draw(t, what+" type"),
		Level: rapid.SampledFrom([]string{"", "s0:c1,c2", "s0:c1,c2", "s0:c3"}).Draw(t, what+" level"),
	}
}

// anyLabelledPod is a pod with two volumes, which its containers mount, or have as devices.
func anyLabelledPod(t *rapid.T, namespace, name string) *corev1.Pod {
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, UID: types.UID(name), ResourceVersion: "3"}}
	if !oracletest.Chance(t, 4, "no context") {
		p.Spec.SecurityContext = &corev1.PodSecurityContext{SELinuxOptions: anyContext(t, "pod")}
		if policy := rapid.SampledFrom([]corev1.PodSELinuxChangePolicy{"", "", corev1.SELinuxChangePolicyMountOption, corev1.SELinuxChangePolicyRecursive}).Draw(t, "policy"); policy != "" {
			p.Spec.SecurityContext.SELinuxChangePolicy = &policy
		}
	}
	p.Spec.Volumes = []corev1.Volume{
		{Name: "v", VolumeSource: corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: rapid.SampledFrom([]string{"a", "a", "b", "missing"}).Draw(t, "claim")}}},
		{Name: "w", VolumeSource: rapid.SampledFrom([]corev1.VolumeSource{
			{EmptyDir: &corev1.EmptyDirVolumeSource{}}, {CSI: &corev1.CSIVolumeSource{Driver: "yes.example.com"}}, {HostPath: &corev1.HostPathVolumeSource{Path: "/"}},
			{ISCSI: &corev1.ISCSIVolumeSource{TargetPortal: "10.0.0.1:3260", IQN: "iqn.2030-01.com.example:disk", Lun: 1}}, {FC: anyChannel(t)},
			{AWSElasticBlockStore: &corev1.AWSElasticBlockStoreVolumeSource{VolumeID: "vol-1"}}, {AWSElasticBlockStore: &corev1.AWSElasticBlockStoreVolumeSource{VolumeID: "aws://"}},
		}).Draw(t, "named")},
	}
	for i := range rapid.IntRange(1, 3).Draw(t, "containers") {
		c := corev1.Container{Name: fmt.Sprint("c", i)}
		if oracletest.Chance(t, 3, "its own") {
			c.SecurityContext = &corev1.SecurityContext{SELinuxOptions: anyContext(t, "container"), Privileged: oracletest.Ptr(oracletest.Chance(t, 2, "privileged"))}
		}
		for _, v := range rapid.SampledFrom([]string{"v", "v", "vw", "vw", "w", ""}).Draw(t, "mounts") {
			c.VolumeMounts = append(c.VolumeMounts, corev1.VolumeMount{Name: string(v), MountPath: "/" + string(v)})
		}
		if len(c.VolumeMounts) == 0 {
			c.VolumeDevices = []corev1.VolumeDevice{{Name: "v"}}
		}
		switch rapid.IntRange(0, 5).Draw(t, "sort") {
		case 0:
			p.Spec.InitContainers = append(p.Spec.InitContainers, c)
		case 1:
			p.Spec.EphemeralContainers = append(p.Spec.EphemeralContainers, corev1.EphemeralContainer{EphemeralContainerCommon: corev1.EphemeralContainerCommon{
				Name: c.Name, SecurityContext: c.SecurityContext, VolumeMounts: c.VolumeMounts, VolumeDevices: c.VolumeDevices,
			}})
		default:
			p.Spec.Containers = append(p.Spec.Containers, c)
		}
	}
	return p
}

// While pods are created and deleted, claims are bound and drivers change, both see the same conflicts in the
// end, and emit the same Events.
func TestConflictsComeAndGoAsUpstreams(t *testing.T) {
	oracletest.Fewer(t, 4)
	rapid.Check(t, func(r *rapid.T) {
		v := &labelTown{}
		v.begin(r)
		v.end() // upstream may judge a pod that comes together with its driver without the driver, for good
		for range rapid.IntRange(1, 16).Draw(r, "chapters") {
			v.act(r) // of several acts in one moment upstream sees each
			v.end()
		}
		diff, err := new(storage.Labels).Live(t, v.chapters)
		if err != nil || diff != "" {
			r.Fatalf("upstream (-) and we (+) differ (%v) %s\n%s", err, diff, strings.Join(v.story, "\n"))
		}
	})
}

// labelTown has the writes of users on volumes of one driver.
type labelTown struct {
	moment   []func(*apiserver.API)
	chapters []func(*apiserver.API)
	story    []string
	made     int
	pods     []events.Ref
}

func (v *labelTown) does(act func(*apiserver.API), what string, args ...any) {
	v.moment, v.story = append(v.moment, act), append(v.story, fmt.Sprintf(what, args...))
}

func (v *labelTown) end() {
	moment := v.moment
	v.chapters, v.moment, v.story = append(v.chapters, func(api *apiserver.API) {
		for _, act := range moment {
			act(api)
		}
	}), nil, append(v.story, "--")
}

func (v *labelTown) begin(r *rapid.T) {
	for _, name := range []string{"a", "b"} {
		for _, of := range []string{oracletest.Namespace, "other"} {
			pv, claim := boundClaim(of, name, corev1.PersistentVolumeSource{CSI: &corev1.CSIPersistentVolumeSource{Driver: "d.example.com", VolumeHandle: "vol-" + name}})
			bound := oracletest.Chance(r, 2, "bound")
			if !bound {
				pv.Spec.ClaimRef, claim.Spec.VolumeName, claim.Status.Phase = nil, "", corev1.ClaimPending
			}
			v.does(func(api *apiserver.API) {
				api.Load(kinds.PersistentVolumes.Name, pv)
				api.Load(kinds.PersistentVolumeClaims.Name, claim)
			}, "claim %s of %s, bound: %v", name, of, bound)
		}
	}
	v.driver(r)
}

func (v *labelTown) driver(r *rapid.T) {
	driver := &storagev1.CSIDriver{ObjectMeta: metav1.ObjectMeta{Name: "d.example.com", UID: "d"}}
	driver.Spec.SELinuxMount = rapid.SampledFrom([]*bool{nil, oracletest.Ptr(true), oracletest.Ptr(true), oracletest.Ptr(false)}).Draw(r, "mounts")
	v.does(func(api *apiserver.API) { api.Load(kinds.CSIDrivers.Name, driver) }, "the driver mounts with labels: %v", driver.Spec.SELinuxMount != nil && *driver.Spec.SELinuxMount)
}

func (v *labelTown) act(r *rapid.T) {
	of := rapid.SampledFrom([]string{oracletest.Namespace, oracletest.Namespace, "other"}).Draw(r, "namespace")
	switch rapid.IntRange(0, 9).Draw(r, "act") {
	case 0:
		v.driver(r)
	case 1, 2:
		v.bind(of, rapid.SampledFrom([]string{"a", "b"}).Draw(r, "claim"))
	case 3, 4:
		if len(v.pods) == 0 {
			return
		}
		ref := rapid.SampledFrom(v.pods).Draw(r, "pod")
		if rapid.Bool().Draw(r, "ends") {
			v.does(func(api *apiserver.API) {
				if api.Get(ref) != nil {
					api.Change(ref, func(o metav1.Object) { o.(*corev1.Pod).Status.Phase = corev1.PodSucceeded })
				}
			}, "%v ends", ref)
			return
		}
		v.does(func(api *apiserver.API) {
			if api.Get(ref) != nil {
				api.Change(ref, func(o metav1.Object) { o.SetDeletionTimestamp(oracletest.Ptr(metav1.NewTime(objects.Now))) })
				api.Finish(ref)
			}
		}, "%v goes", ref)
	default:
		if len(v.pods) < 7 { // with more pods upstream's recorder would drop Events
			v.pod(r, of)
		}
	}
}

// bind binds a claim, unless it is bound already.
func (v *labelTown) bind(of, name string) {
	v.does(func(api *apiserver.API) {
		pv, claim := boundClaim(of, name, corev1.PersistentVolumeSource{})
		api.Change(events.Ref{Kind: kinds.PersistentVolumes.Name, Name: pv.Name}, func(o metav1.Object) {
			o.(*corev1.PersistentVolume).Spec.ClaimRef = pv.Spec.ClaimRef
		})
		api.Change(events.Ref{Kind: kinds.PersistentVolumeClaims.Name, Namespace: of, Name: name}, func(o metav1.Object) {
			c := o.(*corev1.PersistentVolumeClaim)
			c.Spec.VolumeName, c.Status.Phase = claim.Spec.VolumeName, claim.Status.Phase
		})
	}, "claim %s of %s is bound", name, of)
}

// pod creates a pod with one container, so that the pod does not conflict with itself: upstream repeats the
// Event about that until its recorder drops the pod's Events.
func (v *labelTown) pod(r *rapid.T, of string) {
	v.made++
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: of, Name: fmt.Sprint("web-", v.made), UID: types.UID(fmt.Sprint("web-", v.made))}}
	p.Spec.SecurityContext = &corev1.PodSecurityContext{SELinuxOptions: anyContext(r, "pod")}
	if oracletest.Chance(r, 3, "file by file") {
		p.Spec.SecurityContext.SELinuxChangePolicy = oracletest.Ptr(corev1.SELinuxChangePolicyRecursive)
	}
	claim := rapid.SampledFrom([]string{"a", "b"}).Draw(r, "claim")
	p.Spec.Volumes = []corev1.Volume{{Name: "v", VolumeSource: corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: claim}}}}
	p.Spec.Containers = []corev1.Container{{Name: "c", VolumeMounts: []corev1.VolumeMount{{Name: "v", MountPath: "/v"}}}}
	v.pods = append(v.pods, events.Ref{Kind: kinds.Pods.Name, Namespace: of, Name: p.Name})
	v.does(func(api *apiserver.API) { api.Load(kinds.Pods.Name, p) }, "%s of %s uses %s with %+v", p.Name, of, claim, p.Spec.SecurityContext)
}
