package storage

import (
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/services/reconcilers/controllers/attachdetach"
	"github.com/millrace/millrace/services/writer/plan"
	"github.com/millrace/millrace/test/oracle/exemption"
	"github.com/millrace/millrace/test/oracle/stage"
	"github.com/millrace/millrace/test/sim/apiserver"
)

// AttachDetach attaches and detaches volumes, for longer than the controller waits for a node, with an
// attacher that acts at once.
var AttachDetach = stage.Life{
	Theirs: buildAttachDetach, Ours: attachdetach.Controller,
	Kinds: []kinds.Kind{
		kinds.PersistentVolumes.Kind, kinds.PersistentVolumeClaims.Kind, kinds.Pods.Kind, kinds.Nodes.Kind, kinds.VolumeAttachments.Kind, kinds.CSIDrivers.Kind,
	},
	Chapter: 8 * time.Minute, Line: attachmentLine, Attend: attach, Fair: fairAttachments,
}

// attach acts as a driver's attacher for an attachment.
func attach(api *apiserver.API, ref events.Ref) {
	at, ok := api.Get(ref).(*storagev1.VolumeAttachment)
	switch {
	case !ok:
	case at.DeletionTimestamp != nil:
		api.Change(ref, func(o metav1.Object) { o.SetFinalizers(nil) })
	case !at.Status.Attached:
		api.Change(ref, func(o metav1.Object) {
			o.SetFinalizers([]string{"external-attacher/d-example-com"})
			o.(*storagev1.VolumeAttachment).Status.Attached = true
		})
	}
}

// attachmentLine is an attachment, or a node's list.
func attachmentLine(obj metav1.Object) string {
	switch o := obj.(type) {
	case *storagev1.VolumeAttachment:
		return fmt.Sprintf("%s to %s by %s: attached %v", *o.Spec.Source.PersistentVolumeName, o.Spec.NodeName, o.Spec.Attacher, o.Status.Attached)
	case *corev1.Node:
		return fmt.Sprintf("%s lists %v", o.Name, namesListed(o))
	}
	return ""
}

// fairAttachments removes differences of Events. Upstream tells each pod of a node about each refused
// attachment: ours tells the first pod, and only about refusals that the writer does not retry. Ours tells
// pods that come later that a volume is attached elsewhere, too; upstream names the pods that have it there
// in the order of a map.
func fairAttachments(theirs, ours []string) ([]string, []string) {
	const failed = "AttachVolume.Attach failed for "
	theirs = exemption.LetLines("pods-told-of-refused-attachments", theirs, func(line string) string {
		_, what, refused := strings.Cut(line, failed)
		if !refused || slices.Contains(ours, line) {
			return line
		}
		told := slices.ContainsFunc(ours, func(own string) bool { return strings.HasSuffix(own, failed+what) })
		if told || slices.ContainsFunc(stage.AllRefusals, func(r plan.Response) bool { return stage.Retried(r) && strings.HasSuffix(what, r.Message) }) {
			return ""
		}
		return line
	})
	theirs, ours = exemption.Relined(theirs, sortedNames), exemption.Relined(ours, sortedNames)
	return theirs, exemption.LetLines("each-pod-told-of-the-other-node", ours, func(line string) string {
		if before, _, multiple := strings.Cut(line, "Volume is already"); multiple && !slices.Contains(theirs, line) {
			_, volume, _ := strings.Cut(before, "Multi-Attach")
			if slices.ContainsFunc(theirs, func(other string) bool { return strings.Contains(other, "Multi-Attach"+volume) }) {
				return ""
			}
		}
		return line
	})
}
