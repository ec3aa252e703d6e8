// Package statefulset keeps the pods of each StatefulSet, each with its own name, ordinal and
// volumes.
//
// The controller creates pods in the order of their ordinals and deletes them in the opposite
// order. Each step waits until all pods before it are available, unless the set is parallel.
// ControllerRevisions hold the pod templates, so that a set can be between two of them: pods
// below the partition stay at the current revision, and the controller replaces the others one
// by one, the highest ordinal first. With the feature gate MaxUnavailableStatefulSet it
// replaces as many together as the set allows. Claims outlive their pods unless the set says
// otherwise. Since pod names are fixed, the controller creates no pod while another pod has
// its name.
package statefulset

import (
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/services/reconcilers/kube/gate"
	"github.com/millrace/millrace/services/reconcilers/kube/label"
	"github.com/millrace/millrace/services/reconcilers/kube/owner"
	"github.com/millrace/millrace/services/reconcilers/kube/revision"
	"github.com/millrace/millrace/services/reconcilers/kube/template"
	"github.com/millrace/millrace/services/reconcilers/reconcile"
)

// Burst is how many creates or deletes one turn decides at most, where a set allows all of
// them at once.
const Burst = 500

// Controller is the StatefulSet controller under the default feature gates.
var Controller = New(nil)

// New returns the controller under feature gates that differ from their defaults.
func New(gates gate.Set) reconcile.Controller[View] {
	gates = gates.Of(gate.MaxUnavailableStatefulSet, gate.StatefulSetSemanticRevisionComparison)
	return reconcile.Controller[View]{
		Name:    "statefulset-controller",
		Aliases: []string{"statefulset"},
		Queue:   "statefulset",
		Owns:    &kinds.StatefulSets.Kind,
		Inputs: []reconcile.Input{
			reconcile.Own(kinds.StatefulSets.Kind),
			{Kind: kinds.Pods.Kind, Keys: keysOfPod},
			{Kind: kinds.ControllerRevisions.Kind, Keys: owner.Keys(kinds.StatefulSets, selectorOf)},
			{Kind: kinds.PersistentVolumeClaims.Kind, Keys: keysOfClaim},
		},
		Writes: reconcile.Writes{
			creates(),
			{Verb: events.VerbPatch, Kind: kinds.Pods.Name, On: reconcile.Beside, Child: true, Fields: []string{".metadata.ownerReferences", ".metadata.labels['" + appsv1.StatefulSetPodNameLabel + "']", ".metadata.labels['" + appsv1.PodIndexLabel + "']"}},
			{Verb: events.VerbDelete, Kind: kinds.Pods.Name, On: reconcile.Beside},
			{Verb: events.VerbCreate, Kind: kinds.PersistentVolumeClaims.Name, On: reconcile.Beside, Name: reconcile.Amid, Fields: append(slices.Clone(template.Made), ".status"),
				Copies: []reconcile.Copy{{To: ".spec", From: ".spec.volumeClaimTemplates[*].spec"}}},
			{Verb: events.VerbUpdate, Kind: kinds.PersistentVolumeClaims.Name, On: reconcile.Beside, Name: reconcile.Amid, Changes: []string{".metadata.ownerReferences"},
				Elements: []reconcile.Elements{{Path: ".metadata.ownerReferences", By: "kind", One: []string{kinds.StatefulSets.Kind.Kind, kinds.Pods.Kind.Kind}}}},
			revision.Creates(),
			{Verb: events.VerbUpdate, Kind: kinds.ControllerRevisions.Name, On: reconcile.Beside, Child: true, Changes: []string{".revision"}},
			{Verb: events.VerbPatch, Kind: kinds.ControllerRevisions.Name, On: reconcile.Beside, Child: true, Fields: []string{".metadata.ownerReferences"}},
			{Verb: events.VerbDelete, Kind: kinds.ControllerRevisions.Name, On: reconcile.Beside},
			{Verb: events.VerbUpdate, Kind: kinds.StatefulSets.Name, Subresource: "status", On: reconcile.Itself},
		},
		Events: reconcile.EventPromises{
			{Kind: kinds.StatefulSets.Kind, On: reconcile.Itself, Reasons: []string{"SuccessfulCreate", "FailedCreate", "SuccessfulDelete", "FailedDelete", "SuccessfulUpdate", "FailedUpdate", "ConflictingController"}},
		},
		StatusBlind: true,
		Remembers:   true,
		Metrics:     metrics,
		Settings:    gates.Settings(),
		Observe: func(s reconcile.Snapshot, k events.Key) (View, bool) {
			v, ok := observe(s, k)
			v.Gates = gates
			return v, ok
		},
		Decide: measured,
	}
}

