package causes

import (
	"hash/maphash"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/pkg/events/trace"
)

// statusOf is the subresource that status reports are written to.
const statusOf = "status"

// heartbeatStatus are the kinds whose status is a heartbeat: a trace through it would have no end.
var heartbeatStatus = map[kinds.Name]bool{
	kinds.NameOf("", "nodes"): true, kinds.NameOf("coordination.k8s.io", "leases"): true,
	kinds.NameOf("", "events"): true, kinds.NameOf("events.k8s.io", "events"): true,
}

// seen is the newest version of an object that is traced.
type seen struct {
	trace  events.Trace
	intent intent
}

// intent is what a version of an object asks for, as much of it as reports whether the next version
// asks for anything new.
type intent struct {
	generation   int64
	deleting     bool
	node         string // the node that a Pod is bound to
	metadataHash uint64 // a hash of labels, annotations, finalizers and owners
}

var hashMetadata = maphash.MakeSeed()

func intentIn(m metav1.Object) intent {
	i := intent{generation: m.GetGeneration(), deleting: m.GetDeletionTimestamp() != nil}
	switch pod := m.(type) {
	case *corev1.Pod:
		i.node = pod.Spec.NodeName
	case *kinds.Raw:
		i.node = pod.NodeName()
	}
	note := func(what, key, value string) { // a sum, so the order does not matter
		i.metadataHash += maphash.Comparable(hashMetadata, [3]string{what, key, value})
	}
	for key, value := range m.GetLabels() {
		note("label", key, value)
	}
	for key, value := range m.GetAnnotations() {
		note("annotation", key, value)
	}
	for _, f := range m.GetFinalizers() {
		note("finalizer", f, "")
	}
	for _, o := range m.GetOwnerReferences() {
		note("owner", string(o.UID), o.Name)
	}
	return i
}

// isReport reports whether a change that none of our writers made asks for nothing new: it reports a
// status, binds a Pod, or ends an object that was being deleted. Such a change continues the trace
// of what it reports on. The generation decides, because a client that writes a status may have
// changed labels in the same second, and managedFields do not tell the two apart. Only for kinds
// without generations do managedFields decide.
func (c *Writes) isReport(d events.Delta, before, now intent) bool {
	switch {
	case heartbeatStatus[d.Kind] || now.generation != before.generation:
		return false
	case d.Op == events.Gone:
		return before.deleting
	case now.deleting != before.deleting || c.mayBeMissed(d):
		return false
	case before.node == "" && now.node != "":
		return true // a binding may also add labels of the node
	default:
		return now.metadataHash == before.metadataHash && now.node == before.node && (now.generation > 0 || d.By.Subresource == statusOf)
	}
}

// mayBeMissed reports whether a status seems to be a report of one of our controllers although no
// writer has reported the write: such a status does not continue the trace of the version before.
func (c *Writes) mayBeMissed(d events.Delta) bool {
	ours := func(m events.Manager) bool { return m.Name == events.FieldManager && m.Subresource == statusOf }
	for _, m := range d.Beside {
		if !d.Proven && ours(m) {
			return c.Heard()
		}
	}
	return ours(d.By) && c.Heard()
}

// origin returns where a version of an object comes from.
func (t *Tracing) origin(d events.Delta, m metav1.Object) trace.Origin {
	v := version{d.UID, d.ResourceVersion}
	o := trace.Origin{Labels: m.GetLabels(), Notes: m.GetAnnotations()}
	o.Cause, o.Ours = t.writes.traceOf(v, d.Op == events.Gone)
	before, known := t.versions.Get(d.UID)
	o.Before = before.trace
	if o.Ours {
		return o
	}
	o.Reports = known && t.writes.isReport(d, before.intent, intentIn(m))
	if d.Op == events.Is {
		t.writes.recordUntracked(v, untracked{t.kind, t.why})
		o.Missed = !known && !heartbeatStatus[d.Kind] && d.By.Name == events.FieldManager && t.writes.Heard()
	}
	return o
}
