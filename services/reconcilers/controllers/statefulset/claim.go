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

// claimName is the name of the claim that a pod has of a template.
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

// volumes are those of a pod: its claims, and what the template has besides.
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

// missing are the births of claims that a pod should have. blocked is true when one
// that it has is on its way out.
func (s stage) missing(ordinal int) (births []events.Command, blocked bool) {
	for i := range s.Set.Spec.VolumeClaimTemplates {
		t := &s.Set.Spec.VolumeClaimTemplates[i]
		name := s.claimName(t, ordinal)
		if c := s.claim(name); c != nil {
			blocked = blocked || c.DeletionTimestamp != nil
			continue
		}
		born := t.DeepCopy()
		born.Name, born.Namespace = name, s.Set.Namespace
		if born.Labels == nil {
			born.Labels = map[string]string{}
		}
		maps.Copy(born.Labels, s.Set.Spec.Selector.MatchLabels)
		of := "Pod " + s.name(ordinal) + " in StatefulSet " + s.Set.Name
		births = append(births, reconcile.Create(kinds.PersistentVolumeClaims.Kind, s.Set.Namespace, name, reconcile.Body(born), reconcile.Tell(
			s.notice(corev1.EventTypeNormal, "SuccessfulCreate", "Create Claim {name} "+of+" success"),
			s.notice(corev1.EventTypeWarning, "FailedCreate", "Create Claim {name} for "+of+" failed error: {error}"),
		)))
	}
	return births, blocked
}

// retention is what becomes of claims: whether they go with the set, and with a pod
// that is scaled away.
func (v View) retention() (withSet, withPod bool) {
	policy := v.Set.Spec.PersistentVolumeClaimRetentionPolicy
	if policy == nil {
		return false, false
	}
	return policy.WhenDeleted == appsv1.DeletePersistentVolumeClaimRetentionPolicyType,
		policy.WhenScaled == appsv1.DeletePersistentVolumeClaimRetentionPolicyType
}

// stale tells whether a claim of a pod that is not there still goes with one that
// was. A pod that took it now would lose it.
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

// owned are the changes that have a pod's claims go with whom the set says. Claims
// that another controller has, or an earlier namesake of set or pod, are left alone.
//
// Upstream: isClaimOwnerUpToDate and updateClaimOwnerRefForSetAndPod.
func (s stage) owned(p *corev1.Pod) []events.Command {
	var commands []events.Command
	for i := range s.Set.Spec.VolumeClaimTemplates {
		c := s.claim(s.claimName(&s.Set.Spec.VolumeClaimTemplates[i], s.ordinal(p)))
		if c == nil || s.foreign(c, p) {
			continue
		}
		want := s.owners(c, p)
		if slices.EqualFunc(sorted(want), sorted(c.OwnerReferences), sameOwner) {
			continue
		}
		next := *c // shallow: only the list of owners changes, and is made anew
		next.OwnerReferences = want
		commands = append(commands, reconcile.Update(kinds.PersistentVolumeClaims.Kind, &next, s.conflicting(c, p)))
	}
	return commands
}

// foreign tells whether the claim is of a set or pod that had the names before.
func (s stage) foreign(c *corev1.PersistentVolumeClaim, p *corev1.Pod) bool {
	return slices.ContainsFunc(c.OwnerReferences, func(r metav1.OwnerReference) bool {
		return s.mine(r, p) && r.UID != s.Set.UID && r.UID != p.UID
	})
}

// mine tells whether a reference is to the set or the pod, by name.
func (s stage) mine(r metav1.OwnerReference, p *corev1.Pod) bool {
	return names(r, kinds.StatefulSets.APIVersion(), kinds.StatefulSets.Kind.Kind, s.Set.Name) ||
		names(r, kinds.Pods.APIVersion(), kinds.Pods.Kind.Kind, p.Name)
}

// controlled tells whether the claim is somebody else's, where that matters.
func (s stage) controlled(c *corev1.PersistentVolumeClaim, p *corev1.Pod) bool {
	withSet, withPod := s.retention()
	return (withSet || withPod) && slices.ContainsFunc(c.OwnerReferences, func(r metav1.OwnerReference) bool {
		return !s.mine(r, p) && ptr.Deref(r.Controller, false)
	})
}

// owners are the references that the claim should have.
func (s stage) owners(c *corev1.PersistentVolumeClaim, p *corev1.Pod) []metav1.OwnerReference {
	refs := slices.DeleteFunc(slices.Clone(c.OwnerReferences), func(r metav1.OwnerReference) bool { return s.mine(r, p) })
	if s.controlled(c, p) {
		return refs
	}
	withSet, withPod := s.retention()
	at := s.ordinal(p) - s.start()
	scaled := at < 0 || at >= s.wanted()
	switch {
	case withPod && scaled:
		refs = append(refs, owner.Reference(kinds.Pods.Kind, p))
	case withSet:
		refs = append(refs, owner.Reference(kinds.StatefulSets.Kind, s.Set))
	}
	return refs
}

// conflicting has users told that the claim is somebody else's.
func (s stage) conflicting(c *corev1.PersistentVolumeClaim, p *corev1.Pod) reconcile.Option {
	if !s.controlled(c, p) {
		return reconcile.Tell(nil, nil)
	}
	return reconcile.Tell(s.notice(corev1.EventTypeWarning, "ConflictingController", "PersistentVolumeClaim "+c.Name+
		" has a conflicting OwnerReference that acts as a manging controller, the retention policy is ignored for this claim"), nil)
}

func sorted(refs []metav1.OwnerReference) []metav1.OwnerReference {
	refs = slices.Clone(refs)
	slices.SortStableFunc(refs, func(a, b metav1.OwnerReference) int { return cmp.Compare(a.UID, b.UID) })
	return refs
}

func sameOwner(a, b metav1.OwnerReference) bool {
	return a.UID == b.UID && ptr.Deref(a.Controller, false) == ptr.Deref(b.Controller, false)
}
