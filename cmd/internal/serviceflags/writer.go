package serviceflags

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/spf13/pflag"
	"k8s.io/client-go/rest"

	"github.com/millrace/millrace/cmd/internal/controllerflags"
	"github.com/millrace/millrace/cmd/internal/doctor"
	"github.com/millrace/millrace/cmd/internal/process"
	"github.com/millrace/millrace/cmd/internal/rights"
	"github.com/millrace/millrace/pkg/events/bus"
	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/pkg/events/report"
	"github.com/millrace/millrace/pkg/events/trace"
	"github.com/millrace/millrace/services/reconcilers/controllers"
	"github.com/millrace/millrace/services/reconcilers/reconcile"
	"github.com/millrace/millrace/services/writer"
	"github.com/millrace/millrace/services/writer/apply/typecheck"
	"github.com/millrace/millrace/services/writer/limits"
)

// Writer are the flags of the writer.
type Writer struct {
	mode        string
	impersonate bool
	maxInFlight int
	// qps limits the requests per second of each controller, and burst those sent at once after
	// a pause. qps < 0 is no limit.
	qps        float32
	burst      int
	concurrent concurrency
	limitsFile string
}

// NewWriter has the defaults of the flags.
func NewWriter() Writer {
	return Writer{mode: "apply", impersonate: true, maxInFlight: 200, qps: -1, burst: 30, concurrent: newConcurrency()}
}

// Add adds the flags.
func (o *Writer) Add(f *pflag.FlagSet) {
	f.StringVar(&o.mode, "mode", o.mode, "what the writer does with a turn: apply, dry-run (on the API server) or off")
	f.BoolVar(&o.impersonate, "use-service-account-credentials", o.impersonate, "write as the service account of each controller in kube-system, by impersonation")
	f.IntVar(&o.maxInFlight, "max-requests-in-flight", o.maxInFlight, "maximum number of concurrent requests to the API server")
	f.Float32Var(&o.qps, "kube-api-qps", o.qps, "requests per second of each controller to the API server; below 0 only the API server's own limits hold")
	f.IntVar(&o.burst, "kube-api-burst", o.burst, "with --kube-api-qps, the burst of requests that is allowed")
	f.StringVar(&o.limitsFile, "write-limits", "", "`file` with limits on what controllers may write, beyond which writes are held until there is room or a person approves; see docs/write-limits.md")
	o.concurrent.add(f)
}

// limits reads the file of the write limits; nil without one.
//
// Errors: the file cannot be read, is invalid, or names an unknown controller.
func (o *Writer) limits() (*limits.Set, error) {
	if o.limitsFile == "" {
		return nil, nil
	}
	text, err := os.ReadFile(o.limitsFile)
	if err != nil {
		return nil, fmt.Errorf("read --write-limits: %w", err)
	}
	set, err := limits.Parse(text)
	if err != nil {
		return nil, fmt.Errorf("read --write-limits=%s: %w", o.limitsFile, err)
	}
	for _, name := range set.Controllers() {
		if e, known := controllers.Find(name); !known || e.Name != name {
			return nil, fmt.Errorf("read --write-limits=%s: no controller is named %q; write a name such as replicaset-controller, or \"*\"", o.limitsFile, name)
		}
	}
	return set, nil
}

// Check validates the mode and the limits before anything is started.
func (o *Writer) Check() error {
	switch m := writer.Mode(o.mode); m {
	case writer.Apply, writer.DryRun, writer.Off:
	default:
		return fmt.Errorf("read --mode: %q is not %s, %s or %s", m, writer.Apply, writer.DryRun, writer.Off)
	}
	if _, err := o.limits(); err != nil {
		return err
	}
	switch {
	case o.qps == 0:
		return errors.New("read --kube-api-qps: with 0 nothing would be written; leave it out, or take a number below 0, for no limit")
	case o.qps > 0 && o.burst < 1:
		return fmt.Errorf("read --kube-api-burst: with %d nothing would be written", o.burst)
	}
	return nil
}

// limit is how many turns of one controller a writer carries out concurrently, for
// controllers that have a flag for it.
type limit struct {
	controller, flag, of string
	turns                int
}

type concurrency []limit

func newConcurrency() concurrency {
	return concurrency{
		{"deployment-controller", "concurrent-deployment-syncs", "deployments", 50},
		{"replicaset-controller", "concurrent-replicaset-syncs", "replica sets", 50},
		{"replicationcontroller-controller", "concurrent-rc-syncs", "replication controllers", 50},
		{"statefulset-controller", "concurrent-statefulset-syncs", "stateful sets", 50},
		{"daemonset-controller", "concurrent-daemonset-syncs", "daemon sets", 50},
		{"job-controller", "concurrent-job-syncs", "jobs", 50},
		{"cronjob-controller", "concurrent-cron-job-syncs", "cron jobs", 50},
		{"ttl-after-finished-controller", "concurrent-ttl-after-finished-syncs", "finished jobs whose time is up", 50},
		{"endpoints-controller", "concurrent-endpoint-syncs", "the endpoints of services", 50},
		{"endpointslice-controller", "concurrent-service-endpoint-syncs", "the endpoint slices of services", 50},
		{"endpointslice-mirroring-controller", "mirroring-concurrent-service-endpoint-syncs", "mirrored endpoints", 50},
		{"ephemeral-volume-controller", "concurrent-ephemeralvolume-syncs", "the claims of pods' own volumes", 50},
		{"resourceclaim-controller", "concurrent-resourceclaim-syncs", "claims to devices", 50},
		{"device-taint-eviction-controller", "concurrent-device-taint-eviction-syncs", "pods that are driven away from devices", 50},
		{"horizontal-pod-autoscaler-controller", "concurrent-horizontal-pod-autoscaler-syncs", "autoscalers", 50},
		{"garbage-collector-controller", "concurrent-gc-syncs", "the garbage collector", 100},
		{"namespace-controller", "concurrent-namespace-syncs", "namespaces that are being emptied", 10},
		{"resourcequota-controller", "concurrent-resource-quota-syncs", "resource quotas", 50},
		{"serviceaccount-token-controller", "concurrent-serviceaccount-token-syncs", "tokens of service accounts", 50},
		{"validatingadmissionpolicy-status-controller", "concurrent-validating-admission-policy-status-syncs", "policies whose expressions are checked", 5},
	}
}

