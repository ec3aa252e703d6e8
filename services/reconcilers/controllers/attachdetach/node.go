package attachdetach

import (
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/services/reconcilers/kube/csi"
	"github.com/millrace/millrace/services/reconcilers/reconcile"
)

// patience is how long the controller waits for a node that is not ready to release a volume.
const patience = 6 * time.Minute

// leave is a volume to detach from the node; forced is the reason if the node may still use it.
type leave struct {
	Held
	forced string
}

// detach updates the list of attached volumes in the node's status, and detaches those that no pod
// wants.
//
// Upstream: pkg/controller/volume/attachdetach/reconciler, reconcile, and statusupdater.
func (v View) detach(c Config, now time.Time) reconcile.Decision {
	if v.Node != nil && !manages(v.Node) {
		return reconcile.Nothing("the kubelet of the node attaches volumes itself")
	}
	leaving, since, end := v.sort(c, now)
	list, told := v.list(leaving), note{Since: since}
	for _, l := range leaving {
		told.Leaving = append(told.Leaving, l.Attachment.UID)
	}
	d := reconcile.Nothing("the volumes attached to the node are needed and listed in its status")
	switch {
	case v.Node != nil && !sameNames(list, v.Node.Status.VolumesAttached):
		d = reconcile.Do("the node's status does not list the volumes that stay attached", v.patch(list, told))
	case !v.timed(since):
		c := events.Command{Verb: events.VerbRecord, Note: reconcile.Body(told)}
		d = reconcile.Do("the list of volumes to detach from the node is changing", c)
	case len(leaving) > 0:
		d = v.remove(leaving)
	case !end.IsZero():
		d = reconcile.Wake(end, "the node is not ready, and may use volumes that no pod needs")
	case len(since) > 0:
		d = reconcile.Nothing("the node still uses volumes that no pod needs")
	}
	d.Sure, d.WakeAt = true, end
	d.Figures = append(d.Figures, v.counted()...)
	return d
}

// sort returns the volumes to detach, the times since which the controller waits for the node with
// those in use, and when that wait ends; zero if time alone does not end it.
//
// Upstream: also a node that is gone may use what it used; that is forgotten at a restart.
func (v View) sort(c Config, now time.Time) (leaving []leave, since map[types.UID]time.Time, end time.Time) {
	for _, h := range v.Held {
		if h.Wanted || h.Attachment.DeletionTimestamp != nil {
			continue
		}
		out := v.Node != nil && outOfService(v.Node)
		if !v.uses(h) {
			gone := leave{Held: h}
			if out {
				gone.forced = "out-of-service"
			}
			leaving = append(leaving, gone)
			continue
		}
		start, known := v.Since[h.Attachment.UID]
		if !known {
			start = now
		}
		if since == nil {
			since = map[types.UID]time.Time{}
		}
		since[h.Attachment.UID] = start
		over := start.Add(patience)
		switch timed := !c.Patient && (v.Node == nil || !ready(v.Node)); {
		case timed && !now.Before(over):
			leaving = append(leaving, leave{h, "timeout"})
		case out:
			leaving = append(leaving, leave{h, "out-of-service"})
		case timed && (end.IsZero() || over.Before(end)):
			end = over
		}
	}
	return leaving, since, end
}

// uses reports whether the node may use a volume.
func (v View) uses(h Held) bool {
	return v.Node == nil || slices.Contains(v.Node.Status.VolumesInUse, h.Volume)
}

// timed reports whether exactly the times of the volumes that the node must release are on record.
func (v View) timed(since map[types.UID]time.Time) bool {
	for _, h := range v.Held {
		_, noted := v.Since[h.Attachment.UID]
		_, waits := since[h.Attachment.UID]
		if noted != waits && h.Attachment.DeletionTimestamp == nil {
			return false
		}
	}
	return true
}

// list returns what the node's status must list: the attached volumes that stay, in their present
// order. Volumes of other plugins stay.
func (v View) list(leaving []leave) (list []corev1.AttachedVolume) {
	if v.Node == nil {
		return nil
	}
	var attached []corev1.UniqueVolumeName
	for _, h := range v.Held {
		stays := !slices.ContainsFunc(leaving, func(l leave) bool { return l.Attachment.Name == h.Attachment.Name })
		if stays && h.Attachment.Status.Attached && h.Attachment.DeletionTimestamp == nil {
			attached = append(attached, h.Volume)
		}
	}
	for _, had := range v.Node.Status.VolumesAttached {
		if _, ours := csi.Named(had.Name); !ours || slices.Contains(attached, had.Name) {
			list = append(list, had)
		}
	}
	slices.Sort(attached)
	for _, name := range slices.Compact(attached) {
		if !slices.ContainsFunc(list, func(had corev1.AttachedVolume) bool { return had.Name == name }) {
			list = append(list, corev1.AttachedVolume{Name: name})
		}
	}
	return list
}

func sameNames(a, b []corev1.AttachedVolume) bool {
	return slices.EqualFunc(a, b, func(x, y corev1.AttachedVolume) bool { return x.Name == y.Name })
}

// patch returns the patch of the list in the node's status, on condition that the node is unchanged
// since it reported which volumes it uses.
func (v View) patch(list []corev1.AttachedVolume, told note) events.Command {
	var attached any // null removes the present list
	if len(list) > 0 {
		attached = list
	}
	c := reconcile.Patch(kinds.Nodes.Kind, v.Node, types.StrategicMergePatchType,
		reconcile.Body(map[string]any{"status": map[string]any{"volumesAttached": attached}}),
		reconcile.IfUnchanged(v.Node), reconcile.Noting(told))
	c.Subresource = "status"
	return c
}

// remove returns the decision to detach volumes.
func (v View) remove(leaving []leave) reconcile.Decision {
	d := reconcile.Do("no pod on the node uses the volumes attached to it")
	for i := range leaving {
		l := &leaving[i]
		c := reconcile.Delete(kinds.VolumeAttachments.Kind, &l.Attachment)
		d.Commands = append(d.Commands, c)
		if l.forced != "" {
			d.Because = "no pod on the node uses the volumes attached to it, and it is not waited for the node any longer"
			d.Figures = append(d.Figures, reconcile.Figure{Metric: forced, Value: 1, Labels: []string{l.forced}, Of: c.Ref()})
		}
	}
	return d
}

// counted returns the metric values of the volumes on the node, by driver.
func (v View) counted() (figures []reconcile.Figure) {
	for _, h := range v.Held {
		volume, _ := csi.Named(h.Volume)
		figures = append(figures, reconcile.Figure{Metric: total, Value: 1, Labels: []string{pluginOf(volume), "actual_state_of_world"}})
	}
	return figures
}

func ready(n *corev1.Node) bool {
	return slices.ContainsFunc(n.Status.Conditions, func(c corev1.NodeCondition) bool {
		return c.Type == corev1.NodeReady && c.Status == corev1.ConditionTrue
	})
}

// outOfService reports whether an administrator has tainted the node as out of service.
func outOfService(n *corev1.Node) bool {
	return slices.ContainsFunc(n.Spec.Taints, func(t corev1.Taint) bool { return t.Key == corev1.TaintNodeOutOfService })
}
