// Package resourceclaim manages ResourceClaims. It creates the claims that pods request by
// templates, and writes their names into the pods' statuses. It reserves claims for pods that
// got a node without the scheduler, and removes reservations of pods that have ended or were
// deleted. A claim without a reservation loses its devices. A claim that was created for a pod
// is deleted when the pod has ended.
//
//	a pod                             a claim
//	  its claims are created            reservations of pods that have ended are removed
//	  its status gets their names       reservations are made for pods that have a node
//	                                    its devices are deallocated, and its finalizer removed
//	                                    it is deleted after the pod that it was created for
//
// A reservation keeps devices from other pods, so the controller must not remove it while the
// pod may still run. The view of pods may be older than the claim: a pod that is not seen, or is
// seen under another uid, may have been created and scheduled a moment ago. The controller
// therefore asks the API server for the pod first, and removes the reservation because of the
// answer.
package resourceclaim

import (
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/types"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/services/reconcilers/kube/device"
	"github.com/millrace/millrace/services/reconcilers/kube/gate"
	"github.com/millrace/millrace/services/reconcilers/reconcile"
)

// protection is the finalizer that the scheduler puts on a claim when it allocates devices.
const protection = resourcev1.Finalizer

// made are the paths that a new claim may hold.
var made = []string{".metadata.labels", ".metadata.annotations", ".metadata.ownerReferences", ".spec"}

// templates are the templates by which a pod requests claims.
var templates = &reconcile.Named{Kind: kinds.ResourceClaimTemplates.Name, By: ".spec.resourceClaims[*].resourceClaimTemplateName"}

// Controller is the claim controller under the default feature gates. A key is a claim or a pod.
var Controller = New(nil)

// New returns the controller under feature gates that differ from their defaults.
func New(gates gate.Set) reconcile.Controller[View] {
	gates = gates.Of(gate.DRAPrioritizedList)
	return reconcile.Controller[View]{
		Name:     "resourceclaim-controller",
		Aliases:  []string{"resource-claim-controller"},
		Identity: "resource-claim-controller",
		Source:   "resource_claim",
		Queue:    "resource_claim",
		Owns:     &kinds.ResourceClaims.Kind,
		Inputs: []reconcile.Input{
			{Kind: kinds.Pods.Kind, Keys: keysOfPod},
			{Kind: kinds.ResourceClaims.Kind, Keys: keysOfClaim},
			{Kind: kinds.ResourceClaimTemplates.Kind, Keys: keysOfTemplate},
		},
		Writes: reconcile.Writes{
			{Verb: events.VerbCreate, Kind: kinds.ResourceClaims.Name, On: reconcile.Beside, Child: true, Fields: made, Copies: []reconcile.Copy{
				{To: ".spec", From: ".spec.spec", Of: templates},
				{To: ".metadata.labels", From: ".spec.metadata.labels", Of: templates},
				{To: ".metadata.annotations", From: ".spec.metadata.annotations", But: []string{"['" + resourcev1.PodResourceClaimAnnotation + "']"}, Of: templates},
			}},
			{Verb: events.VerbPatch, Kind: kinds.Pods.Name, Subresource: "status", On: reconcile.Itself, How: []types.PatchType{types.ApplyPatchType}, Fields: []string{".status.resourceClaimStatuses"}},
			{Verb: events.VerbAsk, Kind: kinds.Pods.Name, On: reconcile.Beside},
			{Verb: events.VerbUpdate, Kind: kinds.ResourceClaims.Name, Subresource: "status", On: reconcile.Itself},
			{Verb: events.VerbUpdate, Kind: kinds.ResourceClaims.Name, On: reconcile.Itself, Changes: []string{".metadata.finalizers"}},
			{Verb: events.VerbDelete, Kind: kinds.ResourceClaims.Name, On: reconcile.Itself},
		},
		Events: reconcile.EventPromises{
			{Kind: kinds.Pods.Kind, On: reconcile.Itself, Reasons: []string{failed}},
		},
		Remembers: true,
		Metrics:   metrics,
		Settings:  gates.Settings(),
		Observe: func(s reconcile.Snapshot, k events.Key) (View, bool) {
			v, ok := observe(s, k)
			v.Gates = gates
			return v, ok
		},
		Decide: decide,
	}
}

// View is what the turn of one claim or pod can see.
type View struct {
	// Claim is the claim whose turn it is; nil in the turn of a pod.
	Claim *resourcev1.ResourceClaim `json:"resourceClaim,omitempty"`
	// Pods are the pods that are seen under the names of the pods for which the claim is
	// reserved or was created.
	Pods []*corev1.Pod `json:"pods,omitempty"`
	// Waiting are the pods that have a node and no reservation, by name.
	Waiting []*corev1.Pod `json:"waiting,omitempty"`
	// Live is the uid of each pod name at At, from the API server's answers about the claim as
	// it is seen now; empty if no pod had the name.
	Live map[string]types.UID `json:"live,omitempty"`
	At   time.Time            `json:"at,omitzero"`
	// Unread is an answer that could not be read.
	Unread *reconcile.Unread `json:"unread,omitempty"`
	// Deallocated is true if the claim is unchanged since this controller's last report on it.
	Deallocated bool `json:"deallocated,omitempty"`

	// Pod is the pod whose turn it is; nil in the turn of a claim.
	Pod *corev1.Pod `json:"pod,omitempty"`
	// Claims are the claims that the pod names or controls, Templates the templates that it
	// names.
	Claims    []*resourcev1.ResourceClaim         `json:"claims,omitempty"`
	Templates []*resourcev1.ResourceClaimTemplate `json:"templates,omitempty"`
	// Names are the names of the claims that may have to be created, by entry of the pod.
	Names map[string]string `json:"names,omitempty"`
	// Told are the names of the Events of the last report.
	Told []string `json:"told,omitempty"`

	// Gates are the feature gates that differ from their defaults.
	Gates gate.Set `json:"gates,omitempty"`
}

