// Package storageversionmigrator has the objects of a resource written again, as a
// StorageVersionMigration asks for, so that all of them are stored in the version in which the
// API server stores them now.
//
// Of the migrations of one resource one runs at a time, the oldest first. It goes in steps, each
// of which its status says:
//
//   - it begins to run; a CustomResourceDefinition of the resource is marked;
//   - the writer finds out how the resource is served, and where a list of it stands: that is
//     the status's resourceVersion;
//   - page by page, the writer lists what has not changed since that version, and an empty
//     patch has each object written again, under its uid and its version. Whatever was
//     changed, deleted or made anew in between needs it no more;
//   - it has succeeded, or failed; the CustomResourceDefinition loses its old stored versions,
//     if it did not change meanwhile, and the migration runs no more.
//
// Nothing is remembered but the outcome of the last turn: a page, what became of its objects,
// and the next page. Where that is lost the migration begins with the first page again, in
// which the objects that were written before do not count.
//
// The API is off unless it is asked for: the controller runs where --feature-gates says that
// the API server serves it (StorageVersionMigrator), as upstream's does.
package storageversionmigrator

import (
	"cmp"
	"slices"
	"time"

	storagemigrationv1beta1 "k8s.io/api/storagemigration/v1beta1"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/services/reconcilers/kube/gate"
	"github.com/millrace/millrace/services/reconcilers/reconcile"
)

type migration = storagemigrationv1beta1.StorageVersionMigration

// definitions are CustomResourceDefinitions, of which only what is asked for is known.
var definitions = kinds.CustomResourceDefinitions

// Controller is the migrator. A key is a StorageVersionMigration.
var Controller = reconcile.Controller[View]{
	Name:    "storage-version-migrator-controller",
	Aliases: []string{"svm"},
	Owns:    &kinds.StorageVersionMigrations.Kind,
	Inputs:  []reconcile.Input{{Kind: kinds.StorageVersionMigrations.Kind, Keys: ofTheResource}},
	Writes: reconcile.Writes{
		{Verb: events.VerbAsk, Kind: kinds.StorageVersionMigrations.Name, Subresource: events.SubObjects, On: reconcile.Itself},
		{Verb: events.VerbAsk, Kind: definitions.Name},
		{Verb: events.VerbPatch, Any: true, Fields: []string{}, How: []types.PatchType{types.MergePatchType}, Unchanged: true},
		{Verb: events.VerbPatch, Kind: definitions.Name, Subresource: "status", How: []types.PatchType{types.ApplyPatchType}, Unchanged: true, Adds: true,
			Fields: []string{".status.conditions", ".status.storedVersions"},
			Values: []reconcile.Value{{Path: ".status.conditions[*].type", One: []string{migrating}}}},
		{Verb: events.VerbUpdate, Kind: kinds.StorageVersionMigrations.Name, Subresource: "status", On: reconcile.Itself},
	},
	Remembers: true,
	Settings:  gate.Set{gate.StorageVersionMigrator: true}.Settings(), // it ran, so they are served
	Observe:   observe,
	Decide:    decide,
}

// View is what the turn of one migration can see.
type View struct {
	Migration *migration `json:"migration"`
	// Ahead is another migration of the resource, which comes first. It is looked for before
	// this one runs.
	Ahead string `json:"ahead,omitempty"`
	// Definition is that of the resource, when it was asked for at the migration's version;
	// nil when it was not, or could not be written as it was.
	Definition *Definition `json:"definition,omitempty"`
	// Marked is true when the definition has been written since.
	Marked bool `json:"marked,omitempty"`
	// Question is what was last asked of the resource's objects, and Objects the answer; nil
	// where there is none.
	Question *events.ObjectsQuestion `json:"question,omitempty"`
	Objects  *events.Objects         `json:"objects,omitempty"`
	// Refused is why an object could not be written, and never will be; Undone is true where
	// one was not written for any other reason.
	Refused string `json:"refused,omitempty"`
	Undone  bool   `json:"undone,omitempty"`
	// At is when the last answer came, and Unread one that could not be read.
	At     time.Time         `json:"at,omitzero"`
	Unread *reconcile.Unread `json:"unread,omitempty"`
}

// ofTheResource are the migrations of the resource of one that changes. One that has taken the
// name of another may be of another resource.
func ofTheResource(s reconcile.Snapshot, was, now reconcile.Object) (keys []events.Key) {
	for _, obj := range []reconcile.Object{now, was} {
		of, ok := obj.Object.(*migration)
		if !ok {
			continue
		}
		names := []string{of.Name}
		for _, m := range reconcile.List(s, kinds.StorageVersionMigrations, "") {
			if m.Spec.Resource == of.Spec.Resource {
				names = append(names, m.Name)
			}
		}
		for _, name := range names {
			if key := (events.Key{Name: name}); !slices.Contains(keys, key) {
				keys = append(keys, key)
			}
		}
	}
	return keys
}

