// Package applytest opens doors to a fake API server and carries out commands, for the tests of
// package apply and of the packages that it is made of.
package applytest

import (
	"context"
	"encoding/json"
	"fmt"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/apiservertest"
	"github.com/millrace/millrace/services/writer/apply"
	"github.com/millrace/millrace/services/writer/plan"
)

// Actor is the controller that the doors of tests know.
var Actor = apply.Actor{Controller: "replicaset-controller", Identity: "replicaset-controller"}

// PodPath is the path of pods in the namespace ns, to be followed by a name.
const PodPath = "/api/v1/namespaces/ns/pods/"

// Always is the claim of a writer that never loses a turn.
func Always() bool { return true }

// Open opens a door to a fake API server. Its commands are retried for five minutes.
func Open(t *testing.T, s *apiservertest.Server, change ...func(*apply.Config)) *apply.Client {
	t.Helper()
	c := apply.Config{REST: &rest.Config{Host: s.URL}, Impersonate: true, Patience: 5 * time.Minute}
	for _, f := range change {
		f(&c)
	}
	d, err := apply.New(c, []apply.Actor{Actor})
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// Carry carries out a turn of some commands, and returns their results. It fails the test if that
// takes longer than five minutes.
func Carry(t *testing.T, d *apply.Client, o plan.Options, commands ...events.Command) []events.Result {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	p := plan.New(events.Turn{Controller: Actor.Controller, Lane: events.LaneWrite, Commands: commands}, o)
	results, done := d.Execute(ctx, Actor, p, Always, func(command, try int) string { return fmt.Sprintf("t.%d.%d", command, try) })
	if !done {
		t.Fatal("not done in time")
	}
	return results
}

// Creates returns commands that create the pods web-0, web-1, and so on.
func Creates(n int) []events.Command {
	body := json.RawMessage(`{"kind":"Pod","apiVersion":"v1","metadata":{"ownerReferences":[{"kind":"ReplicaSet","name":"web","uid":"rs","controller":true}]}}`)
	commands := make([]events.Command, n)
	for i := range commands {
		commands[i] = events.Command{Verb: events.VerbCreate, Kind: "pods", Version: "v1", Namespace: "ns", Name: fmt.Sprintf("web-%d", i), Body: body}
	}
	return commands
}

// Deletion returns a command that deletes a pod.
func Deletion(name string, uid types.UID) events.Command {
	return events.Command{Verb: events.VerbDelete, Kind: "pods", Version: "v1", Namespace: "ns", Name: name, If: &events.If{UID: uid}}
}

// Object returns an object with a name and more metadata.
func Object(name string, more map[string]any) map[string]any {
	metadata := map[string]any{"name": name}
	for key, value := range more {
		metadata[key] = value
	}
	return map[string]any{"metadata": metadata}
}
