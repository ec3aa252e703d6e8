package apply

import (
	"context"
	"encoding/json"
	"net/http"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/client-go/rest"

	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/services/writer/plan"
)

// metadataOfSome asks for a list of metadata as JSON.
const metadataOfSome = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1,application/json"

// reading is a kind that an actor reads.
type reading struct {
	actor Actor
	kind  kinds.Name
}

// readObject reads an object. Several of the built-in roles, such as the replicaset controller's for
// Pods, allow list and not get, since their controllers rely on watches. For those look lists the
// object by its name. It cannot do so for a subresource.
func (d *Client) readObject(ctx context.Context, a Actor, client rest.Interface, r plan.Request) plan.Response {
	if r.Subresource != "" {
		return d.send(ctx, client, r, "")
	}
	what := reading{a, r.Kind}
	if _, ok := d.listOnly.Load(what); ok {
		return d.list(ctx, client, r)
	}
	got := d.send(ctx, client, r, "")
	if got.Code != http.StatusForbidden {
		return got
	}
	found := d.list(ctx, client, r)
	if found.Code == http.StatusForbidden {
		return got
	}
	if found.Code == http.StatusOK || found.Code == http.StatusNotFound {
		d.listOnly.Store(what, struct{}{})
	}
	return found
}

// list reads an object as the only item of a list, and answers as a get would.
func (d *Client) list(ctx context.Context, client rest.Interface, r plan.Request) plan.Response {
	accept := wholeObject
	if r.Verb == plan.Look {
		accept = metadataOfSome
	}
	request := to(client, http.MethodGet, collection(r)).Param("fieldSelector", byName(r)).SetHeader("Accept", accept)
	span := d.trace(ctx, r, collection, "")
	carry(span, request)
	began := time.Now()
	response := d.only(ctx, request.MaxRetries(0).Do(ctx), r)
	d.config.Metrics.requestedIn(span.Trace(), r.Verb, response, time.Since(began))
	traced(span, response)
	return response
}

// byName returns the field selector of the object that a request names; it escapes the name.
func byName(r plan.Request) string {
	return fields.OneTermEqualSelector("metadata.name", r.Name).String()
}

// only converts the answer to a list of one object.
func (d *Client) only(ctx context.Context, result rest.Result, r plan.Request) plan.Response {
	var code int
	if err := result.StatusCode(&code).Error(); err != nil {
		return d.refusal(ctx, r, err, code)
	}
	body, err := result.Raw()
	if err != nil {
		return d.refusal(ctx, r, err, code)
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
	response := plan.Response{Code: code, Object: objectOf(meta)}
	if r.Verb == plan.Read {
		response.Body = list.Items[0]
	}
	return response
}
