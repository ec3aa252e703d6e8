package apiclient

import (
	"context"
	"encoding/json"
	"net/http"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/client-go/rest"

	"github.com/millrace/millrace/services/writer/plan"
)

// Read reads an object: all of it if the verb is [plan.Read], and its metadata if it is [plan.Look].
// Several of the built-in roles, such as the replicaset controller's for Pods, allow list and not
// get, since their controllers rely on watches. For those Read lists the object by its name. It
// cannot do so for a subresource.
func (c *Client) Read(ctx context.Context, r plan.Request) plan.Response {
	if r.Subresource != "" {
		return c.Send(ctx, r, "")
	}
	if _, ok := c.listOnly.Load(r.Kind); ok {
		return c.list(ctx, r)
	}
	got := c.Send(ctx, r, "")
	if got.Code != http.StatusForbidden {
		return got
	}
	found := c.list(ctx, r)
	if found.Code == http.StatusForbidden {
		return got
	}
	if found.Code == http.StatusOK || found.Code == http.StatusNotFound {
		c.listOnly.Store(r.Kind, struct{}{})
	}
	return found
}

// list reads an object as the only item of a list, and answers as a get would.
func (c *Client) list(ctx context.Context, r plan.Request) plan.Response {
	accept := wholeObject
	if r.Verb == plan.Look {
		accept = metadataOfSome
	}
	request := to(c.rest, http.MethodGet, collection(r)).Param("fieldSelector", byName(r)).SetHeader("Accept", accept)
	span := c.trace(ctx, r, collection, "")
	carry(span, request)
	began := time.Now()
	response := c.only(ctx, request.MaxRetries(0).Do(ctx), r)
	c.config.Metrics.requestedIn(span.Trace(), r.Verb, response, time.Since(began))
	traced(span, response)
	return response
}

// byName returns the field selector of the object that a request names; it escapes the name.
func byName(r plan.Request) string {
	return fields.OneTermEqualSelector("metadata.name", r.Name).String()
}

// only converts the answer to a list of one object.
func (c *Client) only(ctx context.Context, result rest.Result, r plan.Request) plan.Response {
	var code int
	if err := result.StatusCode(&code).Error(); err != nil {
		return c.refusal(ctx, r, err, code)
	}
	body, err := result.Raw()
	if err != nil {
		return c.refusal(ctx, r, err, code)
	}
	var list struct {
		Items []json.RawMessage `json:"items"`
	}
	if err := json.Unmarshal(body, &list); err != nil {
		return plan.Response{Reason: "NoAnswer", Message: err.Error()}
	}
	if len(list.Items) == 0 {
		return plan.Response{Code: http.StatusNotFound, Reason: string(metav1.StatusReasonNotFound), Message: string(r.Kind) + " " + r.Name + " not found"}
	}
	var meta metav1.PartialObjectMetadata
	if err := json.Unmarshal(list.Items[0], &meta); err != nil {
		return plan.Response{Reason: "NoAnswer", Message: err.Error()}
	}
	response := plan.Response{Code: code, Object: ObjectOf(meta)}
	if r.Verb == plan.Read {
		response.Body = list.Items[0]
	}
	return response
}