// creates is the promise to create pods from the set's template, as it is or as a revision has
// it, each with its own name and volumes.
func creates() reconcile.Write {
	w := template.Creates([]string{
		".metadata.labels['" + appsv1.StatefulSetPodNameLabel + "']", ".metadata.labels['" + appsv1.PodIndexLabel + "']",
		".metadata.labels['" + appsv1.StatefulSetRevisionLabel + "']", ".spec.hostname", ".spec.subdomain", ".spec.volumes",
	}, nil)
	const volumes = ".spec.volumes"
	w.Copies = append(w.Copies, reconcile.Copy{
		To: volumes, From: ".spec.template" + volumes, Claims: ".spec.volumeClaimTemplates[*].metadata.name",
	})
	for i := range w.Copies {
		w.Copies[i].Revision = true
	}
	return w
}

func selectorOf(set *appsv1.StatefulSet) *metav1.LabelSelector { return set.Spec.Selector }

// View is what one turn can see.
type View struct {
	Set *appsv1.StatefulSet `json:"set"`
	// Pods are the pods that the set controls, and the orphans that its selector matches.
	Pods []*corev1.Pod `json:"pods,omitempty"`
	// Claims are the claims that have the names of the set's claims.
	Claims []*corev1.PersistentVolumeClaim `json:"claims,omitempty"`
	// Revisions are the revisions that the set controls, and the orphans that its selector
	// matches.
	Revisions []*appsv1.ControllerRevision `json:"revisions,omitempty"`
	// Taken are the names of other revisions that begin with the set's name.
	Taken []string `json:"taken,omitempty"`
	// Squatters are names of the set's pods that other pods have.
	Squatters []string `json:"squatters,omitempty"`
	// Told are the names of the hints that the last report told and that still applied then.
	Told []string `json:"told,omitempty"`
	// Gates are the feature gates that differ from their defaults.
	Gates gate.Set `json:"gates,omitempty"`
}

// keysOfPod maps a pod to the set that owns it or whose selector matches it, and to the set
// that waits for its name.
func keysOfPod(s reconcile.Snapshot, was, now reconcile.Object) []events.Key {
	keys := owner.Keys(kinds.StatefulSets, selectorOf)(s, was, now)
	p := now
	if p.None() {
		p = was
	}
	dash := strings.LastIndex(p.GetName(), "-")
	if dash < 0 {
		return keys
	}
	key := events.Key{Namespace: p.GetNamespace(), Name: p.GetName()[:dash]}
	if _, ok := s.Get(kinds.StatefulSets.Name, key.Namespace, key.Name); ok && !slices.Contains(keys, key) {
		keys = append(keys, key)
	}
	return keys
}

// keysOfClaim maps a claim to the sets that may have a template for it.
//
// Upstream: claims make no set's turn; a set that waits for one tries again.
func keysOfClaim(s reconcile.Snapshot, was, now reconcile.Object) []events.Key {
	c := now
	if c.None() {
		c = was
	}
	var keys []events.Key
	for _, set := range reconcile.List(s, kinds.StatefulSets, c.GetNamespace()) {
		if ofSet(set, c.GetName()) {
			keys = append(keys, events.Key{Namespace: set.Namespace, Name: set.Name})
		}
	}
	return keys
}

// ofSet reports whether a claim has the name of one of the set's claims.
func ofSet(set *appsv1.StatefulSet, claim string) bool {
	return slices.ContainsFunc(set.Spec.VolumeClaimTemplates, func(t corev1.PersistentVolumeClaim) bool {
		number, ok := strings.CutPrefix(claim, t.Name+"-"+set.Name+"-")
		return ok && number != "" && strings.Trim(number, "0123456789") == ""
	})
}

func observe(s reconcile.Snapshot, k events.Key) (View, bool) {
	set, ok := reconcile.Get(s, kinds.StatefulSets, k.Namespace, k.Name)
	if !ok {
		return View{}, false
	}
	v := View{Set: set}
	selector, ok := label.Selector(set.Spec.Selector)
	if !ok {
		return v, true
	}
	v.Pods = owner.Candidates(s, kinds.Pods, set, selector)
	v.Revisions, v.Taken = revision.Of(s, set, selector, revisionPrefix(set))
	for at := range v.wanted() {
		name := v.name(v.start() + at)
		if p, ok := reconcile.Get(s, kinds.Pods, set.Namespace, name); ok && !slices.Contains(v.Pods, p) {
			v.Squatters = append(v.Squatters, name)
		}
	}
	for _, c := range reconcile.List(s, kinds.PersistentVolumeClaims, set.Namespace) {
		if ofSet(set, c.Name) {
			v.Claims = append(v.Claims, c)
		}
	}
	if last, ok := reconcile.LastOf(s, k, events.LaneStatus, set); ok {
		v.remember(last.Results)
	}
	return v, true
}
