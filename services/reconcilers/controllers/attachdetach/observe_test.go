package attachdetach

import (
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/services/reconcilers/kube/csi"
	"github.com/millrace/millrace/services/reconcilers/reconcile"
	"github.com/millrace/millrace/services/reconcilers/reconciletest"
)

// scene has a volume, the claim that it is bound to, a pod that uses it on a node, and
// its attachment there.
type scene struct {
	pv    *corev1.PersistentVolume
	claim *corev1.PersistentVolumeClaim
	pod   *corev1.Pod
	node  *corev1.Node
	at    *storagev1.VolumeAttachment
}

func newScene() *scene {
	name, data := "pv-1", "data"
	s := &scene{
		pv:    &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: name, UID: "v"}},
		claim: &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: data, UID: "c"}},
		pod:   &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web", UID: "p"}},
		node:  &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node-1", UID: "nd", Annotations: map[string]string{managed: "true"}}},
		at:    &storagev1.VolumeAttachment{ObjectMeta: metav1.ObjectMeta{Name: volume.Attachment("node-1"), UID: "a"}},
	}
	s.pv.Spec.ClaimRef = &corev1.ObjectReference{Namespace: "shop", Name: data, UID: "c"}
	s.pv.Spec.CSI = &corev1.CSIPersistentVolumeSource{Driver: volume.Driver, VolumeHandle: volume.Handle}
	s.claim.Spec.VolumeName, s.claim.Status.Phase = name, corev1.ClaimBound
	s.pod.Spec.NodeName = "node-1"
	s.pod.Spec.Volumes = []corev1.Volume{{Name: "v", VolumeSource: corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: data}}}}
	s.at.Spec = storagev1.VolumeAttachmentSpec{Attacher: volume.Driver, NodeName: "node-1", Source: storagev1.VolumeAttachmentSource{PersistentVolumeName: &name}}
	return s
}

func (s *scene) world() *reconciletest.World {
	return reconciletest.NewWorld(kinds.CSIDrivers.Kind).Put(kinds.PersistentVolumes.Kind, s.pv).Put(kinds.PersistentVolumeClaims.Kind, s.claim).
		Put(kinds.Pods.Kind, s.pod).Put(kinds.Nodes.Kind, s.node).Put(kinds.VolumeAttachments.Kind, s.at)
}

// The conditions under which a pod wants a volume.
func TestWhoWantsAVolume(t *testing.T) {
	running := corev1.ContainerStatus{State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}}
	ended := corev1.ContainerStatus{State: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{}}}
	deleted := &metav1.Time{Time: now}
	for what, c := range map[string]struct {
		edit   func(s *scene)
		wanted bool
	}{
		"as it is":  {func(*scene) {}, true},
		"no node":   {func(s *scene) { s.pod.Spec.NodeName = "" }, false},
		"failed":    {func(s *scene) { s.pod.Status.Phase = corev1.PodFailed }, false},
		"succeeded": {func(s *scene) { s.pod.Status.Phase = corev1.PodSucceeded }, false},
		"deleted and running": {func(s *scene) {
			s.pod.DeletionTimestamp, s.pod.Status.ContainerStatuses = deleted, []corev1.ContainerStatus{ended, running}
		}, true},
		"deleted, sidecar running": {func(s *scene) {
			s.pod.DeletionTimestamp, s.pod.Status.InitContainerStatuses = deleted, []corev1.ContainerStatus{running}
		}, true},
		"deleted, debugged": {func(s *scene) {
			s.pod.DeletionTimestamp, s.pod.Status.EphemeralContainerStatuses = deleted, []corev1.ContainerStatus{running}
		}, true},
		"deleted and ended": {func(s *scene) {
			s.pod.DeletionTimestamp, s.pod.Status.ContainerStatuses = deleted, []corev1.ContainerStatus{ended}
		}, false},
		"another claim":           {func(s *scene) { s.pod.Spec.Volumes[0].PersistentVolumeClaim.ClaimName = "other" }, false},
		"claim not bound":         {func(s *scene) { s.claim.Status.Phase = corev1.ClaimPending }, false},
		"claim of another volume": {func(s *scene) { s.claim.Spec.VolumeName = "pv-2" }, false},
		"claim made anew":         {func(s *scene) { s.claim.UID = "c2" }, false},
		"volume free":             {func(s *scene) { s.pv.Spec.ClaimRef = nil }, false},
		"its own claim": {func(s *scene) {
			s.pod.Spec.Volumes[0].VolumeSource = corev1.VolumeSource{Ephemeral: &corev1.EphemeralVolumeSource{}}
			s.claim.Name, s.pv.Spec.ClaimRef.Name = "web-v", "web-v"
			reconciletest.OwnedBy[*corev1.PersistentVolumeClaim](kinds.Pods.Kind, s.pod)(s.claim)
		}, true},
		"the own claim of another": {func(s *scene) {
			s.pod.Spec.Volumes[0].VolumeSource = corev1.VolumeSource{Ephemeral: &corev1.EphemeralVolumeSource{}}
			s.claim.Name, s.pv.Spec.ClaimRef.Name = "web-v", "web-v"
		}, false},
	} {
		s := newScene()
		c.edit(s)
		if v, ok := observe(s.world(), keyOfVolume("pv-1")); !ok || (len(v.Pods) == 1) != c.wanted || !slices.Equal(v.Attachments, []*storagev1.VolumeAttachment{s.at}) {
			t.Errorf("%s: of the volume it sees %+v, %v", what, v, ok)
		}
		if v, ok := observe(s.world(), keyOfNode("node-1")); !ok || len(v.Held) != 1 || v.Held[0].Wanted != c.wanted || v.Held[0].Volume != volume.Name() {
			t.Errorf("%s: of the node it sees %+v, %v", what, v, ok)
		}
	}
}

