package ask

import (
	"context"
	"fmt"
	"net/http"
	"slices"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/services/writer/apply/apiclient"
	"github.com/millrace/millrace/services/writer/plan"
)

// named reads an object, or a subresource of it, that is named as in an owner reference.
func (a Answerer) named(ctx context.Context, c *apiclient.Client, r plan.Request) plan.Response {
	mapped, err := a.Discovery.Find(*r.Owner)
	switch {
	case meta.IsNoMatchError(err):
		return plan.Response{Reason: plan.ReasonNoMatch, Message: err.Error()}
	case err != nil:
		return apiclient.Refusal(err, 0)
	}
	resource := mapped.Resource
	r.Kind, r.Version, r.Name, r.Owner = kinds.NameOf(resource.Group, resource.Resource), resource.Version, r.Owner.Name, nil
	if mapped.Scope.Name() != meta.RESTScopeNameNamespace {
		r.Namespace = ""
	}
	response := c.Read(ctx, r)
	if response.Code == http.StatusNotFound && r.Subresource != "" {
		return a.distinguishMissing(resource, r, response)
	}
	return response
}

// distinguishMissing distinguishes a missing object from a resource without the requested subresource.
func (a Answerer) distinguishMissing(resource schema.GroupVersionResource, r plan.Request, response plan.Response) plan.Response {
	list, err := a.Discovery.Client.ServerResourcesForGroupVersion(resource.GroupVersion().String())
	if err != nil {
		return apiclient.Refusal(err, 0)
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
