package statefulset

import (
	"cmp"
	"maps"
	"slices"
	"strconv"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/services/reconcilers/kube/owner"
	"github.com/millrace/millrace/services/reconcilers/reconcile"
)

// claimName is the name of a pod's claim for a template.
func (v View) claimName(t *corev1.PersistentVolumeClaim, ordinal int) string {
	return t.Name + "-" + v.Set.Name + "-" + strconv.Itoa(ordinal)
}

func (v View) claim(name string) *corev1.PersistentVolumeClaim {
	for _, c := range v.Claims {
		if c.Name == name {
			return c
		}
	}
	return nil
}

// volumes are those of a pod: its claims, and the other volumes of the template.
func (v View) volumes(ordinal int, given []corev1.Volume) []corev1.Volume {
	var volumes []corev1.Volume
	for i := range v.Set.Spec.VolumeClaimTemplates {
		t := &v.Set.Spec.VolumeClaimTemplates[i]
		volumes = append(volumes, corev1.Volume{Name: t.Name, VolumeSource: corev1.VolumeSource{
			PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: v.claimName(t, ordinal)},
		}})
	}
	for _, g := range given {
		if !slices.ContainsFunc(volumes, func(v corev1.Volume) bool { return v.Name == g.Name }) {
			volumes = append(volumes, g)
		}
	}
	return volumes
}

// missing returns the creates of the claims that a pod lacks, and its claims that are being
// deleted.
func (s stage) missing(ordinal int) (creates []events.Command, leaving []*corev1.PersistentVolumeClaim) {
	for i := range s.Set.Spec.VolumeClaimTemplates {
		t := &s.Set.Spec.VolumeClaimTemplates[i]
		name := s.claimName(t, ordinal)
		if c := s.claim(name); c != nil {
			if c.DeletionTimestamp != nil {
				leaving = append(leaving, c)
			}
			continue
		}
		made := s.made(t, name)
		of := "Pod " + s.name(ordinal) + " in StatefulSet " + s.Set.Name
		creates = append(creates, reconcile.Create(kinds.PersistentVolumeClaims.Kind, s.Set.Namespace, name, reconcile.Body(made), reconcile.WithEvents(
			s.notice(corev1.EventTypeNormal, "SuccessfulCreate", "Create Claim {name} "+of+" success"),
			s.notice(corev1.EventTypeWarning, "FailedCreate", "Create Claim {name} for "+of+" failed error: {error}"),
		)))
	}
	return creates, leaving
}

// made builds a claim from a template, which may be a claim that a user has copied whole. It
// leaves out the fields that the API server sets on every new object, because the promise
// does not allow them.
//
// Upstream: getPersistentVolumeClaims.
func (s stage) made(t *corev1.PersistentVolumeClaim, name string) *corev1.PersistentVolumeClaim {
	claim := t.DeepCopy()
	claim.ObjectMeta = metav1.ObjectMeta{
		Name: name, Namespace: s.Set.Namespace, GenerateName: claim.GenerateName, ResourceVersion: claim.ResourceVersion,
		Labels: claim.Labels, Annotations: claim.Annotations, Finalizers: claim.Finalizers, OwnerReferences: claim.OwnerReferences,
	}
	if claim.Labels == nil {
		claim.Labels = map[string]string{}
	}
	maps.Copy(claim.Labels, s.Set.Spec.Selector.MatchLabels)
	return claim
}

// holder is the owner of a claim, with which the claim is deleted.
type holder int

const (
	none holder = iota
	theSet
	thePod
)

// holder is the owner that the claims of an ordinal should have, by the retention policy:
//
//	whenDeleted  whenScaled  of a replica  of a pod beyond the replicas
//	Retain       Retain      none          none
//	Delete       Retain      the set       the set
//	Retain       Delete      none          the pod
//	Delete       Delete      the set       the pod
func (v View) holder(ordinal int) holder {
	withSet, withPod := v.retention()
	at := ordinal - v.start()
	switch {
	case withPod && (at < 0 || at >= v.wanted()):
		return thePod
	case withSet:
		return theSet
	default:
		return none
	}
}

// retention is the retention policy: whether claims are deleted with the set, and whether
// with a pod that is scaled down.
func (v View) retention() (withSet, withPod bool) {
	policy := v.Set.Spec.PersistentVolumeClaimRetentionPolicy
	if policy == nil {
		return false, false
	}
	return policy.WhenDeleted == appsv1.DeletePersistentVolumeClaimRetentionPolicyType,
		policy.WhenScaled == appsv1.DeletePersistentVolumeClaimRetentionPolicyType
}

// stale reports whether a claim of a missing pod is still owned by the previous pod of that
// name. A new pod that used the claim would lose it.
func (s stage) stale(ordinal int) bool {
	if _, withPod := s.retention(); !withPod {
		return false
	}
	for i := range s.Set.Spec.VolumeClaimTemplates {
		c := s.claim(s.claimName(&s.Set.Spec.VolumeClaimTemplates[i], ordinal))
		if c != nil && slices.ContainsFunc(c.OwnerReferences, func(r metav1.OwnerReference) bool {
			return names(r, "v1", "Pod", s.name(ordinal))
		}) {
			return true
		}
	}
	return false
}