func TestDriversThatAttachNothing(t *testing.T) {
	s, no := newScene(), false
	driver := &storagev1.CSIDriver{ObjectMeta: metav1.ObjectMeta{Name: volume.Driver}, Spec: storagev1.CSIDriverSpec{AttachRequired: &no}}
	world := s.world().Put(kinds.CSIDrivers.Kind, driver)
	if v, ok := observe(world, keyOfVolume("pv-1")); !ok || len(v.Pods) > 0 {
		t.Errorf("of the volume the view has %+v, found: %v", v, ok)
	}
	if v, _ := observe(world, keyOfNode("node-1")); len(v.Held) != 1 || v.Held[0].Wanted {
		t.Errorf("of the node the view has %+v", v)
	}
	both := []events.Key{keyOfVolume("pv-1"), keyOfNode("node-1")}
	if keys := world.Keys(Controller, kinds.CSIDrivers.Kind, nil, driver); !slices.Equal(keys, both) {
		t.Errorf("such a driver makes it the turn of %v", keys)
	}
	other := &storagev1.CSIDriver{ObjectMeta: driver.ObjectMeta}
	if keys := world.Keys(Controller, kinds.CSIDrivers.Kind, nil, other); len(keys) > 0 {
		t.Errorf("a driver that attaches makes it the turn of %v", keys)
	}
	if keys := world.Keys(Controller, kinds.CSIDrivers.Kind, driver, nil); !slices.Equal(keys, both) {
		t.Errorf("such a driver that goes makes it the turn of %v", keys)
	}
}

// An attachment with another form of name, or without a volume, belongs to another program.
func TestAttachmentsOfOthers(t *testing.T) {
	for what, c := range map[string]struct {
		edit   func(s *scene)
		wanted []bool
	}{
		"another name":          {func(s *scene) { s.at.Name = "by-hand" }, nil},
		"no volume":             {func(s *scene) { s.at.Spec.Source.PersistentVolumeName = nil }, nil},
		"a volume of no driver": {func(s *scene) { s.pv.Spec.CSI = nil }, nil},
		"volume gone":           {func(s *scene) { s.pv.Name = "pv-2" }, nil},
		"gone and in use": {func(s *scene) {
			s.pv.Name, s.node.Status.VolumesInUse = "pv-2", []corev1.UniqueVolumeName{"kubernetes.io/csi/d^x", volume.Name()}
		}, []bool{false}},
		"gone and listed": {func(s *scene) {
			s.pv.Name, s.node.Status.VolumesAttached = "pv-2", []corev1.AttachedVolume{{Name: volume.Name()}}
		}, []bool{false}},
		"without a claim": {func(s *scene) {
			s.at.Spec.Source = storagev1.VolumeAttachmentSource{InlineVolumeSpec: &s.pv.Spec}
		}, []bool{true}},
		"another node": {func(s *scene) { s.at.Spec.NodeName = "node-2" }, nil},
	} {
		s := newScene()
		c.edit(s)
		v, ok := observe(s.world(), keyOfNode("node-1"))
		var wanted []bool
		for _, h := range v.Held {
			wanted = append(wanted, h.Wanted)
		}
		if !ok || !slices.Equal(wanted, c.wanted) {
			t.Errorf("%s: the view has %+v, found: %v", what, v.Held, ok)
		}
	}
}

