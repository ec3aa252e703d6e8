// Package storageversionmigrator rewrites the objects of a resource, as a
// StorageVersionMigration requests, so that all of them are stored in the API server's present
// storage version.
//
// One migration of a resource runs at a time, the oldest first. It has these steps, and its
// status shows each:
//
//   - it begins to run; the controller marks the resource's CustomResourceDefinition;
//   - the writer finds out how the resource is served, and the resourceVersion of a list of it, which
//     becomes the status's resourceVersion;
//   - page by page, the writer lists the objects that have not changed since that version, and an
//     empty patch rewrites each, conditional on its uid and version. An object that was changed,
//     deleted or created again in between needs no rewrite;
//   - it has succeeded or failed; the CustomResourceDefinition loses its old stored versions if it
//     did not change meanwhile, and the migration stops running.
//
// The controller depends on no state but the outcome of the last turn: a page, the results for
// its objects, and the next page. If that is lost, the migration begins again with the first
// page, which skips the objects that were already rewritten.
//
// The API is off by default: the controller runs where --feature-gates says that the API server
// serves it (StorageVersionMigrator), as upstream's does.
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
	"github.com/millrace/millrace/pkg/events/query"
	"github.com/millrace/millrace/services/reconcilers/kube/gate"
	"github.com/millrace/millrace/services/reconcilers/reconcile"
)

type migration = storagemigrationv1beta1.StorageVersionMigration

// definitions are CustomResourceDefinitions. They are not watched, so only answers about them
// are known.
var definitions = kinds.CustomResourceDefinitions

// Controller is the migrator. A key is a StorageVersionMigration.
var Controller = reconcile.Controller[View]{
	Name:    "storage-version-migrator-controller",
	Aliases: []string{"svm"},
	Owns:    &kinds.StorageVersionMigrations.Kind,
	Inputs:  []reconcile.Input{{Kind: kinds.StorageVersionMigrations.Kind, Keys: ofTheResource}},
	Writes: reconcile.Writes{
		{Verb: events.VerbAsk, Kind: kinds.StorageVersionMigrations.Name, Subresource: query.SubObjects, On: reconcile.Itself},
		{Verb: events.VerbAsk, Kind: definitions.Name},
		{Verb: events.VerbPatch, Any: true, Fields: []string{}, How: []types.PatchType{types.MergePatchType}, Unchanged: true},
		{Verb: events.VerbPatch, Kind: definitions.Name, Subresource: "status", How: []types.PatchType{types.ApplyPatchType}, Unchanged: true, Adds: true,
			Fields: []string{".status.conditions", ".status.storedVersions"},
			Values: []reconcile.Value{{Path: ".status.conditions[*].type", One: []string{migrating}}}},
		{Verb: events.VerbUpdate, Kind: kinds.StorageVersionMigrations.Name, Subresource: "status", On: reconcile.Itself},
	},
	Remembers: true,
	Settings:  gate.Set{gate.StorageVersionMigrator: true}.Settings(), // the controller runs only where they are served
	Observe:   observe,
	Decide:    decide,
}

// View is what the turn of one migration can see.
type View struct {
	Migration *migration `json:"migration"`
	// Ahead is another migration of the resource, which comes first. It is looked for only
	// before this one runs.
	Ahead string `json:"ahead,omitempty"`
	// Definition is the definition of the resource, from an answer at the migration's version;
	// nil if there is no answer, or if the definition had changed when it was to be written.
	Definition *Definition `json:"definition,omitempty"`
	// Marked is true if the controller has written the definition since.
	Marked bool `json:"marked,omitempty"`
	// Question is the last question about the resource's objects, and Objects the answer; nil if
	// there is none.
	Question *query.ObjectsQuestion `json:"question,omitempty"`
	Objects  *query.Objects         `json:"objects,omitempty"`
	// Refused is why an object can never be written; Undone is true if one was not written for
	// another reason.
	Refused string `json:"refused,omitempty"`
	Undone  bool   `json:"undone,omitempty"`
	// At is when the last answer came, and Unread an answer that could not be read.
	At     time.Time         `json:"at,omitzero"`
	Unread *reconcile.Unread `json:"unread,omitempty"`
}

// marking is the note of a condition.
type marking struct {
	// Marked is true if the definition was written before.
	Marked bool `json:"marked"`
}

// ofTheResource maps a migration to all migrations of its resource. A new migration of the same
// name may be of another resource.
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
	last, asked := reconcile.LastOf(s, k, events.LaneWrite, m)
	if !asked {
		return v, true
	}
	for _, r := range last.Results {
		v.hear(r, last.At)
	}
	if !reconcile.IsCurrent(last, m) {
		v.Definition = nil // it was the answer of another step
	}
	if told, ok := reconcile.LastOf(s, k, events.LaneStatus, m); ok && reconcile.IsCurrent(told, m) && !told.Decided.Before(last.Decided) {
		for _, r := range told.Results {
			v.hearMarking(r)
		}
	}
	return v, true
}

// hearMarking reads the result of a write of the definition, or of a condition after it.
func (v *View) hearMarking(r events.Result) {
	note := marking{}
	switch {
	case r.Ref.Kind == kinds.StorageVersionMigrations.Name:
		v.Marked = reconcile.ReadNote(r, &note) == nil && note.Marked
	case r.Ref.Kind == definitions.Name && r.OK():
		v.Marked = true
	case r.Ref.Kind == definitions.Name:
		v.Definition = nil // it has changed, or was deleted
	}
}

// ahead is a migration of the same resource that comes first: a running one, or an older one.
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

// hear reads the result of a command of the last turn.
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

// answered reads the answer to a question about the resource's objects.
func (v *View) answered(r events.Result, at time.Time) {
	if r.Status != events.Answered {
		return
	}
	question, objects := new(query.ObjectsQuestion), new(query.Objects)
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

// resource is the name of the migration's resource.
func (v View) resource() kinds.Name {
	return kinds.NameOf(v.Migration.Spec.Resource.Group, v.Migration.Spec.Resource.Resource)
}

// condition builds a condition for the status.
func condition(what storagemigrationv1beta1.MigrationConditionType, reason, message string, now time.Time) metav1.Condition {
	return metav1.Condition{
		Type: string(what), Status: metav1.ConditionTrue, Reason: reason, Message: message, LastTransitionTime: metav1.NewTime(now.Truncate(time.Second)),
	}
}
