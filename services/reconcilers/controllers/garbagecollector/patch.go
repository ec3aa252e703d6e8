package garbagecollector

import (
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/services/reconcilers/reconcile"
)

// unsupportedMediaType is the status with which a server rejects a strategic merge patch.
const unsupportedMediaType = 415

// builtIn are the groups whose objects accept strategic merge patches, which remove
// references by uid, whatever else changes meanwhile. All other groups are custom
// resources or come from aggregated servers and accept only JSON merge patches. Those
// replace the whole list and so depend on the resourceVersion. If a server rejects a
// strategic merge patch, the next turn uses a merge patch.
var builtIn = []string{
	"",
	"admissionregistration.k8s.io",
	"apiextensions.k8s.io",
	"apiregistration.k8s.io",
	"apps",
	"autoscaling",
	"batch",
	"certificates.k8s.io",
	"coordination.k8s.io",
	"discovery.k8s.io",
	"flowcontrol.apiserver.k8s.io",
	"internal.apiserver.k8s.io",
	"networking.k8s.io",
	"node.k8s.io",
	"policy",
	"rbac.authorization.k8s.io",
	"resource.k8s.io",
	"scheduling.k8s.io",
	"storage.k8s.io",
	"storagemigration.k8s.io",
}

// patch is {"metadata": ...} with the fields that the collector patches.
type patch struct {
	Metadata struct {
		UID             types.UID `json:"uid,omitempty"`
		ResourceVersion string    `json:"resourceVersion,omitempty"`
		Finalizers      *[]string `json:"finalizers,omitempty"`
		OwnerReferences any       `json:"ownerReferences,omitempty"`
	} `json:"metadata"`
}

// strike is an element of a strategic merge patch that removes the reference with its uid.
type strike struct {
	Patch string    `json:"$patch"`
	UID   types.UID `json:"uid"`
}

// forget removes owner references from an object.
func (v View) forget(o Object, refs []metav1.OwnerReference, with ...reconcile.Option) events.Command {
	if v.strategic(o.Kind) {
		strikes := make([]strike, len(refs))
		for i, ref := range refs {
			strikes[i] = strike{Patch: "delete", UID: ref.UID}
		}
		return byUID(o, strikes, with)
	}
	rest := slices.DeleteFunc(slices.Clone(o.Meta.OwnerReferences), func(ref metav1.OwnerReference) bool {
		return slices.ContainsFunc(refs, func(r metav1.OwnerReference) bool { return r.UID == ref.UID })
	})
	return whole(o, rest, with)
}

// unblock makes references of the object non-blocking.
func (v View) unblock(refs, absent []metav1.OwnerReference) events.Command {
	no := false
	free := func(from []metav1.OwnerReference) []metav1.OwnerReference {
		out := slices.Clone(from)
		for i := range out {
			out[i].BlockOwnerDeletion = &no
		}
		return out
	}
	with := []reconcile.Option{reconcile.IfAbsent(absent...)}
	if v.strategic(v.Object.Kind) {
		return byUID(v.Object, free(refs), with)
	}
	return whole(v.Object, free(v.Object.Meta.OwnerReferences), with)
}

// dropFinalizer removes a finalizer from the object. It replaces the whole list of
// finalizers, and only if no client has changed the object.
func (v View) dropFinalizer(finalizer string) events.Command {
	rest := slices.DeleteFunc(append([]string{}, v.Object.Meta.Finalizers...), func(f string) bool { return f == finalizer })
	var p patch
	p.Metadata.UID, p.Metadata.ResourceVersion, p.Metadata.Finalizers = v.Object.Meta.UID, v.Object.Meta.ResourceVersion, &rest
	return reconcile.Patch(v.Object.Kind, &v.Object.Meta, types.MergePatchType, reconcile.Body(p), reconcile.IfUnchanged(&v.Object.Meta))
}

func byUID(o Object, refs any, with []reconcile.Option) events.Command {
	var p patch
	p.Metadata.UID, p.Metadata.OwnerReferences = o.Meta.UID, refs
	return reconcile.Patch(o.Kind, &o.Meta, types.StrategicMergePatchType, reconcile.Body(p), with...)
}

func whole(o Object, refs []metav1.OwnerReference, with []reconcile.Option) events.Command {
	if refs == nil {
		refs = []metav1.OwnerReference{}
	}
	var p patch
	p.Metadata.UID, p.Metadata.ResourceVersion, p.Metadata.OwnerReferences = o.Meta.UID, o.Meta.ResourceVersion, refs
	return reconcile.Patch(o.Kind, &o.Meta, types.MergePatchType, reconcile.Body(p), append(with, reconcile.IfUnchanged(&o.Meta))...)
}

func (v View) strategic(kind kinds.Kind) bool {
	turnedDown := v.Refused != nil && v.Refused.Code == unsupportedMediaType
	return slices.Contains(builtIn, kind.Name.Group()) && !turnedDown
}

// blocking returns the object's references with blockOwnerDeletion, whose owners may wait for it.
func (v View) blocking() []metav1.OwnerReference {
	var refs []metav1.OwnerReference
	for _, ref := range v.Object.Meta.OwnerReferences {
		if blocks(ref) {
			refs = append(refs, ref)
		}
	}
	return refs
}

func referencesTo(o Object, uid types.UID) []metav1.OwnerReference {
	var refs []metav1.OwnerReference
	for _, ref := range o.Meta.OwnerReferences {
		if ref.UID == uid {
			refs = append(refs, ref)
		}
	}
	return refs
}

func blocksOwner(o metav1.Object, uid types.UID) bool {
	return slices.ContainsFunc(o.GetOwnerReferences(), func(ref metav1.OwnerReference) bool { return ref.UID == uid && blocks(ref) })
}
