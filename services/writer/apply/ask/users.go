package ask

import (
	"context"
	"encoding/json"
	"net/http"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/pkg/events/query"
	"github.com/millrace/millrace/services/writer/apply/apiclient"
	"github.com/millrace/millrace/services/writer/plan"
)

// users finds out what may use an object ([query.Users]), by lists from the storage and not from
// the API server's cache. It reads the object last: the object existed during the lists, so the
// users are its own, and not those of a later object of its name.
func users(ctx context.Context, c *apiclient.Client, r plan.Request) plan.Response {
	find := usersAmongPods
	if r.Kind == kinds.ServiceCIDRs.Name {
		find = usersOfRange
	}
	found, response := find(ctx, c, r)
	if response.Code != http.StatusOK {
		return response
	}
	r.Verb, r.Subresource, r.Body = plan.Look, "", nil
	if response = c.Read(ctx, r); response.Code == http.StatusOK {
		response.Body, _ = json.Marshal(found) // it has only fields that encoding/json accepts
	}
	return response
}

// usersAmongPods returns the pods that may use a claim, or that are in a pod group.
func usersAmongPods(ctx context.Context, c *apiclient.Client, r plan.Request) (found query.Users, response plan.Response) {
	pods := plan.Request{Command: r.Command, Verb: r.Verb, Kind: kinds.Pods.Name, Version: kinds.Pods.Version, Namespace: r.Namespace}
	response = apiclient.Pages(ctx, c, pods, metav1.ListOptions{}, func(page *corev1.PodList) string {
		for i := range page.Items {
			switch p := &page.Items[i]; {
			case r.Kind != kinds.PodGroups.Name:
				found.Take(p, r.Name)
			case query.InPodGroup(p, r.Name):
				found.Name(p.Name)
			}
		}
		return page.Continue
	})
	return found, response
}

// usersOfRange returns the addresses that need a ServiceCIDR. It lists the ServiceCIDRs after the
// addresses: a ServiceCIDR that remains then existed before an address relied on it.
func usersOfRange(ctx context.Context, c *apiclient.Client, r plan.Request) (found query.Users, response plan.Response) {
	var addresses []metav1.PartialObjectMetadata
	of := plan.Request{Command: r.Command, Verb: r.Verb, Kind: kinds.IPAddresses.Name, Version: kinds.IPAddresses.Version}
	managed := labels.Set{networkingv1.LabelManagedBy: query.AddressManager}.String()
	response = apiclient.Pages(ctx, c, of, metav1.ListOptions{LabelSelector: managed}, func(page *metav1.PartialObjectMetadataList) string {
		addresses = append(addresses, page.Items...)
		return page.Continue
	})
	if response.Code != http.StatusOK || len(addresses) == 0 {
		return found, response
	}
	var all []*networkingv1.ServiceCIDR
	of.Kind, of.Version = kinds.ServiceCIDRs.Name, kinds.ServiceCIDRs.Version
	response = apiclient.Pages(ctx, c, of, metav1.ListOptions{}, func(page *networkingv1.ServiceCIDRList) string {
		for i := range page.Items {
			all = append(all, &page.Items[i])
		}
		return page.Continue
	})
	for _, own := range all {
		if own.Name != r.Name {
			continue
		}
		ranges := query.RangesOf(own, all)
		for i := range addresses {
			if ranges.Need(&addresses[i]) {
				found.Name(addresses[i].Name)
			}
		}
	}
	return found, response
}
