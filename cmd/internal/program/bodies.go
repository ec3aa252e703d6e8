package program

import (
	"context"
	"log/slog"

	"github.com/go-logr/logr"
	logsapi "k8s.io/component-base/logs/api/v1"
	"k8s.io/klog/v2"
)

// bodies is the verbosity from which on client-go logs the bodies of requests and
// responses. They hold values that must not be recorded.
const bodies = 8

// withoutBodies lowers the verbosities of a configuration at which bodies are logged, and
// reports whether it lowered any. It changes the configuration and not a logger, because a
// request's context may carry any logger, or none.
func withoutBodies(logging *logsapi.LoggingConfiguration) (lowered bool) {
	lower := func(level *logsapi.VerbosityLevel) {
		if *level >= bodies {
			*level, lowered = bodies-1, true
		}
	}
	lower(&logging.Verbosity)
	for i := range logging.VModule {
		lower(&logging.VModule[i].Verbosity)
	}
	return lowered
}

// setUp applies the logging configuration.
func setUp(ctx context.Context, logging *logsapi.LoggingConfiguration) error {
	lowered := withoutBodies(logging)
	if err := logsapi.ValidateAndApply(logging, nil); err != nil {
		return err
	}
	if lowered {
		klog.FromContext(ctx).Info("Lowered the log level to 7: from level 8 on, client-go logs the bodies of requests and responses")
	}
	return nil
}

// Logger is a slog.Logger that writes to klog under a name.
func Logger(name string) *slog.Logger {
	return slog.New(logr.ToSlogHandler(klog.Background().WithName(name)))
}
