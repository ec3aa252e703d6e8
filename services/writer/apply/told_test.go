package apply_test

import (
	"context"
	"encoding/json"
	"net/http"
	"sync"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/apiservertest"
	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/pkg/events/trace"
	"github.com/millrace/millrace/services/writer/apply"
	"github.com/millrace/millrace/services/writer/apply/applytest"
	"github.com/millrace/millrace/services/writer/plan"
)

// Each write is announced before it is sent, and then with its version, or without one if it
// failed. Reads, dry runs and Events are not announced.
func TestWhatWatchersAreTold(t *testing.T) {
	s := applytest.Serve(t)
	s.Put(podPath+"old", "old-uid", map[string]any{})
	s.Put(podPath+"kept", "kept-uid", map[string]any{})
	s.Break(func(r apiservertest.Request) apiservertest.Fault {
		if r.Method == http.MethodDelete && r.Path == podPath+"kept" {
			return apiservertest.Fault{Code: http.StatusForbidden}
		}
		return apiservertest.Fault{}
	})
	var mu sync.Mutex
	var told []trace.Write
	listen := func(c *apply.Config) {
		c.Announce = func(_ context.Context, w trace.Write) {
			mu.Lock()
			defer mu.Unlock()
			told = append(told, w)
		}
	}
	change := events.Command{
		Verb: events.VerbPatch, PatchType: "application/merge-patch+json", Kind: "pods", Version: "v1", Namespace: "ns", Name: "kept",
		If: &events.If{UID: "kept-uid"}, Body: json.RawMessage(`{"metadata":{"labels":{"a":"b"}}}`),
	}
	for name, c := range map[string]struct {
		command events.Command
		want    trace.Write // the announced result
	}{
		"a create":           {creates(1)[0], trace.Write{UID: "uid-"}},
		"a patch":            {change, trace.Write{UID: "kept-uid"}},
		"a delete":           {deletion("old", "old-uid"), trace.Write{UID: "old-uid", Ends: true}},
		"a refused delete":   {deletion("kept", "kept-uid"), trace.Write{}},
		"one of what is not": {deletion("none", "none-uid"), trace.Write{}},
	} {
		told = nil
		carry(t, open(t, s, listen), plan.Options{}, c.command)
		if len(told) != 2 || !told[0].Begins || told[1].Begins || told[0].ID == "" || told[0].ID != told[1].ID || told[0].UID != "" || told[0].About != c.command.Ref() {
			t.Fatalf("%s: told is %+v", name, told)
		}
		got := told[1]
		if name == "a create" && got.UID != "" {
			got.UID = got.UID[:4]
		}
		if got.UID != c.want.UID || got.Ends != c.want.Ends || (got.Version != "") != (got.UID != "" && !c.want.Ends) {
			t.Errorf("%s: what came of it is told as %+v", name, told[1])
		}
	}
	told = nil
	event := creates(1)[0]
	event.Kind = "events"
	carry(t, open(t, s, listen), plan.Options{}, event)
	carry(t, open(t, s, listen, func(c *apply.Config) { c.DryRun = true }), plan.Options{DryRun: true}, creates(1)[0])
	open(t, s, listen).Do(t.Context(), actor, of(plan.Look, kinds.Pods.Name), "")
	if len(told) != 0 {
		t.Errorf("an Event, a dry run and a look are announced as %+v, want nothing", told)
	}
	// A delete without a uid is announced without one, since the answer has none either; a change
	// of an object that is being deleted may end it.
	for _, options := range []*metav1.DeleteOptions{{}, {Preconditions: &metav1.Preconditions{}}} {
		s.Put(podPath+"a", "u", map[string]any{})
		end := of(plan.Delete, kinds.Pods.Name)
		end.Delete, told = options, nil
		if r := open(t, s, listen).Do(t.Context(), actor, end, ""); r.Code != http.StatusOK || len(told) != 2 || !told[1].Ends || told[1].UID != "" {
			t.Errorf("a delete without a condition is announced as %+v, %+v; want beginning and end without a uid", told, r)
		}
	}
	s.Put(podPath+"a", "u", map[string]any{"metadata": map[string]any{"deletionTimestamp": "2030-01-01T00:00:00Z"}})
	told = nil
	if open(t, s, listen).Do(t.Context(), actor, of(plan.Patch, kinds.Pods.Name), ""); len(told) != 2 || !told[1].Ends || told[1].UID != "u" || told[1].Version == "" {
		t.Errorf("a change that ends an object is announced as %+v, want its end with uid and version", told)
	}
}

// The API server is ready if it says so, or if it denies the writer the question.
func TestWhetherTheAPIServerIsReady(t *testing.T) {
	for code, ready := range map[int]bool{0: true, http.StatusForbidden: true, http.StatusUnauthorized: true, http.StatusInternalServerError: false, http.StatusNotFound: false} {
		s := applytest.Serve(t)
		s.Put("/readyz", "", map[string]any{})
		s.Break(func(apiservertest.Request) apiservertest.Fault { return apiservertest.Fault{Code: code} })
		if err := open(t, s).Ready(t.Context()); (err == nil) != ready {
			t.Errorf("where the answer is %d: %v", code, err)
		}
	}
}

// The answer to a look has everything that a plan judges by.
func TestWhatALookTells(t *testing.T) {
	s := applytest.Serve(t)
	s.Put(podPath+"lives", "u", map[string]any{})
	s.Put(podPath+"leaves", "v", map[string]any{"metadata": map[string]any{
		"deletionTimestamp": "2030-01-01T00:00:00Z", "deletionGracePeriodSeconds": 30, "finalizers": []string{"x"},
		"ownerReferences": []any{map[string]any{"kind": "ReplicaSet", "name": "web", "uid": "rs"}},
	}})
	s.Put(podPath+"waits", "w", map[string]any{"metadata": map[string]any{"deletionTimestamp": "2030-01-01T00:00:00Z", "finalizers": []string{metav1.FinalizerDeleteDependents}}})
	s.Put(podPath+"ready", "x", map[string]any{"metadata": map[string]any{"finalizers": []string{metav1.FinalizerDeleteDependents}}})
	d := open(t, s)
	for name, want := range map[string]struct {
		uid                           string
		deleting, finalizers, waiting bool
		grace                         int64
		owners                        int
	}{
		"lives": {uid: "u"}, "leaves": {uid: "v", deleting: true, finalizers: true, grace: 30, owners: 1},
		"waits": {uid: "w", deleting: true, finalizers: true, waiting: true}, "ready": {uid: "x", finalizers: true},
	} {
		r := d.Do(t.Context(), actor, plan.Request{Verb: plan.Look, Kind: "pods", Version: "v1", Namespace: "ns", Name: name}, "")
		o := r.Object
		if r.Code != http.StatusOK || string(o.UID) != want.uid || o.ResourceVersion == "" || o.Deleting != want.deleting || o.Finalizers != want.finalizers || o.Waiting != want.waiting || len(o.Owners) != want.owners {
			t.Errorf("%s: the object is %+v, want %+v", name, r, want)
		}
		if (o.Grace != nil) != (want.grace > 0) || o.Grace != nil && *o.Grace != want.grace {
			t.Errorf("%s: the grace is %v", name, o.Grace)
		}
	}
}
