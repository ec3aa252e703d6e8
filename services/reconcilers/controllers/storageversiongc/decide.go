package storageversiongc

import (
	"slices"
	"time"

	apiserverinternalv1alpha1 "k8s.io/api/apiserverinternal/v1alpha1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/services/reconcilers/kube/period"
	"github.com/millrace/millrace/services/reconcilers/reconcile"
)

const (
	// often is how often the controller checks that all servers have their leases.
	often = time.Minute
	// lasting is for how long an answer is valid.
	lasting = 30 * time.Second
)

// decide removes the servers that have no lease.
//
// Upstream: pkg/controller/storageversiongc, syncStorageVersion and
// processDeletedLease.
func decide(v View, now time.Time) reconcile.Decision {
	sv, left := v.StorageVersion, v.left()
	switch {
	case sv.DeletionTimestamp != nil:
		return reconcile.Nothing("the StorageVersion is being deleted")
	case len(sv.Status.StorageVersions) == 0:
		return reconcile.Nothing("no API server has recorded a version")
	case len(v.Unseen) == 0:
		return reconcile.Wake(period.Next(sv.UID, often, now), "every API server in it has its lease")
	case !v.told() || !now.Before(v.At.Add(lasting)):
		return v.Unread.Ask(now, "the lease of an API server in it is not seen", v.ask()...)
	case len(left) == len(sv.Status.StorageVersions):
		return reconcile.Wake(v.At.Add(lasting), "every API server in it has its lease, and the cache does not have all yet")
	case len(left) == 0:
		return reconcile.Do("none of its API servers exists", reconcile.Delete(kinds.StorageVersions.Kind, sv, reconcile.IfUnchanged(sv)))
	default:
		return reconcile.Do("one of its API servers no longer exists", reconcile.UpdateStatus(kinds.StorageVersions.Kind, v.without(left, now)))
	}
}

// ask asks for every lease that is not seen.
func (v View) ask() []events.Command {
	all := make([]events.Command, 0, len(v.Unseen))
	for _, server := range v.Unseen {
		all = append(all, reconcile.AskFor(kinds.Leases.Kind, metav1.NamespaceSystem, server))
	}
	return all
}

// told reports whether there is an answer about every unseen lease.
func (v View) told() bool {
	return !slices.ContainsFunc(v.Unseen, func(server string) bool { _, ok := v.Leases[server]; return !ok })
}

// left are the entries of the servers that are not known to be gone.
func (v View) left() []apiserverinternalv1alpha1.ServerStorageVersion {
	return slices.DeleteFunc(slices.Clone(v.StorageVersion.Status.StorageVersions), func(s apiserverinternalv1alpha1.ServerStorageVersion) bool {
		lives, told := v.Leases[s.APIServerID]
		return told && !lives && slices.Contains(v.Unseen, s.APIServerID)
	})
}

// without is the StorageVersion with the remaining entries.
//
// Upstream: k8s.io/apiserver/pkg/storageversion, SetCommonEncodingVersion.
func (v View) without(left []apiserverinternalv1alpha1.ServerStorageVersion, now time.Time) *apiserverinternalv1alpha1.StorageVersion {
	next := v.StorageVersion.DeepCopy()
	before := next.Status.CommonEncodingVersion
	next.Status.StorageVersions, next.Status.CommonEncodingVersion = left, common(left)
	said := apiserverinternalv1alpha1.StorageVersionCondition{
		Type: apiserverinternalv1alpha1.AllEncodingVersionsEqual, Status: apiserverinternalv1alpha1.ConditionFalse,
		ObservedGeneration: next.Generation, LastTransitionTime: metav1.NewTime(now.Truncate(time.Second)),
		Reason: "CommonEncodingVersionUnset", Message: "Common encoding version unset",
	}
	if next.Status.CommonEncodingVersion != nil {
		said.Status, said.Reason, said.Message = apiserverinternalv1alpha1.ConditionTrue, "CommonEncodingVersionSet", "Common encoding version set"
	}
	at := slices.IndexFunc(next.Status.Conditions, func(c apiserverinternalv1alpha1.StorageVersionCondition) bool { return c.Type == said.Type })
	if at < 0 {
		next.Status.Conditions = append(next.Status.Conditions, said)
		return next
	}
	changed := before != nil && next.Status.CommonEncodingVersion != nil && *before != *next.Status.CommonEncodingVersion
	if was := next.Status.Conditions[at]; was.Status == said.Status && !changed {
		said.LastTransitionTime = was.LastTransitionTime
	}
	next.Status.Conditions[at] = said
	return next
}

// common is the version in which all servers store objects; nil if they differ.
func common(left []apiserverinternalv1alpha1.ServerStorageVersion) *string {
	for _, s := range left {
		if s.EncodingVersion != left[0].EncodingVersion {
			return nil
		}
	}
	return ptr.To(left[0].EncodingVersion)
}
