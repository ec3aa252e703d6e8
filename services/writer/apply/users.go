package apply

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/rest"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/services/writer/plan"
)

// pageOfUsers is the page size of lists: pods come with their whole content.
const pageOfUsers = 500

// users finds out what may use an object ([events.Users]), by lists from the storage and not from
// the API server's cache. It reads the object last: the object existed during the lists, so the
// users are its own, and not those of a later object of its name.
func (d *Client) users(ctx context.Context, a Actor, client rest.Interface, r plan.Request) plan.Response {
	find := d.usersAmongPods
	if r.Kind == kinds.ServiceCIDRs.Name {
		find = d.usersOfRange
	}
	found, response := find(ctx, client, r)
	if response.Code != http.StatusOK {
		return response
	}
	r.Verb, r.Subresource, r.Body = plan.Look, "", nil
	if response = d.readObject(ctx, a, client, r); response.Code == http.StatusOK {
		response.Body, _ = json.Marshal(found) // it has only fields that encoding/json accepts
	}
	return response
}

// usersAmongPods returns the pods that may use a claim, or that are in a pod group.
func (d *Client) usersAmongPods(ctx context.Context, client rest.Interface, r plan.Request) (found events.Users, response plan.Response) {
	pods := plan.Request{Command: r.Command, Verb: r.Verb, Kind: kinds.Pods.Name, Version: kinds.Pods.Version, Namespace: r.Namespace}
	response = pages(ctx, d, client, pods, listing{accept: wholeObject}, func(page *corev1.PodList) string {
		for i := range page.Items {
			switch p := &page.Items[i]; {
			case r.Kind != kinds.PodGroups.Name:
				found.Take(p, r.Name)
			case events.InPodGroup(p, r.Name):
				found.Name(p.Name)
			}
		}
		return page.Continue
	})
	return found, response
}

// usersOfRange returns the addresses that need a ServiceCIDR. It lists the ServiceCIDRs after the
// addresses: a ServiceCIDR that remains then existed before an address relied on it.
func (d *Client) usersOfRange(ctx context.Context, client rest.Interface, r plan.Request) (found events.Users, response plan.Response) {
	var addresses []metav1.PartialObjectMetadata
	of := plan.Request{Command: r.Command, Verb: r.Verb, Kind: kinds.IPAddresses.Name, Version: kinds.IPAddresses.Version}
	managed := labels.Set{networkingv1.LabelManagedBy: events.AddressManager}.String()
	response = pages(ctx, d, client, of, listing{accept: metadataOfSome, labels: managed}, func(page *metav1.PartialObjectMetadataList) string {
		addresses = append(addresses, page.Items...)
		return page.Continue
	})
	if response.Code != http.StatusOK || len(addresses) == 0 {
		return found, response
	}
	var all []*networkingv1.ServiceCIDR
	of.Kind, of.Version = kinds.ServiceCIDRs.Name, kinds.ServiceCIDRs.Version
	response = pages(ctx, d, client, of, listing{accept: wholeObject}, func(page *networkingv1.ServiceCIDRList) string {
		for i := range page.Items {
			all = append(all, &page.Items[i])
		}
		return page.Continue
	})
	for _, own := range all {
		if own.Name != r.Name {
			continue
		}
		ranges := events.RangesOf(own, all)
		for i := range addresses {
			if ranges.Need(&addresses[i]) {
				found.Name(addresses[i].Name)
			}
		}
	}
	return found, response
}

// listing is how a kind is listed.
type listing struct {
	accept, labels, fields string
	// mixed allows pages of different versions: if the version of the first page has expired, the
	// list goes on at the current one.
	mixed bool
}

// pages lists a kind page by page and calls take with each page; take returns the page's continue
// token. pages returns the API server's last answer, or its refusal.
func pages[T any](ctx context.Context, d *Client, client rest.Interface, r plan.Request, how listing, take func(*T) (more string)) plan.Response {
	for more := ""; ; {
		page := new(T)
		response := d.page(ctx, client, r, how, more, page)
		if response.Code != http.StatusOK {
			return response
		}
		if more = take(page); more == "" {
			return response
		}
	}
}

// page reads a page of a list, from a continue token on.
func (d *Client) page(ctx context.Context, client rest.Interface, r plan.Request, how listing, more string, page any) (response plan.Response) {
	request := to(client, http.MethodGet, collection(r)).SetHeader("Accept", how.accept).Param("limit", strconv.Itoa(pageOfUsers))
	if how.labels != "" {
		request.Param("labelSelector", how.labels)
	}
	if how.fields != "" {
		request.Param("fieldSelector", how.fields)
	}
	if more != "" {
		request.Param("continue", more)
	}
	span := d.trace(ctx, r, collection, "")
	carry(span, request)
	began := time.Now()
	result := request.MaxRetries(0).Do(ctx)
	err := result.StatusCode(&response.Code).Error()
	if err != nil {
		response = d.refusal(ctx, r, err, response.Code)
	} else if body, err := result.Raw(); err != nil {
		response = d.refusal(ctx, r, err, response.Code)
	} else if err := json.Unmarshal(body, page); err != nil {
		response = plan.Response{Reason: "NoAnswer", Message: "the API server's answer is no list of " + string(r.Kind)}
	}
	d.config.Metrics.requestedIn(span.Trace(), r.Verb, response, time.Since(began))
	traced(span, response)
	if next := renewedToken(err); how.mixed && next != "" {
		how.mixed = false // the new token has no version: it cannot expire
		return d.page(ctx, client, r, how, next, page)
	}
	if response.Code == http.StatusNotFound { // a 404 for the list says nothing about the object
		response.Cause = "UnexpectedServerResponse"
	}
	return response
}

// renewedToken returns the continue token with which an expired list can go on; "" if there is none.
func renewedToken(err error) string {
	var status apierrors.APIStatus
	if !apierrors.IsResourceExpired(err) || !errors.As(err, &status) {
		return ""
	}
	return status.Status().Continue
}
