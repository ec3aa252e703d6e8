// Package storageversions compares the garbage collector of StorageVersions with upstream's. That one imports
// the API server's whole control plane, whose feature gates would make upstream's other controllers wait for
// the versions of a fake API server; so this test is a program of its own.
package storageversions_test

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"strings"
	"testing"
	"time"

	apiserverinternalv1alpha1 "k8s.io/api/apiserverinternal/v1alpha1"
	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	upstream "k8s.io/kubernetes/pkg/controller/storageversiongc"
	"k8s.io/utils/ptr"
	"pgregory.net/rapid"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/services/reconcilers/controllers/storageversiongc"
	"github.com/millrace/millrace/test/oracle/effect"
	"github.com/millrace/millrace/test/oracle/frozen"
	"github.com/millrace/millrace/test/oracle/kcm"
	"github.com/millrace/millrace/test/oracle/objects"
)

// name is the name of the StorageVersion.
const name = "core.pods"

func TestMain(m *testing.M) {
	kcm.Quiet()
	// The command line may set another number of worlds.
	if err := flag.Set("rapid.checks", "2000"); err != nil {
		panic(err)
	}
	m.Run()
}

// pair is the controller that removes missing API servers from StorageVersions. Not compared: a
// StorageVersion that is being deleted, which upstream continues to write; and the time of the next sync,
// which upstream does as soon as a lease is deleted.
var pair = frozen.Pair{
	Theirs: func(ctx context.Context, f informers.SharedInformerFactory, c kubernetes.Interface) (func(), error) {
		gc := upstream.NewStorageVersionGC(ctx, c, f.Coordination().V1().Leases(), f.Internal().V1alpha1().StorageVersions())
		return func() { gc.Run(ctx) }, nil
	},
	Ours: storageversiongc.Controller, Asked: leases,
	Alone: func(effect.Effect) bool { return false },
	Fair: func(_ []runtime.Object, theirs, ours []effect.Effect) ([]effect.Effect, []effect.Effect) {
		return theirs, ours
	},
}

// leases answers with a lease, or that there is none.
func leases(world []runtime.Object, c events.Command) events.Result {
	for _, obj := range world {
		if l, ok := obj.(*coordinationv1.Lease); ok && l.Namespace == c.Namespace && l.Name == c.Name {
			body, err := json.Marshal(l)
			if err != nil {
				panic(err) // a lease has only fields that encoding/json accepts
			}
			return events.Result{Status: events.Answered, Answer: &events.Answer{Body: body}}
		}
	}
	return events.Result{Status: events.Absent}
}

func TestStorageVersionsAreAsUpstreams(t *testing.T) {
	key, deleted, changed, kept := events.Key{Name: name}, 0, 0, 0
	rapid.Check(t, func(r *rapid.T) {
		world := storageVersionWorld(r)
		diff, err := pair.Compare(t, key, world)
		if err != nil {
			r.Fatal(err)
		}
		if diff != "" {
			text, _ := json.MarshalIndent(world, "", "  ") // an error only shortens the output
			r.Fatalf("upstream (-) and we (+) decide differently:\n%s\n%s", diff, text)
		}
		ours, err := pair.AskOurs(key, world, objects.Now)
		switch {
		case err != nil:
			r.Fatal(err)
		case len(ours) == 0:
			kept++
		case strings.HasPrefix(ours[0].String(), "delete"):
			deleted++
		default:
			changed++
		}
	})
	if deleted == 0 || changed == 0 || kept == 0 {
		t.Errorf("%d were deleted, %d changed and %d kept: the worlds are too dull", deleted, changed, kept)
	}
}

// storageVersionWorld has the entries of some API servers, and leases: theirs, those of others, and leases of
// the same names in other namespaces.
func storageVersionWorld(t *rapid.T) []runtime.Object {
	sv := &apiserverinternalv1alpha1.StorageVersion{ObjectMeta: metav1.ObjectMeta{Name: name, UID: "sv", ResourceVersion: "10", Generation: 2}}
	encodings := rapid.SampledFrom([]string{"v1", "v1", "v1", "v2"})
	for i := range rapid.IntRange(0, 4).Draw(t, "entries") {
		entry := apiserverinternalv1alpha1.ServerStorageVersion{
			APIServerID: fmt.Sprint("server-", rapid.IntRange(0, 3).Draw(t, "server")), EncodingVersion: encodings.Draw(t, "encoding"),
		}
		entry.DecodableVersions = []string{entry.EncodingVersion, fmt.Sprint("v1beta", i)}
		sv.Status.StorageVersions = append(sv.Status.StorageVersions, entry)
	}
	if rapid.Bool().Draw(t, "common") {
		sv.Status.CommonEncodingVersion = ptr.To(encodings.Draw(t, "common version"))
	}
	for _, kind := range []apiserverinternalv1alpha1.StorageVersionConditionType{"Other", apiserverinternalv1alpha1.AllEncodingVersionsEqual} {
		if rapid.Bool().Draw(t, string(kind)) {
			sv.Status.Conditions = append(sv.Status.Conditions, apiserverinternalv1alpha1.StorageVersionCondition{
				Type: kind, Status: rapid.SampledFrom([]apiserverinternalv1alpha1.ConditionStatus{"True", "False"}).Draw(t, "status"),
				LastTransitionTime: since(t), ObservedGeneration: 1, Reason: "Before", Message: "as it was",
			})
		}
	}
	world := []runtime.Object{sv}
	for i := range 4 {
		for _, space := range []string{metav1.NamespaceSystem, metav1.NamespaceDefault} {
			if rapid.Bool().Draw(t, "no lease") {
				continue
			}
			lease := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: space, Name: fmt.Sprint("server-", i), UID: types.UID(fmt.Sprint("uid-server-", i))}}
			lease.Labels = rapid.SampledFrom([]map[string]string{
				nil, {"apiserver.kubernetes.io/identity": "kube-scheduler"}, {"apiserver.kubernetes.io/identity": "kube-apiserver"},
				{"apiserver.kubernetes.io/identity": "kube-apiserver"}, {"apiserver.kubernetes.io/identity": "kube-apiserver", "a": "b"},
			}).Draw(t, "labels")
			world = append(world, lease)
		}
	}
	return world
}

func since(t *rapid.T) metav1.Time {
	return metav1.NewTime(objects.Now.Add(-time.Duration(rapid.IntRange(10, 600).Draw(t, "since")) * time.Second).Truncate(time.Second))
}
