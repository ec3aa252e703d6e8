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
		for _, c := range chosen {
			d := c.Describe()
			reads, only := d.Reads(r.Kind, r.Path)
			if !reads || len(only) > 0 && !slices.ContainsFunc(only, func(name string) bool { return !slices.Contains(r.Spared, name) }) {
				continue
			}
			wrong = append(wrong, conflict(r, d.Name, only))
		}
	}
	return errors.Join(wrong...)
}

func conflict(r redact.Rule, controller string, only []string) error {
	if len(only) == 0 {
		return fmt.Errorf("%v hides what %s decides on, or would write back: take the rule out, or leave that controller to kube-controller-manager (--controllers=*,-%s)",
			r, controller, controller)
	}
	spare := r
	for _, name := range only {
		if !slices.Contains(spare.Spared, name) {
			spare.Spared = append(slices.Clip(spare.Spared), name)
		}
	}
	return fmt.Errorf("%v hides what %s decides on: of %s it reads %s alone, so write %v", r, controller, r.Kind, strings.Join(only, ", "), spare)
}
