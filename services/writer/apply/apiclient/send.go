package apiclient

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"

	"github.com/millrace/millrace/services/writer/plan"
)

const (
	// metadataOnly asks for the metadata of the object in the answer, the least that the API
	// server can send. A server that cannot do that sends the whole object.
	metadataOnly = "application/vnd.kubernetes.protobuf;as=PartialObjectMetadata;g=meta.k8s.io;v=v1," +
		"application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1,application/json"
	wholeObject = runtime.ContentTypeJSON
)

// codecs decodes metadata and statuses in answers of the API server.
var codecs = newCodecs()

func newCodecs() serializer.CodecFactory {
	scheme := runtime.NewScheme()
	metav1.AddToGroupVersion(scheme, metav1.Unversioned)
	if err := metav1.AddMetaToScheme(scheme); err != nil {
		panic(fmt.Sprintf("register the kinds of metadata: %v", err)) // a programming error, found by every test
	}
	return serializer.NewCodecFactory(scheme)
}

// Send makes a request about the object that it names: a write, a read or a look. auditID names a
// write in the API server's audit log; "" gives it no name.
func (c *Client) Send(ctx context.Context, r plan.Request, auditID string) plan.Response {
	request := to(c.rest, methods[r.Verb], path(r))
	accept := metadataOnly
	switch r.Verb {
	case plan.Create, plan.Update:
		request.SetHeader("Content-Type", runtime.ContentTypeJSON).Body(r.Body)
	case plan.Patch:
		request.SetHeader("Content-Type", string(r.PatchType)).Body(r.Body)
		if r.PatchType == types.ApplyPatchType {
			request.Param("force", "true")
		}
	case plan.Delete:
		body, err := json.Marshal(r.Delete)
		if err != nil {
			return plan.Response{Code: http.StatusBadRequest, Reason: "Malformed", Message: err.Error()}
		}
		request.SetHeader("Content-Type", runtime.ContentTypeJSON).Body(body)
	case plan.Read:
		accept = wholeObject
	case plan.Look:
	}
	if r.Verb.Writes() {
		if auditID != "" {
			request.SetHeader("Audit-ID", auditID)
		}
		if r.Verb != plan.Delete {
			request.Param("fieldManager", cmp.Or(r.Manager, c.config.FieldManager))
		}
		if c.config.DryRun {
			request.Param("dryRun", metav1.DryRunAll)
		}
	} else {
		auditID = ""
	}
	answered := c.announce(ctx, r)
	span := c.trace(ctx, r, path, auditID)
	carry(span, request)
	began := time.Now()
	response := c.answer(ctx, request.SetHeader("Accept", accept).MaxRetries(0).Do(ctx), r)
	response.AuditID = auditID
	c.config.Metrics.requestedIn(span.Trace(), r.Verb, response, time.Since(began))
	answered(span, response)
	traced(span, response)
	return response
}

// methods are the HTTP methods of the verbs.
var methods = map[plan.Verb]string{
	plan.Create: http.MethodPost, plan.Update: http.MethodPut, plan.Patch: http.MethodPatch,
	plan.Delete: http.MethodDelete, plan.Look: http.MethodGet, plan.Read: http.MethodGet, plan.Search: http.MethodGet,
}

// to begins a request to a path. It is the last check of the path, whatever its parts derive from:
// a part that is not one segment would lead to another object, so such a request is never sent.
func to(client rest.Interface, method string, path []string) *rest.Request {
	request := client.Verb(method)
	for i, segment := range path {
		if root := i == 0 && (segment == "/api" || segment == "/apis"); !root && !plan.Nameable(segment) {
			return request.Name(segment) // the request fails with this error
		}
	}
	return request.AbsPath(path...)
}

// path returns the path of a request.
func path(r plan.Request) []string {
	path := collection(r)
	if r.Verb != plan.Create || r.Subresource != "" {
		path = append(path, r.Name)
	}
	if r.Subresource != "" {
		path = append(path, r.Subresource)
	}
	return path
}

// collection returns the path of all objects of a request's kind and namespace.
func collection(r plan.Request) []string {
	path := []string{"/apis", r.Kind.Group(), r.Version}
	if r.Kind.Group() == "" {
		path = []string{"/api", r.Version}
	}
	if r.Namespace != "" {
		path = append(path, "namespaces", r.Namespace)
	}
	return append(path, r.Kind.Resource())
}

// answer reads the answer of the API server.
func (c *Client) answer(ctx context.Context, result rest.Result, r plan.Request) plan.Response {
	response, failed := c.failure(ctx, result, r)
	if failed {
		return response
	}
	body, err := result.Raw()
	if response.Object, err = metadataOf(result, body); err != nil && r.Verb.Writes() {
		// The write succeeded; only its metadata is missing.
		response.Message = err.Error()
	} else if err != nil {
		return plan.Response{Reason: "NoAnswer", Message: err.Error()}
	}
	if r.Verb == plan.Read {
		response.Body = body
	}
	return response
}

// metadataOf returns the metadata in an answer. The answer to a delete may be a status, which is
// about no object any more.
func metadataOf(result rest.Result, body []byte) (plan.Object, error) {
	var meta metav1.PartialObjectMetadata
	if obj, err := result.Get(); err == nil {
		switch obj := obj.(type) {
		case *metav1.PartialObjectMetadata:
			meta = *obj
		case *metav1.Status:
			return plan.Object{}, nil
		}
	} else if err := json.Unmarshal(body, &meta); err != nil { // the whole object, of any kind
		return plan.Object{}, fmt.Errorf("read the metadata of the answer: %w", err)
	}
	return ObjectOf(meta), nil
}

// ObjectOf returns the metadata that a plan judges by.
func ObjectOf(meta metav1.PartialObjectMetadata) plan.Object {
	return plan.Object{
		UID: meta.UID, ResourceVersion: meta.ResourceVersion,
		Deleting: meta.DeletionTimestamp != nil, Grace: meta.DeletionGracePeriodSeconds,
		Finalizers: len(meta.Finalizers) > 0, Owners: meta.OwnerReferences,
		Waiting: meta.DeletionTimestamp != nil && slices.Contains(meta.Finalizers, metav1.FinalizerDeleteDependents),
	}
}
