package ask

import (
	"context"
	"encoding/json"
	"net/http"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/millrace/millrace/pkg/events/query"
	"github.com/millrace/millrace/services/writer/apply/apiclient"
	"github.com/millrace/millrace/services/writer/plan"
)

// rangedList decodes only the ranges of a list of objects. Nodes are large, and there may be
// thousands.
type rangedList struct {
	metav1.ListMeta `json:"metadata"`
	Items           []struct {
		Metadata struct {
			Name string    `json:"name"`
			UID  types.UID `json:"uid"`
		} `json:"metadata"`
		query.RangedBody
	} `json:"items"`
}

// ranges finds out which address ranges the objects of a kind have, by a list from the storage and
// not from the API server's cache. It omits objects without one.
func ranges(ctx context.Context, c *apiclient.Client, r plan.Request) plan.Response {
	found := []query.Ranged{}
	of := plan.Request{Command: r.Command, Verb: r.Verb, Kind: r.Kind, Version: r.Version}
	response := apiclient.Pages(ctx, c, of, metav1.ListOptions{}, func(page *rangedList) string {
		for _, item := range page.Items {
			if ranges := item.Ranges(); len(ranges) > 0 {
				found = append(found, query.Ranged{Name: item.Metadata.Name, UID: item.Metadata.UID, Ranges: ranges})
			}
		}
		return page.Continue
	})
	if response.Code == http.StatusOK {
		response.Body, _ = json.Marshal(found) // it has only fields that encoding/json accepts
	}
	return response
}
