package selinuxwarning

import (
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/services/reconcilers/reconciletest"
)

var (
	disk = events.Key{Name: "kubernetes.io/csi/d^vol-1"}
	web  = events.Key{Namespace: "shop", Name: "web"}
)

// scene is a driver, a volume, the claim that it is bound to, and a pod that uses it.
type scene struct {
	driver *storagev1.CSIDriver
	pv     *corev1.PersistentVolume
	claim  *corev1.PersistentVolumeClaim
	pod    *corev1.Pod
}

func newScene() *scene {
	s := &scene{
		driver: &storagev1.CSIDriver{ObjectMeta: metav1.ObjectMeta{Name: "d"}, Spec: storagev1.CSIDriverSpec{SELinuxMount: new(true)}},
		pv:     &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: "pv-1", UID: "v"}},
		claim:  &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "data", UID: "c"}},
		pod:    &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web", UID: "p"}},
	}
	s.pv.Spec.ClaimRef = &corev1.ObjectReference{Namespace: "shop", Name: "data", UID: "c"}
	s.pv.Spec.CSI = &corev1.CSIPersistentVolumeSource{Driver: "d", VolumeHandle: "vol-1"}
	s.claim.Spec.VolumeName, s.claim.Status.Phase = "pv-1", corev1.ClaimBound
	s.pod.Spec.Volumes = []corev1.Volume{{Name: "v", VolumeSource: corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "data"}}}}
	s.pod.Spec.Containers = []corev1.Container{
		{Name: "main", VolumeMounts: []corev1.VolumeMount{{Name: "v"}}, SecurityContext: level("s0")},
		{Name: "side", SecurityContext: level("s1")},
	}
	return s
}

func level(of string) *corev1.SecurityContext {
	return &corev1.SecurityContext{SELinuxOptions: &corev1.SELinuxOptions{Level: of}}
}

// mixed makes a second container, which wants another label, mount the volume.
func (s *scene) mixed() *scene {
	s.pod.Spec.Containers[1].VolumeMounts = s.pod.Spec.Containers[0].VolumeMounts
	return s
}

func (s *scene) world() *reconciletest.World {
	return reconciletest.NewWorld().Put(kinds.CSIDrivers.Kind, s.driver).Put(kinds.PersistentVolumes.Kind, s.pv).
		Put(kinds.PersistentVolumeClaims.Kind, s.claim).Put(kinds.Pods.Kind, s.pod)
}

// The conditions under which a pod uses a volume. If it is unknown what is behind a pod's volume,
// the pod gets no Event about it either.
func TestWhoUsesAVolume(t *testing.T) {
	own := func(s *scene) {
		s.pod.Spec.Volumes[0].VolumeSource = corev1.VolumeSource{Ephemeral: &corev1.EphemeralVolumeSource{}}
		s.claim.Name, s.pv.Spec.ClaimRef.Name = "web-v", "web-v"
	}
	for what, c := range map[string]struct {
		edit        func(s *scene)
		uses, found bool
	}{
		"as it is":    {func(*scene) {}, true, true},
		"not mounted": {func(s *scene) { s.pod.Spec.Containers[0].VolumeMounts = nil }, false, true},
		"as a device": {func(s *scene) {
			s.pod.Spec.Containers[0].VolumeMounts, s.pod.Spec.Containers[0].VolumeDevices = nil, []corev1.VolumeDevice{{Name: "v"}}
		}, false, true},
		"failed":                  {func(s *scene) { s.pod.Status.Phase = corev1.PodFailed }, false, true},
		"succeeded":               {func(s *scene) { s.pod.Status.Phase = corev1.PodSucceeded }, false, true},
		"going":                   {func(s *scene) { s.pod.DeletionTimestamp = &metav1.Time{Time: now} }, true, true},
		"another claim":           {func(s *scene) { s.pod.Spec.Volumes[0].PersistentVolumeClaim.ClaimName = "other" }, false, false},
		"claim elsewhere":         {func(s *scene) { s.claim.Namespace = "bank" }, false, false},
		"claim not bound":         {func(s *scene) { s.claim.Status.Phase = corev1.ClaimPending }, false, false},
		"claim of another volume": {func(s *scene) { s.claim.Spec.VolumeName = "pv-2" }, false, false},
		"claim made anew":         {func(s *scene) { s.claim.UID = "c2" }, false, false},
		"volume free":             {func(s *scene) { s.pv.Spec.ClaimRef = nil }, false, false},
		"another volume":          {func(s *scene) { s.pv.Spec.CSI.VolumeHandle = "vol-2" }, false, true},
		"its own claim": {func(s *scene) {
			own(s)
			reconciletest.OwnedBy[*corev1.PersistentVolumeClaim](kinds.Pods.Kind, s.pod)(s.claim)
		}, true, true},
		"the own claim of another": {own, false, false},
	} {
		s := newScene()
		c.edit(s)
		v, ok := observe(s.world(), disk)
		if used := len(v.Uses) == 1 && v.Uses[0].Pod == s.pod && slices.Equal(v.Uses[0].Volumes, []string{"v"}); used != c.uses || ok != c.uses {
			t.Errorf("%s: of the volume it sees %+v, %v", what, v.Uses, ok)
		}
		if v, ok := observe(s.world(), web); !ok || v.Pod != s.pod || (len(v.Found) == 1) != c.found {
			t.Errorf("%s: of the pod it sees %v, %v", what, v.Found, ok)
		}
	}
	if _, ok := observe(newScene().world(), events.Key{Namespace: "shop", Name: "other"}); ok {
		t.Error("observe finds a pod that is not there")
	}
}

