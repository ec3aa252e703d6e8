package frozen

import (
	"encoding/json"
	"errors"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/query"
	"github.com/millrace/millrace/services/reconcilers/reconcile"
	"github.com/millrace/millrace/test/oracle/objects"
)

// ErrInquisitive reports that a controller repeats a question that has been answered.
var ErrInquisitive = errors.New("it asks again and again")

// AfterAnswers is the decision of a controller after the answers to its questions, in the same world and at
// the same time.
func AfterAnswers(c reconcile.Any, asked Answerer, key events.Key, world []runtime.Object, now time.Time) (reconcile.Decision, error) {
	var last *events.Outcome
	for range 3 {
		seen, err := Snapshot(world)
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
	return reconcile.Decision{}, ErrInquisitive
}

// Answerer is the answer of the writer to a question about a world.
type Answerer func(world []runtime.Object, c events.Command) events.Result

// find is the object of a world that a key is about. By convention it is the first one.
func find(world []runtime.Object, key events.Key) objects.Object {
	if obj, ok := world[0].(objects.Object); ok && obj.GetName() == key.Name && obj.GetNamespace() == key.Namespace {
		return obj
	}
	return nil
}

// Answered is a recorded answer.
func Answered(body any) events.Result {
	text, err := json.Marshal(body)
	if err != nil {
		panic(err) // answers have only fields that encoding/json accepts
	}
	return events.Result{Status: events.Answered, Answer: &events.Answer{Body: text}}
}

// UsersOfClaim names the pods that may need a claim.
func UsersOfClaim(world []runtime.Object, c events.Command) events.Result {
	var found query.Users
	for _, obj := range world {
		if p, ok := obj.(*corev1.Pod); ok && p.Namespace == c.Namespace {
			found.Take(p, c.Name)
		}
	}
	return Answered(found)
}
