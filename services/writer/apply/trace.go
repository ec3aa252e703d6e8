package apply

import (
	"cmp"
	"context"
	"strings"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"

	"github.com/millrace/millrace/pkg/events/trace"
	"github.com/millrace/millrace/services/writer/plan"
)

// trace begins the span of a request, to the path that is made of it, within that
// of its turn.
func (d *Door) trace(ctx context.Context, r plan.Request, path func(plan.Request) []string, auditID string) *trace.Span {
	if d.config.Trace == nil || trace.From(ctx) == nil {
		return nil
	}
	blank := r
	if blank.Name = "{name}"; blank.Namespace != "" {
		blank.Namespace = "{namespace}"
	}
	return d.config.Trace.Request(ctx, trace.Request{
		Method: methods[r.Verb], Template: strings.Join(path(blank), "/"), Kind: r.Kind, Namespace: r.Namespace,
		Command: r.Command, Try: r.Try, AuditID: auditID,
	})
}

// carry takes a span to the API server.
func carry(span *trace.Span, request *rest.Request) {
	for key, value := range span.Headers() {
		request.SetHeader(key, value)
	}
}

// traced ends the span of a request, and tells of the write that it was.
func (d *Door) traced(span *trace.Span, r plan.Request, response plan.Response) {
	span.Answered(response.Code, response.Reason)
	span.End()
	if d.config.Wrote == nil || !r.Verb.Writes() || d.config.DryRun || response.Code < 200 || response.Code >= 300 {
		return
	}
	w := trace.Write{
		UID: cmp.Or(response.Object.UID, condemned(r)), Version: response.Object.ResourceVersion,
		Ends: r.Verb == plan.Delete || response.Object.Deleting, Trace: span.Trace(),
	}
	if w.UID != "" {
		d.config.Wrote(w)
	}
}

// condemned is whom a delete means: its answer may name nobody.
func condemned(r plan.Request) types.UID {
	if r.Delete == nil || r.Delete.Preconditions == nil || r.Delete.Preconditions.UID == nil {
		return ""
	}
	return *r.Delete.Preconditions.UID
}
