package sim

import (
	"encoding/json"
	"fmt"
	"slices"
	"strconv"

	storagemigrationv1beta1 "k8s.io/api/storagemigration/v1beta1"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/pkg/events/query"
	"github.com/millrace/millrace/services/writer/plan"
)

// Migrations is what administrators do to have stored objects rewritten, after API servers have
// changed the encoding, and what others do with those objects meanwhile.
var Migrations = []Operation{
	storeOtherwise, storeOtherwise, newMigration, newMigration, newMigration, newMigration, dropMigration,
	newNamespace, newNamespace, newNamespace, tamperCertificate, tamperCertificate, deleteFurniture,
}

// storeOtherwise has API servers store everything in another encoding from now on.
func storeOtherwise(w *World) {
	w.api.encoding++
	w.note("administrator: API servers store in encoding %d", w.api.encoding)
}

func newMigration(w *World) {
	of := metav1.GroupResource{Resource: []string{"configmaps", "configmaps", "serviceaccounts", "things"}[w.roll(4)]}
	if of.Resource == "things" { // which is not served
		of.Group = "example.com"
	}
	ref := events.Ref{Kind: kinds.StorageVersionMigrations.Name, Name: fmt.Sprint("migration-", w.roll(4))}
	if w.api.Get(ref) == nil {
		w.note("administrator: %s of %s", ref.Name, of.Resource)
		w.create(ref, &storagemigrationv1beta1.StorageVersionMigration{
			TypeMeta:   metav1.TypeMeta{APIVersion: "storagemigration.k8s.io/v1beta1", Kind: "StorageVersionMigration"},
			ObjectMeta: metav1.ObjectMeta{Name: ref.Name}, Spec: storagemigrationv1beta1.StorageVersionMigrationSpec{Resource: of},
		})
	}
}

func dropMigration(w *World) {
	if all := w.api.List(kinds.StorageVersionMigrations.Name); len(all) > 0 {
		w.Delete(refOf(kinds.StorageVersionMigrations.Name, all[w.roll(len(all))]), metav1.DeletePropagationBackground)
	}
}

// stored is a version of an object.
type stored struct{ uid, version string }

func storedAs(obj metav1.Object) stored {
	return stored{string(obj.GetUID()), obj.GetResourceVersion()}
}

// rewrite stores an object again if its encoding is not the current one.
func (a *API) rewrite(c *collection, ref events.Ref, old metav1.Object) metav1.Object {
	if a.encoded == nil || a.encoded[storedAs(old)] == a.encoding {
		return old
	}
	next := clone(old)
	a.Writes++
	a.commit(c, ref, old, next)
	return next
}

// page is how many objects one page of a list has.
const page = 2

// objects says how a resource is served, and returns a page of its objects.
func (a *API) objects(about metav1.Object, body []byte) plan.Response {
	var question query.ObjectsQuestion
	if err := json.Unmarshal(body, &question); err != nil {
		return refusal(400, "BadRequest", err.Error())
	}
	var found query.Objects
	if c := a.of(question.Resource); c != nil && !question.Last {
		found.Version, found.Kind, found.At = c.kind.Version, c.kind.Kind, strconv.FormatInt(a.version, 10)
		for i, obj := range c.sorted {
			if at := obj.GetNamespace() + "/" + obj.GetName(); question.Version == "" || at <= question.From {
				continue
			} else if kinds.CompareVersions(obj.GetResourceVersion(), question.Version) <= 0 {
				found.Objects = append(found.Objects, query.Stored{Namespace: obj.GetNamespace(), Name: obj.GetName(), UID: obj.GetUID(), ResourceVersion: obj.GetResourceVersion()})
			}
			if len(found.Objects) == page && i < len(c.sorted)-1 {
				found.More = obj.GetNamespace() + "/" + obj.GetName()
				break
			}
		}
	}
	r := answer(about)
	r.Body, _ = json.Marshal(found) // it has only fields that encoding/json accepts
	return r
}

func migrationSays(m *storagemigrationv1beta1.StorageVersionMigration, what storagemigrationv1beta1.MigrationConditionType) bool {
	return apimeta.IsStatusConditionTrue(m.Status.Conditions, string(what))
}

// migrated checks a migration that begins, or reports success: then no object has an encoding
// from before its begin (M1).
func (g *guard) migrated(old, now metav1.Object) {
	m, ok := now.(*storagemigrationv1beta1.StorageVersionMigration)
	was, before := old.(*storagemigrationv1beta1.StorageVersionMigration)
	if !ok || !before || g.restoring || g.doing == nil {
		return
	}
	api := g.world.api
	if migrationSays(m, storagemigrationv1beta1.MigrationRunning) && !migrationSays(was, storagemigrationv1beta1.MigrationRunning) {
		g.encoding[m.UID] = api.encoding
	}
	if !migrationSays(m, storagemigrationv1beta1.MigrationSucceeded) || migrationSays(was, storagemigrationv1beta1.MigrationSucceeded) {
		return
	}
	for _, obj := range api.List(kinds.NameOf(m.Spec.Resource.Group, m.Spec.Resource.Resource)) {
		if as := api.encoded[storedAs(obj)]; as < g.encoding[m.UID] {
			g.breaks("M1", "%s has succeeded, and %s/%s is stored in encoding %d, not %d", m.Name, obj.GetNamespace(), obj.GetName(), as, g.encoding[m.UID])
		}
	}
}

// migrationsOver reports whether every migration has ended, with success if its resource is
// served.
func (w *World) migrationsOver() error {
	for _, obj := range w.api.List(kinds.StorageVersionMigrations.Name) {
		m := obj.(*storagemigrationv1beta1.StorageVersionMigration)
		served := slices.Contains([]string{"configmaps", "serviceaccounts"}, m.Spec.Resource.Resource)
		if migrationSays(m, storagemigrationv1beta1.MigrationRunning) || migrationSays(m, storagemigrationv1beta1.MigrationSucceeded) != served || migrationSays(m, storagemigrationv1beta1.MigrationFailed) == served {
			return fmt.Errorf("%s of %s says %+v", m.Name, m.Spec.Resource.Resource, m.Status.Conditions)
		}
	}
	return nil
}
