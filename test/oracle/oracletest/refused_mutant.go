package oracletest

import (
	"errors"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/runtime"
	"pgregory.net/rapid"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/services/reconcilers/reconcile"
	"github.com/millrace/millrace/test/oracle/settle"
	"github.com/millrace/millrace/test/oracle/stage"
)

// resigned is one of our controllers that does not retry after a refusal.
type resigned struct{ reconcile.Any }

// Ask leaves out the commands of a lane whose last turn failed.
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
	refusal stage.Refusal
}

// GiveUp is a controller that does not retry after a refusal.
func GiveUp(c reconcile.Any) reconcile.Any { return resigned{c} }

// TellNoFailure is a controller that sends no Events about failures.
func TellNoFailure(c reconcile.Any) reconcile.Any {
	return Mutant{Any: c, Garble: func(d *reconcile.Decision) {
		for i := range d.Commands {
			d.Commands[i].OnFailed = nil
		}
	}}
}

func noticedAtRest(t *testing.T, rest stage.Rest, m func(reconcile.Any) reconcile.Any, worlds func(*rapid.T) []runtime.Object, requests []stage.Refusal) {
	rest.Ours = m(rest.Ours)
	questions := rapid.Custom(func(r *rapid.T) question { return question{worlds(r), RefusalOf(r, requests)} })
	for seed := range Enough {
		q := questions.Example(seed)
		diff, err := rest.Compare(t, q.world, q.refusal)
		switch {
		case errors.Is(err, settle.ErrRestless):
			return
		case err != nil:
			t.Fatal(err)
		case diff != "":
			return
		}
	}
	t.Errorf("nothing was noticed in %d worlds", Enough)
}

// RefusalBite is a controller at rest, made worse, that must be noticed when one of the requests is refused.
type RefusalBite struct {
	Name     string
	Rest     stage.Rest
	Worlds   func(*rapid.T) []runtime.Object
	Requests []stage.Refusal
	Mutant   func(reconcile.Any) reconcile.Any
}

// RefusalsBite makes sure that each controller that is made worse comes to a different end.
func RefusalsBite(t *testing.T, cases []RefusalBite) {
	for _, c := range cases {
		t.Run(c.Name, func(t *testing.T) { noticedAtRest(t, c.Rest, c.Mutant, c.Worlds, c.Requests) })
	}
}
