// Package resourceclaim looks after ResourceClaims: it makes those that pods ask for by a
// template, and says in the pods' statuses what they are called; it reserves claims for pods
// that were given a node without the scheduler; and it takes reservations of pods back that
// have ended or are gone. A claim that is reserved for no pod any more loses its devices, and
// one that was made for a pod that has ended is deleted.
//
//	a pod                             a claim
//	  its claims are made               reservations of pods that have ended are taken back
//	  its status says their names       reservations are made for pods that have a node
//	                                    its devices are let go of, and its finalizer removed
//	                                    it is deleted with what it was made for
//
// A reservation keeps devices from other pods, so it must not be taken from a pod that may
// still run. What is seen of the pods may be older than the claim: a pod that is not seen, or
// seen under another uid, may be one that was created and scheduled a moment ago. The API server
// is asked for it first, and the reservation is taken back because of the answer.
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

// templates are those that a pod asks for claims by.
var templates = &reconcile.Named{Kind: kinds.ResourceClaimTemplates.Name, By: ".spec.resourceClaims[*].resourceClaimTemplateName"}

// Controller is the claim controller under the default feature gates. A key is a claim or a pod.
var Controller = New(nil)

// New makes the controller, under feature gates that are not at their defaults.
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
		Tells: reconcile.Tells{
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
	// Pods are those that are seen under the names of the pods that the claim is reserved
	// for, or was made for.
	Pods []*corev1.Pod `json:"pods,omitempty"`
	// Waiting are the pods that were given a node and have no reservation, by name.
	Waiting []*corev1.Pod `json:"waiting,omitempty"`
	// Live is the uid of the pod of a name at At, when the API server was asked about the claim
	// as it is seen now; empty where there was none.
	Live map[string]types.UID `json:"live,omitempty"`
	At   time.Time            `json:"at,omitzero"`
	// Unread is an answer that could not be read.
	Unread *reconcile.Unread `json:"unread,omitempty"`
	// Deallocated is true where the claim is as this controller's last report on it has left it.
	Deallocated bool `json:"deallocated,omitempty"`

	// Pod is the pod whose turn it is; nil in the turn of a claim.
	Pod *corev1.Pod `json:"pod,omitempty"`
	// Claims are those that the pod names or controls, Templates those that it names.
	Claims    []*resourcev1.ResourceClaim         `json:"claims,omitempty"`
	Templates []*resourcev1.ResourceClaimTemplate `json:"templates,omitempty"`
	// Names are those of the claims that may have to be made, by entry of the pod.
	Names map[string]string `json:"names,omitempty"`
	// Told are the names of what the last report told.
	Told []string `json:"told,omitempty"`

	// Gates are the feature gates that are not at their defaults.
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

// keysOfPod maps a pod to itself where a claim of it is missing, and to its claims: those that
// are to be reserved for it, or where it has ended or is gone all of them. It is gone as well
// where another one has its name.
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

// claimsOf are the claims of a pod: those that it names, and those that were made for it. Of the
// latter it may not have been seen to say the names, where a list has skipped that.
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

// keysOfClaim maps a claim to itself, and to what there is to do for the pods that name it, and
// for the pod that it was made for.
func keysOfClaim(s reconcile.Snapshot, was, now reconcile.Object) []events.Key {
	claim, there := now.Object.(*resourcev1.ResourceClaim)
	if !there {
		if claim, there = was.Object.(*resourcev1.ResourceClaim); !there {
			return nil
		}
	}
	keys := []events.Key{keyOfClaim(claim.Namespace, claim.Name)}
	if before, seen := was.Object.(*resourcev1.ResourceClaim); seen && !now.None() && alike(before, claim) {
		return keys // drivers write what they do with devices into claims, and there may be many pods
	}
	owner, _ := ownerOf(claim)
	for _, p := range reconcile.List(s, kinds.Pods, claim.Namespace) {
		if len(p.Spec.ResourceClaims) > 0 && (p.UID == owner.UID || names(p, claim.Name)) && !done(p) {
			keys = appendNew(keys, work(s, p)...)
		}
	}
	return keys
}

// alike tells whether two versions of a claim leave the same to do for its pods.
func alike(a, b *resourcev1.ResourceClaim) bool {
	return a.UID == b.UID && (a.DeletionTimestamp == nil) == (b.DeletionTimestamp == nil) && (a.Status.Allocation == nil) == (b.Status.Allocation == nil) &&
		slices.Equal(a.Status.ReservedFor, b.Status.ReservedFor) && equality.Semantic.DeepEqual(a.OwnerReferences, b.OwnerReferences) &&
		a.Annotations[resourcev1.PodResourceClaimAnnotation] == b.Annotations[resourcev1.PodResourceClaimAnnotation]
}

// keysOfTemplate maps a template to the pods that ask for claims by it.
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
