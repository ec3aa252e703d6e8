package attachdetach

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"pgregory.net/rapid"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/services/reconcilers/kube/csi"
	"github.com/millrace/millrace/services/reconcilers/reconcile"
	"github.com/millrace/millrace/services/reconcilers/reconciletest"
)

var (
	now    = reconciletest.Now
	volume = csi.Volume{Driver: "d", Handle: "vol-1"}
)

func TestStories(t *testing.T) { reconciletest.Stories(t, Controller) }

func TestLawsOfVolumes(t *testing.T) {
	reconciletest.Laws(t, Controller, rapid.Custom(anyVolume), now,
		reconciletest.Content(5, applied), reconciletest.Law[View]{Name: "one at a time", Holds: oneAtATime})
}

func TestLawsOfNodes(t *testing.T) {
	reconciletest.Laws(t, Controller, rapid.Custom(anyNode), now,
		reconciletest.Content(5, applied), reconciletest.Law[View]{Name: "careful", Holds: careful},
		reconciletest.Law[View]{Name: "sure", Holds: func(_ *rapid.T, c reconcile.Controller[View], v View, now time.Time) error {
			if d := c.Decide(v, now); len(d.Commands) > 0 && (!d.Sure || d.ReportFirst || d.StatusBlind) {
				return errors.New("it reports while a detachment is under way")
			}
			return nil
		}})
}

// oneAtATime checks that no attachment of an exclusive volume is created beside another
// that the driver may have carried out, and never two at once.
func oneAtATime(_ *rapid.T, c reconcile.Controller[View], v View, now time.Time) error {
	created := 0
	for _, command := range c.Decide(v, now).Commands {
		if command.Verb != events.VerbCreate {
			continue
		}
		created++
		for _, a := range v.Attachments {
			switch open := a.Status.AttachError == nil && a.Status.DetachError == nil; {
			case a.Name == command.Name:
				return fmt.Errorf("the decision creates %s, which is there", a.Name)
			case v.exclusive() && open:
				return fmt.Errorf("the decision creates %s beside %s", command.Name, a.Name)
			}
		}
	}
	if created > 1 && v.exclusive() {
		return fmt.Errorf("the decision creates %d attachments of a volume that may have one", created)
	}
	return nil
}

// careful checks that no volume is detached that a pod wants, that the status of the node
// lists, or that the node may use, unless the node has not been ready for six minutes or
// is out of service.
func careful(_ *rapid.T, c reconcile.Controller[View], v View, now time.Time) error {
	for _, command := range c.Decide(v, now).Commands {
		if command.Verb != events.VerbDelete {
			continue
		}
		h := v.Held[slices.IndexFunc(v.Held, func(h Held) bool { return h.Attachment.Name == command.Name })]
		since, waited := v.Since[h.Attachment.UID]
		over := waited && !now.Before(since.Add(6*time.Minute))
		switch {
		case h.Wanted:
			return fmt.Errorf("the decision detaches %s, which is wanted", h.Volume)
		case v.Node == nil && !over:
			return fmt.Errorf("the decision detaches %s from a node that has not been gone for long", h.Volume)
		case v.Node == nil:
		case slices.ContainsFunc(v.Node.Status.VolumesAttached, func(a corev1.AttachedVolume) bool { return a.Name == h.Volume }):
			return fmt.Errorf("the decision detaches %s, which is listed", h.Volume)
		case slices.Contains(v.Node.Status.VolumesInUse, h.Volume) && !outOfService(v.Node) && (ready(v.Node) || !over):
			return fmt.Errorf("the decision detaches %s, which is in use", h.Volume)
		}
	}
	return nil
}

