package command

import (
	"context"
	"fmt"
	"strings"

	"k8s.io/klog/v2"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/pkg/events/redact"
	"github.com/millrace/millrace/services/reconcilers/controllers"
	"github.com/millrace/millrace/services/reconcilers/reconcile"
)

// redaction is the flag that says what must not be told of objects: KIND:PATH, with
// commas between. It may be given more than once.
type redaction redact.Rules

// Set reads the flag, or a part of it.
func (r *redaction) Set(text string) error {
	for item := range strings.SplitSeq(text, ",") {
		if item = strings.TrimSpace(item); item == "" {
			continue
		}
		rule, err := redact.Parse(item)
		if err != nil {
			return err
		}
		*r = append(*r, rule)
	}
	return nil
}

// String writes the flag.
func (r *redaction) String() string {
	rules := make([]string, len(*r))
	for i, rule := range *r {
		rules[i] = rule.String()
	}
	return strings.Join(rules, ",")
}

// Type is what the help calls the value.
func (r *redaction) Type() string { return "KIND:PATH,..." }

// check finds rules that would hide what a controller decides on.
func (r redaction) check(chosen []reconcile.Any) error {
	if err := controllers.Hidden(chosen, redact.Rules(r)); err != nil {
		return fmt.Errorf("read --redact: %w", err)
	}
	return nil
}

// remark says where a value is told all the same: what pods are made from must be.
func (r redaction) remark(ctx context.Context, chosen []reconcile.Any) {
	if len(redact.Rules(r).Of(kinds.Pods.Name)) == 0 {
		return
	}
	birth := events.Command{Verb: events.VerbCreate, Kind: kinds.Pods.Name}
	for _, c := range chosen {
		if d := c.Describe(); d.Writes.Allows(birth) {
			klog.FromContext(ctx).Info("What is hidden of pods is still told in the templates that this controller makes pods from, and in its turns; keep it in Secrets instead",
				"controller", d.Name)
		}
	}
}
