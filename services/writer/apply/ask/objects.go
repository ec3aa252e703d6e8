package ask

import (
	"context"
	"encoding/json"
	"net/http"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"

	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/pkg/events/query"
	"github.com/millrace/millrace/services/writer/apply/apiclient"
	"github.com/millrace/millrace/services/writer/plan"
)

// objects finds out how a resource is served, and which objects of it are stored
// ([query.Objects]). It reads the object that the ask is about last: that object existed during
// the list, so the list was made for it.
func (a Answerer) objects(ctx context.Context, c *apiclient.Client, r plan.Request) plan.Response {
	var question query.ObjectsQuestion
	if err := json.Unmarshal(r.Body, &question); err != nil {
		return plan.Response{Code: http.StatusBadRequest, Reason: "Malformed", Message: err.Error()}
	}
	var found query.Objects
	if !question.Last {
		served, gone := a.served(question.Resource, &found)
		if gone != nil {
			return *gone
		}
		if served && len(found.Lacking) == 0 {
			of := plan.Request{Command: r.Command, Verb: r.Verb, Kind: question.Resource, Version: found.Version}
			if response := stored(ctx, c, of, question, &found); response.Code != http.StatusOK {
				return response
			}
		}
	}
	r.Verb, r.Subresource, r.Body = plan.Look, "", nil
	response := c.Read(ctx, r)
	if response.Code == http.StatusOK {
		response.Body, _ = json.Marshal(found) // it has only fields that encoding/json accepts
	}
	return response
}

// served finds out how a resource is served. gone is the answer if discovery of its group failed.
func (a Answerer) served(resource kinds.Name, found *query.Objects) (served bool, gone *plan.Response) {
	lists, err := a.Discovery.Client.ServerPreferredResources()
	for _, list := range lists {
		of, parsed := schema.ParseGroupVersion(list.GroupVersion)
		for i := range list.APIResources {
			one := &list.APIResources[i]
			if parsed != nil || kinds.NameOf(of.Group, one.Name) != resource {
				continue
			}
			found.Version, found.Kind = of.Version, one.Kind
			for _, verb := range query.Rewritten {
				if !slices.Contains(one.Verbs, verb) {
					found.Lacking = append(found.Lacking, verb)
				}
			}
			return true, nil
		}
	}
	if err == nil {
		return false, nil
	}
	failed, partial := discovery.GroupDiscoveryFailedErrorGroups(err)
	for of := range failed { // the failure of another group does not matter
		if of.Group == resource.Group() {
			partial = false
		}
	}
	if !partial {
		answer := apiclient.Refusal(err, http.StatusServiceUnavailable)
		return false, &answer
	}
	return false, nil
}

// stored lists a page, or only returns the version of the list. An object that has not changed
// since the question's version is on one of the pages, whichever versions the pages have.
func stored(ctx context.Context, c *apiclient.Client, r plan.Request, question query.ObjectsQuestion, found *query.Objects) plan.Response {
	var page metav1.PartialObjectMetadataList
	response, renewed := c.Page(ctx, r, metav1.ListOptions{Continue: question.From}, &page)
	if renewed != "" { // the new token has no version: it cannot expire
		response, _ = c.Page(ctx, r, metav1.ListOptions{Continue: renewed}, &page)
	}
	if response.Code != http.StatusOK {
		return response
	}
	found.At = page.ResourceVersion
	if question.Version == "" {
		return response
	}
	found.More = page.Continue
	for i := range page.Items {
		o := &page.Items[i]
		if kinds.CompareVersions(o.ResourceVersion, question.Version) <= 0 {
			found.Objects = append(found.Objects, query.Stored{Namespace: o.Namespace, Name: o.Name, UID: o.UID, ResourceVersion: o.ResourceVersion})
		}
	}
	return response
}
