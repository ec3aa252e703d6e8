package apiclient

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/services/writer/plan"
)

// MetricsQuery is one request to a metrics API.
type MetricsQuery struct {
	// About is the kind of the measured objects, of which the answer may repeat values; empty: of
	// none.
	About kinds.Name
	// Of is the API and its version, with the resource for error messages. Without a version the
	// query is for the API group itself.
	Of schema.GroupVersionResource
	// Path is the path below the version.
	Path []string
	// Params are the parameters; empty ones are left out.
	Params map[string]string
}

// QueryMetrics makes one request to a metrics API, for a command, and decodes the answer.
//
// Errors: the API server's refusal, as client-go's [apierrors.StatusError], or as one text if it
// may repeat hidden values; there is no answer, or it cannot be decoded.
func (c *Client) QueryMetrics(ctx context.Context, r plan.Request, q MetricsQuery, into any) error {
	template := func(plan.Request) []string {
		if q.Of.Version == "" {
			return []string{"/apis", q.Of.Group}
		}
		return append([]string{"/apis", q.Of.Group, q.Of.Version}, q.Path...)
	}
	asked := r
	asked.Kind = q.About
	request := to(c.rest, http.MethodGet, template(plan.Request{})).SetHeader("Accept", wholeObject)
	for name, value := range q.Params {
		if value != "" {
			request.Param(name, value)
		}
	}
	span := c.trace(ctx, r, template, "")
	carry(span, request)
	began := time.Now()
	result := request.MaxRetries(0).Do(ctx)
	var response plan.Response
	err := result.StatusCode(&response.Code).Error()
	if err != nil {
		err = addResource(err, q.Of)
		response = c.refusal(ctx, asked, err, response.Code)
	}
	c.config.Metrics.requestedIn(span.Trace(), r.Verb, response, time.Since(began))
	traced(span, response)
	switch {
	case err != nil && c.confidential(ctx, asked):
		return errors.New(response.Message)
	case err != nil:
		return err
	}
	body, err := result.Raw()
	if err != nil {
		return err
	}
	return json.Unmarshal(body, into)
}

// addResource adds the requested resource to an error that is not the API's own, as a client of that API
// would.
func addResource(err error, of schema.GroupVersionResource) error {
	var status *apierrors.StatusError
	if !errors.As(err, &status) || Refusal(err, 0).Cause != string(metav1.CauseTypeUnexpectedServerResponse) {
		return err
	}
	s := status.ErrStatus
	said := ""
	for _, cause := range s.Details.Causes {
		said = cause.Message
	}
	return apierrors.NewGenericServerResponse(int(s.Code), "get", of.GroupResource(), "", said, int(s.Details.RetryAfterSeconds), true)
}
