package controllers

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/services/reconcilers/reconcile"
)

// Select returns the controllers that a --controllers list selects, in the order of the
// catalogue. Each item is a name or alias, "-" and a name or alias, or "*" for everything
// that is on by default. The first item that mentions a controller decides; a controller
// that no item mentions is off, unless there is a "*".
//
// Errors: an item names no controller of upstream; or an item names a controller that
// Millrace does not have yet ("*" includes only those that it has).
func Select(list []string, config Config) ([]reconcile.Any, error) {
	chosen, err := parse(list)
	if err != nil {
		return nil, err
	}
	var (
		selected []reconcile.Any
		missing  []string
	)
	for _, e := range catalog {
		wanted, mentioned := chosen.named[e.Name]
		switch {
		case mentioned && !wanted, !mentioned && (!chosen.star || e.Off), e.Elsewhere:
		case e.make == nil && mentioned:
			missing = append(missing, e.Name)
		case e.make == nil, e.ready != nil && !e.ready(config):
		default:
			selected = append(selected, e.make(config))
		}
	}
	if len(missing) > 0 {
		return nil, fmt.Errorf("select controllers: Millrace does not have %s yet; take %s out of the list and leave it to kube-controller-manager",
			strings.Join(missing, ", "), pronoun(missing))
	}
	return selected, nil
}

// Everything returns the --controllers list of all controllers that Millrace has,
// including those that "*" does not include.
func Everything() []string {
	list := []string{"*"}
	for _, e := range catalog {
		if e.Exists() && e.Off {
			list = append(list, e.Name)
		}
	}
	return list
}

// Lacking returns the entries that a --controllers list selects, and that do not run
// because the flag that they need ([Entry].Needs) is not set.
func Lacking(list []string, config Config) []Entry {
	return asked(list, func(e Entry) bool { return e.ready != nil && !e.ready(config) })
}

// Skipped returns the entries that a --controllers list selects, and that only a
// cloud-controller-manager runs ([Entry].Elsewhere).
func Skipped(list []string) []Entry {
	return asked(list, func(e Entry) bool { return e.Elsewhere })
}

// asked returns the entries that a --controllers list selects and that satisfy a condition.
func asked(list []string, such func(Entry) bool) (all []Entry) {
	chosen, err := parse(list)
	if err != nil {
		return nil // Select returns the error
	}
	for _, e := range catalog {
		wanted, mentioned := chosen.named[e.Name]
		if such(e) && (wanted || !mentioned && chosen.star && !e.Off) {
			all = append(all, e)
		}
	}
	return all
}

// choice is a parsed --controllers list.
type choice struct {
	star  bool
	named map[string]bool // by upstream's name: whether the first mention wants it
}

func parse(list []string) (choice, error) {
	c := choice{named: map[string]bool{}}
	var unknown []error
	for _, item := range list {
		item = strings.TrimSpace(item)
		if item == "*" {
			c.star = true
			continue
		}
		name, unwanted := strings.CutPrefix(item, "-")
		e, ok := Find(name)
		if !ok {
			unknown = append(unknown, fmt.Errorf("select controllers: %q is not in the list of known controllers", item))
			continue
		}
		if _, mentioned := c.named[e.Name]; !mentioned {
			c.named[e.Name] = !unwanted
		}
	}
	return c, errors.Join(unknown...)
}

// Find returns the entry with a name or alias.
func Find(name string) (Entry, bool) {
	for _, e := range catalog {
		if e.Name == name || slices.Contains(e.Aliases, name) {
			return e, true
		}
	}
	return Entry{}, false
}

// Kinds returns the kinds that controllers read in full, sorted by name, which the
// watcher must provide. every is true if one of them also reads the metadata of all kinds.
func Kinds(controllers []reconcile.Any) (full []kinds.Kind, every bool) {
	for _, c := range controllers {
		for _, in := range c.Describe().Inputs {
			if in.Every {
				every = true
			} else {
				full = append(full, in.Kind)
			}
		}
	}
	slices.SortFunc(full, func(a, b kinds.Kind) int { return strings.Compare(string(a.Name), string(b.Name)) })
	return slices.Compact(full), every
}

// Profile is what the writer must know about a controller to act for it.
type Profile struct {
	// Name is the name of the controller, and of its streams.
	Name string
	// Identity is the service account in kube-system whose rights the controller has.
	Identity string
	// Source is the component on its Kubernetes Events.
	Source string
	// Promise is everything that the controller may write.
	Promise reconcile.Writes
}

// Profiles returns the profiles of every controller that Millrace has, whether it is
// selected or not: a writer serves reconcilers whose selection it does not know.
func Profiles() []Profile {
	var profiles []Profile
	for _, c := range everyone() {
		d := c.Describe()
		profiles = append(profiles, Profile{Name: d.Name, Identity: d.Identity, Source: d.Source, Promise: d.Writes})
	}
	return profiles
}

func pronoun(names []string) string {
	if len(names) == 1 {
		return "it"
	}
	return "them"
}
