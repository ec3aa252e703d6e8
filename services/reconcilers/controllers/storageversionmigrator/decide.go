package storageversionmigrator

import (
	"fmt"
	"time"

	storagemigrationv1beta1 "k8s.io/api/storagemigration/v1beta1"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/resourceversion"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/pkg/events/query"
	"github.com/millrace/millrace/services/reconcilers/reconcile"
)

// known is how long the API server may not know a resource before its migration fails, because
// it may be a new one.
const known = time.Minute

// again is when to ask again for an unknown resource.
const again = 5 * time.Second

// decide takes the next step of a migration.
//
// Upstream: pkg/controller/storageversionmigrator, of which the three controllers are one here.
func decide(v View, now time.Time) reconcile.Decision {
	m := v.Migration
	begun := apimeta.FindStatusCondition(m.Status.Conditions, string(storagemigrationv1beta1.MigrationRunning)) != nil
	switch {
	case ended(m) && running(m):
		return v.finish(now)
	case ended(m):
		return reconcile.Nothing("the migration has ended")
	case v.Ahead != "":
		return reconcile.Nothing("the migration " + v.Ahead + " of the same resource comes first")
	case !running(m) && begun:
		return reconcile.Nothing("the migration was stopped")
	case !running(m):
		return v.begin(now)
	case m.Status.ResourceVersion == "":
		return v.mark(now)
	default:
		return v.migrate(now)
	}
}

// defined asks for the definition of the resource, or writes it; done is true if nothing is
// left to do about it.
func (v View) defined(now time.Time, write func(Definition) events.Command) (d reconcile.Decision, done bool) {
	switch {
	case v.Migration.Spec.Resource.Group == "": // no definition is of the core group
		return d, true
	case v.Definition == nil:
		return v.Unread.Ask(now, "the resource may have a definition", reconcile.AskFor(definitions, "", string(v.resource()))), false
	case v.Definition.UID != "" && !v.Marked:
		return reconcile.Do("the CustomResourceDefinition's status does not show the migration", write(*v.Definition)), false
	default:
		return d, true
	}
}

// begin starts the migration.
func (v View) begin(now time.Time) reconcile.Decision {
	begun := func(d Definition) events.Command { return d.begun(v.Migration.Name, now) }
	if d, done := v.defined(now, begun); !done {
		return d
	}
	return v.sayMarked("the migration is the first of its resource",
		condition(storagemigrationv1beta1.MigrationRunning, "MigrationRunning", "The migration is running", now))
}

// finish stops a migration that has ended.
func (v View) finish(now time.Time) reconcile.Decision {
	finished := func(d Definition) events.Command { return d.finished(succeeded(v.Migration), now) }
	if d, done := v.defined(now, finished); !done {
		return d
	}
	over := condition(storagemigrationv1beta1.MigrationRunning, "MigrationCompleted", "Migration completed", now)
	over.Status, over.ObservedGeneration = metav1.ConditionFalse, v.Migration.Generation
	return v.sayMarked("the migration has ended", over)
}

// mark finds out how the resource is served, and its resourceVersion.
func (v View) mark(now time.Time) reconcile.Decision {
	found := v.Objects
	switch {
	case found == nil || v.Question.Version != "":
		return v.ask(now, "it is not known where the resource stands", query.ObjectsQuestion{})
	case found.Kind == "":
		return v.unknown(now, "resource does not exist in discovery", query.ObjectsQuestion{})
	case len(found.Lacking) > 0:
		return v.fail(v.lacking(), now)
	}
	if _, err := resourceversion.CompareResourceVersion(found.At, found.At); err != nil {
		return v.fail(fmt.Sprintf("latest resourceVersion for %s is not valid: %v", v.served(), err), now)
	}
	next := v.Migration.DeepCopy()
	next.Status.ResourceVersion = found.At
	return reconcile.Do("the version of the resource's storage is known", reconcile.UpdateStatus(kinds.StorageVersionMigrations.Kind, next))
}

// lacking is why the served resource cannot be rewritten.
func (v View) lacking() string {
	return fmt.Sprintf("resource %q does not support discovery operations: %v", v.served(), query.Rewritten)
}

