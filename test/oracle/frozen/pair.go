package frozen

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apimachinery/pkg/runtime"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/services/reconcilers/controllers"
	"github.com/millrace/millrace/services/reconcilers/kube/gate"
	"github.com/millrace/millrace/services/reconcilers/reconcile"
	"github.com/millrace/millrace/test/oracle/effect"
	"github.com/millrace/millrace/test/oracle/exemption"
	"github.com/millrace/millrace/test/oracle/kcm"
	"github.com/millrace/millrace/test/oracle/objects"
)

// Pair is one controller, upstream's and ours.
type Pair struct {
	Theirs kcm.Build
	Ours   reconcile.Any
	// Asked answers our controller's questions to the writer; nil if it has none.
	Asked Answerer
	// Alone reports which effects our controller makes in a turn of their own.
	Alone func(effect.Effect) bool
	// Told adds to the world after such a turn what upstream reports in the same sync, and ours reads; nil:
	// nothing.
	Told func(world []runtime.Object, theirs []effect.Effect) ([]runtime.Object, error)
	// Fair removes intended differences from the effects of both.
	Fair func(world []runtime.Object, theirs, ours []effect.Effect) ([]effect.Effect, []effect.Effect)
	// Strict reports where upstream is asked three times, and each sync ends at the first write that an API
	// server would refuse, because the same sync has changed the object's version; nil: nowhere.
	Strict func(world []runtime.Object, theirs []effect.Effect) bool
	// Gates are the feature gates that are not at their defaults; see [Pair.Under].
	Gates gate.Set
}

// Under is the pair under feature gates that are not at their defaults.
func (p Pair) Under(gates gate.Set) (Pair, error) {
	if len(gates) == 0 {
		return p, nil
	}
	ours, err := controllers.Again(p.Ours.Describe().Name, gates.Settings())
	p.Gates, p.Ours = gates, ours
	return p, err
}

// Ask asks both about a world at a time.
func (p Pair) Ask(t *testing.T, key events.Key, world []runtime.Object, now time.Time) (theirs, ours []effect.Effect, err error) {
	if theirs, err = p.sync(t, key, world, now, false); err != nil {
		return nil, nil, err
	}
	if p.Strict != nil && p.Strict(world, theirs) {
		exemption.Uses("refused-second-write")
		if theirs, err = p.again(t, key, world, now); err != nil {
			return nil, nil, err
		}
	}
	ours, err = p.AskOurs(key, world, now)
	return theirs, effect.WithoutExtraConditions(theirs, ours), err
}

// again is what upstream does until one of its writes is refused, and what it reports in two more syncs.
func (p Pair) again(t *testing.T, key events.Key, world []runtime.Object, now time.Time) ([]effect.Effect, error) {
	theirs, err := p.AskTheirs(t, key, world, now)
	if err != nil {
		return nil, err
	}
	next := theirs
	for range 2 {
		if world, err = objects.After(world, next, now); err != nil {
			return nil, fmt.Errorf("carry out what upstream did: %w", err)
		}
		if next, err = p.AskTheirs(t, key, world, now); err != nil {
			return nil, err
		}
		theirs = append(theirs, effect.Only(next, func(e effect.Effect) bool { return !ReportsNot(e) })...)
	}
	return theirs, nil
}

// AskTheirs asks upstream's controller, whose sync ends at the first write that an API server would refuse.
func (p Pair) AskTheirs(t *testing.T, key events.Key, world []runtime.Object, now time.Time) ([]effect.Effect, error) {
	return p.sync(t, key, world, now, true)
}

func (p Pair) sync(t *testing.T, key events.Key, world []runtime.Object, now time.Time, strict bool) (effects []effect.Effect, err error) {
	failed := kcm.WithGates(p.Gates, func() {
		synctest.Test(t, func(*testing.T) {
			effects, err = Upstream(p.Theirs, objects.Copied(world), now, strict)
		})
	})
	if err = errors.Join(failed, err); err != nil {
		return nil, fmt.Errorf("ask upstream: %w", err)
	}
	return effect.Only(effects, func(e effect.Effect) bool { // and not the turns of other keys
		return e.Resource != "replicasets/status" && e.Resource != "replicationcontrollers/status" || e.Name == key.Name
	}), nil
}

// AskOurs asks our controller.
func (p Pair) AskOurs(key events.Key, world []runtime.Object, now time.Time) ([]effect.Effect, error) {
	if p.Asked != nil {
		d, err := AfterAnswers(p.Ours, p.Asked, key, objects.Copied(world), now)
		if err != nil {
			return nil, fmt.Errorf("ask ours: %w", err)
		}
		return EffectsOf(d)
	}
	effects, err := Ours(p.Ours, key, objects.Copied(world), now)
	if err != nil {
		return nil, fmt.Errorf("ask ours: %w", err)
	}
	return effects, nil
}

// Compare asks both about a world and shows how they differ; "" if they do not.
//
// If one of our decisions is less than one of their syncs (objects change owners in a turn of their own, and
// so is a new set created), Compare carries out the step that both take, and asks both again.
func (p Pair) Compare(t *testing.T, key events.Key, world []runtime.Object) (string, error) {
	for {
		theirs, ours, err := p.Ask(t, key, world, objects.Now)
		if err != nil {
			return "", err
		}
		theirs, ours = p.Fair(world, theirs, ours)
		if diff := effect.Diff(effect.Normal(theirs), effect.Normal(ours)); diff != "" {
			return diff, nil
		}
		first := slices.DeleteFunc(slices.Clone(theirs), func(e effect.Effect) bool { return !p.Alone(e) })
		if len(first) == 0 {
			return "", nil
		}
		if world, err = objects.After(world, first, objects.Now); err != nil {
			return "", fmt.Errorf("carry out a step: %w", err)
		}
		if p.Told == nil {
			continue
		}
		if world, err = p.Told(world, theirs); err != nil {
			return "", fmt.Errorf("report a step: %w", err)
		}
	}
}

// ReportsNot is true for every effect but the status of a Deployment.
func ReportsNot(e effect.Effect) bool { return e.Resource != "deployments/status" }

// NeverAlone is for controllers of which one decision is one sync.
func NeverAlone(effect.Effect) bool { return false }

// NothingLeftOut leaves out nothing.
func NothingLeftOut(_ []runtime.Object, theirs, ours []effect.Effect) ([]effect.Effect, []effect.Effect) {
	return theirs, ours
}

// DeletedOnce leaves out that upstream deletes an object that is already being deleted.
func DeletedOnce(world []runtime.Object, theirs, ours []effect.Effect) ([]effect.Effect, []effect.Effect) {
	if world[0].(objects.Object).GetDeletionTimestamp() != nil {
		theirs = exemption.Lets("deleted-again", theirs, effect.Only(theirs, func(e effect.Effect) bool { return e.Verb != effect.Remove }))
	}
	return theirs, ours
}
