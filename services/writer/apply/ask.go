package apply

import (
	"context"
	"fmt"
	"net/http"
	"slices"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"

	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/services/writer/plan"
)

// askOf reads an object, or a subresource of it, that is named as in an owner reference.
func (d *Client) askOf(ctx context.Context, a Actor, client rest.Interface, r plan.Request) plan.Response {
	mapped, err := d.mapping.find(*r.Owner)
	switch {
	case meta.IsNoMatchError(err):
		return plan.Response{Reason: plan.ReasonNoMatch, Message: err.Error()}
	case err != nil:
		return refusal(err, 0)
	}
	resource := mapped.Resource
	r.Kind, r.Version, r.Name, r.Owner = kinds.NameOf(resource.Group, resource.Resource), resource.Version, r.Owner.Name, nil
	if mapped.Scope.Name() != meta.RESTScopeNameNamespace {
		r.Namespace = ""
	}
	response := d.readObject(ctx, a, client, r)
	if response.Code == http.StatusNotFound && r.Subresource != "" {
		return d.distinguishMissing(resource, r, response)
	}
	return response
}

// distinguishMissing distinguishes a missing object from a resource without the requested subresource.
func (d *Client) distinguishMissing(resource schema.GroupVersionResource, r plan.Request, response plan.Response) plan.Response {
	list, err := d.discovery.ServerResourcesForGroupVersion(resource.GroupVersion().String())
	if err != nil {
		return refusal(err, 0)
	}
	name := resource.Resource + "/" + r.Subresource
	if slices.ContainsFunc(list.APIResources, func(has metav1.APIResource) bool { return has.Name == name }) {
		response.Cause = ""
		return response
	}
	return plan.Response{
		Code: http.StatusNotImplemented, Reason: plan.ReasonLacking,
		Message: fmt.Sprintf("%s does not implement the %s subresource", resource.GroupResource(), r.Subresource),
	}
}
