package statefulset

import (
	"hash/fnv"
	"maps"
	"slices"
	"strconv"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/rand"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/services/reconcilers/kube/gate"
	"github.com/millrace/millrace/services/reconcilers/kube/owner"
	"github.com/millrace/millrace/services/reconcilers/kube/revision"
	"github.com/millrace/millrace/services/reconcilers/reconcile"
)

// hashLabel tells revisions apart. longest is how much of a set's name the name of a
// revision keeps.
const (
	hashLabel = "controller.kubernetes.io/hash"
	longest   = 223
)

// history is the revisions of a set.
type history struct {
	// past are all revisions, the oldest first.
	past []*appsv1.ControllerRevision
	// current is the revision of pods that are not updated yet, update the one that
	// they are to have.
	current, update *appsv1.ControllerRevision
}

// history finds the revisions of the set. create is not nil if the set needs a new
// revision for its template, or if an earlier revision becomes the newest again.
//
// Upstream: getStatefulSetRevisions. It compares bytes, and with the newest also what
// it comes to when the defaults of the API are filled in.
func (v View) history() (h history, create *events.Command) {
	h.past = revision.Sorted(v.Revisions)
	newest := int64(0)
	for _, r := range h.past {
		newest = max(newest, r.Revision)
		if revision.Holds(r, &v.Set.Spec.Template) {
			h.update = r
		}
	}
	semantic := v.Gates.On(gate.StatefulSetSemanticRevisionComparison)
	if last := len(h.past) - 1; semantic && h.update == nil && last >= 0 && revision.HoldsByDefault(h.past[last], &v.Set.Spec.Template) {
		h.update = h.past[last]
	}
	switch {
	case h.update == nil:
		h.update = v.revision(revision.Patch(&v.Set.Spec.Template), newest+1)
		command := reconcile.Create(kinds.ControllerRevisions.Kind, v.Set.Namespace, h.update.Name, reconcile.Body(h.update))
		create = &command
	case h.update != h.past[len(h.past)-1]:
		again := *h.update // shallow: only the number changes
		again.Revision = newest + 1
		h.update = &again
		command := reconcile.Update(kinds.ControllerRevisions.Kind, &again)
		create = &command
	}
	h.current = h.update
	for _, r := range h.past {
		if r.Name == v.Set.Status.CurrentRevision {
			h.current = r
		}
	}
	return h, create
}

// template is the pod template of a revision, or the set's own if the revision cannot
// be read.
func (v View) template(r *appsv1.ControllerRevision) *corev1.PodTemplateSpec {
	if t, ok := revision.Template(r); ok {
		return t
	}
	return &v.Set.Spec.Template
}

func revisionPrefix(set *appsv1.StatefulSet) string {
	return set.Name[:min(len(set.Name), longest)] + "-"
}

// revision returns a new revision. Its name is a hash of its data and of a collision
// count, which increases until the name is free.
func (v View) revision(data []byte, number int64) *appsv1.ControllerRevision {
	taken := slices.Clone(v.Taken)
	for _, r := range v.Revisions {
		taken = append(taken, r.Name)
	}
	collisions := int64(0)
	if v.Set.Status.CollisionCount != nil {
		collisions = int64(*v.Set.Status.CollisionCount)
	}
	hash := hashOf(data, collisions)
	for slices.Contains(taken, revisionPrefix(v.Set)+hash) {
		collisions++
		hash = hashOf(data, collisions)
	}
	labels := map[string]string{}
	maps.Copy(labels, v.Set.Spec.Template.Labels)
	labels[hashLabel] = hash
	return &appsv1.ControllerRevision{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: v.Set.Namespace, Name: revisionPrefix(v.Set) + hash, Labels: labels, Annotations: v.Set.Annotations,
			OwnerReferences: []metav1.OwnerReference{owner.Reference(kinds.StatefulSets.Kind, v.Set)},
		},
		Data: runtime.RawExtension{Raw: data}, Revision: number,
	}
}

// Upstream: pkg/controller/history, HashControllerRevision.
func hashOf(data []byte, collisions int64) string {
	sum := fnv.New32()
	_, _ = sum.Write(data) // a hash never fails
	_, _ = sum.Write([]byte(strconv.FormatInt(collisions, 10)))
	return rand.SafeEncodeString(strconv.FormatUint(uint64(sum.Sum32()), 10))
}

// revisionOf is the name of the revision from which a pod was created.
func revisionOf(p *corev1.Pod) string { return p.Labels[appsv1.StatefulSetRevisionLabel] }

// truncate deletes the oldest revisions that no pod has, beyond as many as the set
// wants to keep.
func (s stage) truncate() reconcile.Decision {
	live := map[string]bool{s.current.Name: true, s.update.Name: true}
	for _, p := range s.pods {
		live[revisionOf(p)] = true
	}
	var old []events.Command
	for _, r := range s.past {
		if !live[r.Name] {
			old = append(old, reconcile.Delete(kinds.ControllerRevisions.Kind, r))
		}
	}
	limit := 10
	if s.Set.Spec.RevisionHistoryLimit != nil {
		limit = int(*s.Set.Spec.RevisionHistoryLimit)
	}
	if limit < 0 || len(old) <= limit {
		return reconcile.Decision{}
	}
	return reconcile.Do("there are more old revisions than the history limit", old[:len(old)-limit]...)
}
