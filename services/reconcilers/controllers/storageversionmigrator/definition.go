package storageversionmigrator

import (
	"time"

	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/services/reconcilers/reconcile"
)

// migrating is the condition of a definition whose objects are migrated.
const migrating = "StorageMigrating"

// Definition is what is known of a CustomResourceDefinition. The zero value is that of a
// resource without one.
type Definition struct {
	Name            string    `json:"name,omitempty"`
	UID             types.UID `json:"uid,omitempty"`
	ResourceVersion string    `json:"resourceVersion,omitempty"`
	Generation      int64     `json:"generation,omitempty"`
	// Since is the generation at which it was marked; 0 where it was not.
	Since int64 `json:"since,omitempty"`
	// Storage is the version in which its objects are stored now, and Stored are those in
	// which some may be.
	Storage string   `json:"storage,omitempty"`
	Stored  []string `json:"stored,omitempty"`
}

// body is what a definition says, as far as it matters.
type body struct {
	metav1.PartialObjectMetadata
	Spec struct {
		Versions []struct {
			Name    string `json:"name"`
			Storage bool   `json:"storage"`
		} `json:"versions"`
	} `json:"spec"`
	Status struct {
		StoredVersions []string           `json:"storedVersions"`
		Conditions     []metav1.Condition `json:"conditions"`
	} `json:"status"`
}

// definitionOf reads the answer to the question for a definition.
func definitionOf(r events.Result, at time.Time) (*Definition, *reconcile.Unread) {
	b := new(body)
	if err := reconcile.ReadObject(r, definitions.Kind, b); err != nil {
		return nil, &reconcile.Unread{Because: err.Error(), At: at}
	}
	d := &Definition{Name: b.Name, UID: b.UID, ResourceVersion: b.ResourceVersion, Generation: b.Generation, Stored: b.Status.StoredVersions}
	if c := apimeta.FindStatusCondition(b.Status.Conditions, migrating); c != nil {
		d.Since = c.ObservedGeneration
	}
	for _, version := range b.Spec.Versions {
		if version.Storage {
			d.Storage = version.Name
		}
	}
	return d, nil
}

// object is what a command is about.
func (d Definition) object() metav1.Object {
	return &metav1.ObjectMeta{Name: d.Name, UID: d.UID, ResourceVersion: d.ResourceVersion}
}

// begun says in the definition that the objects are migrated.
//
// Upstream: pkg/controller/storageversionmigrator, markAsActive.
func (d Definition) begun(by string, now time.Time) events.Command {
	return d.say("True", "MigrationRunning", "Migration "+by+" is running", d.Stored, now)
}

// finished says that they are migrated no more, and takes away the versions in which none are
// stored by now: if nothing has changed since it was marked, and all of them were written.
//
// Upstream: pkg/controller/storageversionmigrator, finishCRDMigration, which takes them away
// after a failure, too.
func (d Definition) finished(success bool, now time.Time) events.Command {
	same := d.Since > 0 && d.Since == d.Generation && d.Storage != ""
	switch {
	case !success:
		return d.say("False", "MigrationFailed", "The migration has failed", d.Stored, now)
	case same:
		return d.say("False", "MigrationSucceeded", "The migration has succeeded and the stored versions have been updated", []string{d.Storage}, now)
	default:
		return d.say("False", "MigrationSucceeded", "The migration has succeeded but the stored versions have not been updated due to a generation mismatch", d.Stored, now)
	}
}

// say applies a condition, and the versions in which objects may be stored: what is left out
// of an apply is taken away if the one before had it. The version of the definition is a
// condition: of another one it may be no more so.
func (d Definition) say(is, reason, message string, stored []string, now time.Time) events.Command {
	status := map[string]any{"conditions": []any{map[string]any{
		"type": migrating, "status": is, "reason": reason, "message": message,
		"lastTransitionTime": metav1.NewTime(now.Truncate(time.Second)), "observedGeneration": d.Generation,
	}}}
	if len(stored) > 0 {
		status["storedVersions"] = stored
	}
	patch := reconcile.Body(map[string]any{
		"apiVersion": definitions.APIVersion(), "kind": definitions.Kind,
		"metadata": map[string]any{"name": d.Name, "uid": d.UID, "resourceVersion": d.ResourceVersion}, "status": status,
	})
	c := reconcile.Patch(definitions, d.object(), types.ApplyPatchType, patch, reconcile.IfUnchanged(d.object()))
	c.Subresource = "status"
	return c
}
