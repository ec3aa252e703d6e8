package apiclient

import (
	"cmp"
	"context"
	"crypto/rand"
	"strings"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/pkg/events/trace"
	"github.com/millrace/millrace/services/writer/plan"
)

// trace starts the span of a request within that of its turn. path makes the request's path.
func (c *Client) trace(ctx context.Context, r plan.Request, path func(plan.Request) []string, auditID string) *trace.Span {
	if c.config.Trace == nil || trace.From(ctx) == nil {
		return nil
	}
	blank := r
	if blank.Name = "{name}"; blank.Namespace != "" {
		blank.Namespace = "{namespace}"
	}
	return c.config.Trace.Request(ctx, trace.Request{
		Method: methods[r.Verb], Template: strings.Join(path(blank), "/"), Kind: r.Kind, Namespace: r.Namespace,
		Command: r.Command, Try: r.Try, AuditID: auditID,
	})
}

// carry propagates a span to the API server.
func carry(span *trace.Span, request *rest.Request) {
	for key, value := range span.Headers() {
		request.SetHeader(key, value)
	}
}

// traced ends the span of a request.
func traced(span *trace.Span, response plan.Response) {
	span.Answered(response.Code, response.Reason)
	span.End()
}

// announce announces that a write is going to be sent, and waits until the watchers know. The
// function that it returns announces the result. The caller must call it, or the watchers would
// hold back changes of the object. Kubernetes Events are not announced: they are part of no trace.
func (c *Client) announce(ctx context.Context, r plan.Request) (answered func(*trace.Span, plan.Response)) {
	if c.config.Announce == nil || !r.Verb.Writes() || c.config.DryRun || r.Kind == kinds.Events.Name {
		return func(*trace.Span, plan.Response) {}
	}
	w := trace.Write{ID: rand.Text(), About: events.Ref{Kind: r.Kind, Namespace: r.Namespace, Name: r.Name}, Begins: true}
	c.config.Announce(ctx, w)
	return func(span *trace.Span, response plan.Response) {
		w.Begins = false
		if response.Code >= 200 && response.Code < 300 {
			w.UID, w.Version = cmp.Or(response.Object.UID, deletedUID(r)), response.Object.ResourceVersion
			w.Ends, w.Trace = r.Verb == plan.Delete || response.Object.Deleting, span.Trace()
		}
		c.config.Announce(ctx, w)
	}
}

// deletedUID returns the uid that a delete requires: the answer may name no object.
func deletedUID(r plan.Request) types.UID {
	if r.Delete == nil || r.Delete.Preconditions == nil || r.Delete.Preconditions.UID == nil {
		return ""
	}
	return *r.Delete.Preconditions.UID
}