// A volume with several PersistentVolumes, claimed in two namespaces, counts as one volume. A pod
// with two of them counts once.
func TestOneVolumeOfTwoClaims(t *testing.T) {
	s := newScene()
	world := s.world()
	for _, namespace := range []string{"bank", "shop"} {
		twin := newScene()
		twin.pv.Name, twin.claim.Namespace, twin.claim.Name, twin.claim.UID = "twin-"+namespace, namespace, "twin", "t"
		twin.pv.Spec.ClaimRef = &corev1.ObjectReference{Namespace: namespace, Name: "twin", UID: "t"}
		twin.claim.Spec.VolumeName = twin.pv.Name
		world.Put(kinds.PersistentVolumes.Kind, twin.pv).Put(kinds.PersistentVolumeClaims.Kind, twin.claim)
		twin.pod.Namespace, twin.pod.Spec.Volumes[0].PersistentVolumeClaim.ClaimName = namespace, "twin"
		if namespace == "bank" {
			world.Put(kinds.Pods.Kind, twin.pod)
		}
	}
	second := s.pod.Spec.Volumes[0].DeepCopy()
	second.Name, second.PersistentVolumeClaim.ClaimName = "w", "twin"
	s.pod.Spec.Volumes = append(s.pod.Spec.Volumes, *second)
	s.pod.Spec.Containers[0].VolumeMounts = append(s.pod.Spec.Containers[0].VolumeMounts, corev1.VolumeMount{Name: "w"})
	v, _ := observe(world, disk)
	if len(v.Uses) != 2 || !slices.Equal(v.Uses[0].Volumes, []string{"v", "w"}) || v.Uses[1].Pod.Namespace != "bank" {
		t.Errorf("the view has %+v", v.Uses)
	}
}

