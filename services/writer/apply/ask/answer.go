package ask

import (
	"context"

	"github.com/millrace/millrace/pkg/events/query"
	"github.com/millrace/millrace/services/writer/apply/apiclient"
	"github.com/millrace/millrace/services/writer/plan"
)

// Answerer answers the command ask. It is safe for concurrent use.
type Answerer struct {
	// Discovery finds out what the API server serves.
	Discovery *apiclient.Discovery
	// Types finds expressions of admission policies with type errors; with nil their asks are
	// refused.
	Types TypeCheck
	// Panicked reports a panic while a kind is listed: the cause and the stack. The kind counts as
	// one that cannot be listed.
	Panicked func(controller string, cause any, stack []byte)
}

// Answer answers a question: a [plan.Search], or a [plan.Read] of an object as an owner reference
// names it.
func (a Answerer) Answer(ctx context.Context, c *apiclient.Client, r plan.Request) plan.Response {
	if r.Verb == plan.Read {
		return a.named(ctx, c, r)
	}
	switch r.Subresource {
	case query.SubReadings:
		return a.readings(ctx, c, r)
	case query.SubUsers:
		return users(ctx, c, r)
	case query.SubRanges:
		return ranges(ctx, c, r)
	case query.SubReview:
		return review(ctx, c, r)
	case query.SubObjects:
		return a.objects(ctx, c, r)
	case query.SubTypes:
		return a.types(ctx, c, r)
	default:
		return a.contents(ctx, c, r)
	}
}
