package serviceflags

import (
	"context"
	"fmt"
	"slices"

	"github.com/spf13/pflag"
	"k8s.io/client-go/rest"

	"github.com/millrace/millrace/cmd/internal/controllerflags"
	"github.com/millrace/millrace/cmd/internal/doctor"
	"github.com/millrace/millrace/cmd/internal/process"
	"github.com/millrace/millrace/cmd/internal/rights"
	"github.com/millrace/millrace/pkg/events/bus"
	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/pkg/events/trace"
	"github.com/millrace/millrace/services/reconcilers/controllers"
	"github.com/millrace/millrace/services/reconcilers/reconcile"
	"github.com/millrace/millrace/services/watcher"
	"github.com/millrace/millrace/services/watcher/versions"
)

// Watcher are the flags of the watcher.
type Watcher struct {
	kinds  []string
	redact redaction
	scope  scope
	bound  objectBound
}

// Add adds the flags.
func (o *Watcher) Add(f *pflag.FlagSet) {
	f.Var(&o.redact, "redact",
		"values that are not recorded, such as pods:.spec.containers[*].env[*].value. By default the data of ConfigMaps is hidden, except of those that controllers read; 'configmaps:' records it. The content of Secrets is never recorded")
	o.scope.add(f)
	o.bound.add(f)
	f.StringSliceVar(&o.kinds, "kinds", o.kinds, "additional kinds to record, besides those that controllers need; '*' for the metadata of all (default: none)")
}

// Check refuses unknown values of --kinds, and redactions of values that running controllers
// read, before anything is started.
func (o *Watcher) Check(chosen []reconcile.Any) error {
	for _, k := range o.kinds {
		if k != "*" {
			return fmt.Errorf("read --kinds: %q is not '*', which is all that can be asked for", k)
		}
	}
	return o.redact.check(chosen)
}

// Part is the watcher of the kinds that the chosen controllers need.
//
// Errors: as Check; the watcher cannot be made.
func (o *Watcher) Part(config *rest.Config, b bus.Bus, chosen []reconcile.Any, tracer *trace.Tracer) (process.Part, error) {
	full, every := controllers.Kinds(chosen)
	if err := o.Check(chosen); err != nil {
		return process.Part{}, err
	}
	service, err := watcher.New(watcher.Config{
		REST: config, Bus: b, Kinds: full, Every: every || len(o.kinds) > 0, Scope: o.scope.of, Bound: versions.Bound(o.bound), Hide: o.redact.policy(), Trace: tracer,
	})
	if err != nil {
		return process.Part{}, err
	}
	run := func(ctx context.Context) error {
		o.redact.remark(ctx, chosen)
		return service.Run(ctx)
	}
	return process.Part{Name: "watcher", Run: run, Checks: service.Checks(), Collectors: service.Collectors()}, nil
}

// Needed are the rights of a watcher.
func (o *Watcher) Needed(chosen controllerflags.Choice, custom []kinds.Name) doctor.Needed {
	return doctor.Needed{
		Part: doctor.PartWatcher, Roles: "millrace rbac --of=watcher",
		All: doctor.Rights(rights.Watcher(chosen.All(), o.scope.of, custom), ""),
	}
}

// scope is the flag for the share of the kinds that a watcher watches.
type scope struct{ of watcher.Scope }

func (s *scope) add(f *pflag.FlagSet) {
	f.Var(s, "scope",
		"kinds to watch: all; built-in, Kubernetes' own kinds except Secrets; or other, Secrets and custom kinds. Watchers of the last two have identities with different rights: run both")
}

func (s *scope) String() string {
	if s.of == "" {
		return string(watcher.All)
	}
	return string(s.of)
}

func (s *scope) Type() string { return "scope" }

// Set parses the flag.
//
// Errors: no scope has that name.
func (s *scope) Set(text string) error {
	if !slices.Contains(watcher.Scopes, watcher.Scope(text)) {
		return fmt.Errorf("%q is not all, built-in or other", text)
	}
	s.of = watcher.Scope(text)
	return nil
}
