package oracle

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
	"github.com/millrace/millrace/services/reconcilers/controllers/deployment"
	"github.com/millrace/millrace/services/reconcilers/controllers/replicaset"
	"github.com/millrace/millrace/services/reconcilers/kube/gate"
	"github.com/millrace/millrace/services/reconcilers/reconcile"
)

// Now is the time of every question. A bubble's time begins half a second before; the API has whole seconds
// only, so every time in a world differs from Now by at least half a second.
var Now = time.Date(2000, time.January, 1, 0, 0, 0, int(500*time.Millisecond), time.UTC)

// Pair is one controller, upstream's and ours.
type Pair struct {
	Theirs Build
	Ours   reconcile.Any
	// Asked answers our controller's questions to the writer; nil if it has none.
	Asked Answerer
	// Alone reports which effects our controller makes in a turn of their own.
	Alone func(Effect) bool
	// Told adds to the world after such a turn what upstream reports in the same sync, and ours reads; nil:
	// nothing.
	Told func(world []runtime.Object, theirs []Effect) ([]runtime.Object, error)
	// Fair removes intended differences from the effects of both.
	Fair func(world []runtime.Object, theirs, ours []Effect) ([]Effect, []Effect)
	// Strict reports where upstream is asked three times, and each sync ends at the first write that an API
	// server would refuse, because the same sync has changed the object's version; nil: nowhere.
	Strict func(world []runtime.Object, theirs []Effect) bool
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

// Deployment is the deployment controller.
var Deployment = Pair{Theirs: buildDeployments, Ours: deployment.Controller, Alone: claimsOrBears, Told: toldOfCreate, Fair: fairDeployment, Strict: bearsResumed}

// ReplicaSet is the replica set controller.
var ReplicaSet = Pair{Theirs: buildReplicaSets, Ours: replicaset.Controller, Alone: claims, Fair: fairReplicaSet}

// Ask asks both about a world at a time.
func (p Pair) Ask(t *testing.T, key events.Key, world []runtime.Object, now time.Time) (theirs, ours []Effect, err error) {
	if theirs, err = p.sync(t, key, world, now, false); err != nil {
		return nil, nil, err
	}
	if p.Strict != nil && p.Strict(world, theirs) {
		Uses("refused-second-write")
		if theirs, err = p.again(t, key, world, now); err != nil {
			return nil, nil, err
		}
	}
	ours, err = p.AskOurs(key, world, now)
	return theirs, freer(theirs, ours), err
}

// again is what upstream does until one of its writes is refused, and what it reports in two more syncs.
func (p Pair) again(t *testing.T, key events.Key, world []runtime.Object, now time.Time) ([]Effect, error) {
	theirs, err := p.AskTheirs(t, key, world, now)
	if err != nil {
		return nil, err
	}
	next := theirs
	for range 2 {
		if world, err = After(world, next, now); err != nil {
			return nil, fmt.Errorf("carry out what upstream did: %w", err)
		}
		if next, err = p.AskTheirs(t, key, world, now); err != nil {
			return nil, err
		}
		theirs = append(theirs, only(next, func(e Effect) bool { return !reportsNot(e) })...)
	}
	return theirs, nil
}

// AskTheirs asks upstream's controller, whose sync ends at the first write that an API server would refuse.
func (p Pair) AskTheirs(t *testing.T, key events.Key, world []runtime.Object, now time.Time) ([]Effect, error) {
	return p.sync(t, key, world, now, true)
}

func (p Pair) sync(t *testing.T, key events.Key, world []runtime.Object, now time.Time, strict bool) (effects []Effect, err error) {
	failed := under(p.Gates, func() {
		synctest.Test(t, func(*testing.T) {
			effects, err = Upstream(p.Theirs, copied(world), now, strict)
		})
	})
	if err = errors.Join(failed, err); err != nil {
		return nil, fmt.Errorf("ask upstream: %w", err)
	}
	return only(effects, func(e Effect) bool { // and not the turns of other keys
		return e.Resource != "replicasets/status" && e.Resource != "replicationcontrollers/status" || e.Name == key.Name
	}), nil
}

// AskOurs asks our controller.
func (p Pair) AskOurs(key events.Key, world []runtime.Object, now time.Time) ([]Effect, error) {
	if p.Asked != nil {
		d, err := afterAnswers(p.Ours, p.Asked, key, copied(world), now)
		if err != nil {
			return nil, fmt.Errorf("ask ours: %w", err)
		}
		return effectsOf(d)
	}
	effects, err := Ours(p.Ours, key, copied(world), now)
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
		theirs, ours, err := p.Ask(t, key, world, Now)
		if err != nil {
			return "", err
		}
		theirs, ours = p.Fair(world, theirs, ours)
		if diff := Diff(Normal(theirs), Normal(ours)); diff != "" {
			return diff, nil
		}
		first := slices.DeleteFunc(slices.Clone(theirs), func(e Effect) bool { return !p.Alone(e) })
		if len(first) == 0 {
			return "", nil
		}
		if world, err = After(world, first, Now); err != nil {
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

func copied(world []runtime.Object) []runtime.Object {
	out := make([]runtime.Object, len(world))
	for i, obj := range world {
		out[i] = obj.DeepCopyObject()
	}
	return out
}
