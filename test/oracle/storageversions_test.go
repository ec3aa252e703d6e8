package oracle_test

import (
	"fmt"
	"strings"
	"testing"

	apiserverinternalv1alpha1 "k8s.io/api/apiserverinternal/v1alpha1"
	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"pgregory.net/rapid"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/test/oracle"
)

func TestStorageVersionsAreAsUpstreams(t *testing.T) {
	key, deleted, changed, kept := events.Key{Name: owner}, 0, 0, 0
	rapid.Check(t, func(r *rapid.T) {
		world := storageVersionWorld(r)
		diff, err := oracle.StorageVersions.Compare(t, key, world)
		if err != nil {
			r.Fatal(err)
		}
		if diff != "" {
			r.Fatalf("upstream (-) and we (+) decide differently:\n%s\n%s", diff, page(r, world))
		}
		ours, err := oracle.StorageVersions.AskOurs(key, world, oracle.Now)
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

// storageVersionWorld is what some API servers have written down, and leases: theirs, of
// others, and of those names elsewhere.
func storageVersionWorld(t *rapid.T) []runtime.Object {
	sv := &apiserverinternalv1alpha1.StorageVersion{ObjectMeta: metav1.ObjectMeta{Name: owner, UID: "sv", ResourceVersion: "10", Generation: 2}}
	encodings := rapid.SampledFrom([]string{"v1", "v1", "v1", "v2"})
	for i := range rapid.IntRange(0, 4).Draw(t, "entries") {
		entry := apiserverinternalv1alpha1.ServerStorageVersion{
			APIServerID: fmt.Sprint("server-", rapid.IntRange(0, 3).Draw(t, "server")), EncodingVersion: encodings.Draw(t, "encoding"),
		}
		entry.DecodableVersions = []string{entry.EncodingVersion, fmt.Sprint("v1beta", i)}
		sv.Status.StorageVersions = append(sv.Status.StorageVersions, entry)
	}
	if rapid.Bool().Draw(t, "common") {
		sv.Status.CommonEncodingVersion = ptr(encodings.Draw(t, "common version"))
	}
	for _, kind := range []apiserverinternalv1alpha1.StorageVersionConditionType{"Other", apiserverinternalv1alpha1.AllEncodingVersionsEqual} {
		if rapid.Bool().Draw(t, string(kind)) {
			sv.Status.Conditions = append(sv.Status.Conditions, apiserverinternalv1alpha1.StorageVersionCondition{
				Type: kind, Status: rapid.SampledFrom([]apiserverinternalv1alpha1.ConditionStatus{"True", "False"}).Draw(t, "status"),
				LastTransitionTime: ago(t, 600, "since"), ObservedGeneration: 1, Reason: "Before", Message: "as it was",
			})
		}
	}
	world := []runtime.Object{sv}
	for i := range 4 {
		for _, space := range []string{metav1.NamespaceSystem, namespace} {
			if chance(t, 2, "no lease") {
				continue
			}
			lease := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: space, Name: fmt.Sprint("server-", i)}}
			lease.Labels = rapid.SampledFrom([]map[string]string{
				nil, {"apiserver.kubernetes.io/identity": "kube-scheduler"}, {"apiserver.kubernetes.io/identity": "kube-apiserver"},
				{"apiserver.kubernetes.io/identity": "kube-apiserver"}, {"apiserver.kubernetes.io/identity": "kube-apiserver", "a": "b"},
			}).Draw(t, "labels")
			world = append(world, lease)
		}
	}
	return world
}
