package apply

import (
	"context"
	"encoding/json"
	"net/http"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/rest"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/services/writer/plan"
)

// pageOfPods is how many pods are listed at a time: the API server gives them whole.
const pageOfPods = 500

// users finds out which pods may need a claim ([events.Users]), by a list of all pods
// of its namespace from the storage, and not from the API server's cache. The claim
// comes last: what was listed while it was still there was of it, and of no later one
// of its name.
func (d *Door) users(ctx context.Context, a Actor, client rest.Interface, r plan.Request) plan.Response {
	var found events.Users
	pods := plan.Request{
		Command: r.Command, Verb: r.Verb, Kind: kinds.Pods.Name, Version: kinds.Pods.Version, Namespace: r.Namespace,
	}
	for more := ""; ; {
		page, response := d.podsOf(ctx, client, pods, more)
		if response.Code != http.StatusOK {
			return response
		}
		for i := range page.Items {
			found.Take(&page.Items[i], r.Name)
		}
		if more = page.Continue; more == "" {
			break
		}
	}
	r.Verb, r.Subresource, r.Body = plan.Look, "", nil
	response := d.look(ctx, a, client, r)
	if response.Code == http.StatusOK {
		response.Body, _ = json.Marshal(found) // it has only fields that encoding/json accepts
	}
	return response
}

// podsOf is a page of the pods of a namespace, from where the one before ended. What it
// answers with is the API server's, or its refusal.
func (d *Door) podsOf(ctx context.Context, client rest.Interface, r plan.Request, more string) (page corev1.PodList, response plan.Response) {
	request := to(client, http.MethodGet, collection(r)).SetHeader("Accept", wholeObject).Param("limit", strconv.Itoa(pageOfPods))
	if more != "" {
		request.Param("continue", more)
	}
	span := d.trace(ctx, r, collection, "")
	carry(span, request)
	began := time.Now()
	result := request.MaxRetries(0).Do(ctx)
	if err := result.StatusCode(&response.Code).Error(); err != nil {
		response = d.refusal(ctx, r, err, response.Code)
	} else if body, err := result.Raw(); err != nil {
		response = d.refusal(ctx, r, err, response.Code)
	} else if err := json.Unmarshal(body, &page); err != nil {
		response = plan.Response{Reason: "NoAnswer", Message: "the API server's answer is no list of pods"}
	}
	d.config.Metrics.requestedIn(span.Trace(), r.Verb, response, time.Since(began))
	traced(span, response)
	if response.Code == http.StatusNotFound { // of a list: it says nothing of the claim
		response.Cause = "UnexpectedServerResponse"
	}
	return page, response
}