// served is the served resource, in upstream's words.
func (v View) served() string {
	of := v.Migration.Spec.Resource
	return schema.GroupVersionResource{Group: of.Group, Version: v.Objects.Version, Resource: of.Resource}.String()
}

// migrate rewrites the objects of the last page, and asks for the next page.
func (v View) migrate(now time.Time) reconcile.Decision {
	at := v.Migration.Status.ResourceVersion
	first := query.ObjectsQuestion{Version: at}
	switch {
	case v.Refused != "":
		return v.fail("migration encountered unhandled error: "+v.Refused, now)
	case v.Undone, v.Objects == nil, v.Question.Version != at:
		return v.ask(now, "it is not known what is stored as it was", first)
	case v.Question.Last:
		return v.say("everything has been written again", condition(storagemigrationv1beta1.MigrationSucceeded, "StorageVersionMigrationSucceeded", "", now))
	case v.Objects.Kind == "":
		return v.unknown(now, "migration encountered unhandled error: unable to obtain GVR from discovery", first)
	case len(v.Objects.Lacking) > 0: // the writer listed nothing, which does not mean that there are no objects
		return v.fail("migration encountered unhandled error: "+v.lacking(), now)
	}
	next := query.ObjectsQuestion{Version: at, From: v.Objects.More, Last: v.Objects.More == ""}
	commands := make([]events.Command, 0, len(v.Objects.Objects)+1)
	for _, o := range v.Objects.Objects {
		commands = append(commands, v.rewrite(o))
	}
	return reconcile.Do("a page of objects may be stored in the old version", append(commands, v.question(next))...)
}

// rewrite writes an object as it is. The patch changes nothing, but the API server writes an
// object whose storage version has changed. Because of the uid and the version, the patch is a
// conflict if the object was replaced or written since.
//
// Upstream: runMigration, with an empty server-side apply, for which it must be allowed to
// create any object.
func (v View) rewrite(o query.Stored) events.Command {
	of := kinds.Kind{Name: v.resource(), Version: v.Objects.Version, Kind: v.Objects.Kind}
	meta := &metav1.ObjectMeta{Namespace: o.Namespace, Name: o.Name, UID: o.UID, ResourceVersion: o.ResourceVersion}
	return reconcile.Patch(of, meta, types.MergePatchType, []byte("{}"), reconcile.IfUnchanged(meta))
}

// ask asks about the resource's objects.
func (v View) ask(now time.Time, because string, question query.ObjectsQuestion) reconcile.Decision {
	return v.Unread.Ask(now, because, v.question(question))
}

func (v View) question(q query.ObjectsQuestion) events.Command {
	q.Resource = v.resource()
	return reconcile.AskObjects(kinds.StorageVersionMigrations.Kind, v.Migration, q)
}

// unknown fails a migration whose resource is not served, unless the migration is new.
func (v View) unknown(now time.Time, message string, question query.ObjectsQuestion) reconcile.Decision {
	end, next := v.Migration.CreationTimestamp.Add(known), v.At.Add(again)
	switch {
	case !now.Before(end):
		return v.fail(message, now)
	case now.Before(next) && next.Before(end):
		return reconcile.Wake(next, "the resource is not served yet")
	case now.Before(next):
		return reconcile.Wake(end, "the resource is not served yet")
	default:
		return v.ask(now, "the resource was not served yet", question)
	}
}

// fail ends the migration.
func (v View) fail(message string, now time.Time) reconcile.Decision {
	return v.say("the migration cannot succeed", condition(storagemigrationv1beta1.MigrationFailed, "StorageVersionMigrationFailed", message, now))
}

// say writes a condition into the status.
func (v View) say(because string, c metav1.Condition) reconcile.Decision {
	next := v.Migration.DeepCopy()
	apimeta.SetStatusCondition(&next.Status.Conditions, c)
	return reconcile.Do(because, reconcile.UpdateStatus(kinds.StorageVersionMigrations.Kind, next))
}

// sayMarked is say, and remembers that the definition was written, if the API server refuses the condition: a
// second write might take stored versions away in which objects are stored, because the first one recorded
// the definition's generation.
func (v View) sayMarked(because string, c metav1.Condition) reconcile.Decision {
	d := v.say(because, c)
	if v.Marked {
		d.Commands[0].Note = reconcile.Body(marking{true})
	}
	return d
}
