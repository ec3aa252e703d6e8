package metadata

import (
	"fmt"
	"slices"

	storagemigrationv1beta1 "k8s.io/api/storagemigration/v1beta1"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/test/sim/apiserver"
	"github.com/millrace/millrace/test/sim/cluster"
)

// Migrations is what administrators do to have stored objects rewritten, after API servers have
// changed the encoding, and what others do with those objects meanwhile.
var Migrations = []cluster.Operation{
	storeOtherwise, storeOtherwise, newMigration, newMigration, newMigration, newMigration, dropMigration,
	newNamespace, newNamespace, newNamespace, tamperCertificate, tamperCertificate, deleteFurniture,
}

// storeOtherwise has API servers store everything in another encoding from now on.
func storeOtherwise(w *cluster.Cluster) {
	w.API.Encoding++
	w.Note("administrator: API servers store in encoding %d", w.API.Encoding)
}

func newMigration(w *cluster.Cluster) {
	of := metav1.GroupResource{Resource: []string{"configmaps", "configmaps", "serviceaccounts", "things"}[w.Roll(4)]}
	if of.Resource == "things" { // which is not served
		of.Group = "example.com"
	}
	ref := events.Ref{Kind: kinds.StorageVersionMigrations.Name, Name: fmt.Sprint("migration-", w.Roll(4))}
	if w.API.Get(ref) == nil {
		w.Note("administrator: %s of %s", ref.Name, of.Resource)
		w.Create(ref, &storagemigrationv1beta1.StorageVersionMigration{
			TypeMeta:   metav1.TypeMeta{APIVersion: "storagemigration.k8s.io/v1beta1", Kind: "StorageVersionMigration"},
			ObjectMeta: metav1.ObjectMeta{Name: ref.Name}, Spec: storagemigrationv1beta1.StorageVersionMigrationSpec{Resource: of},
		})
	}
}

func dropMigration(w *cluster.Cluster) {
	if all := w.API.List(kinds.StorageVersionMigrations.Name); len(all) > 0 {
		w.Delete(apiserver.RefOf(kinds.StorageVersionMigrations.Name, all[w.Roll(len(all))]), metav1.DeletePropagationBackground)
	}
}

func migrationSays(m *storagemigrationv1beta1.StorageVersionMigration, what storagemigrationv1beta1.MigrationConditionType) bool {
	return apimeta.IsStatusConditionTrue(m.Status.Conditions, string(what))
}

// Migrated checks a migration that begins, or reports success: then no object has an encoding
// from before its begin (M1).
func Migrated(g *cluster.Guard, old, now metav1.Object) {
	m, ok := now.(*storagemigrationv1beta1.StorageVersionMigration)
	was, before := old.(*storagemigrationv1beta1.StorageVersionMigration)
	if !ok || !before || g.Record.Restoring || g.Turns.Doing == nil {
		return
	}
	api := g.World.API
	if migrationSays(m, storagemigrationv1beta1.MigrationRunning) && !migrationSays(was, storagemigrationv1beta1.MigrationRunning) {
		g.Metadata.Encoding[m.UID] = api.Encoding
	}
	if !migrationSays(m, storagemigrationv1beta1.MigrationSucceeded) || migrationSays(was, storagemigrationv1beta1.MigrationSucceeded) {
		return
	}
	for _, obj := range api.List(kinds.NameOf(m.Spec.Resource.Group, m.Spec.Resource.Resource)) {
		if as := api.Encoded[apiserver.StoredAs(obj)]; as < g.Metadata.Encoding[m.UID] {
			g.Breaks("M1", "%s has succeeded, and %s/%s is stored in encoding %d, not %d", m.Name, obj.GetNamespace(), obj.GetName(), as, g.Metadata.Encoding[m.UID])
		}
	}
}

// MigrationsOver reports whether every migration has ended, with success if its resource is
// served.
func MigrationsOver(w *cluster.Cluster) error {
	for _, obj := range w.API.List(kinds.StorageVersionMigrations.Name) {
		m := obj.(*storagemigrationv1beta1.StorageVersionMigration)
		served := slices.Contains([]string{"configmaps", "serviceaccounts"}, m.Spec.Resource.Resource)
		if migrationSays(m, storagemigrationv1beta1.MigrationRunning) || migrationSays(m, storagemigrationv1beta1.MigrationSucceeded) != served || migrationSays(m, storagemigrationv1beta1.MigrationFailed) == served {
			return fmt.Errorf("%s of %s says %+v", m.Name, m.Spec.Resource.Resource, m.Status.Conditions)
		}
	}
	return nil
}
