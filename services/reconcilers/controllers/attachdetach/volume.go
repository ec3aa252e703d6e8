package attachdetach

import (
	"cmp"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/services/reconcilers/kube/csi"
	"github.com/millrace/millrace/services/reconcilers/reconcile"
)

// place is a node where pods want the volume.
type place struct {
	node string
	pods []*corev1.Pod
}

// attach attaches the volume to the nodes of its pods, and sends the results as Events to the pods.
//
// Upstream: pkg/controller/volume/attachdetach/reconciler, attachDesiredVolumes, and
// pkg/volume/util/operationexecutor.
func (v View) attach(now time.Time) reconcile.Decision {
	volume, ok := csi.VolumeOf(v.Volume)
	places := v.places()
	switch {
	case !ok:
		return reconcile.Nothing("the volume has no CSI driver")
	case len(places) == 0:
		return reconcile.Nothing("no scheduled pod uses the volume")
	}
	d := reconcile.Nothing("the volume is attached, or being attached, to the nodes of its pods")
	news := v.news()
	asked := false
	for _, at := range places {
		a := v.named(volume.Attachment(at.node))
		switch {
		case a == nil && v.exclusive() && (asked || v.occupied(at.node)):
			if !asked {
				d.Because = "the volume may be attached to one node at a time, and is to another"
			}
			news.multiple(at)
		case a == nil:
			asked = true
			d.Because, d.Commands = "a pod wants the volume, and it is not attached to its node", append(d.Commands, v.create(volume, at))
		case a.DeletionTimestamp != nil:
			d.Because = "the volume is being detached, and attached again after that"
		case a.Status.Attached:
			if news.success(at, a) {
				d.Figures = append(d.Figures, v.attaching(a, "success", now)...)
			}
		case a.Status.AttachError != nil:
			d.Because = "the driver has not attached the volume, and tries again"
			if news.failure(at, a) {
				d.Figures = append(d.Figures, v.attaching(a, "fail-unknown", a.Status.AttachError.Time.Time)...)
			}
		}
		d.Figures = append(d.Figures, reconcile.Figure{Metric: inUse, Value: float64(len(at.pods)), Labels: []string{at.node, pluginOf(volume)}})
	}
	d.Figures = append(d.Figures, reconcile.Figure{Metric: total, Value: float64(len(places)), Labels: []string{pluginOf(volume), "desired_state_of_world"}})
	d.Commands = append(d.Commands, news.noted()...)
	return d
}

// places returns the nodes where pods want the volume, the oldest pod's first.
func (v View) places() (all []place) {
	pods := slices.SortedStableFunc(slices.Values(v.Pods), func(a, b *corev1.Pod) int {
		return cmp.Or(a.CreationTimestamp.Compare(b.CreationTimestamp.Time), cmp.Compare(a.Name, b.Name))
	})
	for _, p := range pods {
		i := slices.IndexFunc(all, func(at place) bool { return at.node == p.Spec.NodeName })
		if i < 0 {
			i, all = len(all), append(all, place{node: p.Spec.NodeName})
		}
		all[i].pods = append(all[i].pods, p)
	}
	return all
}

// exclusive reports whether the volume may be attached to only one node at a time. For a volume
// without access modes the driver decides.
//
// Upstream: pkg/volume/util, IsMultiAttachAllowed.
func (v View) exclusive() bool {
	modes := v.Volume.Spec.AccessModes
	return len(modes) > 0 && !slices.Contains(modes, corev1.ReadWriteMany) && !slices.Contains(modes, corev1.ReadOnlyMany)
}

// named returns the attachment of a name; nil if there is none.
func (v View) named(name string) *storagev1.VolumeAttachment {
	for _, a := range v.Attachments {
		if a.Name == name {
			return a
		}
	}
	return nil
}

// occupied reports whether the volume is attached to another node, or may be: the driver has not
// reported that it failed.
//
// Upstream: where the driver has said so the volume counts as uncertain, and does not keep
// others from trying.
func (v View) occupied(node string) bool {
	return slices.ContainsFunc(v.Attachments, func(a *storagev1.VolumeAttachment) bool {
		switch {
		case a.Spec.NodeName == node:
			return false
		case a.DeletionTimestamp != nil:
			return a.Status.DetachError == nil
		default:
			return a.Status.Attached || a.Status.AttachError == nil
		}
	})
}

