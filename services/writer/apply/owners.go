package apply

import (
	"context"
	"fmt"
	"net/http"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/services/writer/apply/apiclient"
	"github.com/millrace/millrace/services/writer/plan"
)

// coordinate is an owner's identity and namespace, the key of the cache of absent owners.
type coordinate struct {
	owner     metav1.OwnerReference
	namespace string
}

// lookAtOwner reads an object as an owner reference names it. It merges concurrent reads of one
// owner, as the dependents of a deleted owner make them.
func (d *Client) lookAtOwner(ctx context.Context, a Actor, client *apiclient.Client, r plan.Request) plan.Response {
	at := coordinate{
		owner: metav1.OwnerReference{
			APIVersion: r.Owner.APIVersion, Kind: r.Owner.Kind, Name: r.Owner.Name, UID: r.Owner.UID,
		},
		namespace: r.Namespace,
	}
	answer, _, _ := d.ownerReads.Do(fmt.Sprint(a, at), func() (any, error) {
		return d.findOwner(ctx, client, r, at), nil
	})
	return answer.(plan.Response)
}

func (d *Client) findOwner(ctx context.Context, client *apiclient.Client, r plan.Request, at coordinate) plan.Response {
	if _, gone := d.absentOwnerCache.Get(at); gone {
		return plan.Response{Code: http.StatusNotFound, Reason: string(metav1.StatusReasonNotFound)}
	}
	owner := at.owner
	mapped, err := d.discovery.Find(owner)
	switch {
	case meta.IsNoMatchError(err):
		gk := schema.FromAPIVersionAndKind(owner.APIVersion, owner.Kind).GroupKind()
		return plan.Response{Reason: plan.ReasonNoMatch, Message: gk.String()}
	case err != nil:
		return apiclient.Refusal(err, 0)
	}
	look := plan.Request{
		Command: r.Command, Verb: plan.Look, Name: owner.Name,
		Kind: kinds.NameOf(mapped.Resource.Group, mapped.Resource.Resource), Version: mapped.Resource.Version,
	}
	if mapped.Scope.Name() == meta.RESTScopeNameNamespace {
		if r.Namespace == "" {
			return plan.Response{Reason: plan.ReasonUnresolvable, Message: "a cluster-scoped object names the owner " + owner.Kind + " " + owner.Name + ", which lives in a namespace"}
		}
		look.Namespace = r.Namespace
	}
	response := client.Read(ctx, look)
	if response.Code == http.StatusNotFound && response.Cause == string(metav1.CauseTypeUnexpectedServerResponse) {
		// The resource is missing, and not the object: the API server no longer serves the kind,
		// and discovery is stale. Whether the owner exists is unknown.
		d.discovery.Renew()
		return plan.Response{Reason: plan.ReasonNoMatch, Message: owner.APIVersion + ", " + owner.Kind}
	}
	// An owner reference without a uid matches whatever uid the object has.
	other := owner.UID != "" && response.Object.UID != owner.UID
	if response.Code == http.StatusNotFound || response.Code == http.StatusOK && other {
		d.absentOwnerCache.Add(at, struct{}{}, proofAge)
	}
	return response
}