func TestNodes(t *testing.T) {
	s := newScene()
	s.node.Annotations = nil
	if v, ok := observe(s.world(), keyOfVolume("pv-1")); !ok || len(v.Pods) > 0 {
		t.Errorf("of a pod whose kubelet attaches by itself the view has %+v, found: %v", v, ok)
	}
	s.node.Name = "node-2"
	if v, ok := observe(s.world(), keyOfNode("node-1")); !ok || v.Node != nil || v.Name != "node-1" || len(v.Held) != 1 {
		t.Errorf("of a node that is gone the view has %+v, found: %v", v, ok)
	}
	if v, ok := observe(s.world(), keyOfVolume("pv-1")); !ok || len(v.Pods) > 0 {
		t.Errorf("of a pod whose node is gone the view has %+v, found: %v", v, ok)
	}
	if _, ok := observe(s.world(), keyOfNode("node-3")); ok {
		t.Error("observe finds a node that is gone, with nothing attached")
	}
	if _, ok := observe(s.world(), keyOfVolume("pv-2")); ok {
		t.Error("observe finds a volume that is not there")
	}
}

// A node that is deleted, or reports that it uses the volume, is busy.
func TestBusyNodes(t *testing.T) {
	for what, c := range map[string]struct {
		edit func(s *scene)
		busy []string
	}{
		"idle":   {func(*scene) {}, nil},
		"in use": {func(s *scene) { s.node.Status.VolumesInUse = []corev1.UniqueVolumeName{volume.Name()} }, []string{"node-1"}},
		"in use and out of service": {func(s *scene) {
			s.node.Status.VolumesInUse = []corev1.UniqueVolumeName{volume.Name()}
			s.node.Spec.Taints = []corev1.Taint{{Key: corev1.TaintNodeOutOfService}}
		}, nil},
		"gone": {func(s *scene) { s.node.Name = "node-2" }, []string{"node-1"}},
	} {
		s := newScene()
		c.edit(s)
		if v, _ := observe(s.world(), keyOfVolume("pv-1")); !slices.Equal(v.Busy, c.busy) {
			t.Errorf("%s: the busy nodes are %v", what, v.Busy)
		}
	}
}

// The view has the note of the last report, and no time later than the turn that wrote it.
func TestMemory(t *testing.T) {
	s := newScene()
	of := func(k events.Key, uid types.UID, n note) events.Outcome {
		return events.Outcome{Key: k, Lane: events.LaneStatus, UID: uid, Decided: now, Results: []events.Result{{}, {Answer: &events.Answer{Note: reconcile.Body(n)}}}}
	}
	v, _ := observe(s.world().Remember(of(keyOfVolume("pv-1"), "v", note{Told: []string{"p multiple"}})), keyOfVolume("pv-1"))
	if !slices.Equal(v.Told, []string{"p multiple"}) {
		t.Errorf("of the volume the view remembers %v", v.Told)
	}
	since := map[types.UID]time.Time{"a": now.Add(-time.Minute), "b": now.Add(time.Hour)}
	v, _ = observe(s.world().Remember(of(keyOfNode("node-1"), "", note{Since: since})), keyOfNode("node-1"))
	if !v.Since["a"].Equal(now.Add(-time.Minute)) || !v.Since["b"].Equal(now) {
		t.Errorf("of the node the view remembers %v", v.Since)
	}
}

