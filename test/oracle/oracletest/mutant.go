package oracletest

import (
	"bytes"
	"errors"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"pgregory.net/rapid"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/services/reconcilers/reconcile"
	"github.com/millrace/millrace/services/reconcilers/reconciletest"
	"github.com/millrace/millrace/test/oracle/frozen"
)

// Mutant is one of our controllers with a wrong view or a wrong decision.
type Mutant struct {
	reconcile.Any
	Mask   func(*reconciletest.World) // of its view
	Late   time.Duration              // offset of its clock
	Garble func(*reconcile.Decision)  // of its decision
}

// Ask asks the controller with the wrong view and clock, and makes its decision wrong.
func (m Mutant) Ask(s reconcile.Snapshot, k events.Key, now time.Time) (reconcile.Decision, bool) {
	if m.Mask != nil {
		m.Mask(s.(*reconciletest.World))
	}
	d, ok := m.Any.Ask(s, k, now.Add(m.Late))
	if m.Garble != nil {
		m.Garble(&d)
	}
	return d, ok
}

// Enough is how many worlds are tried to find one in which the comparison detects a mutant.
const Enough = 4000

// Noticed makes sure that the comparison detects a mutant in one of the worlds.
func Noticed(t *testing.T, p frozen.Pair, m Mutant, key events.Key, worlds func(*rapid.T) []runtime.Object) {
	t.Parallel()
	m.Any, p.Ours = p.Ours, &m
	generator := rapid.Custom(worlds)
	for seed := range Enough {
		diff, err := p.Compare(t, key, generator.Example(seed))
		if errors.Is(err, frozen.ErrBeyondPromise) {
			return // the writer would refuse it
		}
		if err != nil {
			t.Fatal(err)
		}
		if diff != "" {
			return
		}
	}
	t.Errorf("nothing was noticed in %d worlds", Enough)
}

// thing is an object that can be copied.
type thing interface {
	metav1.Object
	runtime.Object
}

// Each changes a copy of every object of a kind.
func Each[T thing](w *reconciletest.World, kind kinds.Of[T], change func(T)) {
	for _, obj := range reconcile.List(w, kind, "") {
		next := obj.DeepCopyObject().(T)
		change(next)
		w.Put(kind.Kind, next)
	}
}

// ForgetLast drops the last of several commands.
func ForgetLast(d *reconcile.Decision) {
	if n := len(d.Commands); n > 1 {
		d.Commands = d.Commands[:n-1]
	}
}

// TellNothing drops the Events about what was done.
func TellNothing(d *reconcile.Decision) {
	for i := range d.Commands {
		d.Commands[i].OnApplied = nil
	}
}

// Replace replaces a text in the bodies of commands.
func Replace(old, with string) func(*reconcile.Decision) {
	return func(d *reconcile.Decision) {
		for i := range d.Commands {
			d.Commands[i].Body = bytes.ReplaceAll(d.Commands[i].Body, []byte(old), []byte(with))
		}
	}
}