// applied returns the view after every command succeeded and the driver has done its part.
func applied(v View, d reconcile.Decision, _ time.Time) View {
	v.Attachments, v.Held = slices.Clone(v.Attachments), slices.Clone(v.Held)
	for _, c := range d.Commands {
		if len(c.Note) > 0 {
			var n note
			if err := json.Unmarshal(c.Note, &n); err != nil {
				panic(err)
			}
			v.Told, v.Since = n.Told, n.Since
		}
		switch c.Verb {
		case events.VerbCreate:
			a := &storagev1.VolumeAttachment{ObjectMeta: metav1.ObjectMeta{Name: c.Name, UID: types.UID("uid-" + c.Name), CreationTimestamp: metav1.NewTime(now)}}
			if err := json.Unmarshal(c.Body, a); err != nil {
				panic(err)
			}
			a.Name, a.Status.Attached = c.Name, true
			v.Attachments = append(v.Attachments, a)
		case events.VerbDelete:
			v.Held = slices.DeleteFunc(v.Held, func(h Held) bool { return h.Attachment.Name == c.Name })
		case events.VerbPatch:
			n := *v.Node
			n.Status.VolumesAttached = nil
			if err := json.Unmarshal(c.Body, &struct{ Status *corev1.NodeStatus }{&n.Status}); err != nil {
				panic(err)
			}
			v.Node = &n
		}
	}
	return v
}

// anyVolume returns a volume that pods on some nodes want, with attachments.
func anyVolume(t *rapid.T) View {
	v := View{Volume: &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: "pv-1", UID: "v", ResourceVersion: "7"}}}
	v.Volume.Spec.CSI = &corev1.CSIPersistentVolumeSource{Driver: volume.Driver, VolumeHandle: volume.Handle}
	v.Volume.Spec.AccessModes = rapid.SampledFrom([][]corev1.PersistentVolumeAccessMode{
		{corev1.ReadWriteOnce}, {corev1.ReadWriteOncePod}, {corev1.ReadWriteOnce, corev1.ReadOnlyMany}, {corev1.ReadWriteMany}, nil,
	}).Draw(t, "modes")
	nodes := []string{"node-1", "node-2", "node-3"}
	for i := range rapid.IntRange(0, 3).Draw(t, "pods") {
		name := fmt.Sprint("web-", i)
		p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name, UID: types.UID(name), CreationTimestamp: moment(t, "pod created")}}
		p.Spec.NodeName = rapid.SampledFrom(nodes).Draw(t, "node")
		p.Status.Phase = rapid.SampledFrom([]corev1.PodPhase{"", corev1.PodPending, corev1.PodRunning}).Draw(t, "phase")
		v.Pods = append(v.Pods, p)
	}
	for _, node := range nodes {
		if rapid.Bool().Draw(t, "attachment to "+node) {
			v.Attachments = append(v.Attachments, anyAttachment(t, node))
			if rapid.Bool().Draw(t, "busy") {
				v.Busy = append(v.Busy, node)
			}
		}
	}
	v.Told = rapid.SampledFrom([][]string{nil, {"web-0 multiple", "web-9 multiple"}, {"web-1 attached uid-node-1"}}).Draw(t, "told")
	return v
}

func moment(t *rapid.T, what string) metav1.Time {
	return metav1.NewTime(now.Add(-time.Duration(rapid.IntRange(0, 3).Draw(t, what)) * time.Minute))
}

// anyAttachment returns an attachment that the driver has seen, or not.
func anyAttachment(t *rapid.T, node string) *storagev1.VolumeAttachment {
	name := "pv-1"
	a := &storagev1.VolumeAttachment{ObjectMeta: metav1.ObjectMeta{Name: volume.Attachment(node), UID: types.UID("uid-" + node), CreationTimestamp: moment(t, "attachment created")}}
	a.Spec = storagev1.VolumeAttachmentSpec{Attacher: volume.Driver, NodeName: node, Source: storagev1.VolumeAttachmentSource{PersistentVolumeName: &name}}
	failed := &storagev1.VolumeError{Time: moment(t, "failed"), Message: "no"}
	switch rapid.IntRange(0, 3).Draw(t, "status") {
	case 0, 1:
		a.Status.Attached = true
	case 2:
		a.Status.AttachError = failed
	}
	if rapid.IntRange(0, 3).Draw(t, "deleted") == 0 {
		a.DeletionTimestamp = &metav1.Time{Time: now}
		if rapid.Bool().Draw(t, "not detached") {
			a.Status.DetachError = failed
		}
	}
	return a
}