func (c concurrency) add(f *pflag.FlagSet) {
	for i := range c {
		l := &c[i]
		f.IntVar(&l.turns, l.flag, l.turns, "number of turns of "+l.of+" that are carried out concurrently")
	}
}

// Part is the writer of the acting controllers of a choice. It holds the Lease of those that move, unless
// lease is nil; it signs tokens and certificates with the keys of with, and outcomes with keys.
//
// Errors: the file of --write-limits cannot be read; the writer cannot be made.
func (o *Writer) Part(config *rest.Config, b bus.Bus, chosen controllerflags.Choice, lease LeaseOf, with controllerflags.Secrets, keys Signed, tracer *trace.Tracer) (process.Part, error) {
	bounds, err := o.limits()
	if err != nil {
		return process.Part{}, err
	}
	service, err := writer.New(writer.Config{
		REST: config, Limits: bounds, Bus: b, Controllers: profiles(chosen), Lease: lease, Mode: writer.Mode(o.mode),
		Impersonate: o.impersonate, MaxInFlight: o.maxInFlight, QPS: o.qps, Burst: o.burst, Concurrent: o.concurrent.byName(),
		Mint: with.Tokens, Authority: with.Certificates, Types: typecheck.Check, Trace: tracer,
		Turns: keys.theirs, Sign: keys.signer, Outcomes: keys.kin,
	})
	if err != nil {
		return process.Part{}, err
	}
	return process.Part{Name: "writer", Key: writingKey(service, chosen.Acting), Run: service.Run, Checks: service.Checks(), Collectors: append(service.Collectors(), unsignedCollector(keys.signer)...)}, nil
}

// profiles are what the writer needs to know about each controller.
func profiles(chosen controllerflags.Choice) []writer.Profile {
	out := make([]writer.Profile, 0, len(chosen.Acting))
	for _, c := range chosen.Acting {
		d := c.Describe()
		p := writer.Profile{Name: d.Name, Leased: chosen.Leased != nil && chosen.Leased(d.Name), Identity: d.Identity, Source: d.Source, Allowed: d.Writes.Allows, Fits: d.Fits}
		if d.Owns != nil {
			p.Owns = d.Owns.Name
		}
		out = append(out, p)
	}
	return out
}

func (c concurrency) byName() map[string]int {
	turns := make(map[string]int, len(c))
	for _, l := range c {
		turns[l.controller] = l.turns
	}
	return turns
}

// writingKey reports what the writer has in flight for a key.
func writingKey(s *writer.Service, chosen []reconcile.Any) process.KeyTeller {
	return func(_ context.Context, r *report.KeyReport) bool {
		r.Writer = s.Key(r.Controller, r.Key)
		return slices.ContainsFunc(chosen, func(c reconcile.Any) bool { return c.Describe().Name == r.Controller })
	}
}

// Needed are the rights of a writer.
func (o *Writer) Needed(chosen controllerflags.Choice, custom []kinds.Name, constrains bool) doctor.Needed {
	n := doctor.Needed{Part: doctor.PartWriter}
	needs, err := rights.Needs(chosen.Acting)
	switch {
	case err != nil:
		n.Idle = err.Error()
	case writer.Mode(o.mode) == writer.Off:
		n.Idle = "with --mode=off nothing is written"
	case len(chosen.Acting) == 0:
		n.Idle = "no controller acts: each of them only looks on"
	case o.impersonate:
		n = doctor.WriterNeeds(rights.Identities(chosen.Acting), rights.Writer(needs, custom), constrains)
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

// LeaseOf holds a Lease; see [writer.Config].
type LeaseOf = func(ctx context.Context, lead func(ctx context.Context, token uint64) error) error

// ready tells which rights the writer lacks. What cannot be found out is no reason to wait: then the
// Lease cannot be taken either.
func (o *Writer) ready(config *rest.Config, chosen controllerflags.Choice) func(ctx context.Context) error {
	return func(ctx context.Context) error {
		api, err := doctor.NewAPI(config)
		if err != nil {
			return err
		}
		version, err := api.Version(ctx)
		if err != nil {
			return nil
		}
		needed := o.Needed(chosen, nil, version.Constrains())
		may, err := api.May(ctx, slices.Concat(needed.All, needed.Instead, needed.Bounds))
		if err != nil {
			return nil
		}
		if f := needed.Finding(may); f.State == doctor.Failed {
			return fmt.Errorf("%s: %s", f.Found, f.Do)
		}
		return nil
	}
}
