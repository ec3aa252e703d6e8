package stage

import (
	"net/http"
	"time"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/pkg/events/query"
	"github.com/millrace/millrace/services/writer/plan"
	"github.com/millrace/millrace/test/oracle/effect"
)

// Look carries out requests on a stage as the writer does when it looks before it writes: which objects
// need a range of addresses or a group of pods, and when a token expires.
func Look(s *Stage, _ time.Time, r plan.Request) plan.Response {
	if r.Verb != plan.Search {
		return s.API.Do(r)
	}
	about := s.API.Get(events.Ref{Kind: r.Kind, Namespace: r.Namespace, Name: r.Name})
	var found any
	switch o := about.(type) {
	case *networkingv1.ServiceCIDR:
		found = s.addressesIn(o)
	case *corev1.Secret:
		found = query.ExpiryOf(o)
	default:
		found = s.podsIn(r)
	}
	look := r
	look.Verb, look.Subresource, look.Body = plan.Look, "", nil
	answer := s.API.Do(look)
	if answer.Code == http.StatusOK {
		answer.Body = []byte(effect.JSON(found))
	}
	return answer
}

// addressesIn are the addresses that need a ServiceCIDR.
func (s *Stage) addressesIn(own *networkingv1.ServiceCIDR) (found query.Users) {
	var all []*networkingv1.ServiceCIDR
	for _, obj := range s.API.List(kinds.ServiceCIDRs.Name) {
		all = append(all, obj.(*networkingv1.ServiceCIDR))
	}
	ranges := query.RangesOf(own, all)
	for _, a := range s.API.List(kinds.IPAddresses.Name) {
		if a.GetLabels()[networkingv1.LabelManagedBy] == query.AddressManager && ranges.Need(a) {
			found.Name(a.GetName())
		}
	}
	return found
}

// podsIn are the pods in a group.
func (s *Stage) podsIn(group plan.Request) (found query.Users) {
	for _, obj := range s.API.List(kinds.Pods.Name) {
		if obj.GetNamespace() == group.Namespace && query.InPodGroup(obj.(*corev1.Pod), group.Name) {
			found.Name(obj.GetName())
		}
	}
	return found
}