// The volumes that nodes may mount with labels, and the nodes' names for them.
func TestPlugins(t *testing.T) {
	lun := int32(3)
	portal := &corev1.ISCSIPersistentVolumeSource{TargetPortal: "10.0.0.1:3260", IQN: "iqn.2030-01.com.example:disk", Lun: 2}
	for name, c := range map[string]struct {
		source corev1.PersistentVolumeSource
		inline corev1.VolumeSource
		driver string
	}{
		"kubernetes.io/iscsi/10.0.0.1:3260:iqn.2030-01.com.example:disk:2": {
			corev1.PersistentVolumeSource{ISCSI: portal},
			corev1.VolumeSource{ISCSI: &corev1.ISCSIVolumeSource{TargetPortal: portal.TargetPortal, IQN: portal.IQN, Lun: 2}}, "",
		},
		"kubernetes.io/fc/[a b]:3": {
			corev1.PersistentVolumeSource{FC: &corev1.FCVolumeSource{TargetWWNs: []string{"a", "b"}, Lun: &lun, WWIDs: []string{"c"}}},
			corev1.VolumeSource{FC: &corev1.FCVolumeSource{TargetWWNs: []string{"a", "b"}, Lun: &lun}}, "",
		},
		"kubernetes.io/fc/[c d]": {
			corev1.PersistentVolumeSource{FC: &corev1.FCVolumeSource{TargetWWNs: []string{"a", "b"}, WWIDs: []string{"c", "d"}}},
			corev1.VolumeSource{FC: &corev1.FCVolumeSource{WWIDs: []string{"c", "d"}}}, "",
		},
		"kubernetes.io/csi/ebs.csi.aws.com^vol-1": {
			corev1.PersistentVolumeSource{AWSElasticBlockStore: &corev1.AWSElasticBlockStoreVolumeSource{VolumeID: "aws://us-east-1/vol-1"}},
			corev1.VolumeSource{AWSElasticBlockStore: &corev1.AWSElasticBlockStoreVolumeSource{VolumeID: "aws://us-east-1/vol-1"}}, "ebs.csi.aws.com",
		},
		"": { // nodes mount these without labels, or for one pod alone
			corev1.PersistentVolumeSource{NFS: &corev1.NFSVolumeSource{Server: "s", Path: "/"}},
			corev1.VolumeSource{CSI: &corev1.CSIVolumeSource{Driver: "d"}}, "",
		},
	} {
		s := newScene()
		s.driver.Name, s.pv.Spec.PersistentVolumeSource = c.driver, c.source
		pod := s.pod.DeepCopy()
		pod.Namespace, pod.UID, pod.Spec.Volumes[0].VolumeSource = "bank", "q", c.inline
		world := s.world().Put(kinds.Pods.Kind, pod)
		key := events.Key{Name: name}
		v, ok := observe(world, key)
		if named := name != ""; ok != named || v.Mounts != named || named && (len(v.Uses) != 2 || v.Uses[1].Pod != pod) {
			t.Errorf("%s: the view has %+v, found: %v", name, v, ok)
		}
		for _, p := range []*corev1.Pod{s.pod, pod} {
			want := []events.Key{key}
			if name == "" {
				want = nil
			}
			if got := world.Keys(Controller, kinds.Pods.Kind, nil, p); !slices.Equal(got, want) {
				t.Errorf("%s: a pod makes it the turn of %v", name, got)
			}
		}
		if name == "" {
			continue
		}
		if c.driver == "" { // these plugins always can
			continue
		}
		s.driver.Name = "another"
		if v, _ := observe(s.world().Put(kinds.Pods.Kind, pod), key); v.Mounts {
			t.Errorf("%s: without its driver nodes mount it with a label", name)
		}
	}
	if v := channel(&corev1.FCVolumeSource{TargetWWNs: []string{"a"}}); v != (volume{}) {
		t.Errorf("Fibre Channel without a number is %+v", v)
	}
}

// A volume that the translation for its CSI driver cannot read is unknown.
func TestVolumesThatCannotBeTranslated(t *testing.T) {
	s := newScene()
	s.pv.Spec.PersistentVolumeSource = corev1.PersistentVolumeSource{AWSElasticBlockStore: &corev1.AWSElasticBlockStoreVolumeSource{VolumeID: "aws://"}}
	if v, ok := volumeOf(s.pv); ok {
		t.Errorf("the volume is %+v", v)
	}
	s.pod.Spec.Volumes[0].VolumeSource = corev1.VolumeSource{AWSElasticBlockStore: s.pv.Spec.AWSElasticBlockStore}
	if v, _ := observe(s.world(), web); len(v.Found) > 0 {
		t.Errorf("of the pod the view has the volumes %v, want none", v.Found)
	}
}

// A name that is too long for a key is cut. Another name with the same beginning gives another key.
func TestLongNames(t *testing.T) {
	long := func(end string) events.Key { return volume{name: strings.Repeat("ä", 4000) + end}.key() }
	if a, b := long("a"), long("b"); a == b || len(a.Name) > 253 || strings.ToValidUTF8(a.Name, "?") != a.Name {
		t.Errorf("the keys are %q and %q", a.Name, b.Name)
	}
	if k := (volume{name: strings.Repeat("x", 253)}).key(); k.Name != strings.Repeat("x", 253) {
		t.Errorf("a name that fits has the key %q, want itself", k.Name)
	}
	s := newScene()
	s.pv.Spec.CSI.VolumeHandle = strings.Repeat("h", 4000)
	keys := s.world().Keys(Controller, kinds.Pods.Kind, nil, s.pod)
	if len(keys) != 1 {
		t.Fatalf("the change asks for turns of %v", keys)
	}
	if v, ok := observe(s.world(), keys[0]); !ok || len(v.Uses) != 1 || !v.Mounts {
		t.Errorf("the view is %+v, found: %v", v, ok)
	}
}

