package command

import (
	"context"

	logsapi "k8s.io/component-base/logs/api/v1"
	"k8s.io/klog/v2"
)

// bodies is the level from which on the client library logs bodies of requests and
// answers. What must not be recorded is in them.
const bodies = 8

// withoutBodies takes the levels out of a configuration at which bodies are logged, and
// tells whether it had any. This is done here, and not to a logger, since a request may
// carry any context, and so any logger, or none.
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

// setUp applies the configuration of the log.
func setUp(ctx context.Context, logging *logsapi.LoggingConfiguration) error {
	lowered := withoutBodies(logging)
	if err := logsapi.ValidateAndApply(logging, nil); err != nil {
		return err
	}
	if lowered {
		klog.FromContext(ctx).Info("Levels from 8 on are taken for 7: at those the client library logs what is in requests and answers")
	}
	return nil
}
