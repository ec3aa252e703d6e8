package deployment

import (
	"bytes"
	"fmt"
	"maps"
	"strconv"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/services/reconcilers/kube/label"
	"github.com/millrace/millrace/services/reconcilers/kube/owner"
	"github.com/millrace/millrace/services/reconcilers/kube/template"
	"github.com/millrace/millrace/services/reconcilers/reconcile"
)

// hashLabel distinguishes the pods of the sets.
const hashLabel = appsv1.DefaultDeploymentUniqueLabelKey

// bear creates the new set and changes no other: if the create fails, the old sets stay as they are.
//
// The name of a set contains a short hash of its template, so a set with another template
// may have the same name. Then the status counts a collision, which changes the hash, and
// so the name of the next attempt.
//
// rolling is false if the rollout does not continue after the create.
//
// Upstream: pkg/controller/deployment/sync.go, getNewReplicaSet.
func (r *rollout) bear(rolling bool) reconcile.Decision {
	created := r.infant()
	failure, failed := r.failureOf(created.Name)
	switch {
	case failed && failure.Status == events.Conflict && failure.Reason == string(metav1.StatusReasonAlreadyExists):
		return r.collide(created.Name)
	case failed && failure.Cause != string(corev1.NamespaceTerminatingCause):
		why := fmt.Sprintf("Failed to create new replica set %q: %s", created.Name, failure.Message)
		return reconcile.Join(
			reconcile.Do("no ReplicaSet matches the pod template, and the last attempt to create one failed", r.create(created)),
			r.progressing(corev1.ConditionFalse, reasonCreateError, why),
		)
	case failed:
		return reconcile.Do("no ReplicaSet matches the pod template, and the namespace is being deleted", r.create(created))
	default:
		r.begun = created.Name
		return reconcile.Join(reconcile.Do("no ReplicaSet matches the pod template", r.create(created)), r.report(rolling))
	}
}

// create returns the command that creates the set.
func (r *rollout) create(created *appsv1.ReplicaSet) events.Command {
	var told *events.Notice
	if n := sizeOf(created); n > 0 {
		told = r.scaled(created.Name, 0, n)
	}
	return reconcile.Create(kinds.ReplicaSets.Kind, created.Namespace, created.Name, reconcile.Body(created), reconcile.WithEvents(told,
		notice(r.deployment, corev1.EventTypeWarning, reasonCreateError,
			fmt.Sprintf("Failed to create new replica set %q: {error}", created.Name))))
}

// infant returns the set to create.
func (r *rollout) infant() *appsv1.ReplicaSet {
	d := r.deployment
	hash := template.Hash(&d.Spec.Template, d.Status.CollisionCount)
	labelled := d.Spec.Template // shallow: the parts are only read
	labelled.Labels = label.With(d.Spec.Template.Labels, hashLabel, hash)
	replicas := r.target(0)
	return &appsv1.ReplicaSet{
		TypeMeta: metav1.TypeMeta{APIVersion: kinds.ReplicaSets.APIVersion(), Kind: kinds.ReplicaSets.Kind.Kind},
		ObjectMeta: metav1.ObjectMeta{
			Namespace: d.Namespace, Name: nameOf(d, hash),
			Labels: labelled.Labels, Annotations: r.firstNotes(),
			OwnerReferences: []metav1.OwnerReference{owner.Reference(kinds.Deployments.Kind, d)},
		},
		Spec: appsv1.ReplicaSetSpec{
			Replicas: &replicas, MinReadySeconds: d.Spec.MinReadySeconds,
			Selector: label.SelectorWith(d.Spec.Selector, hashLabel, hash), Template: labelled,
		},
	}
}

// firstNotes returns the annotations of the set to create.
func (r *rollout) firstNotes() map[string]string {
	notes := maps.Clone(r.deployment.Annotations)
	if notes == nil {
		notes = map[string]string{}
	}
	for _, key := range ownNotes {
		delete(notes, key)
	}
	notes[revisionNote] = strconv.FormatInt(r.nextRevision(), 10)
	notes[desiredNote] = strconv.Itoa(int(wanted(r.deployment)))
	notes[mostNote] = strconv.Itoa(int(most(r.deployment)))
	return notes
}

// failureOf returns why the last create of the set with this name failed. A failure of
// another set, or of a command that the writer never sent to the API server, says nothing
// about this one.
func (r *rollout) failureOf(name string) (events.Result, bool) {
	f := r.failure
	if f == nil || f.Ref.Kind != kinds.ReplicaSets.Name || f.Ref.Name != name || f.Ref.Namespace != r.deployment.Namespace {
		return events.Result{}, false
	}
	return *f, f.Status == events.Failed || f.Code != 0
}

// collide counts a collision. The writer has already established that the existing set
// differs from the one to create.
func (r *rollout) collide(name string) reconcile.Decision {
	var count int32
	if had := r.deployment.Status.CollisionCount; had != nil {
		count = *had
	}
	count++
	seen := reported(r.deployment)
	seen.Status.CollisionCount = &count
	return reconcile.Do("another ReplicaSet is named "+name, reconcile.UpdateStatus(kinds.Deployments.Kind, seen))
}

// nameOf returns the name of a Deployment's set, given the hash of its template.
func nameOf(d *appsv1.Deployment, hash string) string {
	room := validation.DNS1123SubdomainMaxLength - len("-") - len(hash)
	return d.Name[:min(len(d.Name), room)] + "-" + hash
}

// sameTemplate reports whether two templates are equal except for the hash label.
func sameTemplate(a, b *corev1.PodTemplateSpec) bool {
	x, y := *a, *b // shallow: the parts are only read
	x.Labels, y.Labels = withoutHash(a.Labels), withoutHash(b.Labels)
	return sameBytes(&x, &y) || equality.Semantic.DeepEqual(&x, &y)
}

// sameBytes reports whether two templates serialise to the same bytes. Equal templates
// nearly always do, and this comparison takes a third of the time. Different bytes may
// still be equal templates, for instance when a quantity is written in two ways.
func sameBytes(a, b *corev1.PodTemplateSpec) bool {
	x, err := a.Marshal()
	if err != nil {
		return false
	}
	y, err := b.Marshal()
	return err == nil && bytes.Equal(x, y)
}

// withoutHash returns the labels that the user gave.
func withoutHash(labels map[string]string) map[string]string {
	if _, there := labels[hashLabel]; !there {
		return labels
	}
	given := make(map[string]string, len(labels))
	for key, value := range labels {
		if key != hashLabel {
			given[key] = value
		}
	}
	return given
}