func TestKeys(t *testing.T) {
	s := newScene()
	world := s.world()
	pv, node := keyOfVolume("pv-1"), keyOfNode("node-1")
	pending, ended, unscheduled := newScene().claim, newScene().pod, newScene().pod
	pending.Status.Phase, ended.Status.Phase, unscheduled.Spec.NodeName = corev1.ClaimPending, corev1.PodSucceeded, ""
	same, busy, alone := newScene(), newScene().node, newScene().node
	busy.Status.VolumesInUse, alone.Annotations = []corev1.UniqueVolumeName{volume.Name()}, nil
	for what, c := range map[string]struct {
		kind     kinds.Kind
		was, now metav1.Object
		want     []events.Key
	}{
		"a volume":              {kinds.PersistentVolumes.Kind, nil, s.pv, []events.Key{pv, node}},
		"a volume that goes":    {kinds.PersistentVolumes.Kind, s.pv, nil, []events.Key{pv, node}},
		"a claim":               {kinds.PersistentVolumeClaims.Kind, nil, s.claim, []events.Key{pv, node}},
		"a claim that is bound": {kinds.PersistentVolumeClaims.Kind, pending, s.claim, []events.Key{pv, node}},
		"a claim that changes":  {kinds.PersistentVolumeClaims.Kind, s.claim, same.claim, nil},
		"a claim that pends":    {kinds.PersistentVolumeClaims.Kind, nil, pending, nil},
		"a pod":                 {kinds.Pods.Kind, nil, s.pod, []events.Key{node, pv}},
		"a pod that ends":       {kinds.Pods.Kind, s.pod, ended, []events.Key{node, pv}},
		"a pod that goes":       {kinds.Pods.Kind, s.pod, nil, []events.Key{node, pv}},
		"a pod gets a node":     {kinds.Pods.Kind, unscheduled, s.pod, []events.Key{node, pv}},
		"a pod without a node":  {kinds.Pods.Kind, nil, unscheduled, nil},
		"a pod that changes":    {kinds.Pods.Kind, s.pod, same.pod, nil},
		"a node":                {kinds.Nodes.Kind, nil, s.node, []events.Key{node, pv}},
		"a node that goes":      {kinds.Nodes.Kind, s.node, nil, []events.Key{node, pv}},
		"a node that changes":   {kinds.Nodes.Kind, s.node, same.node, nil},
		"a node in use":         {kinds.Nodes.Kind, s.node, busy, []events.Key{node}},
		"a node by itself":      {kinds.Nodes.Kind, s.node, alone, []events.Key{node, pv}},
		"an attachment":         {kinds.VolumeAttachments.Kind, nil, s.at, []events.Key{pv, node}},
		"one that goes":         {kinds.VolumeAttachments.Kind, s.at, nil, []events.Key{pv, node}},
	} {
		if got := world.Keys(Controller, c.kind, c.was, c.now); !slices.Equal(got, c.want) {
			t.Errorf("%s makes it the turn of %v, want %v", what, got, c.want)
		}
	}
}

// If a node and its volume are both deleted, only the note shows that the attachment is
// this controller's, so that it is deleted in the end.
func TestAnAttachmentOfANodeAndAVolumeThatAreGone(t *testing.T) {
	s := newScene()
	world := reconciletest.NewWorld(kinds.CSIDrivers.Kind, kinds.PersistentVolumes.Kind, kinds.PersistentVolumeClaims.Kind, kinds.Pods.Kind, kinds.Nodes.Kind).
		Put(kinds.VolumeAttachments.Kind, s.at)
	key := keyOfNode("node-1")
	if v, _ := observe(world, key); len(v.Held) != 0 {
		t.Errorf("of an attachment that nothing is known of the view has %+v", v.Held)
	}
	told := events.Outcome{Key: key, Lane: events.LaneStatus, Decided: now, Results: []events.Result{{Answer: &events.Answer{
		Note: reconcile.Body(note{Since: map[types.UID]time.Time{"a": now.Add(-patience)}}),
	}}}}
	v, _ := observe(world.Remember(told), key)
	if len(v.Held) != 1 || v.Held[0].Attachment.Name != s.at.Name {
		t.Fatalf("the view has %+v", v.Held)
	}
	if d := (Config{}).decide(v, now); len(d.Commands) != 1 || d.Commands[0].Verb != events.VerbDelete || d.Commands[0].Name != s.at.Name {
		t.Errorf("after six minutes the decision is %+v", d)
	}
}

