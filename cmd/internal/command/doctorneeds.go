package command

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"

	"github.com/millrace/millrace/cmd/internal/busflags"
	"github.com/millrace/millrace/cmd/internal/controllerflags"
	"github.com/millrace/millrace/cmd/internal/doctor"
	"github.com/millrace/millrace/cmd/internal/process"
	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/pkg/events/stream"
	"github.com/millrace/millrace/services/reconcilers/controllers"
)

// startPatience bounds the checks that a service makes at its start.
const startPatience = 30 * time.Second

// customKinds are the kinds of some names.
func customKinds(names []string) (custom []kinds.Name) {
	for _, name := range names {
		custom = append(custom, kinds.Name(strings.TrimSpace(name)))
	}
	return custom
}

// needed are the rights of the parts that --of names.
func (o *doctorOptions) needed(chosen controllerflags.Choice) func(constrains bool) []doctor.Needed {
	return func(constrains bool) (all []doctor.Needed) {
		parts := o.of
		if len(parts) == 0 {
			parts = []string{ofWatcher, ofWriter}
			if o.waits() != "" {
				parts = append(parts, ofLeader)
			}
		}
		for _, part := range parts {
			switch part {
			case ofWatcher:
				all = append(all, o.watch.Needed(chosen, customKinds(o.custom)))
			case ofWriter:
				all = append(all, o.write.Needed(chosen, customKinds(o.custom), constrains))
			case ofMetrics:
				all = append(all, metricsNeeded())
			case ofLeader:
				all = append(all, leaderNeeded(o.leases()))
			}
		}
		return all
	}
}

// metricsNeeded are the rights to authenticate and authorize readers of /metrics. They are
// optional: without them, fewer users may read it.
func metricsNeeded() doctor.Needed {
	return doctor.Needed{Part: doctor.PartMetrics, Roles: "millrace rbac --of=watcher,writer,metrics", Optional: true, All: []doctor.Right{
		{Verb: "create", Group: "authentication.k8s.io", Resource: "tokenreviews"},
		{Verb: "create", Group: "authorization.k8s.io", Resource: "subjectaccessreviews"},
	}}
}

// leaderNeeded are the rights to hold Leases.
func leaderNeeded(namespace string, leases []string) doctor.Needed {
	of := func(names ...string) rbacv1.PolicyRule {
		rule := rbacv1.PolicyRule{Verbs: []string{"create"}, APIGroups: []string{"coordination.k8s.io"}, Resources: []string{"leases"}, ResourceNames: names}
		if len(names) > 0 {
			rule.Verbs = []string{"get", "update"}
		}
		return rule
	}
	return doctor.Needed{
		Part: doctor.PartLeader, Roles: "millrace rbac --of=watcher,writer,leader",
		All: doctor.Rights([]rbacv1.PolicyRule{of(), of(leases...)}, namespace),
	}
}

// streamsOf is the number of streams that controllers use.
func streamsOf(chosen controllerflags.Choice) int {
	full, every := controllers.Kinds(chosen.All())
	streams := 3 + 2*len(full) + 2*len(chosen.Acting) + len(chosen.Looking)
	if every {
		streams += 2 * len(kinds.BuiltIn())
	}
	return streams
}

// contradictions checks the settings against each other, and gives the controllers that they select.
func (o *doctorOptions) contradictions(config *rest.Config) (controllerflags.Choice, doctor.Finding) {
	var wrong []error
	if config != nil {
		wrong = append(wrong, o.ctrl.Trust(config))
	}
	chosen, lacking, err := o.ctrl.Pick()
	wrong = append(wrong, o.everything.check(), err, o.watch.Check(chosen.All()), o.bus.CheckRetention(), o.service.CheckTLS())
	if len(o.of) == 0 || slices.Contains(o.of, ofWriter) {
		_, err := o.ctrl.Secrets()
		wrong = append(wrong, err)
	}
	switch {
	case o.bus.Connection.URL == "":
		wrong = append(wrong, o.server.Check(), o.server.Exposed())
		if o.bus.Replicas > 1 {
			wrong = append(wrong, fmt.Errorf("--stream-replicas=%d needs as many NATS servers, and millrace run has one of its own: name a cluster with --nats-url, or leave it out", o.bus.Replicas))
		}
	case o.service.Given("nats-listen"):
		wrong = append(wrong, errors.New("--nats-listen and --nats-url: there is no server to listen where another one is named: leave out one of them"))
	}
	var off []string
	for _, e := range lacking {
		off = append(off, e.Name+" (--"+e.Needs+")")
	}
	return chosen, doctor.Settings{Wrong: textsOf(wrong), Acting: len(chosen.Acting), Looking: len(chosen.Looking), Off: off}.Finding()
}

// textsOf are the texts of errors, each once.
func textsOf(errs []error) (texts []string) {
	for _, err := range errs {
		if err == nil {
			continue
		}
		for line := range strings.Lines(err.Error()) {
			if line = strings.TrimSpace(line); !slices.Contains(texts, line) {
				texts = append(texts, line)
			}
		}
	}
	return texts
}

// auditTells are the checks whose warnings busflags.AuditPart logs, at the start and each minute.
var auditTells = []string{doctor.CheckBusVersion, doctor.CheckBusPayload, doctor.CheckBusAudit, doctor.CheckClockBus}

// doctorPart runs checks concurrently with a service that starts, and logs failures and warnings.
// A failure does not stop the service.
func doctorPart(look func(ctx context.Context) []doctor.Finding) process.Part {
	return process.Part{Name: "doctor", Run: func(ctx context.Context) error {
		bounded, done := context.WithTimeout(ctx, startPatience)
		all := look(bounded)
		done()
		if ctx.Err() == nil {
			doctor.Log(klog.FromContext(ctx), slices.DeleteFunc(all, func(f doctor.Finding) bool {
				return f.State == doctor.Warning && slices.Contains(auditTells, f.Check)
			}))
		}
		<-ctx.Done()
		return nil
	}}
}

// atStart are the checks of a service: of the API server, if it connects to one, and of the bus.
func atStart(config *rest.Config, needed func(bool) []doctor.Needed, waits string, b *stream.Bus, bus *busflags.Options, chosen controllerflags.Choice) func(ctx context.Context) []doctor.Finding {
	return func(ctx context.Context) (all []doctor.Finding) {
		if config != nil {
			all = lookAtServer(ctx, config, waits, chosen, needed)
		}
		return append(all, doctor.Bus(b.Inspect(ctx), bus.Wanted(streamsOf(chosen)))...)
	}
}
