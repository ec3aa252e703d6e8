package metadata

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"testing"

	storagemigrationv1beta1 "k8s.io/api/storagemigration/v1beta1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apiextensions "k8s.io/apiextensions-apiserver/pkg/client/clientset/clientset/fake"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	clienttesting "k8s.io/client-go/testing"
	upstreammigrator "k8s.io/kubernetes/pkg/controller/storageversionmigrator"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/services/reconcilers/controllers/storageversionmigrator"
	"github.com/millrace/millrace/test/oracle/effect"
	"github.com/millrace/millrace/test/oracle/exemption"
	"github.com/millrace/millrace/test/oracle/frozen"
	"github.com/millrace/millrace/test/oracle/kcm"
	"github.com/millrace/millrace/test/oracle/objects"
)

// MigrationRunner is the part of the migrator that chooses the running migration, for the first migration of
// a world. The part that rewrites objects uses the garbage collector's caches in upstream; test/system shows
// ours on a real API server.
var MigrationRunner = frozen.Pair{
	Theirs: buildMigrationRunner(nil),
	Ours:   storageversionmigrator.Controller, Alone: frozen.NeverAlone, Fair: fairMigrations,
}

// buildMigrationRunner builds it in a world with definitions. It passes the writes to them to note.
func buildMigrationRunner(note func(clienttesting.PatchAction), definitions ...runtime.Object) kcm.Build {
	return func(ctx context.Context, f informers.SharedInformerFactory, c kubernetes.Interface) (func(), error) {
		client := apiextensions.NewSimpleClientset(definitions...)
		client.PrependReactor("patch", "*", func(a clienttesting.Action) (bool, runtime.Object, error) {
			note(a.(clienttesting.PatchAction))
			return true, &apiextensionsv1.CustomResourceDefinition{}, nil
		})
		rc := upstreammigrator.NewCustomResourceController(ctx, c, f.Storagemigration().V1beta1().StorageVersionMigrations(), client.ApiextensionsV1().CustomResourceDefinitions())
		return func() { rc.Run(ctx) }, nil
	}
}

// DefinitionStatus is the content of an apply to a CustomResourceDefinition.
type DefinitionStatus struct {
	Metadata struct {
		Name            string `json:"name"`
		ResourceVersion string `json:"resourceVersion"`
	} `json:"metadata"`
	Status struct {
		Conditions     []apiextensionsv1.CustomResourceDefinitionCondition `json:"conditions"`
		StoredVersions []string                                            `json:"storedVersions"`
	} `json:"status"`
}

// MarkedDefinition is the first write of each to the definition of a migration's resource; nil if there is
// none. Not compared: ours also applies the stored versions in cases in which upstream leaves them unchanged.
func MarkedDefinition(t *testing.T, m *storagemigrationv1beta1.StorageVersionMigration, d *apiextensionsv1.CustomResourceDefinition) (theirs, ours *DefinitionStatus, err error) {
	pair, world := MigrationRunner, []runtime.Object{m}
	pair.Theirs = buildMigrationRunner(func(a clienttesting.PatchAction) {
		theirs = new(DefinitionStatus)
		err = json.Unmarshal(a.GetPatch(), theirs)
	}, d)
	pair.Asked = func([]runtime.Object, events.Command) events.Result { return frozen.Answered(d) }
	key := events.Key{Name: m.Name}
	if _, failed := pair.AskTheirs(t, key, world, objects.Now); failed != nil || err != nil {
		return nil, nil, errors.Join(failed, err)
	}
	if theirs != nil {
		theirs.Status.StoredVersions = fairStored(m, theirs.Status.StoredVersions, d.Status.StoredVersions)
	}
	decision, err := frozen.AfterAnswers(pair.Ours, pair.Asked, key, objects.Copied(world), objects.Now)
	for _, c := range decision.Commands {
		if c.Kind.Resource() == "customresourcedefinitions" {
			ours = new(DefinitionStatus)
			err = errors.Join(err, json.Unmarshal(c.Body, ours))
		}
	}
	return theirs, ours, err
}

// fairStored are the stored versions after upstream's apply. After a failure upstream removes some, and ours
// does not.
func fairStored(m *storagemigrationv1beta1.StorageVersionMigration, applied, was []string) []string {
	switch {
	case applied == nil:
		return was
	case apimeta.IsStatusConditionTrue(m.Status.Conditions, string(storagemigrationv1beta1.MigrationSucceeded)):
		return applied
	default:
		exemption.Uses("stored-versions-after-a-failure")
		return was
	}
}

// fairMigrations leaves of upstream's effects those about the first migration. While another migration of its
// resource still has the status running, ours waits for the end of that one.
func fairMigrations(world []runtime.Object, theirs, ours []effect.Effect) ([]effect.Effect, []effect.Effect) {
	own := world[0].(*storagemigrationv1beta1.StorageVersionMigration)
	theirs = effect.Only(theirs, func(e effect.Effect) bool { return e.Name == own.Name })
	waits := slices.ContainsFunc(world[1:], func(obj runtime.Object) bool {
		other := obj.(*storagemigrationv1beta1.StorageVersionMigration)
		return other.Spec.Resource == own.Spec.Resource && apimeta.IsStatusConditionTrue(other.Status.Conditions, string(storagemigrationv1beta1.MigrationRunning))
	})
	if waits && !apimeta.IsStatusConditionTrue(own.Status.Conditions, string(storagemigrationv1beta1.MigrationRunning)) {
		theirs = exemption.Lets("migration-after-the-last", theirs, nil)
	}
	return theirs, ours
}
