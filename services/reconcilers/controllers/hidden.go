package controllers

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/millrace/millrace/pkg/events/redact"
	"github.com/millrace/millrace/services/reconcilers/reconcile"
)

// Hidden is an error where rules would hide from controllers what they decide on. It
// names the rule, the controller, and what to do.
func Hidden(chosen []reconcile.Any, rules redact.Rules) error {
	var wrong []error
	for _, r := range rules {
		spare := spared(chosen, r)
		for _, c := range chosen {
			d := c.Describe()
			reads, only := d.Reads(r.Kind, r.Path)
			if !reads || len(only) > 0 && !slices.ContainsFunc(only, func(name string) bool { return !slices.Contains(r.Spared, name) }) {
				continue
			}
			wrong = append(wrong, conflict(r, d.Name, only, spare))
		}
	}
	return errors.Join(wrong...)
}

// spared is the rule without all objects that controllers read by their names.
func spared(chosen []reconcile.Any, r redact.Rule) redact.Rule {
	r.Spared = slices.Clone(r.Spared)
	for _, c := range chosen {
		_, only := c.Describe().Reads(r.Kind, r.Path)
		for _, name := range only {
			if !slices.Contains(r.Spared, name) {
				r.Spared = append(r.Spared, name)
			}
		}
	}
	return r
}

func conflict(r redact.Rule, controller string, only []string, spare redact.Rule) error {
	if len(only) == 0 {
		return fmt.Errorf("%v hides what %s decides on, or would write back: take the rule out, or leave that controller to kube-controller-manager (--controllers=*,-%s)",
			r, controller, controller)
	}
	return fmt.Errorf("%v hides what %s decides on: of %s it reads %s alone, so write %v", r, controller, r.Kind, strings.Join(only, ", "), spare)
}
