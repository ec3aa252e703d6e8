package bustest

import (
	"context"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/bus"
)

// Appender is an appender of which a test intercepts single calls, as of [Bus].
type Appender struct {
	bus.Appender // answers all other calls

	OnAppend func(context.Context, events.Message) error
	OnFlush  func(context.Context) error
	OnLast   func() uint64
}

// Append implements bus.Appender.
func (a *Appender) Append(ctx context.Context, m events.Message) error {
	if a.OnAppend != nil {
		return a.OnAppend(ctx, m)
	}
	return a.Appender.Append(ctx, m)
}

// Flush implements bus.Appender.
func (a *Appender) Flush(ctx context.Context) error {
	if a.OnFlush != nil {
		return a.OnFlush(ctx)
	}
	return a.Appender.Flush(ctx)
}

// Last implements bus.Appender.
func (a *Appender) Last() uint64 {
	if a.OnLast != nil {
		return a.OnLast()
	}
	return a.Appender.Last()
}

// Refusing returns an appender that refuses each message with err.
func Refusing(a bus.Appender, err error) *Appender {
	return &Appender{Appender: a, OnAppend: func(context.Context, events.Message) error { return err }}
}

// Unflushed returns an appender whose Flush fails with err.
func Unflushed(a bus.Appender, err error) *Appender {
	return &Appender{Appender: a, OnFlush: func(context.Context) error { return err }}
}
