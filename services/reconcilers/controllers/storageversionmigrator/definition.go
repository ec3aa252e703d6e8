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

// Definition is the known part of a CustomResourceDefinition. The zero value means that the
// resource has none.
type Definition struct {
	Name            string    `json:"name,omitempty"`
	UID             types.UID `json:"uid,omitempty"`
	ResourceVersion string    `json:"resourceVersion,omitempty"`
	Generation      int64     `json:"generation,omitempty"`
	// Since is the generation at which the controller marked it; 0 if it did not.
	Since int64 `json:"since,omitempty"`
	// Storage is the present storage version, and Stored are the versions in which some
	// objects may be stored.
	Storage string   `json:"storage,omitempty"`
	Stored  []string `json:"stored,omitempty"`
}

// body is the relevant part of a definition.
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

// object is the object of a command.
func (d Definition) object() metav1.Object {
	return &metav1.ObjectMeta{Name: d.Name, UID: d.UID, ResourceVersion: d.ResourceVersion}
}

// begun writes into the definition that a migration runs.
//
// Upstream: pkg/controller/storageversionmigrator, markAsActive.
func (d Definition) begun(by string, now time.Time) events.Command {
	return d.say("True", "MigrationRunning", "Migration "+by+" is running", d.Stored, now)
}

// finished writes that the migration has ended. It removes the versions in which no object is
// stored any more, if all objects were rewritten and the definition has not changed since it
// was marked.
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

// say applies a condition and the stored versions, because server-side apply removes a field
// that was applied before and is left out. The command is conditional on the definition's
// version, because for another version they may be wrong.
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
