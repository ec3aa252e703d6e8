// Package pvcprotection keeps PersistentVolumeClaims that pods use from being
// deleted, by a finalizer: every claim gets it, and a deleted one loses it when no
// pod that was given a node uses it.
//
// Upstream lists all pods of the namespace from the API server before it lets a
// claim go, for its cache of pods may be older than that of claims. Since the
// scheduler gives no pod a node whose claim is deleted, only pods can be missing here
// that were bound before that; so the claim is let go [pause] after it was deleted,
// when the changes of before have long been heard. This is weaker than upstream's look:
// when the pods are heard later than that, a claim may be let go that a pod uses.
package pvcprotection

import (
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/services/reconcilers/kube/finalizer"
	"github.com/millrace/millrace/services/reconcilers/reconcile"
)

// guard is the finalizer. The API server's admission puts it on new claims; the
// controller sees to those of before.
const guard = "kubernetes.io/pvc-protection"

// pause is how long after its deletion a claim is kept in any case. The moment of
// deletion is in whole seconds, cut off.
const pause = 2 * time.Second

// Controller is the claim protection controller.
var Controller = reconcile.Controller[View]{
	Name:     "persistentvolumeclaim-protection-controller",
	Aliases:  []string{"pvc-protection"},
	Identity: "pvc-protection-controller",
	Queue:    "pvcprotection",
	Owns:     &kinds.PersistentVolumeClaims.Kind,
	Inputs: []reconcile.Input{
		reconcile.Own(kinds.PersistentVolumeClaims.Kind),
		{Kind: kinds.Pods.Kind, Keys: claimsOf},
	},
	Writes:  reconcile.Writes{{Verb: events.VerbUpdate, Kind: kinds.PersistentVolumeClaims.Name}},
	Observe: observe,
	Decide:  decide,
}

// View is what the turn of one claim can see.
type View struct {
	Claim *corev1.PersistentVolumeClaim `json:"claim"`
	// Users are the pods that name it. They are collected for a claim that is deleted.
	Users []*corev1.Pod `json:"users,omitempty"`
}

// claimsOf are the claims that a pod uses, and used before.
func claimsOf(_ reconcile.Snapshot, was, now reconcile.Object) []events.Key {
	var keys []events.Key
	for _, obj := range []reconcile.Object{now, was} {
		p, ok := obj.Object.(*corev1.Pod)
		if !ok {
			continue
		}
		for i := range p.Spec.Volumes {
			name, _ := claim(p, &p.Spec.Volumes[i])
			if key := (events.Key{Namespace: p.Namespace, Name: name}); name != "" && !slices.Contains(keys, key) {
				keys = append(keys, key)
			}
		}
	}
	return keys
}

// claim is the name of the claim behind a volume of a pod, "" where there is none;
// own is true for one that is made for this pod and goes with it.
func claim(p *corev1.Pod, v *corev1.Volume) (name string, own bool) {
	switch {
	case v.PersistentVolumeClaim != nil:
		return v.PersistentVolumeClaim.ClaimName, false
	case v.Ephemeral != nil:
		return p.Name + "-" + v.Name, true
	default:
		return "", false
	}
}

func observe(s reconcile.Snapshot, k events.Key) (View, bool) {
	found, ok := reconcile.Get(s, kinds.PersistentVolumeClaims, k.Namespace, k.Name)
	if !ok {
		return View{}, false
	}
	v := View{Claim: found}
	if found.DeletionTimestamp == nil {
		return v, true
	}
	for _, p := range reconcile.List(s, kinds.Pods, k.Namespace) {
		names := func(volume corev1.Volume) bool { name, _ := claim(p, &volume); return name == k.Name }
		if slices.ContainsFunc(p.Spec.Volumes, names) {
			v.Users = append(v.Users, p)
		}
	}
	return v, true
}

func decide(v View, now time.Time) reconcile.Decision {
	next := *v.Claim // shallow: only the list of finalizers changes, and is made anew
	deleted, guarded := next.DeletionTimestamp != nil, finalizer.Has(&next, guard)
	switch {
	case !deleted && !guarded:
		finalizer.Add(&next, guard)
		return reconcile.Do("the claim is not protected yet", reconcile.Update(kinds.PersistentVolumeClaims.Kind, &next))
	case !deleted:
		return reconcile.Nothing("the claim is protected")
	case !guarded:
		return reconcile.Nothing("the claim is deleted, and not held by us")
	case slices.ContainsFunc(v.Users, v.uses):
		return reconcile.Nothing("the claim is deleted, but a pod uses it")
	case next.DeletionTimestamp.Add(pause).After(now):
		return reconcile.Wake(next.DeletionTimestamp.Add(pause), "the claim has just been deleted")
	default:
		finalizer.Remove(&next, guard)
		return reconcile.Do("the claim is deleted, and no pod uses it", reconcile.Update(kinds.PersistentVolumeClaims.Kind, &next))
	}
}

// uses tells whether a pod that names the claim may need it. One without a node
// does not yet, and will not. One that has ended may, since its node may not have
// let go of the volume; one that is known to be shut down needs nothing that is its
// own.
//
// Upstream: pkg/controller/volume/pvcprotection, podUsesPVCForDeletion.
func (v View) uses(p *corev1.Pod) bool {
	if p.Spec.NodeName == "" {
		return false
	}
	for i := range p.Spec.Volumes {
		name, own := claim(p, &p.Spec.Volumes[i])
		if name == v.Claim.Name && (!own || !shutDown(p) && metav1.IsControlledBy(v.Claim, p)) {
			return true
		}
	}
	return false
}

func shutDown(p *corev1.Pod) bool {
	return p.DeletionTimestamp != nil && p.DeletionGracePeriodSeconds != nil && *p.DeletionGracePeriodSeconds == 0
}
