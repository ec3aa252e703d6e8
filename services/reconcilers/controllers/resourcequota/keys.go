package resourcequota

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/services/reconcilers/reconcile"
)

// limited maps a quota to itself if it is new or its limits have changed. This
// controller itself writes the usage, and so does the API server with each charge.
func limited(_ reconcile.Snapshot, was, now reconcile.Object) []events.Key {
	next, ok := now.Object.(*corev1.ResourceQuota)
	if !ok {
		return nil
	}
	if last, ok := was.Object.(*corev1.ResourceQuota); ok && last.UID == next.UID && equal(last.Spec.Hard, next.Spec.Hard) {
		return nil
	}
	return []events.Key{{Namespace: next.Namespace, Name: next.Name}}
}

// cameOrWent maps a deleted object to the quotas that limit it. A new object has been
// charged, so it maps only to quotas that have no usage for it, because its kind was
// not known before.
func cameOrWent(s reconcile.Snapshot, was, now reconcile.Object) []events.Key {
	switch {
	case now.None() && was.None():
		return nil
	case now.None():
		return quotas(s, was, tracks)
	case was.None():
		return quotas(s, now, lacks)
	case was.GetUID() != now.GetUID(): // a delete and a create in one change
		return quotas(s, now, tracks)
	default:
		return nil
	}
}

// changed maps an object to the quotas that limit it, if its usage or its scopes may
// have changed.
//
// Upstream: pkg/quota/v1/install/update_filter.go.
func changed(s reconcile.Snapshot, was, now reconcile.Object) []events.Key {
	if was.None() || now.None() || was.GetUID() != now.GetUID() {
		return nil
	}
	differs := false
	switch next := now.Object.(type) {
	case *corev1.Pod:
		last, ok := was.Object.(*corev1.Pod)
		differs = ok && podDiffers(last, next)
	case *corev1.Service:
		last, ok := was.Object.(*corev1.Service)
		differs = ok && exposure(last) != exposure(next)
	case *corev1.PersistentVolumeClaim:
		last, ok := was.Object.(*corev1.PersistentVolumeClaim)
		differs = ok && claimDiffers(last, next)
	}
	if !differs {
		return nil
	}
	return quotas(s, now, tracks)
}

// quotas are the quotas of an object's namespace for which concerned is true.
func quotas(s reconcile.Snapshot, o reconcile.Object, concerned func(*corev1.ResourceQuota, corev1.ResourceName, meter) bool) []events.Key {
	if o.GetNamespace() == "" {
		return nil
	}
	var (
		keys []events.Key
		of   *meter
	)
	for _, q := range reconcile.List(s, kinds.ResourceQuotas, o.GetNamespace()) {
		if of == nil { // most namespaces have no quota, and need no meter
			m := meterOf(s, o.Kind.Name)
			of = &m
		}
		for name := range q.Spec.Hard {
			if concerned(q, name, *of) {
				keys = append(keys, events.Key{Namespace: q.Namespace, Name: q.Name})
				break
			}
		}
	}
	return keys
}

// tracks reports whether a name of a quota limits what a meter measures.
func tracks(_ *corev1.ResourceQuota, name corev1.ResourceName, m meter) bool { return m.measures(name) }

// lacks reports whether it does, and the quota has no usage for the name.
func lacks(q *corev1.ResourceQuota, name corev1.ResourceName, m meter) bool {
	_, told := q.Status.Used[name]
	return !told && m.measures(name)
}

// meterOf is the meter for the objects of a kind.
func meterOf(s reconcile.Snapshot, kind kinds.Name) meter {
	v := View{}
	if kind == kinds.ResourceClaims.Name {
		v.Classes = reconcile.List(s, kinds.DeviceClasses, "")
	}
	switch m := v.meters(); kind {
	case kinds.Pods.Name:
		return m.pods
	case kinds.Services.Name:
		return m.services
	case kinds.PersistentVolumeClaims.Name:
		return m.claims
	case kinds.ResourceClaims.Name:
		return m.devices
	default:
		return meter{measures: func(name corev1.ResourceName) bool {
			counted, ok := countOf(name)
			return ok && counted == kind
		}}
	}
}

// podDiffers reports whether a pod's usage may have changed: it was resized, its
// deadline was set or removed, or it has ended. A wake covers the pods that become
// overdue.
func podDiffers(last, next *corev1.Pod) bool {
	return terminating(last) != terminating(next) ||
		!ended(last) && ended(next) ||
		resized(last.Status.ContainerStatuses, next.Status.ContainerStatuses) ||
		resized(last.Status.InitContainerStatuses, next.Status.InitContainerStatuses)
}

func resized(last, next []corev1.ContainerStatus) bool {
	for _, was := range last {
		for _, now := range next {
			if was.Name == now.Name && !equality.Semantic.DeepEqual(was.Resources, now.Resources) {
				return true
			}
		}
	}
	return false
}

// claimDiffers reports whether a claim's storage or its classes have changed. Upstream
// intends the same comparison, but counts every change.
func claimDiffers(last, next *corev1.PersistentVolumeClaim) bool {
	a, b := storage(last), storage(next)
	return (a == nil) != (b == nil) || a != nil && a.Cmp(*b) != 0 || !equality.Semantic.DeepEqual(attributes(last), attributes(next))
}