func names(r metav1.OwnerReference, version, kind, name string) bool {
	return r.APIVersion == version && r.Kind == kind && r.Name == name
}

// bond is a claim of the set with the objects that decide about its owners.
type bond struct {
	*corev1.PersistentVolumeClaim
	stage
	ordinal int
	pod     *corev1.Pod // nil if it does not exist
}

// bonds are the existing claims of an ordinal.
func (s stage) bonds(ordinal int, p *corev1.Pod) []bond {
	var all []bond
	for i := range s.Set.Spec.VolumeClaimTemplates {
		if c := s.claim(s.claimName(&s.Set.Spec.VolumeClaimTemplates[i], ordinal)); c != nil {
			all = append(all, bond{c, s, ordinal, p})
		}
	}
	return all
}

// owned are the updates that give claims the owners that they should have, as soon as their
// pod exists or is to be created, because the set or a pod may be deleted before that pod is
// ready.
//
// Upstream: isClaimOwnerUpToDate and updateClaimOwnerRefForSetAndPod, after the create of
// a pod and while it is pending.
func (s stage) owned(ordinal int, p *corev1.Pod) []events.Command {
	var commands []events.Command
	for _, b := range s.bonds(ordinal, p) {
		if b.settled() {
			continue
		}
		next := *b.PersistentVolumeClaim // shallow: only the list of owners changes, and is made anew
		next.OwnerReferences = b.owners()
		commands = append(commands, reconcile.Update(kinds.PersistentVolumeClaims.Kind, &next, b.tell()))
	}
	return commands
}

// settled reports whether a claim's owners need no update. A claim of an earlier set or pod
// with the same name is left alone.
func (b bond) settled() bool {
	return b.foreign() || slices.EqualFunc(sorted(b.owners()), sorted(b.OwnerReferences), sameOwner)
}

// foreign reports whether the claim belongs to an earlier set or pod with the same name.
func (b bond) foreign() bool {
	return slices.ContainsFunc(b.OwnerReferences, func(r metav1.OwnerReference) bool {
		return b.mine(r) && r.UID != b.Set.UID && (b.pod == nil || r.UID != b.pod.UID)
	})
}

// mine reports whether a reference is to the set or the pod, by name.
func (b bond) mine(r metav1.OwnerReference) bool {
	return names(r, kinds.StatefulSets.APIVersion(), kinds.StatefulSets.Kind.Kind, b.Set.Name) ||
		names(r, kinds.Pods.APIVersion(), kinds.Pods.Kind.Kind, b.name(b.ordinal))
}

// controlled reports whether another controller owns the claim and a part of the retention
// policy is Delete.
func (b bond) controlled() bool {
	withSet, withPod := b.retention()
	return (withSet || withPod) && slices.ContainsFunc(b.OwnerReferences, func(r metav1.OwnerReference) bool {
		return !b.mine(r) && ptr.Deref(r.Controller, false)
	})
}

// conflicting reports whether the retention policy is ignored for the claim.
func (b bond) conflicting() bool {
	withSet, withPod := b.retention()
	return b.controlled() || (withSet || withPod) && b.foreign()
}

// owners are the references that the claim should have.
func (b bond) owners() []metav1.OwnerReference {
	refs := slices.DeleteFunc(slices.Clone(b.OwnerReferences), b.mine)
	if b.controlled() {
		return refs
	}
	switch b.holder(b.ordinal) {
	case thePod:
		refs = append(refs, owner.Reference(kinds.Pods.Kind, b.pod))
	case theSet:
		refs = append(refs, owner.Reference(kinds.StatefulSets.Kind, b.Set))
	}
	return refs
}

// tell sets the Events about the set that report an update of the claim's owners.
func (b bond) tell() reconcile.Option {
	of := "Update Pod " + b.name(b.ordinal) + " in StatefulSet " + b.Set.Name
	failed := b.notice(corev1.EventTypeWarning, "FailedUpdate", of+" failed error: could not update claim "+b.Name+" for delete policy ownerRefs: {error}")
	if b.controlled() {
		return reconcile.WithEvents(b.conflict(), failed)
	}
	return reconcile.WithEvents(nil, failed)
}

// conflict is the Event that another controller owns the claim.
func (b bond) conflict() *events.Notice {
	return b.notice(corev1.EventTypeWarning, "ConflictingController", "PersistentVolumeClaim "+b.Name+
		" has a conflicting OwnerReference that acts as a manging controller, the retention policy is ignored for this claim")
}

func sorted(refs []metav1.OwnerReference) []metav1.OwnerReference {
	refs = slices.Clone(refs)
	slices.SortStableFunc(refs, func(a, b metav1.OwnerReference) int { return cmp.Compare(a.UID, b.UID) })
	return refs
}

func sameOwner(a, b metav1.OwnerReference) bool {
	return a.UID == b.UID && ptr.Deref(a.Controller, false) == ptr.Deref(b.Controller, false)
}
