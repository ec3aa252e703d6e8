package shadow

import (
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/record/fields"
	"github.com/millrace/millrace/services/reconcilers/reconcile"
)

// Operation is one recorded write, by its effect as a delta shows it.
type Operation struct {
	Verb     events.Verb // create, delete, or update, which stands for every change
	Ref      events.Ref
	UID      types.UID
	Status   bool // of an update: of the status
	Was, Now reconcile.Object
	// KCM is true if kube-controller-manager wrote it, according to the field managers,
	// and Doubtful if another client may have. A delete has no field manager, so its
	// client is unknown.
	KCM, Doubtful bool
	Version       string
	Delta         events.Trigger
	At            time.Time
}

// OperationOf returns the operation that a delta shows. ok is false for a delta without
// news: a mark, a repetition, or the removal of an object that had been deleted before.
func OperationOf(d events.Delta, at events.Trigger, was, now reconcile.Object) (operation Operation, ok bool) {
	operation = Operation{
		Verb: events.VerbUpdate, Ref: d.Ref, UID: d.UID, Was: was, Now: now,
		Version: d.ResourceVersion, Delta: at, At: d.At,
	}
	switch {
	case d.Op != events.Is && d.Op != events.Gone, d.Sync:
		return Operation{}, false
	case d.Op == events.Gone && (was.None() || was.GetDeletionTimestamp() != nil):
		return Operation{}, false
	case d.Op == events.Gone, d.Deleting && !was.None() && was.GetDeletionTimestamp() == nil:
		operation.Verb = events.VerbDelete
		return operation, true
	case was.None() || was.GetUID() != now.GetUID():
		operation.Verb, operation.Was = events.VerbCreate, reconcile.Object{}
	}
	writers := []events.Manager{d.By}
	if !d.Proven {
		writers = append(writers, d.Beside...)
	}
	if !slices.ContainsFunc(writers, isKCM) {
		return operation, operation.Verb == events.VerbCreate
	}
	operation.sign(writers)
	return operation, true
}

// isKCM ignores entries of its autoscaler, which do not tell the time of the write.
func isKCM(m events.Manager) bool { return m.Name == events.FieldManager && !m.Scales() }

// sign sets who did an operation. Only a request to the status subresource can change a
// status, and it can change nothing else, so of several writers in one second those of the
// same subresource count. A client that only removes fields may leave no trace; the field
// managers then show the writer before.
func (d *Operation) sign(writers []events.Manager) {
	if d.Verb == events.VerbUpdate {
		if bound(d.Was.Object, d.Now.Object) {
			return
		}
		d.Status = len(d.fields(false)) == 0
		d.Doubtful = !slices.ContainsFunc(d.fields(d.Status), func(c fields.Change) bool { return c.Is != nil })
	}
	for _, m := range writers {
		switch through := m.Subresource == "status"; {
		case through != d.Status, m.Subresource != "" && !through:
		case isKCM(m):
			d.KCM = true
		default:
			d.Doubtful = true
		}
	}
}

// bound reports whether a scheduler has bound a pod to a node. A binding is the one write
// that does not change the field managers.
func bound(was, now metav1.Object) bool {
	before, ok := was.(*corev1.Pod)
	after, also := now.(*corev1.Pod)
	return ok && also && before.Spec.NodeName != after.Spec.NodeName
}

// fields are the leaves that an update has changed.
func (d *Operation) fields(status bool) []fields.Change {
	return fields.Apart(part(treeOf(d.Was.Object), status), part(treeOf(d.Now.Object), status))
}

// object is the newest known state of the object.
func (d *Operation) object() metav1.Object {
	if d.Now.None() {
		return d.Was.Object
	}
	return d.Now.Object
}
