package command

import (
	"context"

	"github.com/go-logr/logr"
	"k8s.io/klog/v2"
)

// bodies is the level from which on client-go logs what it sends and receives.
const bodies = 8

// withoutBodies is a context whose logger has no levels at which the client library logs
// bodies of requests and answers, whatever -v and --vmodule say. What must not be recorded
// is in them.
func withoutBodies(ctx context.Context) context.Context {
	return klog.NewContext(ctx, logr.New(bodiless{klog.Background().GetSink()}))
}

// bodiless is a sink that is not enabled from [bodies] on.
type bodiless struct{ logr.LogSink }

// Enabled implements [logr.LogSink].
func (b bodiless) Enabled(level int) bool { return level < bodies && b.LogSink.Enabled(level) }

// WithValues implements [logr.LogSink].
func (b bodiless) WithValues(pairs ...any) logr.LogSink {
	return bodiless{b.LogSink.WithValues(pairs...)}
}

// WithName implements [logr.LogSink].
func (b bodiless) WithName(name string) logr.LogSink { return bodiless{b.LogSink.WithName(name)} }

// WithCallDepth implements [logr.CallDepthLogSink].
func (b bodiless) WithCallDepth(depth int) logr.LogSink {
	if at, ok := b.LogSink.(logr.CallDepthLogSink); ok {
		return bodiless{at.WithCallDepth(depth)}
	}
	return b
}
