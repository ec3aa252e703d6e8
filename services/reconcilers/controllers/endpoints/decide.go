package endpoints

import (
	"maps"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/services/reconcilers/kube/endpoint"
	"github.com/millrace/millrace/services/reconcilers/kube/service"
	"github.com/millrace/millrace/services/reconcilers/reconcile"
)

func decide(v View, _ time.Time) reconcile.Decision {
	switch {
	case v.Service == nil && v.Endpoints == nil:
		return reconcile.Nothing("neither the Service nor its Endpoints exist")
	case v.Service == nil && elects(v.Endpoints):
		return reconcile.Nothing("the Endpoints are used for leader election")
	case v.Service == nil:
		return reconcile.Do("the service is gone", reconcile.Delete(kinds.Endpoints.Kind, v.Endpoints))
	case !v.published():
		return reconcile.Nothing("another controller publishes the endpoints of this Service")
	}
	subsets, whole := endpoint.Repacked(v.subsets()), true
	if count(subsets) > capacity {
		subsets, whole = truncated(subsets), false
	}
	if v.right(subsets, whole) {
		return reconcile.Nothing("the Endpoints are up to date")
	}
	return reconcile.Do("the Endpoints are not up to date", v.write(subsets, whole))
}

func elects(e *corev1.Endpoints) bool {
	_, ok := e.Annotations[election]
	return ok
}

// right reports whether the object is up to date. Another order of its addresses, as other
// versions of the controller write it, is no difference.
//
// Upstream: one with too many addresses is written at every sync.
func (v View) right(subsets []corev1.EndpointSubset, whole bool) bool {
	if v.Endpoints == nil || !v.labelled() {
		return false
	}
	if _, over := v.Endpoints.Annotations[corev1.EndpointsOverCapacity]; over == whole {
		return false
	}
	had := versionless(v.Endpoints.Subsets)
	return equality.Semantic.DeepEqual(had, subsets) || equality.Semantic.DeepEqual(endpoint.Repacked(had), subsets)
}

// versionless copies subsets without the resourceVersions of the pods, which do not matter.
func versionless(subsets []corev1.EndpointSubset) []corev1.EndpointSubset {
	out := make([]corev1.EndpointSubset, len(subsets))
	for i := range subsets {
		subsets[i].DeepCopyInto(&out[i])
		for _, addresses := range [][]corev1.EndpointAddress{out[i].Addresses, out[i].NotReadyAddresses} {
			for j := range addresses {
				if addresses[j].TargetRef != nil {
					addresses[j].TargetRef.ResourceVersion = ""
				}
			}
		}
	}
	return out
}

// labelled reports whether the object has the service's labels and this controller's. The
// label of a headless service is no reason to update it.
func (v View) labelled() bool {
	have := maps.Clone(v.Endpoints.Labels)
	signed := have[managedBy] == manager
	delete(have, managedBy)
	delete(have, corev1.IsHeadlessService)
	return signed && maps.Equal(have, v.Service.Labels)
}

// write returns the create or the update of the object.
func (v View) write(subsets []corev1.EndpointSubset, whole bool) events.Command {
	next := &corev1.Endpoints{ObjectMeta: metav1.ObjectMeta{Namespace: v.Service.Namespace, Name: v.Service.Name}}
	if v.Endpoints != nil {
		next = v.Endpoints.DeepCopy()
	}
	if next.Annotations == nil {
		next.Annotations = map[string]string{}
	}
	next.Labels = maps.Clone(v.Service.Labels)
	if next.Labels == nil {
		next.Labels = map[string]string{}
	}
	delete(next.Labels, corev1.IsHeadlessService)
	if service.Headless(v.Service) {
		next.Labels[corev1.IsHeadlessService] = ""
	}
	next.Labels[managedBy] = manager
	delete(next.Annotations, corev1.EndpointsLastChangeTriggerTime)
	if since := v.since(subsets); !since.IsZero() {
		next.Annotations[corev1.EndpointsLastChangeTriggerTime] = since.UTC().Format(time.RFC3339Nano)
	}
	delete(next.Annotations, corev1.EndpointsOverCapacity)
	if next.Subsets = subsets; !whole {
		next.Annotations[corev1.EndpointsOverCapacity] = "truncated"
	}
	name := v.Service.Namespace + "/" + v.Service.Name
	if v.Endpoints == nil {
		return reconcile.Create(kinds.Endpoints.Kind, next.Namespace, next.Name, reconcile.Body(next),
			reconcile.WithEvents(nil, failure(next, "FailedToCreateEndpoint", "Failed to create endpoint for service "+name+": {error}")))
	}
	return reconcile.Update(kinds.Endpoints.Kind, next,
		reconcile.WithEvents(nil, failure(next, "FailedToUpdateEndpoint", "Failed to update endpoint "+name+": {error}")))
}

func failure(about *corev1.Endpoints, reason, message string) *events.Notice {
	return &events.Notice{About: reconcile.About(kinds.Endpoints.Kind, about), Type: corev1.EventTypeWarning, Reason: reason, Message: message}
}

// since returns the time of the first change that the object does not show yet: the
// service was created, or a pod became ready or unready. Upstream remembers the pods'
// times; this controller compares the readiness in the present and in the next object.
func (v View) since(next []corev1.EndpointSubset) time.Time {
	if v.Endpoints == nil {
		return v.Service.CreationTimestamp.Time
	}
	said, says := readiness(v.Endpoints.Subsets), readiness(next)
	var first time.Time
	for _, p := range v.Pods {
		was, shown := said[p.UID]
		if _, shows := says[p.UID]; shown && was == v.ready(p) || !shown && !shows {
			continue
		}
		at := slices.IndexFunc(p.Status.Conditions, func(c corev1.PodCondition) bool { return c.Type == corev1.PodReady })
		if at < 0 {
			continue
		}
		if changed := p.Status.Conditions[at].LastTransitionTime.Time; !changed.IsZero() && (first.IsZero() || changed.Before(first)) {
			first = changed
		}
	}
	return first
}

// readiness returns the pods in subsets, and whether they are listed as ready.
func readiness(subsets []corev1.EndpointSubset) map[types.UID]bool {
	said := map[types.UID]bool{}
	note := func(addresses []corev1.EndpointAddress, ready bool) {
		for i := range addresses {
			if ref := addresses[i].TargetRef; ref != nil {
				said[ref.UID] = ready
			}
		}
	}
	for i := range subsets {
		note(subsets[i].Addresses, true)
		note(subsets[i].NotReadyAddresses, false)
	}
	return said
}