// The time until the driver has attached a volume, or has reported a failure.
func TestHowLongADriverTook(t *testing.T) {
	asked := now.Add(-2500 * time.Millisecond)
	failed := &storagev1.VolumeError{Time: metav1.NewTime(now.Add(-2 * time.Second)), Message: "no"}
	for what, c := range map[string]struct {
		edit   func(s *scene)
		uid    types.UID
		status events.Status
		labels []string
		took   float64
	}{
		"it is attached":              {func(s *scene) { s.at.Status.Attached = true }, "a", events.Applied, []string{"success", "false"}, 2.5},
		"it could not be":             {func(s *scene) { s.at.Status.AttachError = failed }, "a", events.Applied, []string{"fail-unknown", "false"}, 0.5},
		"it is not attached yet":      {func(*scene) {}, "a", events.Applied, nil, 0},
		"another turn has asked":      {func(s *scene) { s.at.Status.Attached = true }, "b", events.Applied, nil, 0},
		"a turn that made nothing":    {func(s *scene) { s.at.Status.Attached = true }, "a", events.Conflict, nil, 0},
		"it was attached before that": {func(s *scene) { s.at.Status.Attached, s.pod.Status.Phase = true, corev1.PodRunning }, "a", events.Applied, nil, 0},
		"a driver that has taken over": {func(s *scene) {
			s.at.Status.Attached, s.pv.Spec.CSI = true, nil
			s.pv.Spec.AWSElasticBlockStore = &corev1.AWSElasticBlockStoreVolumeSource{VolumeID: "vol-1"}
			of, _ := csi.VolumeOf(s.pv)
			s.at.Name = of.Attachment("node-1")
		}, "a", events.Applied, []string{"success", "true"}, 2.5},
	} {
		s := newScene()
		s.at.CreationTimestamp = metav1.NewTime(now)
		c.edit(s)
		key := keyOfVolume(s.pv.Name)
		world := s.world()
		world.Remember(events.Outcome{Key: key, Lane: events.LaneWrite, UID: s.pv.UID, Decided: asked, At: asked, Results: []events.Result{
			{Ref: events.Ref{Kind: kinds.VolumeAttachments.Name, Name: s.at.Name}, UID: c.uid, Status: c.status},
		}})
		look := func() (found []reconcile.Figure, d reconcile.Decision) {
			d, _ = Controller.Ask(world, key, now)
			for _, f := range d.Figures {
				if f.Metric == took {
					found = append(found, f)
				}
			}
			return found, d
		}
		found, d := look()
		switch {
		case c.labels == nil && len(found) > 0:
			t.Errorf("%s: the measurements are %+v", what, found)
		case c.labels == nil:
			continue
		case len(found) != 1 || found[0].Value != c.took || found[0].Labels[1] != "volume_attach" || !slices.Equal(found[0].Labels[2:], c.labels):
			t.Errorf("%s: the measurements are %+v", what, found)
		}
		world.Remember(events.Outcome{Key: key, Lane: events.LaneStatus, UID: s.pv.UID, At: now, Results: []events.Result{{Status: events.Applied, Answer: &events.Answer{Note: d.Commands[0].Note}}}})
		if again, _ := look(); len(again) > 0 {
			t.Errorf("%s: the effect is measured again: %+v", what, again)
		}
	}
}

// If a volume is deleted and the node's status no longer lists it, only the note shows
// that the attachment is this controller's. It is deleted all the same.
func TestAnAttachmentThatIsListedNoMore(t *testing.T) {
	s := newScene()
	s.node.Status.VolumesAttached = []corev1.AttachedVolume{{Name: volume.Name()}}
	s.at.Status.Attached = true
	world := reconciletest.NewWorld(kinds.CSIDrivers.Kind, kinds.PersistentVolumes.Kind, kinds.PersistentVolumeClaims.Kind, kinds.Pods.Kind).
		Put(kinds.Nodes.Kind, s.node).Put(kinds.VolumeAttachments.Kind, s.at)
	key := keyOfNode("node-1")
	v, _ := observe(world, key)
	d := (Config{}).decide(v, now)
	if len(d.Commands) != 1 || d.Commands[0].Subresource != "status" {
		t.Fatalf("of what is listed and wanted by no pod the decision is %+v", d)
	}
	unlisted := newScene().node
	world = reconciletest.NewWorld(kinds.CSIDrivers.Kind, kinds.PersistentVolumes.Kind, kinds.PersistentVolumeClaims.Kind, kinds.Pods.Kind).
		Put(kinds.Nodes.Kind, unlisted).Put(kinds.VolumeAttachments.Kind, s.at)
	v, _ = observe(world.Remember(events.Outcome{Key: key, Lane: events.LaneStatus, UID: unlisted.UID, Decided: now, Results: []events.Result{
		{Status: events.Applied, Answer: &events.Answer{Note: d.Commands[0].Note}},
	}}), key)
	if d := (Config{}).decide(v, now); len(d.Commands) != 1 || d.Commands[0].Verb != events.VerbDelete || d.Commands[0].Name != s.at.Name {
		t.Errorf("when it is listed no more the decision is %+v", d)
	}
}
