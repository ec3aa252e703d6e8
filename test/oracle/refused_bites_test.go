package oracle_test

import (
	"errors"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/runtime"
	"pgregory.net/rapid"

	"github.com/millrace/millrace/pkg/events"
	namespaces "github.com/millrace/millrace/services/reconcilers/controllers/namespace"
	"github.com/millrace/millrace/services/reconcilers/reconcile"
	"github.com/millrace/millrace/test/oracle"
)

// resigned is one of our controllers that does not retry after a refusal.
type resigned struct{ reconcile.Any }

func (r resigned) Ask(s reconcile.Snapshot, k events.Key, now time.Time) (reconcile.Decision, bool) {
	d, ok := r.Any.Ask(s, k, now)
	var left []events.Command
	for _, c := range d.Commands {
		last, there := s.Last(k, c.Lane())
		if _, failed := last.Failure(); !there || !failed {
			left = append(left, c)
		}
	}
	d.Commands = left
	return d, ok
}

// question is a world, and a refusal.
type question struct {
	world   []runtime.Object
	refusal oracle.Refusal
}

// TestRefusalsBite: a controller that gives up at a refusal, or that makes a mistake only after one, comes to
// a different end.
func TestRefusalsBite(t *testing.T) {
	for _, c := range []struct {
		name     string
		rest     oracle.Rest
		worlds   func(*rapid.T) []runtime.Object
		requests []oracle.Refusal
		mutant   func(reconcile.Any) reconcile.Any
	}{
		{"a Job gives up", oracle.JobAtRest, lastingJobWorld, []oracle.Refusal{creates, patches, reports, deletes}, giveUp},
		{"a Job does not tell what was refused", oracle.JobAtRest, lastingJobWorld, []oracle.Refusal{creates, deletes}, tellNoFailure},
		{"a slice is given up", oracle.EndpointSliceAtRest, slicesWorld, []oracle.Refusal{creates, updates, deletes}, giveUp},
		{"it is not told which slice was refused", oracle.EndpointSliceAtRest, slicesWorld, []oracle.Refusal{creates, updates, deletes}, tellNoFailure},
		{"a mirror is given up", oracle.MirrorsAtRest, mirrorWorld, []oracle.Refusal{creates, updates, deletes}, giveUp},
		{"a quota is given up", oracle.QuotaAtRest, typedQuotaWorld, []oracle.Refusal{reports}, giveUp},
		{"a budget is given up", oracle.BudgetAtRest, builtInBudgetWorld, []oracle.Refusal{budgetReports}, giveUp},
		{"a certificate is given up", oracle.RequestSignerAtRest, approvedRequest, []oracle.Refusal{reports}, giveUp},
		{"a token is given up", oracle.TokensAtRest, bootstrapWorld, []oracle.Refusal{deletes}, giveUp},
		{"a range is given up", oracle.ServiceCIDRsAtRest, rangeWorld, []oracle.Refusal{patches, statusPatches}, giveUp},
		{"a pod's disruption is given up", oracle.BudgetAtRest, builtInBudgetWorld, []oracle.Refusal{podReports}, giveUp},
	} {
		t.Run(c.name, func(t *testing.T) { noticedAtRest(t, c.rest, c.mutant, c.worlds, c.requests) })
	}
}

// TestRefusedLivesBite: a controller that gives up at a refusal has a different life.
func TestRefusedLivesBite(t *testing.T) {
	for _, c := range []struct {
		name     string
		life     oracle.Life
		chapters func(*rapid.T) []oracle.Chapter
	}{
		{"a volume is not bound", oracle.RefusedVolumeBinder, func(r *rapid.T) []oracle.Chapter { return refusedStore(r).chapters }},
		{"a volume is not attached", oracle.AttachDetach, func(r *rapid.T) []oracle.Chapter { return anyHall(r, attachingRequests).chapters }},
	} {
		t.Run(c.name, func(t *testing.T) {
			lives := rapid.Custom(c.chapters)
			c.life.Ours = giveUp(c.life.Ours)
			for seed := range enough {
				diff, err := c.life.Compare(t, lives.Example(seed))
				if err != nil {
					t.Fatal(err)
				}
				if diff != "" {
					return
				}
			}
			t.Errorf("nothing was noticed in %d lives", enough)
		})
	}
}

// TestUnreportedAutoscalersBite: an autoscaler that gives up at a refused status, or does not report it, has
// a different life.
func TestUnreportedAutoscalersBite(t *testing.T) {
	lives := rapid.Custom(mutedLife)
	for name, change := range map[string]func(reconcile.Any) reconcile.Any{"gives up": giveUp, "does not tell": tellNoFailure} {
		t.Run(name, func(t *testing.T) {
			for seed := range enough {
				life := lives.Example(seed)
				life.Changed = change
				diff, err := life.Compare(t)
				if err != nil {
					t.Fatal(err)
				}
				if diff != "" {
					return
				}
			}
			t.Errorf("nothing was noticed in %d lives", enough)
		})
	}
}

// TestNamespacesThatStopBite: the comparison detects a namespace controller that stops at a refused status,
// or reports nothing after it.
func TestNamespacesThatStopBite(t *testing.T) {
	ends := rapid.Custom(anyEnd)
	for name, controller := range map[string]reconcile.Any{"stops": waitsToSay{namespaces.Controller}, "says nothing more": giveUp(namespaces.Controller)} {
		t.Run(name, func(t *testing.T) {
			for seed := range enough {
				if ends.Example(seed).compare(t, controller) != "" {
					return
				}
			}
			t.Errorf("nothing was noticed in %d namespaces", enough)
		})
	}
}

// waitsToSay is one of our controllers that does nothing else until a refused status is written.
type waitsToSay struct{ reconcile.Any }

func (w waitsToSay) Ask(s reconcile.Snapshot, k events.Key, now time.Time) (reconcile.Decision, bool) {
	d, ok := w.Any.Ask(s, k, now)
	if tells := d.In(events.LaneStatus); len(tells.Commands) > 0 {
		return tells, ok
	}
	return d, ok
}

func giveUp(c reconcile.Any) reconcile.Any { return resigned{c} }

func tellNoFailure(c reconcile.Any) reconcile.Any {
	return mutant{Any: c, garble: func(d *reconcile.Decision) {
		for i := range d.Commands {
			d.Commands[i].OnFailed = nil
		}
	}}
}

func noticedAtRest(t *testing.T, rest oracle.Rest, m func(reconcile.Any) reconcile.Any, worlds func(*rapid.T) []runtime.Object, requests []oracle.Refusal) {
	rest.Ours = m(rest.Ours)
	questions := rapid.Custom(func(r *rapid.T) question { return question{worlds(r), refusalOf(r, requests)} })
	for seed := range enough {
		q := questions.Example(seed)
		diff, err := rest.Compare(t, q.world, q.refusal)
		switch {
		case errors.Is(err, oracle.ErrRestless):
			return
		case err != nil:
			t.Fatal(err)
		case diff != "":
			return
		}
	}
	t.Errorf("nothing was noticed in %d worlds", enough)
}