// Events that were recorded for a pod do not count for another pod of its name.
func TestWhatWasTold(t *testing.T) {
	s := newScene().mixed()
	for uid, want := range map[string]int{"p": 0, "before": 1} {
		world := s.world()
		d, _ := Controller.Ask(world, web, now)
		o := events.Outcome{Key: web, Lane: events.LaneStatus, UID: "p", At: now, Results: []events.Result{{Answer: &events.Answer{Note: d.Commands[0].Note}}}}
		if uid == "before" {
			o.UID = "before"
		}
		if d, _ := Controller.Ask(world.Remember(o), web, now); len(d.Commands) != want {
			t.Errorf("when %s was told, %d things are", uid, len(d.Commands))
		}
	}
	other := s.pod.DeepCopy()
	other.Name, other.UID = "other", "o"
	other.Spec.Containers = []corev1.Container{{VolumeMounts: []corev1.VolumeMount{{Name: "v"}}, SecurityContext: level("s9")}}
	s.pod.Spec.Containers = s.pod.Spec.Containers[:1]
	world := s.world().Put(kinds.Pods.Kind, other)
	d, _ := Controller.Ask(world, disk, now)
	if len(d.Commands) != 2 {
		t.Fatalf("the decision has the commands %v, want two Events", d.Commands)
	}
	world.Remember(events.Outcome{Key: disk, Lane: events.LaneStatus, At: now, Results: []events.Result{{Answer: &events.Answer{Note: d.Commands[0].Note}}}})
	if d, _ := Controller.Ask(world, disk, now); len(d.Commands) > 0 || len(d.Figures) != 2 {
		t.Errorf("the decision has the commands %v again, and the figures %v", d.Commands, d.Figures)
	}
}