// create returns the create of the attachment to a node.
func (v View) create(volume csi.Volume, at place) events.Command {
	body := reconcile.Body(map[string]any{"spec": map[string]any{
		"attacher": volume.Driver, "nodeName": at.node, "source": map[string]any{"persistentVolumeName": v.Volume.Name},
	}})
	failed := v.notice(at.pods[0], corev1.EventTypeWarning, refused, v.failed(csi.Plugin+": attacher.Attach failed: {error}"))
	return reconcile.Create(kinds.VolumeAttachments.Kind, "", volume.Attachment(at.node), body, reconcile.WithEvents(nil, &failed))
}

func (v View) failed(why string) string {
	return `AttachVolume.Attach failed for volume "` + v.Volume.Name + `" : ` + why
}

func (v View) notice(p *corev1.Pod, level, reason, message string) events.Notice {
	return events.Notice{About: reconcile.About(kinds.Pods.Kind, p), Type: level, Reason: reason, Message: message}
}

// news collects the new Events for the pods.
type news struct {
	View
	known    []string
	commands []events.Command
}

// news begins with the Events that the pods that still want the volume have received.
func (v View) news() *news {
	known := slices.DeleteFunc(slices.Clone(v.Told), func(told string) bool {
		return !slices.ContainsFunc(v.Pods, func(p *corev1.Pod) bool { return strings.HasPrefix(told, string(p.UID)+" ") })
	})
	return &news{View: v, known: known}
}

// tell sends an Event to a pod, once. first is true if no pod has received this Event before.
func (n *news) tell(p *corev1.Pod, what, level, reason, message string) (first bool) {
	first = !slices.ContainsFunc(n.known, func(told string) bool { return strings.HasSuffix(told, " "+what) })
	what = string(p.UID) + " " + what
	if slices.Contains(n.known, what) {
		return false
	}
	n.known, n.commands = append(n.known, what), append(n.commands, reconcile.Record(n.notice(p, level, reason, message)))
	return first
}

// noted returns the Events; the first one carries the note of all Events so far.
func (n *news) noted() []events.Command {
	if len(n.commands) > 0 {
		n.commands[0].Note = reconcile.Body(note{Told: n.known})
	}
	return n.commands
}

// success tells pods that wait for their volume that it is attached now. A pod that is younger than
// the attachment gets no Event, because nothing was done for it. first is true if the first pod is told.
func (n *news) success(at place, a *storagev1.VolumeAttachment) (first bool) {
	for _, p := range at.pods {
		if waits := p.Status.Phase == corev1.PodPending || p.Status.Phase == ""; waits && !a.CreationTimestamp.Time.Before(p.CreationTimestamp.Time) {
			told := n.tell(p, "attached "+string(a.UID), corev1.EventTypeNormal, attached, `AttachVolume.Attach succeeded for volume "`+n.Volume.Name+`" `)
			first = first || told
		}
	}
	return first
}

// failure tells pods the driver's error. first is true if the first pod is told.
func (n *news) failure(at place, a *storagev1.VolumeAttachment) (first bool) {
	for _, p := range at.pods {
		told := n.tell(p, "failed "+a.Status.AttachError.Time.UTC().Format("2006-01-02T15:04:05Z"), corev1.EventTypeWarning, refused, n.failed(a.Status.AttachError.Message))
		first = first || told
	}
	return first
}

// multiple tells pods that the volume is attached to another node, and cannot be attached to theirs
// at the same time.
//
// Upstream: pkg/controller/volume/attachdetach/reconciler, reportMultiAttachError. While it is
// being attached or detached nothing is told, nor where it is going to be detached.
func (n *news) multiple(at place) {
	there := false
	var names []string
	for _, a := range n.Attachments {
		if a.Spec.NodeName == at.node || a.DeletionTimestamp != nil || !a.Status.Attached {
			continue
		}
		there = there || slices.Contains(n.Busy, a.Spec.NodeName)
		for _, p := range n.Pods {
			if p.Spec.NodeName == a.Spec.NodeName {
				names = append(names, p.Name)
			}
		}
	}
	if !there && len(names) == 0 {
		return // the volume is about to be detached from there
	}
	message := "Volume is already exclusively attached to one node and can't be attached to another"
	if len(names) > 0 {
		message = "Volume is already used by pod(s) " + strings.Join(names, ", ")
	}
	for _, p := range at.pods {
		n.tell(p, "multiple", corev1.EventTypeWarning, refused, `Multi-Attach error for volume "`+n.Volume.Name+`" `+message)
	}
}
