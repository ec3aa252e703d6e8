package command

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"time"

	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"

	"github.com/millrace/millrace/cmd/internal/doctor"
	"github.com/millrace/millrace/cmd/internal/rights"
	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/pkg/events/stream"
	"github.com/millrace/millrace/services/reconcilers/controllers"
	"github.com/millrace/millrace/services/writer"
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
func (o *doctorOptions) needed(chosen choice) func(constrains bool) []doctor.Needed {
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
				all = append(all, o.watch.needed(chosen, customKinds(o.custom)))
			case ofWriter:
				all = append(all, o.write.needed(chosen, customKinds(o.custom), constrains))
			case ofMetrics:
				all = append(all, metricsNeeded())
			case ofLeader:
				all = append(all, leaderNeeded(o.leases()))
			}
		}
		return all
	}
}

// needed are the rights of a watcher.
func (o *watcherOptions) needed(chosen choice, custom []kinds.Name) doctor.Needed {
	return doctor.Needed{
		Part: doctor.PartWatcher, Roles: "millrace rbac --of=watcher",
		All: doctor.Rights(rights.Watcher(chosen.all(), o.scope.of, custom), ""),
	}
}

// needed are the rights of a writer.
func (o *writerOptions) needed(chosen choice, custom []kinds.Name, constrains bool) doctor.Needed {
	n := doctor.Needed{Part: doctor.PartWriter}
	needs, err := rights.Needs(chosen.acting)
	switch {
	case err != nil:
		n.Idle = err.Error()
	case writer.Mode(o.mode) == writer.Off:
		n.Idle = "with --mode=off nothing is written"
	case len(chosen.acting) == 0:
		n.Idle = "no controller acts: each of them only looks on"
	case o.impersonate:
		n = doctor.WriterNeeds(rights.Identities(chosen.acting), rights.Writer(needs, custom), constrains)
	default:
		for _, r := range doctor.Rights(rights.Writer(needs, custom), "") {
			r.Verb = strings.TrimPrefix(r.Verb, rights.Constrained) // it writes as itself
			n.All = append(n.All, r)
		}
	}
	n.Roles = "millrace rbac --of=writer"
	if !constrains {
		n.Roles += " --impersonation=classic"
	}
	return n
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

// wanted is what the flags expect of the bus.
func (o *busOptions) wanted(chosen choice) doctor.Wanted {
	full, every := controllers.Kinds(chosen.all())
	streams := 3 + 2*len(full) + 2*len(chosen.acting) + len(chosen.looking)
	if every {
		streams += 2 * len(kinds.BuiltIn())
	}
	w := doctor.Wanted{Address: o.at.Redacted(), User: o.at.User, Replicas: o.replicas, AuditGrade: o.auditGrade, Streams: streams, Near: true}
	for address := range strings.SplitSeq(o.at.URL, ",") {
		u, err := url.Parse(strings.TrimSpace(address))
		if err != nil {
			continue
		}
		if u.User != nil && w.User == "" {
			w.User = u.User.Username()
		}
		w.Near = w.Near && loopback(u.Host)
	}
	return w
}

// contradictions checks the settings against each other, and gives the controllers that they select.
func (o *doctorOptions) contradictions(config *rest.Config) (choice, doctor.Finding) {
	var wrong []error
	if config != nil {
		wrong = append(wrong, o.ctrl.trust(config))
	}
	chosen, lacking, err := o.ctrl.pick()
	wrong = append(wrong, o.everything.check(), err, o.watch.check(chosen.all()), o.bus.checkRetention(), o.service.tls.settled())
	if len(o.of) == 0 || slices.Contains(o.of, ofWriter) {
		_, err := o.ctrl.secrets()
		wrong = append(wrong, err)
	}
	switch {
	case o.bus.at.URL == "":
		wrong = append(wrong, o.server.check(), o.server.exposed())
		if o.bus.replicas > 1 {
			wrong = append(wrong, fmt.Errorf("--stream-replicas=%d needs as many NATS servers, and millrace run has one of its own: name a cluster with --nats-url, or leave it out", o.bus.replicas))
		}
	case given(o.service.set, "nats-listen"):
		wrong = append(wrong, errors.New("--nats-listen and --nats-url: there is no server to listen where another one is named: leave out one of them"))
	}
	var off []string
	for _, e := range lacking {
		off = append(off, e.Name+" (--"+e.Needs+")")
	}
	return chosen, doctor.Settings{Wrong: textsOf(wrong), Acting: len(chosen.acting), Looking: len(chosen.looking), Off: off}.Finding()
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

// settled validates the flags and files of the health address's certificate, without making
// a certificate.
func (o *tlsOptions) settled() error {
	if o.certFile != "" && o.keyFile != "" {
		if _, err := tls.LoadX509KeyPair(o.certFile, o.keyFile); err != nil {
			return fmt.Errorf("read --tls-cert-file and --tls-private-key-file: %w", err)
		}
	}
	if o.certDir != "" {
		return nil
	}
	_, err := o.encryption("", "")
	return err
}

// auditTells are the checks whose warnings auditPart logs, at the start and each minute.
var auditTells = []string{doctor.CheckBusVersion, doctor.CheckBusPayload, doctor.CheckBusAudit, doctor.CheckClockBus}

// doctorPart runs checks concurrently with a service that starts, and logs failures and warnings.
// A failure does not stop the service.
func doctorPart(look func(ctx context.Context) []doctor.Finding) part {
	return part{name: "doctor", run: func(ctx context.Context) error {
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
func atStart(config *rest.Config, needed func(bool) []doctor.Needed, waits string, b *stream.Bus, bus *busOptions, chosen choice) func(ctx context.Context) []doctor.Finding {
	return func(ctx context.Context) (all []doctor.Finding) {
		if config != nil {
			all = lookAtServer(ctx, config, waits, chosen, needed)
		}
		return append(all, doctor.Bus(b.Inspect(ctx), bus.wanted(chosen))...)
	}
}
