package controllers

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/pkg/events/redact"
	"github.com/millrace/millrace/services/reconcilers/reconcile"
)

// Hidden returns an error if a rule would redact a field on which a controller decides.
// The error names the rule, the controller, and the remedy.
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

// spared returns the rule with exceptions for all objects that controllers read by name.
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

// Withheld returns the rules for kinds about which the user's rules say nothing: they
// redact the content of ConfigMaps, except those that a controller of the catalogue reads
// by name. They do not depend on which controllers run, because other services may have
// another selection.
func Withheld() (rules redact.Rules) {
	for _, path := range []string{".data", ".binaryData"} {
		rules = append(rules, spared(everyone(), redact.Rule{Kind: kinds.ConfigMaps.Name, Path: redact.MustParsePath(path)}))
	}
	return rules
}

// WrittenBack returns the kinds whose objects, or their status, a controller of the
// catalogue replaces as a whole, each with the names of those objects if they are known.
// The API server would remove any field that was redacted for such a controller. A scale
// is a separate object.
func WrittenBack() map[kinds.Name][]string {
	back, all := map[kinds.Name][]string{}, map[kinds.Name]bool{}
	for _, c := range everyone() {
		d := c.Describe()
		for _, w := range d.Writes {
			if w.Verb != events.VerbUpdate || w.Any {
				continue
			}
			names := d.Named(w.Kind)
			all[w.Kind] = all[w.Kind] || len(names) == 0
			if back[w.Kind] = append(back[w.Kind], names...); all[w.Kind] {
				back[w.Kind] = nil
			}
		}
	}
	return back
}

// everyone returns all controllers that Millrace has, selected or not.
func everyone() (all []reconcile.Any) {
	for _, e := range catalog {
		if e.make != nil {
			all = append(all, e.make(Config{}))
		}
	}
	return all
}