// anyNode returns a node, or a deleted one, with volumes.
func anyNode(t *rapid.T) View {
	v := View{Name: "node-1"}
	if rapid.IntRange(0, 5).Draw(t, "gone") > 0 {
		v.Name, v.Node = "", &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node-1", UID: "nd", ResourceVersion: "9"}}
		if rapid.IntRange(0, 7).Draw(t, "by itself") > 0 {
			v.Node.Annotations = map[string]string{managed: "true"}
		}
		v.Node.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: rapid.SampledFrom([]corev1.ConditionStatus{"True", "False", "Unknown"}).Draw(t, "ready")}}
		if rapid.IntRange(0, 5).Draw(t, "out of service") == 0 {
			v.Node.Spec.Taints = []corev1.Taint{{Key: corev1.TaintNodeOutOfService}}
		}
	}
	for i := range rapid.IntRange(0, 3).Draw(t, "volumes") {
		of := csi.Volume{Driver: "d", Handle: fmt.Sprint("vol-", i)}
		a := anyAttachment(t, "node-1")
		a.Name, a.UID = of.Attachment("node-1"), types.UID(fmt.Sprint("a-", i))
		v.Held = append(v.Held, Held{Attachment: *a, Volume: of.Name(), Wanted: rapid.Bool().Draw(t, "wanted")})
		if ago := rapid.IntRange(0, 8).Draw(t, "since"); ago > 0 {
			v.Since = maps.Clone(v.Since)
			if v.Since == nil {
				v.Since = map[types.UID]time.Time{}
			}
			v.Since[a.UID] = now.Add(-time.Duration(ago) * time.Minute)
		}
		if v.Node != nil && rapid.Bool().Draw(t, "in use") {
			v.Node.Status.VolumesInUse = append(v.Node.Status.VolumesInUse, of.Name())
		}
		if v.Node != nil && rapid.Bool().Draw(t, "listed") {
			v.Node.Status.VolumesAttached = append(v.Node.Status.VolumesAttached, corev1.AttachedVolume{Name: of.Name()})
		}
	}
	if v.Node != nil && rapid.Bool().Draw(t, "others") {
		v.Node.Status.VolumesAttached = append(v.Node.Status.VolumesAttached, corev1.AttachedVolume{Name: "kubernetes.io/iscsi/x", DevicePath: "/dev/x"}, corev1.AttachedVolume{Name: "kubernetes.io/csi/d^lost"})
	}
	return v
}

// A patient controller waits without limit for a node that is not ready.
func TestAPatientController(t *testing.T) {
	v := View{Node: &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node-1", Annotations: map[string]string{managed: ""}}}, Since: map[types.UID]time.Time{"a": now.Add(-time.Hour)}}
	v.Node.Status.VolumesInUse = []corev1.UniqueVolumeName{volume.Name()}
	v.Held = []Held{{Attachment: storagev1.VolumeAttachment{ObjectMeta: metav1.ObjectMeta{Name: volume.Attachment("node-1"), UID: "a"}}, Volume: volume.Name()}}
	if d := Controller.Decide(v, now); len(d.Commands) != 1 || d.Commands[0].Verb != events.VerbDelete {
		t.Errorf("the decision has the commands %+v", d.Commands)
	}
	if d := Controller.Decide(v, now); len(d.Figures) != 2 || d.Figures[0].Metric != forced || !slices.Equal(d.Figures[0].Labels, []string{"timeout"}) {
		t.Errorf("the figures are %+v", d.Figures)
	}
	patient := New(Config{Patient: true})
	if d := patient.Decide(v, now); len(d.Commands) > 0 || !d.WakeAt.IsZero() {
		t.Errorf("a patient one wants %+v, at %v", d.Commands, d.WakeAt)
	}
	v.Node.Spec.Taints = []corev1.Taint{{Key: corev1.TaintNodeOutOfService, Effect: corev1.TaintEffectNoExecute}}
	if d := patient.Decide(v, now); len(d.Commands) != 1 || len(d.Figures) != 2 || !slices.Equal(d.Figures[0].Labels, []string{"out-of-service"}) {
		t.Errorf("of a node that is out of service the patient controller has the commands %+v and the figures %+v", d.Commands, d.Figures)
	}
}
