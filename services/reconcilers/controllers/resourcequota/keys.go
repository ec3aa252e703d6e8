package resourcequota

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/services/reconcilers/reconcile"
)

// limited is a quota that is new, or has other limits. What is used is written by us,
// and by the API server with each charge.
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

// cameOrWent are the quotas that limit what has gone. What is new has been charged;
// only a quota that could not be told how many there are, since the kind was not known
// then, has not heard of it.
func cameOrWent(s reconcile.Snapshot, was, now reconcile.Object) []events.Key {
	switch {
	case now.None() && was.None():
		return nil
	case now.None():
		return quotas(s, was, tracks)
	case was.None():
		return quotas(s, now, lacks)
	case was.GetUID() != now.GetUID(): // a deletion and a create in one
		return quotas(s, now, tracks)
	default:
		return nil
	}
}

// changed are the quotas that limit what uses another amount, or may count in another
// one, than before.
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

// quotas are those of an object's namespace that are concerned by it.
func quotas(s reconcile.Snapshot, o reconcile.Object, concerned func(*corev1.ResourceQuota, corev1.ResourceName, meter) bool) []events.Key {
	if o.GetNamespace() == "" {
		return nil
	}
	var (
		keys []events.Key
		of   *meter
	)
	for _, q := range reconcile.List(s, kinds.ResourceQuotas, o.GetNamespace()) {
		if of == nil { // most namespaces have no quota, and need not know the meters
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

// tracks tells whether a quota limits by a name what a meter measures.
func tracks(_ *corev1.ResourceQuota, name corev1.ResourceName, m meter) bool { return m.measures(name) }

// lacks tells whether it does, and does not say how much of it is used.
func lacks(q *corev1.ResourceQuota, name corev1.ResourceName, m meter) bool {
	_, told := q.Status.Used[name]
	return !told && m.measures(name)
}

// meterOf is what measures the objects of a kind.
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

// podDiffers tells whether a pod may use another amount: it was resized, has a
// deadline by now or none any more, or has ended. That it is overdue tells the wake.
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

// claimDiffers tells whether a claim uses another amount of storage, or other classes.
// Upstream means to compare the same, and takes every change for one.
func claimDiffers(last, next *corev1.PersistentVolumeClaim) bool {
	a, b := storage(last), storage(next)
	return (a == nil) != (b == nil) || a != nil && a.Cmp(*b) != 0 || !equality.Semantic.DeepEqual(attributes(last), attributes(next))
}