func observe(s reconcile.Snapshot, k events.Key) (View, bool) {
	m, ok := reconcile.Get(s, kinds.StorageVersionMigrations, "", k.Name)
	if !ok {
		return View{}, false
	}
	v := View{Migration: m}
	if !running(m) {
		v.Ahead = ahead(m, reconcile.List(s, kinds.StorageVersionMigrations, ""))
	}
	last, asked := reconcile.LastOf(s, k, events.Act, m)
	if !asked {
		return v, true
	}
	for _, r := range last.Results {
		v.hear(r, last.At)
	}
	if last.ResourceVersion != m.ResourceVersion {
		v.Definition = nil // it was asked for in another step
	}
	if told, ok := reconcile.LastOf(s, k, events.Tell, m); ok && told.ResourceVersion == m.ResourceVersion && !told.Decided.Before(last.Decided) {
		for _, r := range told.Results {
			if r.Ref.Kind == definitions.Name {
				v.Marked = r.OK()
				if !v.Marked {
					v.Definition = nil // it has changed, or is gone
				}
			}
		}
	}
	return v, true
}

// ahead is a migration of the same resource that comes first: one that runs, or an older one.
//
// Upstream: pkg/controller/storageversionmigrator, getSVMsForResource.
func ahead(m *migration, all []*migration) string {
	for _, other := range all {
		if other.Name == m.Name || other.Spec.Resource != m.Spec.Resource {
			continue
		}
		older := cmp.Or(other.CreationTimestamp.Compare(m.CreationTimestamp.Time), cmp.Compare(other.Name, m.Name)) < 0
		if running(other) || !ended(other) && older {
			return other.Name
		}
	}
	return ""
}

func running(m *migration) bool {
	return apimeta.IsStatusConditionTrue(m.Status.Conditions, string(storagemigrationv1beta1.MigrationRunning))
}

func succeeded(m *migration) bool {
	return apimeta.IsStatusConditionTrue(m.Status.Conditions, string(storagemigrationv1beta1.MigrationSucceeded))
}

func ended(m *migration) bool {
	return succeeded(m) || apimeta.IsStatusConditionTrue(m.Status.Conditions, string(storagemigrationv1beta1.MigrationFailed))
}

// hear takes in what became of a command of the last turn.
func (v *View) hear(r events.Result, at time.Time) {
	v.At = at
	switch {
	case r.Ref.Kind == definitions.Name && r.Status == events.Absent:
		v.Definition = &Definition{}
	case r.Ref.Kind == definitions.Name && r.Status == events.Answered:
		v.Definition, v.Unread = definitionOf(r, at)
	case r.Ref.Kind == kinds.StorageVersionMigrations.Name && r.Ref.Name == v.Migration.Name && r.Answer != nil:
		v.answered(r, at)
	case r.Ref.Kind == v.resource() && r.Status == events.Refused && r.Code != 0 && v.Refused == "":
		v.Refused = cmp.Or(r.Message, r.Reason)
	case slices.Contains([]events.Status{events.Refused, events.Failed, events.Skipped}, r.Status):
		v.Undone = true
	}
}

// answered takes in the answer to a question about the resource's objects.
func (v *View) answered(r events.Result, at time.Time) {
	if r.Status != events.Answered {
		return
	}
	question, objects := new(events.ObjectsQuestion), new(events.Objects)
	if err := reconcile.ReadNote(r, question); err != nil {
		v.Unread = &reconcile.Unread{Because: err.Error(), At: at}
		return
	}
	if err := reconcile.Read(r, objects); err != nil {
		v.Unread = &reconcile.Unread{Because: err.Error(), At: at}
		return
	}
	if question.Resource == v.resource() {
		v.Question, v.Objects = question, objects
	}
}

// resource is the migration's, as kinds are named.
func (v View) resource() kinds.Name {
	return kinds.NameOf(v.Migration.Spec.Resource.Group, v.Migration.Spec.Resource.Resource)
}

// condition is one that the status gets.
func condition(what storagemigrationv1beta1.MigrationConditionType, reason, message string, now time.Time) metav1.Condition {
	return metav1.Condition{
		Type: string(what), Status: metav1.ConditionTrue, Reason: reason, Message: message, LastTransitionTime: metav1.NewTime(now.Truncate(time.Second)),
	}
}
