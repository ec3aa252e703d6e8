package serviceflags

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"k8s.io/klog/v2"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/pkg/events/redact"
	"github.com/millrace/millrace/services/reconcilers/controllers"
	"github.com/millrace/millrace/services/reconcilers/reconcile"
)

// redaction is the flag --redact: the values of objects to hide, as KIND:PATH, separated by
// commas. It may be given more than once. Rules for a kind replace the kind's defaults; KIND:
// without a path hides nothing.
type redaction struct {
	rules redact.Rules
	told  []kinds.Name // the kinds of which nothing is hidden
}

// Set parses the flag, or one occurrence of it.
func (r *redaction) Set(text string) error {
	for item := range strings.SplitSeq(text, ",") {
		item = strings.TrimSpace(item)
		kind, nothing := strings.CutSuffix(item, ":")
		switch {
		case item == "":
		case nothing && kind != "" && !strings.ContainsAny(kind, ":!"):
			r.told = append(r.told, kinds.Name(kind))
		default:
			rule, err := redact.Parse(item)
			if err != nil {
				return err
			}
			r.rules = append(r.rules, rule)
		}
	}
	return r.contradiction()
}

// contradiction is an error if a kind has both rules and KIND: without a path.
func (r *redaction) contradiction() error {
	for _, kind := range r.told {
		if some := r.rules.Of(kind); len(some) > 0 {
			return fmt.Errorf("%s: says that nothing of them is hidden, %v that something is: leave one of them out", kind, some[0])
		}
	}
	return nil
}

// String formats the flag's value.
func (r *redaction) String() string {
	var items []string
	for _, kind := range r.told {
		items = append(items, string(kind)+":")
	}
	for _, rule := range r.rules {
		items = append(items, rule.String())
	}
	return strings.Join(items, ",")
}

// Type is the value's name in the help.
func (r *redaction) Type() string { return "KIND:PATH,..." }

// all are the rules, with the defaults of kinds that the flag does not name.
func (r *redaction) all() redact.Rules {
	all := slices.Clone(r.rules)
	for _, rule := range controllers.Withheld() {
		if len(r.rules.Of(rule.Kind)) == 0 && !slices.Contains(r.told, rule.Kind) {
			all = append(all, rule)
		}
	}
	return all
}

// policy is the watcher's redaction policy.
func (r *redaction) policy() redact.Policy {
	return redact.Policy{Rules: r.all(), Copies: controllers.WrittenBack()}
}

// check refuses rules that would hide what a controller decides on.
func (r *redaction) check(chosen []reconcile.Any) error {
	if err := controllers.Hidden(chosen, r.all()); err != nil {
		return fmt.Errorf("read --redact: %w", err)
	}
	return nil
}

// remark logs where a hidden value of pods is recorded nevertheless: in the templates from which
// controllers create pods, which cannot be hidden.
func (r *redaction) remark(ctx context.Context, chosen []reconcile.Any) {
	if len(r.rules.Of(kinds.Pods.Name)) == 0 {
		return
	}
	create := events.Command{Verb: events.VerbCreate, Kind: kinds.Pods.Name}
	for _, c := range chosen {
		if d := c.Describe(); d.Writes.Allows(create) {
			klog.FromContext(ctx).Info("The redaction of pods does not cover this controller's pod templates and turns; keep secret values in Secrets",
				"controller", d.Name)
		}
	}
}