func observe(s reconcile.Snapshot, k events.Key) (View, bool) {
	if k.Kind == kinds.Pods.Name {
		return observePod(s, k)
	}
	return observeClaim(s, k)
}

func decide(v View, now time.Time) reconcile.Decision {
	if v.Pod != nil {
		return v.decidePod()
	}
	return v.decideClaim(now)
}

func keyOfPod(p *corev1.Pod) events.Key {
	return events.Key{Kind: kinds.Pods.Name, Namespace: p.Namespace, Name: p.Name}
}

func keyOfClaim(namespace, name string) events.Key {
	return events.Key{Namespace: namespace, Name: name}
}

// keysOfPod maps a pod to itself if it lacks a claim, and to the claims that are to be reserved
// for it. A pod that has ended or was deleted maps to all its claims. A pod with another uid
// means that the earlier pod was deleted.
func keysOfPod(s reconcile.Snapshot, was, now reconcile.Object) (keys []events.Key) {
	before, _ := was.Object.(*corev1.Pod)
	p, there := now.Object.(*corev1.Pod)
	if before != nil && (!there || before.UID != p.UID) {
		keys = claimsOf(s, before)
	}
	if there {
		keys = appendNew(keys, work(s, p)...)
	}
	return keys
}

// work are the keys that have something to do for a pod.
func work(s reconcile.Snapshot, p *corev1.Pod) (keys []events.Key) {
	if done(p) {
		return claimsOf(s, p)
	}
	of := lookup(s, p.Namespace)
	if lacks(p, of) {
		keys = append(keys, keyOfPod(p))
	}
	for i := range p.Spec.ResourceClaims {
		_, name := device.ClaimOf(p, &p.Spec.ResourceClaims[i])
		if claim := of(name); claim != nil && reserves(p, claim, of) {
			keys = append(keys, keyOfClaim(p.Namespace, name))
		}
	}
	return keys
}

// claimsOf are the claims of a pod: those that it names, and those that were created for it. The
// pod may never have been seen with the names of the latter, because a list can skip versions.
func claimsOf(s reconcile.Snapshot, p *corev1.Pod) (keys []events.Key) {
	for i := range p.Spec.ResourceClaims {
		if _, name := device.ClaimOf(p, &p.Spec.ResourceClaims[i]); name != "" {
			keys = appendNew(keys, keyOfClaim(p.Namespace, name))
		}
	}
	if extended := p.Status.ExtendedResourceClaimStatus; extended != nil && extended.ResourceClaimName != "" {
		keys = appendNew(keys, keyOfClaim(p.Namespace, extended.ResourceClaimName))
	}
	for _, claim := range reconcile.ControlledBy(s, kinds.ResourceClaims, p.UID) {
		keys = appendNew(keys, keyOfClaim(claim.Namespace, claim.Name))
	}
	return keys
}

// keysOfClaim maps a claim to itself, and to the keys with work for the pods that name it and
// for the pod for which it was created.
func keysOfClaim(s reconcile.Snapshot, was, now reconcile.Object) []events.Key {
	claim, there := now.Object.(*resourcev1.ResourceClaim)
	if !there {
		if claim, there = was.Object.(*resourcev1.ResourceClaim); !there {
			return nil
		}
	}
	keys := []events.Key{keyOfClaim(claim.Namespace, claim.Name)}
	if before, seen := was.Object.(*resourcev1.ResourceClaim); seen && !now.None() && alike(before, claim) {
		return keys // drivers write device state into claims, and there may be many pods
	}
	owner, _ := ownerOf(claim)
	for _, p := range reconcile.List(s, kinds.Pods, claim.Namespace) {
		if len(p.Spec.ResourceClaims) > 0 && (p.UID == owner.UID || names(p, claim.Name)) && !done(p) {
			keys = appendNew(keys, work(s, p)...)
		}
	}
	return keys
}

// alike reports whether two versions of a claim cause the same work for its pods.
func alike(a, b *resourcev1.ResourceClaim) bool {
	return a.UID == b.UID && (a.DeletionTimestamp == nil) == (b.DeletionTimestamp == nil) && (a.Status.Allocation == nil) == (b.Status.Allocation == nil) &&
		slices.Equal(a.Status.ReservedFor, b.Status.ReservedFor) && equality.Semantic.DeepEqual(a.OwnerReferences, b.OwnerReferences) &&
		a.Annotations[resourcev1.PodResourceClaimAnnotation] == b.Annotations[resourcev1.PodResourceClaimAnnotation]
}

// keysOfTemplate maps a template to the pods that request claims by it.
func keysOfTemplate(s reconcile.Snapshot, _, now reconcile.Object) (keys []events.Key) {
	if now.None() {
		return nil
	}
	for _, p := range reconcile.List(s, kinds.Pods, now.GetNamespace()) {
		if done(p) || !slices.ContainsFunc(p.Spec.ResourceClaims, func(e corev1.PodResourceClaim) bool {
			return e.ResourceClaimTemplateName != nil && *e.ResourceClaimTemplateName == now.GetName()
		}) {
			continue
		}
		keys = appendNew(keys, work(s, p)...)
	}
	return keys
}

func appendNew(keys []events.Key, more ...events.Key) []events.Key {
	for _, key := range more {
		if !slices.Contains(keys, key) {
			keys = append(keys, key)
		}
	}
	return keys
}
