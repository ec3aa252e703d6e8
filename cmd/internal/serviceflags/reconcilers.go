package serviceflags

import (
	"context"

	"github.com/millrace/millrace/cmd/internal/controllerflags"
	"github.com/millrace/millrace/cmd/internal/process"
	"github.com/millrace/millrace/cmd/internal/program"
	"github.com/millrace/millrace/pkg/events/report"
	"github.com/millrace/millrace/pkg/events/stream"
	"github.com/millrace/millrace/pkg/events/trace"
	"github.com/millrace/millrace/services/reconcilers"
	"github.com/millrace/millrace/services/reconcilers/shell"
)

// Reconcilers are the parts of the acting controllers and of those in shadow.
//
// Errors: the services cannot be made.
func Reconcilers(b *stream.Bus, chosen controllerflags.Choice, signatures shell.Signatures, tracer *trace.Tracer) ([]process.Part, error) {
	if len(chosen.Acting) == 0 {
		return shadowPart(b, chosen, nil)
	}
	service, err := reconcilers.New(reconcilers.Config{Bus: b, Controllers: chosen.Acting, Leased: chosen.Leased, Code: program.Version, Trace: tracer, Settings: shell.Settings{Signatures: signatures}})
	if err != nil {
		return nil, err
	}
	parts, err := shadowPart(b, chosen, service)
	if err != nil {
		return nil, err
	}
	return append(parts, process.Part{Name: "reconcilers", Key: decidingKey(service), Run: service.Run, Checks: service.Checks(), Notes: service.Notes(), Collectors: append(service.Collectors(), unsignedCollector(signatures.Sign)...)}), nil
}

// decidingKey reports the reconcilers' state of a key.
func decidingKey(s *reconcilers.Service) process.KeyTeller {
	return func(ctx context.Context, r *report.KeyReport) bool {
		state, ok := s.Key(ctx, r.Controller, r.Key)
		if ok {
			r.Reconcilers = &state
		}
		return ok
	}
}
