package metadata_test

import (
	"fmt"
	"reflect"
	"testing"

	storagemigrationv1beta1 "k8s.io/api/storagemigration/v1beta1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"pgregory.net/rapid"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/test/oracle/metadata"
	"github.com/millrace/millrace/test/oracle/oracletest"
)

func TestMigrationsRunAsUpstreams(t *testing.T) {
	oracletest.Agree(t, metadata.MigrationRunner, events.Key{Name: oracletest.Owner}, migrationWorld)
}

// TestDefinitionsAreMarkedAsUpstreams: the marks in the definition of a custom resource about a migration
// that begins or has ended, and its stored versions, are the same.
func TestDefinitionsAreMarkedAsUpstreams(t *testing.T) {
	begun, ended, taken := 0, 0, 0
	rapid.Check(t, func(r *rapid.T) {
		m := migrationWorld(r)[0].(*storagemigrationv1beta1.StorageVersionMigration)
		m.Spec.Resource = metav1.GroupResource{Group: "example.com", Resource: "widgets"}
		d := widgetDefinition(r)
		theirs, ours, err := metadata.MarkedDefinition(t, m, d)
		if err != nil {
			r.Fatal(err)
		}
		if !reflect.DeepEqual(theirs, ours) {
			r.Fatalf("upstream says %+v, and we say %+v\nof %+v\nin %+v", theirs, ours, m.Status, d)
		}
		switch {
		case ours == nil:
		case ours.Status.Conditions[0].Status == apiextensionsv1.ConditionTrue:
			begun++
		case len(ours.Status.StoredVersions) < len(d.Status.StoredVersions):
			taken++
		default:
			ended++
		}
	})
	if begun == 0 || ended == 0 || taken == 0 {
		t.Errorf("%d began, %d ended and %d took stored versions away: the worlds are too dull", begun, ended, taken)
	}
}

// widgetDefinition is a definition with some versions, which may have marks of earlier migrations.
func widgetDefinition(t *rapid.T) *apiextensionsv1.CustomResourceDefinition {
	d := &apiextensionsv1.CustomResourceDefinition{ObjectMeta: metav1.ObjectMeta{Name: "widgets.example.com", UID: "uid-d", ResourceVersion: "5"}}
	d.Generation = rapid.Int64Range(1, 3).Draw(t, "generation")
	storage := rapid.IntRange(0, 2).Draw(t, "storage version")
	for i, name := range []string{"v1", "v2", "v3"} {
		d.Spec.Versions = append(d.Spec.Versions, apiextensionsv1.CustomResourceDefinitionVersion{Name: name, Served: true, Storage: i == storage})
		if i == storage || rapid.Bool().Draw(t, "stored as "+name) {
			d.Status.StoredVersions = append(d.Status.StoredVersions, name)
		}
	}
	d.Status.Conditions = []apiextensionsv1.CustomResourceDefinitionCondition{{Type: apiextensionsv1.Established, Status: apiextensionsv1.ConditionTrue, ObservedGeneration: 1}}
	if rapid.IntRange(0, 3).Draw(t, "marked") > 0 {
		d.Status.Conditions = append(d.Status.Conditions, apiextensionsv1.CustomResourceDefinitionCondition{
			Type: apiextensionsv1.StorageMigrating, Status: apiextensionsv1.ConditionTrue, Reason: "MigrationRunning", LastTransitionTime: oracletest.Ago(t, 60, "marked ago"),
			ObservedGeneration: rapid.Int64Range(1, 3).Draw(t, "marked at"),
		})
	}
	return d
}

// migrationWorld is a migration that does not run or has ended, and others of its resource or of another one.
func migrationWorld(t *rapid.T) []runtime.Object {
	made := func(name string) *storagemigrationv1beta1.StorageVersionMigration {
		m := &storagemigrationv1beta1.StorageVersionMigration{ObjectMeta: metav1.ObjectMeta{
			Name: name, UID: types.UID("uid-" + name), ResourceVersion: "10", Generation: 2, CreationTimestamp: oracletest.Ago(t, 12, name+" was created"),
		}}
		m.Spec.Resource.Resource = rapid.SampledFrom([]string{"pods", "pods", "pods", "configmaps"}).Draw(t, name+"'s resource")
		return m
	}
	says := func(what storagemigrationv1beta1.MigrationConditionType, is metav1.ConditionStatus) metav1.Condition {
		return metav1.Condition{Type: string(what), Status: is, Reason: "R", LastTransitionTime: oracletest.Ago(t, 60, "said")}
	}
	const running, succeeded, failed = storagemigrationv1beta1.MigrationRunning, storagemigrationv1beta1.MigrationSucceeded, storagemigrationv1beta1.MigrationFailed
	own := made(oracletest.Owner)
	own.Status.Conditions = rapid.SampledFrom([][]metav1.Condition{
		nil, nil, nil, {says(running, "True"), says(succeeded, "True")}, {says(failed, "True"), says(running, "True")}, {says(running, "False"), says(succeeded, "True")},
	}).Draw(t, "conditions")
	world := []runtime.Object{own}
	for i := range rapid.IntRange(0, 3).Draw(t, "others") {
		other := made(fmt.Sprint(rapid.SampledFrom([]string{"a-", "z-"}).Draw(t, "name"), i))
		other.Status.Conditions = rapid.SampledFrom([][]metav1.Condition{
			nil, nil, {says(running, "True")}, {says(running, "True"), says(succeeded, "True")}, {says(running, "False"), says(failed, "True")},
		}).Draw(t, "others' conditions")
		world = append(world, other)
	}
	return world
}
