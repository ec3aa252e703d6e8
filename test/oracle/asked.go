package oracle

import (
	"encoding/json"
	"errors"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/services/reconcilers/reconcile"
)

// errInquisitive reports that a controller repeats a question that has been answered.
var errInquisitive = errors.New("it asks again and again")

// afterAnswers is the decision of a controller after the answers to its questions, in the same world and at
// the same time.
func afterAnswers(c reconcile.Any, asked Answerer, key events.Key, world []runtime.Object, now time.Time) (reconcile.Decision, error) {
	var last *events.Outcome
	for range 3 {
		seen, err := snapshot(world)
		if err != nil {
			return reconcile.Decision{}, err
		}
		if last != nil {
			seen.Remember(*last)
		}
		d, ok := c.Ask(seen, key, now)
		if !ok || len(d.Commands) == 0 || d.Commands[0].Verb != events.VerbAsk {
			return d, nil
		}
		last = &events.Outcome{Key: key, Lane: events.LaneWrite, At: now}
		if about := find(world, key); about != nil {
			last.UID, last.ResourceVersion = about.GetUID(), about.GetResourceVersion()
		}
		for i, command := range d.Commands {
			r := asked(world, command)
			r.Command, r.Ref = i, command.Ref()
			last.Results = append(last.Results, r)
		}
	}
	return reconcile.Decision{}, errInquisitive
}

// Answerer is the answer of the writer to a question about a world.
type Answerer func(world []runtime.Object, c events.Command) events.Result

// find is the object of a world that a key is about. By convention it is the first one.
func find(world []runtime.Object, key events.Key) object {
	if obj, ok := world[0].(object); ok && obj.GetName() == key.Name && obj.GetNamespace() == key.Namespace {
		return obj
	}
	return nil
}

// answered is a recorded answer.
func answered(body any) events.Result {
	text, err := json.Marshal(body)
	if err != nil {
		panic(err) // answers have only fields that encoding/json accepts
	}
	return events.Result{Status: events.Answered, Answer: &events.Answer{Body: text}}
}

// users names the pods that may need a claim.
func users(world []runtime.Object, c events.Command) events.Result {
	var found events.Users
	for _, obj := range world {
		if p, ok := obj.(*corev1.Pod); ok && p.Namespace == c.Namespace {
			found.Take(p, c.Name)
		}
	}
	return answered(found)
}