func TestWhoseTurn(t *testing.T) {
	plain, mixed := []events.Key{disk}, []events.Key{disk, web}
	edited := func(edit func(s *scene)) *scene {
		s := newScene()
		edit(s)
		return s
	}
	is, same := newScene(), newScene()
	ended := edited(func(s *scene) { s.pod.Status.Phase = corev1.PodSucceeded })
	again := edited(func(s *scene) { s.pod.UID = "p2" })
	debugged := edited(func(s *scene) { s.pod.Spec.EphemeralContainers = []corev1.EphemeralContainer{{}} })
	pending := edited(func(s *scene) { s.claim.Status.Phase = corev1.ClaimPending })
	free := edited(func(s *scene) { s.pv.Spec.ClaimRef = nil })
	others := edited(func(s *scene) { s.pv.Spec.ClaimRef.UID = "c2" })
	renamed := edited(func(s *scene) { s.pv.Spec.CSI.VolumeHandle = "vol-2" })
	without := edited(func(s *scene) { s.driver.Spec.SELinuxMount = nil })
	never := edited(func(s *scene) { s.driver.Spec.SELinuxMount = new(false) })
	for what, c := range map[string]struct {
		kind     kinds.Kind
		was, now metav1.Object
		want     []events.Key // if the pod's containers agree
		own      bool         // if they disagree, the pod's own key is added
	}{
		"a pod comes":             {kinds.Pods.Kind, nil, is.pod, plain, true},
		"a pod is seen again":     {kinds.Pods.Kind, same.pod, is.pod, nil, false},
		"a pod ends":              {kinds.Pods.Kind, is.pod, ended.pod, plain, false},
		"a pod goes":              {kinds.Pods.Kind, is.pod, nil, plain, false},
		"a pod is made anew":      {kinds.Pods.Kind, again.pod, is.pod, plain, true},
		"a pod is debugged":       {kinds.Pods.Kind, debugged.pod, is.pod, plain, true},
		"a claim comes":           {kinds.PersistentVolumeClaims.Kind, nil, is.claim, plain, true},
		"a claim is bound":        {kinds.PersistentVolumeClaims.Kind, pending.claim, is.claim, plain, true},
		"a claim is seen again":   {kinds.PersistentVolumeClaims.Kind, same.claim, is.claim, nil, false},
		"a claim goes":            {kinds.PersistentVolumeClaims.Kind, is.claim, nil, plain, true},
		"a claim is not bound":    {kinds.PersistentVolumeClaims.Kind, nil, pending.claim, nil, false},
		"a volume comes":          {kinds.PersistentVolumes.Kind, nil, is.pv, plain, true},
		"a volume is bound":       {kinds.PersistentVolumes.Kind, free.pv, is.pv, plain, true},
		"a volume is free":        {kinds.PersistentVolumes.Kind, is.pv, free.pv, plain, true},
		"a volume is another's":   {kinds.PersistentVolumes.Kind, is.pv, others.pv, plain, true},
		"a volume is seen again":  {kinds.PersistentVolumes.Kind, same.pv, is.pv, nil, false},
		"a volume goes":           {kinds.PersistentVolumes.Kind, is.pv, nil, plain, true},
		"a volume is not bound":   {kinds.PersistentVolumes.Kind, nil, free.pv, nil, false},
		"a driver comes":          {kinds.CSIDrivers.Kind, nil, is.driver, plain, true},
		"a driver goes":           {kinds.CSIDrivers.Kind, is.driver, nil, plain, true},
		"a driver mounts":         {kinds.CSIDrivers.Kind, never.driver, is.driver, plain, true},
		"a driver never does":     {kinds.CSIDrivers.Kind, nil, without.driver, nil, false},
		"a driver still does not": {kinds.CSIDrivers.Kind, without.driver, never.driver, nil, false},
		"a driver is seen again":  {kinds.CSIDrivers.Kind, same.driver, is.driver, nil, false},
	} {
		if got := is.world().Keys(Controller, c.kind, c.was, c.now); !slices.Equal(got, c.want) {
			t.Errorf("%s: the change asks for turns of %v", what, got)
		}
		s := newScene().mixed()
		now := c.now
		if now == metav1.Object(is.pod) {
			now = s.pod
		}
		want := c.want
		if c.own {
			want = mixed
		}
		if got := s.world().Keys(Controller, c.kind, c.was, now); !slices.Equal(got, want) {
			t.Errorf("%s, and its containers disagree: it is the turn of %v", what, got)
		}
	}
	if got := is.world().Keys(Controller, kinds.PersistentVolumes.Kind, renamed.pv, is.pv); len(got) != 2 {
		t.Errorf("a volume that is another one makes it the turn of %v", got)
	}
}

// A volume that no pod uses has no turn.
func TestWhoseTurnWithoutUsers(t *testing.T) {
	s := newScene()
	s.pod.Spec.Volumes[0].PersistentVolumeClaim.ClaimName = "other"
	world := s.world()
	for kind, obj := range map[*kinds.Kind]metav1.Object{
		&kinds.PersistentVolumes.Kind: s.pv, &kinds.PersistentVolumeClaims.Kind: s.claim, &kinds.CSIDrivers.Kind: s.driver, &kinds.Pods.Kind: s.pod,
	} {
		if got := world.Keys(Controller, *kind, nil, obj); len(got) > 0 {
			t.Errorf("%s makes it the turn of %v", kind.Name, got)
		}
	}
}

// A CSI driver that has taken over an in-tree plugin has volumes that pods name without a claim.
func TestWhoseTurnOfADriverThatHasTakenOver(t *testing.T) {
	s := newScene()
	s.driver.Name = "ebs.csi.aws.com"
	s.pod.Spec.Volumes[0].VolumeSource = corev1.VolumeSource{AWSElasticBlockStore: &corev1.AWSElasticBlockStoreVolumeSource{VolumeID: "vol-1"}}
	want := []events.Key{{Name: "kubernetes.io/csi/ebs.csi.aws.com^vol-1"}}
	if got := s.world().Keys(Controller, kinds.CSIDrivers.Kind, nil, s.driver); !slices.Equal(got, want) {
		t.Errorf("the change asks for turns of %v", got)
	}
	if d, ok := Controller.Ask(s.world(), want[0], now); !ok || len(d.Commands) > 0 {
		t.Errorf("the decision is %+v, found: %v", d, ok)
	}
}
