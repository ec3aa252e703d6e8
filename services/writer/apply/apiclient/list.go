package apiclient

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"strconv"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"github.com/millrace/millrace/services/writer/plan"
)

const (
	metadataOfAll = "application/vnd.kubernetes.protobuf;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1," +
		"application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1,application/json"
	// metadataOfSome asks for a list of metadata as JSON.
	metadataOfSome = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1,application/json"
	// metadataOfChanges asks for a watch of metadata as JSON.
	metadataOfChanges = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1,application/json"
	// pageSize is the size of pages: pods come with their whole content.
	pageSize = 500
)

// List lists the metadata of all objects of a request's kind and namespace, in one answer. The
// response has no body.
func (c *Client) List(ctx context.Context, r plan.Request) (items []metav1.PartialObjectMetadata, response plan.Response) {
	request := to(c.rest, http.MethodGet, collection(r)).SetHeader("Accept", metadataOfAll)
	span := c.trace(ctx, r, collection, "")
	carry(span, request)
	began := time.Now()
	result := request.MaxRetries(0).Do(ctx)
	if err := result.StatusCode(&response.Code).Error(); err != nil {
		response = c.refusal(ctx, r, err, response.Code)
	} else if list, err := listOf(result); err != nil {
		response = plan.Response{Reason: "NoAnswer", Message: err.Error()}
	} else {
		items = list.Items
	}
	c.config.Metrics.requestedIn(span.Trace(), r.Verb, response, time.Since(began))
	traced(span, response)
	return items, response
}

// listOf decodes a list of metadata. A server that cannot send metadata sends whole objects.
func listOf(result rest.Result) (*metav1.PartialObjectMetadataList, error) {
	if obj, err := result.Get(); err == nil {
		if list, ok := obj.(*metav1.PartialObjectMetadataList); ok {
			return list, nil
		}
	}
	body, err := result.Raw()
	if err != nil {
		return nil, err
	}
	list := &metav1.PartialObjectMetadataList{}
	return list, json.Unmarshal(body, list)
}

// Pages lists a kind page by page and calls take with each page; take returns the page's continue
// token. It asks for whole objects, or for metadata if T is [metav1.PartialObjectMetadataList].
// Pages returns the API server's last answer, or its refusal.
func Pages[T any](ctx context.Context, c *Client, r plan.Request, o metav1.ListOptions, take func(*T) (more string)) plan.Response {
	for {
		page := new(T)
		response, _ := c.Page(ctx, r, o, page)
		if response.Code != http.StatusOK {
			return response
		}
		if o.Continue = take(page); o.Continue == "" {
			return response
		}
	}
}

// Page reads a page of a list, from a continue token on, by the selectors of o. It asks for
// metadata if page is a [metav1.PartialObjectMetadataList]. If the token has expired, renewed is
// the token with which the list can go on at the current version; "" if there is none.
func (c *Client) Page(ctx context.Context, r plan.Request, o metav1.ListOptions, page any) (response plan.Response, renewed string) {
	accept := wholeObject
	if _, metadata := page.(*metav1.PartialObjectMetadataList); metadata {
		accept = metadataOfSome
	}
	o.Limit = pageSize
	request := options(to(c.rest, http.MethodGet, collection(r)).SetHeader("Accept", accept), o)
	span := c.trace(ctx, r, collection, "")
	carry(span, request)
	began := time.Now()
	result := request.MaxRetries(0).Do(ctx)
	err := result.StatusCode(&response.Code).Error()
	if err != nil {
		response = c.refusal(ctx, r, err, response.Code)
	} else if body, err := result.Raw(); err != nil {
		response = c.refusal(ctx, r, err, response.Code)
	} else if err := json.Unmarshal(body, page); err != nil {
		response = plan.Response{Reason: "NoAnswer", Message: "the API server's answer is no list of " + string(r.Kind)}
	}
	c.config.Metrics.requestedIn(span.Trace(), r.Verb, response, time.Since(began))
	traced(span, response)
	if response.Code == http.StatusNotFound { // a 404 for the list says nothing about the object
		response.Cause = "UnexpectedServerResponse"
	}
	return response, renewedToken(err)
}

// renewedToken returns the continue token with which an expired list can go on; "" if there is none.
func renewedToken(err error) string {
	var status apierrors.APIStatus
	if !apierrors.IsResourceExpired(err) || !errors.As(err, &status) {
		return ""
	}
	return status.Status().Continue
}

// Probe lists the metadata of a kind in one answer, for a write of which it is unknown whether it
// happened. It counts as a look, and has no span: the trace of the turn shows the write itself.
// failed is the answer of a list that failed.
//
// Errors: the list cannot be read.
func (c *Client) Probe(ctx context.Context, r plan.Request, o metav1.ListOptions) (list *metav1.PartialObjectMetadataList, failed *plan.Response, err error) {
	request := options(to(c.rest, http.MethodGet, collection(r)).SetHeader("Accept", metadataOfAll), o)
	began := time.Now()
	result := request.MaxRetries(0).Do(ctx)
	response, fails := c.failure(ctx, result, r)
	c.config.Metrics.requested(plan.Look, response, time.Since(began))
	if fails {
		return nil, &response, nil
	}
	list, err = listOf(result)
	return list, nil, err
}

// Watch opens a watch of the metadata of a kind, as JSON, which the caller closes. It counts as a
// look, and has no span. failed is the answer to a watch that was not opened.
func (c *Client) Watch(ctx context.Context, r plan.Request, o metav1.ListOptions) (stream io.ReadCloser, failed *plan.Response) {
	o.Watch = true
	request := options(to(c.rest, http.MethodGet, collection(r)).SetHeader("Accept", metadataOfChanges), o)
	began := time.Now()
	stream, err := request.MaxRetries(0).Stream(ctx)
	response := plan.Response{Code: http.StatusOK}
	if err != nil {
		response = c.refusal(ctx, r, err, 0)
	}
	c.config.Metrics.requested(plan.Look, response, time.Since(began))
	if err != nil {
		return nil, &response
	}
	return stream, nil
}

// options sets the selectors, the version, the page, the time-out and the watch of a request. It
// leaves out what is empty, and ignores the other options.
func options(request *rest.Request, o metav1.ListOptions) *rest.Request {
	for name, value := range map[string]string{
		"labelSelector": o.LabelSelector, "fieldSelector": o.FieldSelector, "continue": o.Continue,
		"resourceVersion": o.ResourceVersion, "resourceVersionMatch": string(o.ResourceVersionMatch),
	} {
		if value != "" {
			request.Param(name, value)
		}
	}
	if o.Limit > 0 {
		request.Param("limit", strconv.FormatInt(o.Limit, 10))
	}
	if o.Watch {
		request.Param("watch", "true")
	}
	if o.TimeoutSeconds != nil {
		request.Param("timeoutSeconds", strconv.FormatInt(*o.TimeoutSeconds, 10))
	}
	return request
}
